"""New commits on a base: the same bytes give the same commit ids, on every machine.

Vocabulary: a *change* is the whole new content of one file; a *target* is the path it goes to.
Author and committer are patchkit, the date is the caller's, files keep the mode they have and new
ones are 100644.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchkit.errors import GitError, Location
from patchkit.vcs.fastimport import CommitStream, Written
from patchkit.vcs.repository import Repository

_REGULAR = ("100644", "100755")
_KINDS = {"120000": "a symbolic link", "160000": "a submodule", "040000": "a folder"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """A commit to make: its message and the new bytes of each file it touches."""

    message: str
    changes: Mapping[str, bytes]


def write_commits(
    repository: Repository, base: str, commits: Sequence[NewCommit], *, date: str
) -> tuple[Written, ...]:
    """Write the commits, each on the one before, the first on ``base``. No ref moves.

    Args:
        repository: where the base is and the commits go.
        base: object id of a commit.
        commits: in order.
        date: RFC 3339 with a zone; author and committer date of all of them.

    Returns:
        One entry per commit, in order.

    Raises:
        COMMIT_PATH_BAD, COMMIT_TARGET_NOT_FILE, COMMIT_EMPTY: a commit that must not be made.
        GIT_OBJECT_MISSING: the base is not here.
        GitError, CacheError: git or the disk refused.
    """
    for commit in commits:
        _check_commit(commit)
    modes = _existing_modes(repository, base, commits)
    with CommitStream(repository) as stream:
        parent: str | None = base
        for commit in commits:
            stream.begin(message=commit.message, date=date, parent=parent)
            parent = None
            for path, data in sorted(commit.changes.items()):
                _refuse_non_file(path, modes)
                stream.put_file(path, modes.setdefault(path, "100644"), data)
        return stream.finish()


def _check_commit(commit: NewCommit) -> None:
    subject = commit.message.partition("\n")[0]
    if not commit.changes:
        raise GitError(f"the commit '{subject}' changes nothing", code="COMMIT_EMPTY")
    for path in commit.changes:
        parts = path.split("/")
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts) or "\0" in path:
            raise GitError(
                f"the commit '{subject}' writes to {path!r}",
                code="COMMIT_PATH_BAD",
                where=Location(path=path),
                why="paths are relative to the root of the tree, without '.', '..' or '.git'",
            )


def _existing_modes(repository: Repository, base: str, commits: Iterable[NewCommit]) -> dict[str, str]:
    """Mode of every target and of every folder above one, where the base has something there."""
    paths: set[str] = set()
    for commit in commits:
        for path in commit.changes:
            paths.add(path)
            paths.update(_folders_above(path))
    found = repository.find_entries(base, sorted(paths))
    return {path: entry.mode for path, entry in found.items()}


def _refuse_non_file(path: str, modes: Mapping[str, str]) -> None:
    mode = modes.get(path)
    if mode is not None and mode not in _REGULAR:
        raise GitError(
            f"{path} is {_KINDS.get(mode, mode)}, not a file",
            code="COMMIT_TARGET_NOT_FILE",
            where=Location(path=path),
            why="a change replaces the bytes of a regular file or makes a new one",
        )
    for folder in _folders_above(path):
        if modes.get(folder, "040000") != "040000":
            raise GitError(
                f"{path} cannot be made: {folder} is {_KINDS.get(modes[folder], 'a file')}, not a folder",
                code="COMMIT_TARGET_NOT_FILE",
                where=Location(path=folder),
            )
    below = f"{path}/"
    child = next((other for other in modes if other.startswith(below)), None)
    if child is not None:
        raise GitError(
            f"{path} cannot be made: {child} lies below it",
            code="COMMIT_TARGET_NOT_FILE",
            where=Location(path=path),
        )


def _folders_above(path: str) -> tuple[str, ...]:
    return tuple(str(folder) for folder in PurePosixPath(path).parents if folder != PurePosixPath())
