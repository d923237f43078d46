"""What isolation finds: each way in which a candidate changes what it must not change."""

from __future__ import annotations

from patchkit.base.errors import GateError


class TokensDiffer(GateError):
    """A unit reads differently in a configuration that no patch is for."""

    code = "ISOLATION_TOKENS"


class HostBranchLeaks(GateError):
    """The host pass of HIP changes by more than the branch at run time."""

    code = "ISOLATION_HOST"
