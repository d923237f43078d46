"""Atomic file writes, safe opening and hashing, and errors for failed disk operations."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from patchkit.base.errors import CacheError, Location, PatchkitError, UsageError

OTHER_FOLDER = "name another folder with --cache-dir"


class _Refusal(NamedTuple):
    """An error code and its hint, with the fields ``path`` and ``elsewhere`` (how to use another place)."""

    code: str
    hint: str


_FULL = _Refusal(code="DISK_FULL", hint="free some space there, or {elsewhere}")
_READ_ONLY = _Refusal(code="DISK_REFUSED", hint="{elsewhere}")
_DENIED = _Refusal(code="DISK_REFUSED", hint="check its owner with: ls -ld {path}")
_NOT_DIRECTORY = _Refusal(code="DISK_REFUSED", hint="move the file away, or {elsewhere}")
_REFUSED = _Refusal(code="DISK_REFUSED", hint="check with: ls -ld {path}")
_NO_REASON = _Refusal(
    code="DISK_REFUSED",
    hint="check free space and permissions with: df -h {path}; ls -ld {path}; or {elsewhere}",
)

# For "unable to write file", which git prints without a reason; the largest file of build 6900 has 4 MB.
_ROOM_BYTES = 4_000_000

_BY_ERRNO: dict[int, _Refusal] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ENOTDIR: _NOT_DIRECTORY,
    errno.EEXIST: _NOT_DIRECTORY,
}

# git runs under LC_ALL=C, so these are the texts of strerror(3) in glibc and musl.
_BY_TEXT: dict[str, _Refusal] = {
    "No space left on device": _FULL,
    "Out of diskspace": _FULL,
    "Disk quota exceeded": _FULL,
    "Quota exceeded": _FULL,
    "File too large": _FULL,
    "Read-only file system": _READ_ONLY,
    "Permission denied": _DENIED,
    "Operation not permitted": _DENIED,
    "insufficient permission": _DENIED,
    "Not a directory": _NOT_DIRECTORY,
    # Last, because it gives no reason. A failed checkout may have removed its files again, so the disk
    # need not be full any more.
    "unable to write file": _NO_REASON,
}


def disk_error(error: OSError, path: Path, doing: str, elsewhere: str = OTHER_FOLDER) -> CacheError:
    """Convert an ``OSError`` raised while ``doing`` something ("creating the cache") at ``path``.

    ``elsewhere`` is a hint on how to choose another place.
    """
    refusal = _BY_ERRNO.get(error.errno or 0, _REFUSED)
    return CacheError(
        f"{doing} failed: {error.strerror or error}",
        code=refusal.code,
        where=Location(path=str(path)),
        hint=refusal.hint.format(path=_nearest(path), elsewhere=elsewhere),
    )


def _nearest(path: Path) -> Path:
    """The path, or its nearest parent that exists, which is what caused the error."""
    try:
        return next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
    except ValueError:  # a name with a zero byte
        return path


def disk_error_from_text(
    text: str, path: Path, doing: str, elsewhere: str = OTHER_FOLDER
) -> CacheError | None:
    """As :func:`disk_error`, from the stderr of git or another tool; None if it has no disk error."""
    for words, refusal in _BY_TEXT.items():
        if words in text:
            line = next(line for line in text.splitlines() if words in line)
            return CacheError(
                f"{doing} failed: {words}",
                code=refusal.code,
                where=Location(path=str(path)),
                why=line.strip(),
                hint=refusal.hint.format(path=path, elsewhere=elsewhere),
            )
    return None


# Messages of a tool, or of the tool that started it, after the file size limit killed it.
_LIMIT = ("SIGXFSZ", "File size limit exceeded", f"received signal {signal.SIGXFSZ:d}.")


def disk_error_from_tool(error: PatchkitError, path: Path, doing: str) -> CacheError | None:
    """The disk error that made a tool fail while ``doing`` something at ``path``; None for other causes."""
    text = f"{error.message}\n{error.why or ''}"
    if any(words in text for words in _LIMIT):
        text += "\nFile too large"
    return disk_error_from_text(text, path, doing)


def is_full(path: Path) -> bool:
    """Whether the disk of a folder has too little space for another source file."""
    try:
        return shutil.disk_usage(path).free < _ROOM_BYTES
    except OSError:
        return False


def full_disk(path: Path, doing: str) -> CacheError | None:
    """DISK_FULL if the disk of a folder is full, else None; for a tool that failed without a reason."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return disk_error(full, path, doing) if is_full(path) else None


@contextmanager
def disk_errors(path: Path, doing: str, elsewhere: str = OTHER_FOLDER) -> Iterator[None]:
    """Convert every ``OSError`` of the block by :func:`disk_error`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, doing, elsewhere) from error


@contextmanager
def working_folder(root: Path, prefix: str, doing: str, elsewhere: str = OTHER_FOLDER) -> Iterator[Path]:
    """A temporary folder of this process below ``root``, removed when the context ends.

    Folders with the same ``prefix`` that killed processes of this user left are removed, too.
    Raises CacheError.
    """
    with disk_errors(root, doing, elsewhere):
        root.mkdir(parents=True, exist_ok=True)
        for remains in root.glob(f"{prefix}*"):
            if _is_abandoned(remains, remains.name.removeprefix(prefix)):
                shutil.rmtree(remains, ignore_errors=True)
        # Resolved, because errors of tools are recognised by the paths below it that they name.
        folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def whole_folder(root: Path) -> Iterator[Path]:
    """A folder to fill, renamed to ``root`` when the context ends without an error (atomic).

    If another process has created ``root`` meanwhile, that one is kept. Raises OSError.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(root.parent.glob(".*.partial-*"))
    partial = Path(tempfile.mkdtemp(prefix=f".{root.name}.partial-", dir=root.parent))
    try:
        yield partial
        partial.chmod(0o755)
        try:
            partial.rename(root)
        except OSError:
            if not root.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


_FRESH_S = 3600.0  # an mtime younger than this is not updated


def mark_used(path: Path) -> None:
    """Set the mtime of a file or folder to now; pruning the cache removes the least recently used."""
    with suppress(OSError):  # another user's, or removed: the mtime is only a hint
        if time.time() - path.stat().st_mtime > _FRESH_S:
            os.utime(path)


_STALE_S = 86400.0  # nothing takes a day to fill, so an older folder is of a killed run


def remove_stale(partials: Iterable[Path]) -> None:
    """Remove partial folders older than a day; younger ones may belong to a run in progress."""
    now = time.time()
    for folder in partials:
        with suppress(OSError):  # another run removes it at the same moment
            if now - folder.stat().st_mtime > _STALE_S:
                shutil.rmtree(folder, ignore_errors=True)


def temporary_folder(what: str) -> AbstractContextManager[Path]:
    """A :func:`working_folder` in the system's folder for temporary files, with ``what`` in its name."""
    return working_folder(Path(tempfile.gettempdir()), f"patchkit-{what}-", "making a temporary folder")


def _is_abandoned(folder: Path, name: str) -> bool:
    """Whether it is a working folder of this user whose process has ended.

    If the pid was reused, the folder stays until that process has ended, too.
    """
    number, dash, _ = name.partition("-")
    if not dash or not (number.isascii() and number.isdigit()):
        return False
    try:
        state = folder.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
            return False
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError, ValueError):  # no permission, already removed, or no valid pid
        return False
    return False


def write_whole(path: Path, data: bytes | str, doing: str, elsewhere: str = OTHER_FOLDER) -> None:
    """Put a file of patchkit's own in its place in one step, in a folder that is made when it is not there.

    A reader sees the file that was there or the new one, whatever ends the writing; text becomes UTF-8.

    Raises:
        CacheError: a disk operation failed; ``doing`` and ``elsewhere`` as in :func:`disk_error`.
    """
    with disk_errors(path, doing, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = data.encode("utf-8") if isinstance(data, str) else data
        _replace(path, content, f".{path.name}.{_writer()}.partial")


def replace_link(path: Path, target: str) -> None:
    """Make a link to a folder, in place of an earlier link, in one step. Raises OSError."""
    partial = path.with_name(f".{path.name}-{_writer()}")
    partial.unlink(missing_ok=True)  # of a killed process
    partial.symlink_to(target, target_is_directory=True)
    partial.replace(path)


def _writer() -> str:
    """A suffix for temporary names, unique per thread: threads of one process may write the same file."""
    return f"{os.getpid()}-{threading.get_native_id()}"


def _replace(path: Path, data: bytes, temporary: str) -> None:
    """Write a file atomically, by renaming a sibling called ``temporary``."""
    partial = path.with_name(temporary)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


OTHER_FILE = "name another file"
_SYSTEM = ("/dev/", "/proc/")


def write_output(path: Path, data: bytes, doing: str, elsewhere: str = OTHER_FILE) -> None:
    """Write ``data`` atomically; a symbolic link is kept, and its target is written.

    Raises:
        CacheError: a disk operation failed; ``doing`` and ``elsewhere`` as in :func:`disk_error`.
    """
    with disk_errors(path, doing, elsewhere):
        if _is_written_through(path):
            path.write_bytes(data)
            return
        # A name of fixed length, because the file's own may be as long as the file system allows.
        _replace(Path(os.path.realpath(path)), data, f".patchkit-{_writer()}.partial")


def check_output(path: Path, doing: str, elsewhere: str = OTHER_FILE, *, appends: bool = False) -> None:
    """Raise CacheError early if writing (or appending) will fail, before hours of work are spent."""
    with disk_errors(path, doing, elsewhere):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        target = path if _is_written_through(path) else Path(os.path.realpath(path))
        if any(above.is_file() for above in target.parents):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent))
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"no such folder: {target.parent}", str(target.parent))
        in_place = target.exists() and (appends or _is_written_through(path))
        # The target is checked, too: a rename would replace a file that its owner made read-only.
        touched = [one for one in (target, None if in_place else target.parent) if one and one.exists()]
        refused = next((one for one in touched if not os.access(one, os.W_OK)), None)
        if refused is not None:
            _raise_refusal(refused)


def check_folder(path: Path, room: int, doing: str, elsewhere: str) -> None:
    """Raise CacheError early if writing ``room`` bytes into a folder will fail; it need not exist yet.

    Nothing is written: the check is of the folder, or of its nearest existing parent.
    """
    with disk_errors(path, doing, elsewhere):
        there = next(each for each in (path, *path.parents) if os.path.lexists(each))
        if not there.is_dir():  # a file, or a link to nothing
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        if not os.access(there, os.W_OK | os.X_OK):
            _raise_refusal(there)
        if shutil.disk_usage(there).free < room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(there))


def _raise_refusal(path: Path) -> None:
    """Raise OSError with the reason, which access(2) does not give: read-only disk or no permission."""
    is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    code = errno.EROFS if is_read_only else errno.EACCES
    raise OSError(code, os.strerror(code), str(path))


def remove_output(path: Path, doing: str) -> None:
    """Remove the output of an earlier run, so that it is not mistaken for this run's. Raises CacheError.

    Pipes, devices and symbolic links are kept.
    """
    with disk_errors(path, doing, OTHER_FILE):
        if not _is_written_through(path):
            Path(os.path.realpath(path)).unlink(missing_ok=True)


class NotRegular(OSError):
    """A device, pipe or socket, whose opening or reading may block."""


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raises NotRegular, or the OSError of opening it."""
    # O_NONBLOCK, because opening a named pipe would block until it has a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise NotRegular(errno.EINVAL, "it is a device, a pipe or a socket", str(path))
        yield stream


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, as 64 hex digits, read in chunks. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


FileStamp = tuple[int, int, int, int]


def file_stamp(path: Path) -> FileStamp:
    """Identifies a file version without reading it: device, inode, size, mtime in ns. Raises OSError."""
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _is_written_through(path: Path) -> bool:
    return str(path).startswith(_SYSTEM) or (path.exists() and not path.is_file())


def usable_place(directory: Path, kept: Sequence[Path] = ()) -> Path:
    """The absolute path of ``directory`` with links resolved; nothing is written.

    Raises:
        PLACE_UNUSABLE: it is the root of a file system, or is inside one of the ``kept`` folders.
    """
    try:
        found = directory.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise _unusable(directory, f"its path cannot be resolved: {error}") from error
    if not found.name:
        raise _unusable(directory, "it is the root of the file system")
    if os.path.ismount(found):
        # The folder is replaced by a rename, which fails for a mount point.
        raise _unusable(directory, "it is a mount point")
    for folder in kept:
        if found.is_relative_to(folder.resolve()):
            raise _unusable(directory, f"it is inside {folder}, where patchkit keeps its own files")
    return found


def _unusable(directory: Path, why: str) -> UsageError:
    shown = os.fsencode(directory).decode("utf-8", "backslashreplace")
    return UsageError(
        f"cannot use {shown} as an output folder",
        code="PLACE_UNUSABLE",
        where=Location(path=shown),
        why=why,
        hint="choose a new folder, for example in your home directory",
    )
