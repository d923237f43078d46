"""Results on disk, found again by what they were made from: folders that are filled once, or one text each.

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
from typing import Protocol
from weakref import WeakValueDictionary

from patchkit.base.digests import key_of, sha256
from patchkit.base.files import disk_errors, mark_used, remove_stale, write_whole

STORES = {
    "parses": "parses",
    "gates": "gates",
    "right": "pick/right",
    "objects": "objects",
    "traces": "timing/traces",
    "played": "timing/played",
    "runs": "recorder/runs",
    "models": "recorder/models",
    "kept": "recorder/kept",
}
"""Where the stores of a cache folder lie below it, by what they keep."""
_TEXT = "text"  # the file of an entry that is one text: its sha256, a newline, and the text


class Shared(Protocol):
    """A place with results of other machines."""

    @property
    def place(self) -> str:
        """Where it is, for a person."""

    @property
    def taken(self) -> int:
        """How many entries were used."""

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the files of an entry into a folder; False, and nothing in it, when it is not available."""


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
    shared: Shared | None = None
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

    def read(self, key: str) -> bytes | None:
        """The text that was written under a key, or None; a damaged one is removed."""
        try:
            digest, _, text = (self._folder(key) / _TEXT).read_bytes().partition(b"\n")
        except OSError:
            return None
        if digest.decode("ascii", "replace") != sha256(text):
            self.drop(key)
            return None
        mark_used(self._folder(key))
        return text

    def write(self, key: str, text: bytes) -> None:
        """Keep a text under a key, in the place of what is there. Raises CacheError when the disk refuses."""
        data = sha256(text).encode() + b"\n" + text
        write_whole(self._folder(key) / _TEXT, data, "writing to the cache")

    def drop(self, key: str) -> None:
        """Forget an entry."""
        shutil.rmtree(self._folder(key), ignore_errors=True)

    def keep_failure(self, key: str, text: bytes) -> Path:
        """Put aside what a compiler said before it failed; not an entry, so the next run tries again."""
        path = self.root / "failed" / f"{key[:16]}.txt"
        with disk_errors(path, "writing to the cache"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return path

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


def store_in(cache_root: Path, kind: str) -> Store:
    """The store of a cache folder for one kind of result (:data:`STORES`)."""
    return Store(root=cache_root / STORES[kind])


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
