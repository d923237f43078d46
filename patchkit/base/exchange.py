"""Exchange two folders in one step."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# The answers of kernels and file systems without the flag, for example NFS, and overlayfs for lower layers.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM})


def exchange_folders(new: Path, old: Path) -> None:
    """Put the folder ``new`` in the place of ``old``, and ``old`` in the place of ``new``.

    A reader sees one of the two at any moment, also if the process is killed (``renameat2`` of Linux). On a
    file system that cannot exchange, two renames do it: a process that is killed between them leaves the old
    folder next to ``new``, under the name of ``new`` and ``.old``.

    Raises OSError; both folders are then as they were.
    """
    try:
        _renameat2(new, old)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        exchange_by_renames(new, old)


def _renameat2(new: Path, old: Path) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # musl before 1.2.6
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(old))


def exchange_by_renames(new: Path, old: Path) -> None:
    """The same with two renames: ``old`` is missing between them. Raises OSError; both are as they were."""
    aside = new.with_name(f"{new.name}.old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    aside.rename(new)
