"""Exclusive locks on files and folders. The system releases a lock when its process ends, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from patchkit.base.errors import CacheError, Location
from patchkit.base.files import OTHER_FOLDER, disk_errors

_PATIENCE_S = 1.0  # before the caller is called about the wait
_POLL_S = 0.02


class LockBusy(CacheError):
    """Another process kept a lock for too long."""


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
    """Hold the lock of ``path``, which no other process and no other thread holds meanwhile.

    Args:
        path: a file, or a folder that exists; a symbolic link is refused.
        waiting: called once when the lock is not free within a second.
        timeout_s: seconds to wait for it; by default there is no limit.
        creates: whether a missing file is created, with its folder; it stays after the release.
        doing: what an error says was being done.
        elsewhere: how the user names another place.

    Yields:
        The descriptor that is locked: a process that inherits it shares the lock.

    Raises:
        LockBusy: the lock was not free within ``timeout_s``.
        CacheError: the disk refused.
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
        os.close(descriptor)  # the last holder replaced or removed the file: lock the one that is there now


def _lock(descriptor: int, path: Path, waiting: Callable[[], None] | None, timeout_s: float | None) -> None:
    began = time.monotonic()
    while not lock_descriptor(descriptor, blocking=False):
        waited_s = time.monotonic() - began
        if timeout_s is not None and waited_s >= timeout_s:
            raise LockBusy(
                f"{path} is locked by another process",
                where=Location(path=str(path)),
                hint="wait until it ends, and run the command again",
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
