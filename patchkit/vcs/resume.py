"""Finishing an update of a checkout that a kill cut in two.

Vocabulary: an update goes from an *old* commit to a *new* one on a branch; after a kill every file that
differs between them is as it was, gone, or written in part. Anything else was done by a person and is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import InternalError, Location
from patchkit.vcs.disk import disk_errors, write_whole
from patchkit.vcs.runner import Git

_NONE = "0" * 40
_NAME = "patchkit-update"
_NOTE = re.compile(r"(?P<old>[0-9a-f]{40}) (?P<new>[0-9a-f]{40}) (?P<branch>\S+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is being done: from ``old`` to ``new``, which is to be on ``branch``."""

    path: Path
    old: str
    new: str
    branch: str

    def remove(self) -> None:
        """The update is done, or has changed nothing."""
        with disk_errors(self.path, "preparing the checkout"):
            self.path.unlink()


def write_note(git_dir: Path, *, old: str, new: str, branch: str) -> Note:
    """Leave a note in the repository of the checkout before the first file changes."""
    note = Note(path=git_dir / _NAME, old=old, new=new, branch=branch)
    write_whole(note.path, f"{old} {new} {branch}\n", "preparing the checkout")
    return note


def read_note(git_dir: Path) -> Note | None:
    """The note that an interrupted update left; None without one. Raises CHECKOUT_NOTE_BAD."""
    path = git_dir / _NAME
    with disk_errors(path, "preparing the checkout"):
        if not path.exists():
            return None
        found = _NOTE.fullmatch(path.read_text("utf-8", errors="replace"))
    if found is None:
        raise InternalError(
            "the note of an interrupted checkout is damaged",
            code="CHECKOUT_NOTE_BAD",
            where=Location(path=str(path)),
        )
    return Note(path=path, **found.groupdict())


def finish_update(git: Git, note: Note) -> list[str]:
    """Complete the update; the paths a person touched, if any.

    When that list is not empty, nothing was changed.
    """
    if git.git_dir is None or git.work_tree is None:
        raise AssertionError("a checkout has both")
    blobs = _changed_blobs(git, note)
    touched = [path for path, shas in blobs.items() if not _is_ours(git, git.work_tree / path, shas)]
    with disk_errors(git.git_dir, "repairing the checkout"):
        (git.git_dir / "index.lock").unlink(missing_ok=True)
    out = git.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    entries = out.decode("utf-8", "surrogateescape").split("\0")
    touched += [entry[3:] for entry in entries if entry and entry[3:] not in blobs]
    if not touched:
        git.run("checkout", "--quiet", "--force", "-B", note.branch, note.new)
    return touched


def _changed_blobs(git: Git, note: Note) -> dict[str, tuple[str, str]]:
    """Old and new object id of every file the update changes."""
    fields = git.run("diff-tree", "-r", "-z", "--no-renames", note.old, note.new).split(b"\0")
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
