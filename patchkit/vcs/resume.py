"""Finishing an update of a checkout that a kill cut in two.

Vocabulary: an update goes from an *old* commit to a *new* one; after a kill every file that differs
between them is as it was, gone, or written in part. Anything else was done by a person and is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchkit.errors import InternalError, Location
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.runner import Git

__all__ = ["UpdateNoteBad", "finish_update"]

_NONE = "0" * 40


class UpdateNoteBad(InternalError):
    """The note of an interrupted update does not name two commits."""

    code = "CHECKOUT_NOTE_BAD"


def finish_update(git: Git, note: Sequence[str]) -> list[str]:
    """Complete the update from ``note[0]`` to ``note[1]``; the paths a person touched, if any.

    When that list is not empty, nothing was changed.
    """
    if git.git_dir is None or git.work_tree is None or len(note) != 2:  # noqa: PLR2004  # old and new
        raise UpdateNoteBad(
            "the note of an interrupted checkout is damaged", where=Location(path=str(git.git_dir))
        )
    old, new = note
    blobs = _changed_blobs(git, old, new)
    touched = [path for path, shas in blobs.items() if not _is_ours(git, git.work_tree / path, shas)]
    with disk_errors(git.git_dir, "repairing the checkout"):
        (git.git_dir / "index.lock").unlink(missing_ok=True)
    out = git.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    entries = out.decode("utf-8", "surrogateescape").split("\0")
    touched += [entry[3:] for entry in entries if entry and entry[3:] not in blobs]
    if not touched:
        git.run("checkout", "--quiet", "--force", "--detach", new)
    return touched


def _changed_blobs(git: Git, old: str, new: str) -> dict[str, tuple[str, str]]:
    """Old and new object id of every file the update changes."""
    fields = git.run("diff-tree", "-r", "-z", "--no-renames", old, new).split(b"\0")
    return {
        path.decode("utf-8", "surrogateescape"): (head.split()[2].decode(), head.split()[3].decode())
        for head, path in zip(fields[0::2], fields[1::2], strict=False)
    }


def _is_ours(git: Git, place: Path, shas: tuple[str, str]) -> bool:
    if not place.is_file() or place.is_symlink():
        return not place.exists()
    data = place.read_bytes()
    old, new = (b"" if sha == _NONE else git.run("cat-file", "blob", sha) for sha in shas)
    return data == old or new.startswith(data)
