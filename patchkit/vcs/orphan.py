"""Commits that carry words and data: a folder of files without a parent, and one that changes no file.

Both are about other commits; neither changes what is built.
"""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.vcs.fastimport import CommitStream, Written
from patchkit.vcs.repository import Repository


def write_orphan(repository: Repository, files: Mapping[str, bytes], *, message: str, date: str) -> Written:
    """A root commit of these files (path: bytes). No ref moves; raises GitError, CacheError."""
    with CommitStream(repository) as stream:
        stream.begin(message=message, date=date, parent=None)
        for path, data in sorted(files.items()):
            stream.put_file(path, "100644", data)
        return stream.finish()[0]


def write_note_commit(repository: Repository, parent: str, *, message: str, date: str) -> Written:
    """A commit on ``parent`` with the same tree. No ref moves; raises GitError, CacheError."""
    with CommitStream(repository) as stream:
        stream.begin(message=message, date=date, parent=parent)
        return stream.finish()[0]
