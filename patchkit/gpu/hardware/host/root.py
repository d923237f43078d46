"""Reads files of a machine below a root folder, with bounds, whatever the files contain."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from patchkit.base.files import open_regular

# The largest file read whole is a kernel command line (at most 2 KiB) or /etc/group of a large site.
_MOST_BYTES = 256 * 1024
_MOST_NAMES = 4096
_MOST_DIGITS = 20


def _can_open(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoot:
    """A machine's file system: ``/``, or a folder with recorded files.

    Links that lead out of the folder count as missing. ``can_open`` says whether this process may read and
    write a device file.
    """

    path: Path = Path("/")
    can_open: Callable[[Path], bool] = _can_open

    def locate(self, name: str) -> Path | None:
        """The file with links resolved; None if it is missing, in a loop of links, or outside the folder."""
        try:
            top = os.path.realpath(self.path)
            found = Path(os.path.realpath(Path(top, name.lstrip("/"))))
            found.stat()
        except (OSError, ValueError):
            return None
        return found if found.is_relative_to(top) else None

    def read(self, name: str, *, at_most: int = _MOST_BYTES) -> str | None:
        """The beginning of a text file; None if it cannot be read. Bytes outside UTF-8 are replaced."""
        path = self.locate(name)
        if path is None:
            return None
        try:
            with open_regular(path) as stream:
                return stream.read(at_most).decode("utf-8", "replace")
        except OSError:  # some files of sysfs raise EINVAL or EBUSY while the device sleeps
            return None

    def line(self, name: str) -> str | None:
        """The first line of a text file without blanks around it; None if it is empty or not printable."""
        text = (self.read(name, at_most=4096) or "").split("\n", 1)[0].strip()
        return text if text and text.isprintable() else None

    def number(self, name: str) -> int | None:
        """The number in a file, in decimal or with ``0x`` in hexadecimal; None for anything else."""
        text = self.line(name) or ""
        if len(text) > _MOST_DIGITS or not text.isascii():
            return None
        try:
            return int(text, 16 if text.lower().startswith("0x") else 10)
        except ValueError:
            return None

    def names(self, folder: str) -> tuple[str, ...] | None:
        """The sorted names in a folder; None if it cannot be read."""
        path = self.locate(folder)
        if path is None:
            return None
        try:
            with os.scandir(path) as entries:
                return tuple(sorted(entry.name for entry in islice(entries, _MOST_NAMES)))
        except OSError:
            return None

    def has_program(self, name: str, search: str) -> bool:
        """Whether a folder of ``search``, a value of PATH, has an executable file of this name."""
        for folder in search.split(os.pathsep)[:_MOST_NAMES]:
            path = self.locate(f"{folder}/{name}") if folder.startswith("/") else None
            if path is not None and path.is_file() and os.access(path, os.X_OK):
                return True
        return False
