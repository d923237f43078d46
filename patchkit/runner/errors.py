"""What can go wrong with another machine, by what ssh and rsync write (LC_ALL=C, OpenSSH 7 to 10)."""

from __future__ import annotations

from patchkit.errors import ExitCode, Location, PatchkitError
from patchkit.proc import Completed

_SSH_FAILED = 255  # ssh's own status, whatever the command there returned
# rsync: protocol stream, socket or pipe, timeouts, and what ssh gave it.
_RSYNC_LOST = frozenset({10, 12, 30, 35, 255})
_NOT_FOUND = 127


class _RunnerError(PatchkitError):
    code = "RUNNER"
    exit_code = ExitCode.TOOLCHAIN


class RunnerUnreachable(_RunnerError):
    """There is no ssh server there, or no way to it."""

    code = "RUNNER_UNREACHABLE"


class RunnerHostKeyUnknown(_RunnerError):
    """Nobody has accepted the key of that machine yet."""

    code = "RUNNER_HOST_KEY_UNKNOWN"


class RunnerHostKeyChanged(_RunnerError):
    """The machine shows another key than the one that is known."""

    code = "RUNNER_HOST_KEY_CHANGED"


class RunnerAuthFailed(_RunnerError):
    """The machine lets nobody in without a password."""

    code = "RUNNER_AUTH_FAILED"


class RunnerLost(_RunnerError):
    """The connection was lost, and did not come back in time."""

    code = "RUNNER_LOST"


class RunnerJobLost(_RunnerError):
    """A job ended on the other machine without a status: a restart, or something killed all of it."""

    code = "RUNNER_JOB_LOST"


class RunnerToolMissing(_RunnerError):
    """The other machine lacks a program that running there needs."""

    code = "RUNNER_TOOL_MISSING"


class RunnerDiskFull(_RunnerError):
    """The disk of the other machine is full."""

    code = "RUNNER_DISK_FULL"


class RunnerFailed(_RunnerError):
    """A command of patchkit's own failed on the other machine."""

    code = "RUNNER_FAILED"


def is_connection_loss(completed: Completed) -> bool:
    """Whether trying again may help: the connection ended, or could not be made, for no lasting reason."""
    if completed.argv[0] == "rsync":
        lost = completed.returncode in _RSYNC_LOST
    else:
        lost = completed.returncode == _SSH_FAILED
    return lost and not isinstance(runner_failure(completed, ""), _LASTING)


def runner_failure(completed: Completed, name: str) -> PatchkitError:
    """The error for an ssh or rsync that failed; ``name`` is the runner's."""
    text = completed.stderr.decode("utf-8", "replace").strip()
    where = Location(path=name)
    for words, kind, message, hint in _KNOWN:
        if any(word in text for word in words):
            return kind(message, where=where, why=text, hint=hint)
    if completed.returncode == _NOT_FOUND or "not found" in text:
        return RunnerToolMissing(
            "a program is missing on the other machine",
            where=where,
            why=text,
            hint="it needs sh, coreutils, setsid (util-linux) and rsync",
        )
    if completed.returncode == _SSH_FAILED or completed.returncode in _RSYNC_LOST:
        return RunnerLost(
            "the connection was lost",
            where=where,
            why=text or "ssh wrote nothing",
            hint="run the command again: what runs there goes on, and its result is taken then",
        )
    return RunnerFailed(
        f"a command on the other machine ended with status {completed.returncode}",
        where=where,
        why=text or "it wrote nothing to stderr",
        hint="-v shows the commands; each can be pasted",
    )


_KNOWN: tuple[tuple[tuple[str, ...], type[_RunnerError], str, str], ...] = (
    (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        RunnerHostKeyChanged,
        "the other machine shows another key than the known one",
        "if it was installed anew: ssh-keygen -R HOST, then ssh HOST to see and accept the new key",
    ),
    (
        ("Host key verification failed", "No ED25519 host key is known", "host key is known for"),
        RunnerHostKeyUnknown,
        "the key of the other machine is not known yet",
        "ssh HOST once, by hand, to see and accept its key",
    ),
    (
        ("Permission denied (", "Too many authentication failures"),
        RunnerAuthFailed,
        "the other machine did not let us in",
        "a key without a question is needed: ssh-copy-id HOST, or an agent; try: ssh -oBatchMode=yes HOST",
    ),
    (
        ("Could not resolve hostname", "Connection refused", "No route to host", "Network is unreachable"),
        RunnerUnreachable,
        "there is no ssh server to be reached",
        "check name, port and network with: ssh HOST true",
    ),
    (
        ("Connection timed out", "Operation timed out", "timed out during banner exchange"),
        RunnerUnreachable,
        "the other machine does not answer",
        "check name, port and network with: ssh HOST true",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        RunnerDiskFull,
        "the disk of the other machine is full",
        "free some space there, or name another folder: ssh://host/folder",
    ),
)
_LASTING = (
    RunnerHostKeyChanged,
    RunnerHostKeyUnknown,
    RunnerAuthFailed,
    RunnerDiskFull,
    RunnerToolMissing,
)
