"""The cache folder: one bare repository, half-done downloads, one lock."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.upstream.refs import drop_damaged_refs
from patchkit.upstream.repository import Repository, create_repository, is_marked, open_repository

# Not worktrees/*/index.lock: git run by hand in a checkout may hold one at this moment.
_PATTERNS = (
    "*.lock",
    "refs/**/*.lock",
    "fast_import_crash_*",
    "objects/??/tmp_obj_*",
    "objects/incoming-*",
    "objects/tmp_objdir-*",
    "objects/pack/tmp_*",
    "objects/pack/.tmp-*",
)


def remove_remains(repository: Path) -> tuple[str, ...]:
    """Remove them all; their paths relative to the repository.

    Raises:
        CacheError: the disk refused.
    """
    found = sorted({path for pattern in _PATTERNS for path in repository.glob(pattern)})
    with disk_errors(repository, "cleaning up the cache"):
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return tuple(path.relative_to(repository).as_posix() for path in found)


_PATIENCE_S = 1.0  # before saying so
_POLL_S = 0.02
# Twice the time after which git gives up on a remote (http.lowSpeedTime of patchkit.upstream.git).
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


_CACHE_PATIENCE_S = 1.0  # before saying that somebody else holds the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The cache at ``root``. The lock may be taken again by who holds it."""

    root: Path
    lock: FileLock
    _held: list[Repository] = field(default_factory=list, repr=False, compare=False)

    @property
    def upstream(self) -> Path:
        """The bare repository."""
        return self.root / "upstream.git"

    @property
    def downloads(self) -> Path:
        """Archives being downloaded."""
        return self.root / "downloads"

    def peek(self, reporter: Reporter) -> Repository | None:
        """The repository for reading, without the lock; None when it is not there yet."""
        return open_repository(self.upstream, reporter)

    @contextmanager
    def hold(self, reporter: Reporter) -> Iterator[Repository]:
        """The repository for writing, made or repaired if need be, for nobody else meanwhile.

        Raises:
            CACHE_FOREIGN, CACHE_ALTERED: the repository is not patchkit's, or not as patchkit made it.
            CacheError: the disk refused.
            GitError: git refused.
        """
        if self._held:
            yield self._held[0]
            return
        is_marked(self.upstream)  # before the first file: a folder of the user's stays as it is
        with disk_errors(self.root, "creating the cache"):
            self.root.mkdir(parents=True, exist_ok=True)
            _refuse_links(self.root)
        with self._locked(reporter), lock_against_orphans(self.root / "lock.git", reporter) as descriptor:
            owner = self.root / "lock.owner"
            if os.path.lexists(owner):
                removed = remove_remains(self.upstream)
                if removed:
                    reporter.info(f"removed what a killed run left: {', '.join(removed)}")
            with disk_errors(owner, "locking the cache"):
                owner.unlink(missing_ok=True)
                owner.write_text(f"{os.getpid()}\n", encoding="ascii")
            repository = open_repository(self.upstream, reporter) or create_repository(
                self.upstream, reporter
            )
            damaged = drop_damaged_refs(repository)
            if damaged:
                reporter.warn(f"removed what cannot be read: {', '.join(damaged)}")
            self._held.append(replace(repository, keep_open=(descriptor,)))
            try:
                yield self._held[0]
            finally:
                self._held.clear()
                owner.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, reporter: Reporter) -> Iterator[None]:
        with disk_errors(self.root, "locking the cache"):
            try:
                self.lock.acquire(timeout=_CACHE_PATIENCE_S)
            except Timeout:
                holder = _pid_in(self.root / "lock.owner")
                reporter.info(f"waiting for another patchkit (pid {holder})")
                self.lock.acquire(timeout=-1)
        try:
            yield
        finally:
            self.lock.release()


def open_cache(root: Path) -> Cache:
    """The cache at ``root``; nothing is made before it is held."""
    root = Path(os.path.abspath(root))  # noqa: PTH100  # resolve() would follow the user's links
    return Cache(root=root, lock=FileLock(root / "lock"))


def default_cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """``PATCHKIT_CACHE`` if set, else the folder the system has for a user's caches."""
    named = (os.environ if environ is None else environ).get("PATCHKIT_CACHE")
    return Path(named).absolute() if named else platformdirs.user_cache_path("patchkit", appauthor=False)


def _refuse_links(root: Path) -> None:
    """Locks are files of the cache: through a link, locking one would empty somebody's file."""
    for name in ("lock", "lock.git"):
        if (root / name).is_symlink():
            raise OSError(errno.ELOOP, f"{name} is a symbolic link; remove it", str(root / name))


def _pid_in(owner: Path) -> str:
    try:
        return owner.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
