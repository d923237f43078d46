"""A cache of results on disk, keyed by a digest of their inputs. An entry is a folder or a single text.

The mtime of an entry is the time of its last use, for pruning.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from patchkit.base.digests import sha256
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The entries below ``root``."""

    root: Path

    def sibling(self, *names: str) -> Store:
        """Another store of the same cache folder."""
        return Store(root=self.root.parent.joinpath(*names))

    def find(self, key: str) -> Path | None:
        """The folder of an entry that is in the local store, or None."""
        folder = self._folder(key)
        return folder if folder.is_dir() else None

    def obtain(self, key: str, fill: Callable[[Path], None]) -> Path:
        """The folder of an entry; if it is missing, ``fill`` writes it.

        ``fill`` gets an empty folder, which becomes the entry if it succeeds and is removed otherwise.

        Raises:
            CacheError: a disk operation failed.
        """
        folder = self._folder(key)
        if folder.is_dir():
            mark_used(folder)
            return folder
        # Other threads that need the entry wait, because filling it may take a minute of compiling.
        with _making(folder):
            return folder if folder.is_dir() else self._make(folder, fill)

    def _make(self, folder: Path, fill: Callable[[Path], None]) -> Path:
        with disk_errors(folder, "writing to the cache"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(folder.parent.glob(".partial-*"))
            partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
        try:
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


_locks: WeakValueDictionary[Path, threading.RLock] = WeakValueDictionary()
_of_locks = threading.Lock()


def _making(folder: Path) -> threading.RLock:
    with _of_locks:
        return _locks.setdefault(folder, threading.RLock())
