"""Waiting for the git processes that a killed patchkit left running.

Vocabulary: an *orphan* is such a process. All git processes of a holder inherit one descriptor of a
locked file; the system keeps the lock until the last of them has ended. Most end at once, at their
next write to the pipe that nobody reads; one that waits for a remote ends when git gives up on it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.report import Reporter
from patchkit.vcs.disk import disk_errors

_PATIENCE_S = 1.0  # before saying so
_POLL_S = 0.02
# Twice the time after which git gives up on a remote (http.lowSpeedTime of patchkit.vcs.environment).
_LONGEST_S = 60.0


@contextmanager
def lock_against_orphans(path: Path, reporter: Reporter) -> Iterator[int]:
    """The descriptor of the locked file ``path``, for git processes to inherit.

    Raises:
        CacheError: the disk refused.
    """
    with disk_errors(path, "locking the cache"):
        descriptor = _open(path)
        try:
            if not _locked_within(descriptor, _PATIENCE_S):
                reporter.info("waiting for a git process that a killed patchkit left running")
                if not _locked_within(descriptor, _LONGEST_S):
                    reporter.warn("it does not end; going on without waiting for it")
                    os.close(descriptor)
                    path.unlink()
                    descriptor = _open(path)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _locked_within(descriptor: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        else:
            return True
