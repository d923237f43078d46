"""The only use of GitPython in patchkit.

Pitfalls (GitPython 3.2.1, see tests/unit/upstream and tests/contract): importing it fails without git unless
it is set to quiet; ``env`` is merged into the caller's environment; output that it reads itself is decoded
and loses a newline; ``kill_after_timeout`` uses ``ps``, so patchkit has its own timeouts; its object readers
follow the caller's environment and do not hash what they read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import git


def spawn(
    runner: git.Git,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int | BinaryIO | None,
    with_stdout: bool,
    keep_open: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    """Start a process in a new session, with a pipe of bytes for stderr and, if requested, for stdout.

    ``runner`` comes from :func:`runner_in` for the folder to run in. ``stdin`` is a file with a descriptor, a
    constant of subprocess, or None.
    """
    wrapped = runner.execute(
        argv,
        istream=stdin,
        env=env,
        as_process=True,
        with_stdout=with_stdout,
        shell=False,
        start_new_session=True,
        pass_fds=keep_open,
    )
    process = wrapped.proc
    if process is None:
        raise AssertionError("GitPython gave no process")
    wrapped.proc = None  # otherwise its finalizer would close and terminate the process that the caller uses
    return process


def runner_in(cwd: Path) -> git.Git:
    """GitPython's command runner for a folder. The first call imports GitPython, which itself runs git."""
    if "git" not in sys.modules:
        # Without a git program the import would raise; patchkit reports that with its own message instead.
        before = os.environ.get("GIT_PYTHON_REFRESH")
        os.environ["GIT_PYTHON_REFRESH"] = "quiet"
        try:
            import git  # noqa: F401, PLC0415  # costs 0.1 s: only commands that run git pay it
        finally:
            if before is None:
                del os.environ["GIT_PYTHON_REFRESH"]
            else:
                os.environ["GIT_PYTHON_REFRESH"] = before
    from git.cmd import Git  # noqa: PLC0415  # as above

    return Git(cwd)
