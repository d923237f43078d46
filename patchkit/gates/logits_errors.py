"""What the gate logits finds wrong with a candidate."""

from __future__ import annotations

from patchkit.gates.base import GateError


class LogitsFar(GateError):
    """The candidate's logits are further from the CPU's than the baseline's are, by more than allowed."""

    code = "LOGITS_FAR"


class LogitsNotFinite(GateError):
    """The candidate's logits hold values that are no numbers."""

    code = "LOGITS_NOT_FINITE"


class LogitsBroken(GateError):
    """The candidate cannot run a model that the baseline runs."""

    code = "LOGITS_BROKEN"
