"""Results of compilers on disk, found again by what they were made from.

A store says which of its entries a run used, and of which tree (:class:`Journal`), so that they can be packed
for others; an entry's time of change is when it was last used, so that what nobody uses can go.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

from patchkit.base.digests import key_of
from patchkit.base.files import disk_errors, mark_used, remove_stale, write_whole
from patchkit.toolchain.shared import SharedStore

STORES = {
    "objects": "objects",
    "traces": "timing/traces",
    "played": "timing/played",
    "runs": "recorder/runs",
    "models": "recorder/models",
    "kept": "recorder/kept",
}
"""Where the stores of a cache folder lie below it, by their names."""


@dataclass(slots=True)
class Journal:
    """Which entries were used: the trees that they are of, by store and key; none for those of no tree."""

    used: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, store: str, key: str, of: Path | None) -> None:
        """An entry was used for a tree."""
        with self._lock:
            trees = self.used.setdefault((store, key), set())
            if of is not None:
                trees.add(of.name)

    def keep(self, path: Path) -> None:
        """Write it into a file, beside what an earlier run used. Raises CacheError when the disk refuses."""
        with self._lock:
            used = {place: set(trees) for place, trees in self.used.items()}
        for place, trees in read_journal(path).items():
            used.setdefault(place, set()).update(trees)
        rows = [[*place, sorted(trees)] for place, trees in sorted(used.items())]
        write_whole(path, json.dumps(rows), "noting what was used")


def read_journal(path: Path) -> dict[tuple[str, str], set[str]]:
    """What :meth:`Journal.keep` wrote; nothing where there is no such file, or one that does not read."""
    try:
        rows = json.loads(path.read_text("utf-8"))
        return {(str(store), str(key)): set(map(str, trees)) for store, key, trees in rows}
    except (OSError, ValueError, TypeError):
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All entries below ``root``; what is not there is looked for in ``shared``."""

    root: Path
    shared: SharedStore | None = None
    journal: Journal = field(default_factory=Journal, compare=False)

    def beside(self, *names: str) -> Store:
        """Another store of the same cache folder, with the same journal."""
        return Store(root=self.root.parent.joinpath(*names), shared=self.shared, journal=self.journal)

    @property
    def name(self) -> str:
        """What tells its keys from those of the cache's other stores: its last folder."""
        return self.root.name

    def find(self, key: str) -> Path | None:
        """The folder of an entry that was made or fetched here, or None."""
        folder = self._folder(key)
        return folder if folder.is_dir() else None

    def look(self, key: str) -> Path | None:
        """The folder of an entry, which is fetched when the shared store has it, or None.

        Raises CacheError when the disk refuses.
        """
        if self.shared is None:
            return self.find(key)
        try:
            return self.obtain(key, _absent)
        except _Absent:
            return None

    def obtain(self, key: str, fill: Callable[[Path], None], *, of: Path | None = None) -> Path:
        """The folder of an entry; when there is none, ``fill`` gets the empty folder that becomes it.

        The entry appears when ``fill`` ends well; what it left otherwise goes. ``of`` is the tree that it is
        made from.

        Raises:
            CacheError: the disk refused.
        """
        folder = self._folder(key)
        self.journal.note(self.name, key, of)
        if folder.is_dir():
            mark_used(folder)
            return folder
        # Threads that want the same wait for the first: it may be a minute of a compiler.
        with _making(folder):
            return folder if folder.is_dir() else self._make(key, folder, fill)

    def _make(self, key: str, folder: Path, fill: Callable[[Path], None]) -> Path:
        with disk_errors(folder, "writing to the cache"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(folder.parent.glob(".partial-*"))
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
        try:
            if self.shared is None or not self.shared.fetch(shared_key(self.name, key), partial):
                fill(partial)
            with disk_errors(folder, "writing to the cache"):
                try:
                    partial.rename(folder)
                except OSError:
                    if not folder.is_dir():  # else: the same, made by somebody else meanwhile
                        raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder

    def keep_failure(self, key: str, text: bytes) -> Path:
        """Put aside what a compiler said before it failed; not an entry, so the next run tries again."""
        path = self.root / "failed" / f"{key[:16]}.txt"
        with disk_errors(path, "writing to the cache"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return path

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


class _Absent(Exception):
    """Nobody has the entry. Internal."""


def _absent(_folder: Path) -> None:
    raise _Absent


def shared_key(store: str, key: str) -> str:
    """The key of an entry in a shared store, which has those of all stores."""
    return key_of({"store": store, "key": key})


_locks: WeakValueDictionary[Path, threading.RLock] = WeakValueDictionary()
_of_locks = threading.Lock()


def _making(folder: Path) -> threading.RLock:
    with _of_locks:
        return _locks.setdefault(folder, threading.RLock())
