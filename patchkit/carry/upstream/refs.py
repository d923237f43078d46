"""Refs: read, list, and move by compare-and-swap."""

from __future__ import annotations

import re
from collections.abc import Mapping

from patchkit.base.errors import GitError, Location
from patchkit.base.files import disk_errors
from patchkit.carry.upstream.git import Finished
from patchkit.carry.upstream.repository import Repository

_ABSENT = "0" * 40
_OURS = ("refs/patchkit", "refs/heads/candidate", "refs/heads/patchkit")
_WHOLE = re.compile(rb"[0-9a-f]{40}\n")
_CLASH = re.compile(r"'(?P<other>refs/[^']+)' exists; cannot create")


def read_ref(repository: Repository, name: str) -> str | None:
    """Object id that the ref points to, or None if there is no such ref."""
    return list_refs(repository, name).get(name)


def list_refs(repository: Repository, *prefixes: str) -> dict[str, str]:
    """Every ref that is one of ``prefixes`` or below one, with its object id, sorted by name."""
    out = repository.git.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
    lines = out.decode("utf-8", "surrogateescape").splitlines()
    return {name: sha for name, _, sha in (line.rpartition(" ") for line in lines)}


def update_ref(repository: Repository, name: str, new: str, expected_old: str | None) -> None:
    """Point the ref to ``new`` if it points to ``expected_old`` (None: if it does not exist).

    Raises:
        REF_MOVED: it points elsewhere; nothing changed.
        REF_NAME_BAD: git does not allow the name.
        REF_IN_THE_WAY: there is a ref above or below it.
        GitError, CacheError: git or the disk reported an error.
    """
    update_refs(repository, {name: (new, expected_old)})


def delete_ref(repository: Repository, name: str, expected_old: str) -> None:
    """Remove the ref if it points to ``expected_old``; raises as :func:`update_ref`."""
    update_refs(repository, {name: (None, expected_old)})


def update_refs(repository: Repository, moves: Mapping[str, tuple[str | None, str | None]]) -> None:
    """Move several refs atomically, each as ``name: (new, expected_old)``; raises as :func:`update_ref`.

    A ref whose ``new`` is None is removed.
    """
    commands = ["start"]
    for name, (new, old) in moves.items():
        if repository.git.attempt("check-ref-format", name).status != 0 or not name.startswith("refs/"):
            raise GitError(
                f"git does not allow {name!r} as the name of a ref",
                code="REF_NAME_BAD",
                where=Location(path=str(repository.path)),
            )
        commands.append(f"delete {name} {old}" if new is None else f"update {name} {new} {old or _ABSENT}")
    text = "\n".join([*commands, "prepare", "commit", ""])
    args = ("update-ref", "--no-deref", "--stdin")
    finished = repository.git.attempt(*args, stdin=text.encode())
    if finished.status != 0:
        for name, (_, old) in moves.items():
            _explain(repository, name, finished, old)
        raise repository.git.failure(args, finished)


def drop_damaged_refs(repository: Repository) -> tuple[str, ...]:
    """Remove patchkit's own refs that contain no object id, as after a power failure; returns their names.

    The caller holds the cache. Such a ref contains no information, so nothing is lost.

    Raises:
        CacheError: the disk reported an error.
    """
    dropped: list[str] = []
    with disk_errors(repository.path, "cleaning up the cache"):
        for name in _OURS:
            top = repository.path / name
            for path in (top, *sorted(top.rglob("*"))):
                is_file = path.is_file() and not path.name.endswith(".lock")
                if path.is_symlink() or (is_file and not _WHOLE.fullmatch(path.read_bytes())):
                    path.unlink()
                    dropped.append(path.relative_to(repository.path).as_posix())
    return tuple(dropped)


def _explain(repository: Repository, name: str, finished: Finished, expected: str | None) -> None:
    """Raise the error for a failed move of this ref; return if the failure has another reason."""
    clash = _CLASH.search(finished.stderr)
    if clash is not None:
        raise GitError(
            f"{name} cannot be created: {clash['other']} is in the way",
            code="REF_IN_THE_WAY",
            where=Location(path=str(repository.path)),
            why="git stores refs as files, so one ref cannot be below another",
            hint=f"rename it: git --git-dir={repository.path} branch -m "
            f"{clash['other'].removeprefix('refs/heads/')} NEW-NAME",
        )
    found = read_ref(repository, name)
    if found != expected:
        raise GitError(
            f"{name} moved while patchkit was running: expected {_shown(expected)}, found {_shown(found)}",
            code="REF_MOVED",
            where=Location(path=str(repository.path)),
            why="another process moved it; nothing was changed",
            hint="run the command again to start from its current commit",
        )


def _shown(sha: str | None) -> str:
    return "no such ref" if sha is None else sha
