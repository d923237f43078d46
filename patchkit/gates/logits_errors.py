"""What the gate logits finds wrong with a candidate."""

from __future__ import annotations

from patchkit.errors import GateError


class LogitsBroken(GateError):
    """The candidate cannot run a model that the baseline runs."""

    code = "LOGITS_BROKEN"
