"""What can be wrong with a pull request beside what planning and the gates find."""

from __future__ import annotations

from patchkit.base.errors import ExitCode, PatchkitError


class GateRefused(PatchkitError):
    """What the gate itself finds.

    As :class:`patchkit.gates.base.GateError`, whose module imports more than a first look may.
    """

    code = "GATE_REFUSED"
    exit_code = ExitCode.GATE_FAILED


class OwnTestsNeeded(GateRefused):
    """The head changes patchkit itself, and nobody said that its own tests pass."""

    code = "GATE_OWN_TESTS_NEEDED"


class ForkNotRegenerated(GateRefused):
    """A file of the fork is not what the series gives."""

    code = "GATE_FORK_NOT_REGENERATED"


class ForkStray(GateRefused):
    """The fork changes a file that no patch changes."""

    code = "GATE_FORK_STRAY"
