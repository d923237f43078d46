"""What the gate backend-ops finds wrong with a candidate."""

from __future__ import annotations

from patchkit.errors import GateError


class BackendOpsBroken(GateError):
    """The candidate's program hangs, crashes or prints nonsense where the baseline's does not."""

    code = "BACKEND_OPS_BROKEN"
