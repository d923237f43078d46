"""Exclusive locks on files and folders. The system releases a lock when its process ends, even if killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from patchkit.base.errors import CacheError, Location
from patchkit.base.files import OTHER_FOLDER, disk_errors

_PATIENCE_S = 1.0  # wait before the callback is called
_POLL_S = 0.02


class LockBusy(CacheError):
    """Another process holds the lock."""


@contextmanager
def locked(
    path: Path,
    *,
    waiting: Callable[[], None] | None = None,
    timeout_s: float | None = None,
    creates: bool = True,
    doing: str = "locking the cache",
    elsewhere: str = OTHER_FOLDER,
) -> Iterator[int]:
    """Hold an exclusive lock on ``path``, against other processes and other threads.

    Args:
        path: a file, or an existing folder; symbolic links are rejected.
        waiting: called once if the lock is not free within a second.
        timeout_s: seconds to wait for it; no limit by default.
        creates: whether to create a missing file and its folder; they remain after the release.
        doing: the operation, for error messages.
        elsewhere: hint for error messages on how to choose another place.

    Yields:
        The locked file descriptor; a process that inherits it shares the lock.

    Raises:
        LockBusy: the lock was not free within ``timeout_s``.
        CacheError: a disk operation failed.
    """
    with disk_errors(path, doing, elsewhere):
        if creates and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open_locked(path, waiting, timeout_s, os.O_CREAT if creates else 0)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_locked(path: Path, waiting: Callable[[], None] | None, timeout_s: float | None, create: int) -> int:
    while True:
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | create
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            _lock(descriptor, path, waiting, timeout_s)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous holder replaced or removed the file: lock the current one


def _lock(descriptor: int, path: Path, waiting: Callable[[], None] | None, timeout_s: float | None) -> None:
    began = time.monotonic()
    while not lock_descriptor(descriptor, blocking=False):
        waited_s = time.monotonic() - began
        if timeout_s is not None and waited_s >= timeout_s:
            raise LockBusy(
                f"{path} is locked by another process",
                where=Location(path=str(path)),
                hint="wait until that process ends, and run the command again",
            )
        if waiting is not None and waited_s >= _PATIENCE_S:
            waiting()
            waiting = None
        time.sleep(_POLL_S)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
