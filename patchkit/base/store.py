"""A cache of results on disk, keyed by a digest of their inputs. An entry is a folder or a single text.

The :class:`Journal` of a store records which entries a run used and for which tree, so that they can be
packed for other machines. The mtime of an entry is the time of its last use, for pruning.
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
"""The folders of the stores below the cache folder, by what they keep."""
_TEXT = "text"  # file of a single-text entry: the text's sha256, a newline, and the text


class Shared(Protocol):
    """A store with results of other machines."""

    @property
    def place(self) -> str:
        """Its folder or address, for messages."""

    @property
    def fetched(self) -> int:
        """Number of entries that were fetched from it."""

    def fetch(self, key: str, folder: Path) -> bool:
        """Write the files of an entry into a folder; False, and no files, if it is not available."""


@dataclass(slots=True)
class Journal:
    """The entries that were used: by store and key, the trees they were used for (may be empty)."""

    used: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, store: str, key: str, of: Path | None) -> None:
        """Record that an entry was used for the tree ``of``, if any."""
        with self._lock:
            trees = self.used.setdefault((store, key), set())
            if of is not None:
                trees.add(of.name)

    def keep(self, path: Path) -> None:
        """Merge it into the file of earlier runs. Raises CacheError."""
        with self._lock:
            used = {place: set(trees) for place, trees in self.used.items()}
        for place, trees in read_journal(path).items():
            used.setdefault(place, set()).update(trees)
        rows = [[*place, sorted(trees)] for place, trees in sorted(used.items())]
        write_whole(path, json.dumps(rows), "recording the cache entries in use")


def read_journal(path: Path) -> dict[tuple[str, str], set[str]]:
    """The journal that :meth:`Journal.keep` wrote; empty if the file is missing or unreadable."""
    try:
        rows = json.loads(path.read_text("utf-8"))
        return {(str(store), str(key)): set(map(str, trees)) for store, key, trees in rows}
    except (OSError, ValueError, TypeError):
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The entries below ``root``; missing ones are looked up in ``shared``."""

    root: Path
    shared: Shared | None = None
    journal: Journal = field(default_factory=Journal, compare=False)

    def sibling(self, *names: str) -> Store:
        """Another store of the same cache folder, with the same journal."""
        return Store(root=self.root.parent.joinpath(*names), shared=self.shared, journal=self.journal)

    @property
    def name(self) -> str:
        """The name of its folder, which separates its keys from those of the cache's other stores."""
        return self.root.name

    def find(self, key: str) -> Path | None:
        """The folder of an entry that is in the local store, or None."""
        folder = self._folder(key)
        return folder if folder.is_dir() else None

    def find_or_fetch(self, key: str) -> Path | None:
        """The folder of an entry, which is fetched if only the shared store has it; or None.

        Raises CacheError.
        """
        if self.shared is None:
            return self.find(key)
        try:
            return self.obtain(key, _absent)
        except _Absent:
            return None

    def obtain(self, key: str, fill: Callable[[Path], None], *, of: Path | None = None) -> Path:
        """The folder of an entry; if it is missing, fetch it or have ``fill`` write it.

        ``fill`` gets an empty folder, which becomes the entry if it succeeds and is removed otherwise. ``of``
        is the tree that the entry is made from.

        Raises:
            CacheError: a disk operation failed.
        """
        folder = self._folder(key)
        self.journal.note(self.name, key, of)
        if folder.is_dir():
            mark_used(folder)
            return folder
        # Other threads that need the entry wait, because filling it may take a minute of compiling.
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
                    if not folder.is_dir():  # else another process made the same entry meanwhile
                        raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder

    def read(self, key: str) -> bytes | None:
        """The text written under a key, or None; a damaged entry is removed."""
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
        """Write a text under a key, replacing an earlier one. Raises CacheError."""
        data = sha256(text).encode() + b"\n" + text
        write_whole(self._folder(key) / _TEXT, data, "writing to the cache")

    def drop(self, key: str) -> None:
        """Remove an entry."""
        shutil.rmtree(self._folder(key), ignore_errors=True)

    def keep_failure(self, key: str, text: bytes) -> Path:
        """Keep the output of a failed compiler; this is not an entry, so the next run tries again."""
        path = self.root / "failed" / f"{key[:16]}.txt"
        with disk_errors(path, "writing to the cache"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        return path

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


def store_in(cache_root: Path, kind: str) -> Store:
    """The store in a cache folder for one kind of result (a key of :data:`STORES`)."""
    return Store(root=cache_root / STORES[kind])


class _Absent(Exception):
    """The entry is neither local nor shared. Internal."""


def _absent(_folder: Path) -> None:
    raise _Absent


def shared_key(store: str, key: str) -> str:
    """The key of an entry in a shared store, which holds the entries of all stores."""
    return key_of({"store": store, "key": key})


_locks: WeakValueDictionary[Path, threading.RLock] = WeakValueDictionary()
_of_locks = threading.Lock()


def _making(folder: Path) -> threading.RLock:
    with _of_locks:
        return _locks.setdefault(folder, threading.RLock())
