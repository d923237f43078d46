"""Seeing in a tool's failure that it was the disk that refused."""

from __future__ import annotations

from pathlib import Path

from patchkit.base.errors import CacheError, PatchkitError
from patchkit.base.files import disk_error_from_git

# What a tool, or the tool that started it, says when the limit on file sizes ended it.
_LIMIT = ("SIGXFSZ", "File size limit exceeded")


def refusal_in(error: PatchkitError, path: Path, doing: str) -> CacheError | None:
    """The disk's error if the tool failed for it, while ``doing`` something at ``path``; else None."""
    text = f"{error.message}\n{error.why or ''}"
    if any(words in text for words in _LIMIT):
        text += "\nFile too large"
    return disk_error_from_git(text, path, doing)
