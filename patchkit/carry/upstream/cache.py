"""The cache folder: creating, checking and repairing its bare repository, partial downloads, and the lock."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import CacheError, Location
from patchkit.base.files import disk_error, disk_errors
from patchkit.base.locks import LockBusy, locked
from patchkit.base.reporter import Reporter
from patchkit.base.store import STORES
from patchkit.carry.upstream.git import Git
from patchkit.carry.upstream.refs import drop_damaged_refs
from patchkit.carry.upstream.repository import ATTRIBUTES, Repository

# Files that git leaves when killed. Not worktrees/*/index.lock, which the user's own git may hold in a
# checkout.
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
    """Remove what killed runs of git left; returns the paths, relative to the repository."""
    found = sorted({path for pattern in _PATTERNS for path in repository.glob(pattern)})
    with disk_errors(repository, "cleaning up the cache"):
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return tuple(path.relative_to(repository).as_posix() for path in found)


# Twice the time after which git gives up on a remote (http.lowSpeedTime in patchkit.carry.upstream.git).
_LONGEST_S = 60.0


@contextmanager
def lock_against_orphans(path: Path, reporter: Reporter) -> Iterator[int]:
    """The descriptor of the locked file ``path``, for git processes to inherit.

    If a git process of a killed patchkit does not end, it keeps its file, and a new file is locked. The
    caller holds the cache's own lock, so no other patchkit waits for this one.

    Raises:
        CacheError: the disk reported an error.
    """

    def waiting() -> None:
        reporter.info("waiting for a git process left by a killed patchkit")

    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(locked(path, waiting=waiting, timeout_s=_LONGEST_S))
        except LockBusy:
            reporter.warn("the git process does not end; continuing without waiting for it")
            with disk_errors(path, "locking the cache"):
                path.unlink()
            descriptor = stack.enter_context(locked(path))
        yield descriptor


_MARK = "patchkit-cache"
_MARK_TEXT = b"This bare repository belongs to patchkit: it is rewritten and repaired without asking.\n"

# What git init writes on any system. Comparing it shows without a process that nothing was added.
_AS_MADE = re.compile(
    rb"\[core\]\n"
    rb"(?:\t(?:repositoryformatversion = 0|bare = true"
    rb"|(?:filemode|symlinks|ignorecase|precomposeunicode) = (?:true|false))\n)+"
)
_NEUTRAL = re.compile(
    r"core\.(repositoryformatversion\n0|bare\ntrue|(filemode|symlinks|ignorecase|precomposeunicode)\n.*)"
    r"|(user|author|committer)\.(name|email)\n.*"
    r"|remote\.(.*\.(url|pushurl|fetch|push)|pushdefault)\n.*"
    r"|branch\..*\.(remote|merge|pushremote|rebase)\n.*",
    re.DOTALL,
)


def _is_marked(path: Path) -> bool:
    """Whether the folder has the mark; false if it is absent or empty.

    Raises:
        CACHE_FOREIGN: it has content and no mark.
        CacheError: the disk reported an error.
    """
    with disk_errors(path, "opening the cache"):
        if not path.is_dir():
            return False
        if (path / _MARK).is_file():
            return True
        content = sorted(entry.name for entry in path.iterdir())
    if not content:
        return False
    raise CacheError(
        f"{path} was not made by patchkit",
        code="CACHE_FOREIGN",
        where=Location(path=str(path / content[0])),
        why=f"it lacks the file {_MARK}, which patchkit puts into its repositories; nothing was touched",
        hint="use another folder with --cache-dir, or move this one away",
    )


def is_ours(path: Path) -> bool:
    """Whether patchkit made the repository."""
    return (path / _MARK).is_file()


def mark(path: Path) -> None:
    """Mark the folder as patchkit's own; the caller has checked that it has no other content."""
    path.mkdir(exist_ok=True)
    (path / _MARK).write_bytes(_MARK_TEXT)


def _check_as_made(path: Path, reporter: Reporter) -> None:
    """Refuse changed attributes and settings that could change bytes or run programs.

    Raises:
        CACHE_ALTERED: with the settings to remove.
        CacheError: the disk reported an error.
    """
    with disk_errors(path, "opening the cache"):
        attributes = path / "info" / "attributes"
        if attributes.read_bytes() != ATTRIBUTES:
            raise CacheError(
                f"{attributes} is not as patchkit wrote it",
                code="CACHE_ALTERED",
                where=Location(path=str(attributes)),
                why="attributes can change the bytes that git reads and writes, and run programs",
                hint=f"rm {attributes}; the next patchkit apply writes it again",
            )
        config = path / "config"
        if _AS_MADE.fullmatch(config.read_bytes()):
            return
    # With --file git follows no includes, so an include is listed, and refused, like any other key.
    listed = Git(reporter=reporter).run("config", "--file", str(config), "--null", "--list")
    strange = sorted(set(_strange_keys(listed.decode("utf-8", "replace").split("\0"))))
    if strange:
        raise CacheError(
            f"the git settings of {path} were changed",
            code="CACHE_ALTERED",
            where=tuple(Location(path=str(config), label=key) for key in strange),
            why="these settings can change what git reads and writes: " + ", ".join(strange),
            hint=f"git config --file {config} --unset-all {strange[0]}",
        )


def _strange_keys(entries: Iterable[str]) -> Iterable[str]:
    """The keys of ``key newline value`` entries that may have an effect on patchkit."""
    return (entry.partition("\n")[0] for entry in entries if entry and not _NEUTRAL.fullmatch(entry))


_NEEDED = ("HEAD", "config", "objects", "refs", "info/attributes")


def create_repository(path: Path, reporter: Reporter) -> Repository:
    """Create the bare repository at ``path``, or complete a partial one.

    A new one is built under another name and renamed, so that a kill leaves no partial repository at
    ``path``.

    Raises:
        CACHE_FOREIGN: there is something that patchkit did not make; it was not touched.
        CACHE_ALTERED: patchkit made it, but its settings were changed.
        CacheError: the disk reported an error.
    """
    if path.exists() and not path.is_dir():
        raise disk_error(NotADirectoryError(errno.ENOTDIR, "Not a directory"), path, "opening the cache")
    built = path if _is_marked(path) else path.with_name(f"{path.name}.partial")
    if built != path:
        _is_marked(built)
    with disk_errors(path.parent, "creating the cache"):
        path.parent.mkdir(parents=True, exist_ok=True)
        mark(built)
    Git(reporter=reporter).init(built)
    with disk_errors(path, "creating the cache"):
        (built / "info").mkdir(exist_ok=True)
        (built / "info" / "attributes").write_bytes(ATTRIBUTES)
        if built != path:
            built.rename(path)
    _check_as_made(path, reporter)
    return Repository(path=path, reporter=reporter, parses=path.parent / STORES["parses"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The cache at ``root``. Holding it is reentrant."""

    root: Path
    _held: list[Repository] = field(default_factory=list, repr=False, compare=False)

    @property
    def upstream(self) -> Path:
        """The bare repository."""
        return self.root / "upstream.git"

    @property
    def downloads(self) -> Path:
        """The folder of archives being downloaded."""
        return self.root / "downloads"

    def peek(self, reporter: Reporter) -> Repository | None:
        """The repository for reading, without the lock; None if it does not exist or is incomplete.

        Raises:
            CACHE_FOREIGN: there is another repository, or other content.
            CACHE_ALTERED: patchkit made it, but its settings were changed.
            CacheError: the disk reported an error.
        """
        path = self.upstream
        if not _is_marked(path) or not all((path / name).exists() for name in _NEEDED):
            return None
        _check_as_made(path, reporter)
        return Repository(path=path, reporter=reporter, parses=path.parent / STORES["parses"])

    @contextmanager
    def hold(self, reporter: Reporter) -> Iterator[Repository]:
        """The repository for exclusive writing, created or repaired if necessary.

        Raises:
            CACHE_FOREIGN, CACHE_ALTERED: patchkit did not make the repository, or it was changed.
            CacheError: the disk reported an error.
            GitError: git failed.
        """
        if self._held:
            yield self._held[0]
            return
        _is_marked(self.upstream)  # before the first write, so that a folder of the user's is not touched
        with disk_errors(self.root, "creating the cache"):
            self.root.mkdir(parents=True, exist_ok=True)
        owner = self.root / "lock.owner"

        def waiting() -> None:
            reporter.info(f"waiting for another patchkit (pid {_pid_in(owner)})")

        with (
            locked(self.root / "lock", waiting=waiting),
            lock_against_orphans(self.root / "lock.git", reporter) as descriptor,
        ):
            if os.path.lexists(owner):
                removed = remove_remains(self.upstream)
                if removed:
                    reporter.info(f"removed files left by a killed run: {', '.join(removed)}")
            with disk_errors(owner, "locking the cache"):
                owner.unlink(missing_ok=True)
                owner.write_text(f"{os.getpid()}\n", encoding="ascii")
            repository = self.peek(reporter) or create_repository(self.upstream, reporter)
            damaged = drop_damaged_refs(repository)
            if damaged:
                reporter.warn(f"removed unreadable refs: {', '.join(damaged)}")
            self._held.append(replace(repository, keep_open=(descriptor,)))
            try:
                yield self._held[0]
            finally:
                self._held.clear()
                owner.unlink(missing_ok=True)


def open_cache(root: Path) -> Cache:
    """The cache at ``root``; nothing is created before it is held."""
    root = Path(os.path.abspath(root))  # noqa: PTH100  # resolve() would follow the user's links
    return Cache(root=root)


def _pid_in(owner: Path) -> str:
    try:
        return owner.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
