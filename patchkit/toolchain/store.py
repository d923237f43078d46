"""Results of compilers on disk, found again by what they were made from."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from patchkit.base.files import disk_errors, remove_stale


def key_of(parts: Mapping[str, object]) -> str:
    """The key of what ``parts`` (plain data) determines."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All entries below ``root``."""

    root: Path

    def find(self, key: str) -> Path | None:
        """The folder of an entry, or None."""
        folder = self._folder(key)
        return folder if folder.is_dir() else None

    def obtain(self, key: str, fill: Callable[[Path], None]) -> Path:
        """The folder of an entry; when there is none, ``fill`` gets the empty folder that becomes it.

        The entry appears when ``fill`` ends well; what it left otherwise goes.

        Raises:
            CacheError: the disk refused.
        """
        folder = self._folder(key)
        if folder.is_dir():
            return folder
        # Threads that want the same wait for the first: it may be a minute of a compiler.
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


_locks: WeakValueDictionary[Path, threading.RLock] = WeakValueDictionary()
_of_locks = threading.Lock()


def _making(folder: Path) -> threading.RLock:
    with _of_locks:
        return _locks.setdefault(folder, threading.RLock())
