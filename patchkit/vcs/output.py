"""Files that the user named: written whole or not at all, and never instead of something that is no file.

Vocabulary: a path is *written through* when a rename would destroy what stands there: a pipe, a terminal, and
everything below ``/dev`` and ``/proc``, where ``/dev/stdout`` looks like the regular file it leads to.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from patchkit.vcs.disk import disk_errors

OTHER_FILE = "name another file"
_SYSTEM = ("/dev/", "/proc/")


def write_output(path: Path, data: bytes, doing: str, elsewhere: str = OTHER_FILE) -> None:
    """Write ``data`` whole or not at all; a symbolic link stays one, and its target is written.

    Raises:
        CacheError: the disk refused; ``doing`` and ``elsewhere`` as in :func:`patchkit.vcs.disk.disk_error`.
    """
    with disk_errors(path, doing, elsewhere):
        if _is_written_through(path):
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        # A name of its own length: that of a file may be as long as the file system allows.
        partial = target.with_name(f".patchkit-{os.getpid()}.partial")
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def check_output(path: Path, doing: str, elsewhere: str = OTHER_FILE, *, appends: bool = False) -> None:
    """Raise now what writing, or appending, would raise after an hour's work. Raises CacheError."""
    with disk_errors(path, doing, elsewhere):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        target = path if _is_written_through(path) else Path(os.path.realpath(path))
        if any(above.is_file() for above in target.parents):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent))
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {target.parent}", str(target.parent))
        in_place = target.exists() and (appends or _is_written_through(path))
        # A rename would replace a file that its owner made read-only.
        touched = [one for one in (target, None if in_place else target.parent) if one and one.exists()]
        refused = next((one for one in touched if not os.access(one, os.W_OK)), None)
        if refused is not None:
            # access(2) does not say why, and the ways out differ.
            is_read_only = bool(os.statvfs(refused).f_flag & os.ST_RDONLY)
            code = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(code, os.strerror(code), str(refused))


def _is_written_through(path: Path) -> bool:
    return str(path).startswith(_SYSTEM) or (path.exists() and not path.is_file())
