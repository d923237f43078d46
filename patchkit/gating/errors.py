"""What can be wrong with a pull request beside what planning and the gates find."""

from __future__ import annotations

from patchkit.errors import ConfigError, ExitCode, GitError, PatchkitError, UsageError


class RefUnknown(GitError):
    """``--base`` or ``--head`` names no commit of the repository."""

    code = "GATE_REF_UNKNOWN"


class RepositoryAbsent(GitError):
    """``--repo``, or the current folder, lies in no git repository."""

    code = "GATE_REPOSITORY_ABSENT"


class RepositoryUnknown(UsageError):
    """The head is neither this project nor llama.cpp."""

    code = "GATE_REPOSITORY_UNKNOWN"


class NoCommonCommit(GitError):
    """Base and head have no commit in common here: what the pull request changes cannot be said."""

    code = "GATE_NO_COMMON_COMMIT"


class EntryRefused(ConfigError):
    """The head has something among its series that is no plain file, or more than a series needs."""

    code = "GATE_ENTRY_REFUSED"


class PinRewritten(ConfigError):
    """The head's lock has another tree or commit for a build than the base's."""

    code = "GATE_PIN_REWRITTEN"


class SourceNew(ConfigError):
    """The head's lock names a place to download from that the base's does not."""

    code = "GATE_SOURCE_NEW"


class LockOutdated(ConfigError):
    """The head's lock records other files than the head has."""

    code = "GATE_LOCK_OUTDATED"


class LockUntrue(ConfigError):
    """The head's lock records another tree or commit than its own files give."""

    code = "GATE_LOCK_UNTRUE"


class LockUnrecorded(ConfigError):
    """The head's lock has no result for a candidate that the head changes."""

    code = "GATE_LOCK_UNRECORDED"


class GateRefused(PatchkitError):
    """What the gate itself finds.

    As :class:`patchkit.gates.base.GateError`, whose module imports more than a first look may.
    """

    code = "GATE_REFUSED"
    exit_code = ExitCode.GATE_FAILED


class OwnTestsNeeded(GateRefused):
    """The head changes patchkit itself, and nobody said that its own tests pass."""

    code = "GATE_OWN_TESTS_NEEDED"


class ForkWithoutBranch(GitError):
    """The head of the fork has no commit of a candidate on a pin of the lock."""

    code = "GATE_FORK_WITHOUT_BRANCH"


class ForkNotRegenerated(GateRefused):
    """A file of the fork is not what the series gives."""

    code = "GATE_FORK_NOT_REGENERATED"


class ForkStray(GateRefused):
    """The fork changes a file that no patch changes."""

    code = "GATE_FORK_STRAY"
