"""A tree as the compiler's input: include closures, and digests of everything a unit can see.

Vocabulary: the *digest* of a unit covers the bytes of its whole closure, so two units of equal digest in
two trees compile to the same thing with the same compiler and flags; that is what the caches rest on.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from patchkit.build.units import IncludeGraph


class SourceTree:
    """One exported tree; every file is read and hashed once. Safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.graph = IncludeGraph(root)
        self._files: dict[str, str] = {}
        self._units: dict[str, str] = {}
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        """Whether the tree has that file."""
        return (self.root / path).is_file()

    def read(self, path: str) -> bytes:
        """The bytes of one file."""
        return (self.root / path).read_bytes()

    def digest(self, unit: str) -> str:
        """sha256 over the paths and bytes of the closure of a unit."""
        with self._lock:
            if unit not in self._units:
                lines = [f"{path} {self._file(path)}\n" for path in self.graph.closure(unit)]
                self._units[unit] = hashlib.sha256("".join([unit, "\n", *lines]).encode()).hexdigest()
            return self._units[unit]

    def _file(self, path: str) -> str:
        if path not in self._files:
            self._files[path] = hashlib.sha256(self.read(path)).hexdigest()
        return self._files[path]
