"""What the numerics gate finds, and why a measurement proves nothing."""

from __future__ import annotations

from patchkit.base.errors import GateError


class JobTimedOut(GateError):
    """A program did not end within its limit."""

    code = "NUMERICS_TIMEOUT"
