"""What the gate backend-ops finds wrong with a candidate."""

from __future__ import annotations

from patchkit.gates.base import GateError


class BackendOpsFailed(GateError):
    """A case of upstream's own fails that the baseline passes."""

    code = "BACKEND_OPS_FAILED"


class BackendOpsSupportLost(GateError):
    """A case is no longer supported: test-backend-ops would not call that a failure."""

    code = "BACKEND_OPS_SUPPORT_LOST"


class BackendOpsNothingRun(GateError):
    """No case ran, which test-backend-ops reports as success."""

    code = "BACKEND_OPS_NOTHING_RUN"


class BackendOpsInexact(GateError):
    """A case of ours is further from the definition than it may be."""

    code = "BACKEND_OPS_INEXACT"


class BackendOpsBroken(GateError):
    """The candidate's program hangs, crashes or prints nonsense where the baseline's does not."""

    code = "BACKEND_OPS_BROKEN"
