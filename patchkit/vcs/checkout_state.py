"""Whether a checkout is as patchkit left it, and if not, what the user did there.

Vocabulary: see :mod:`patchkit.vcs.checkout`. Nothing here writes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import GitError, Location
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.resume import Note
from patchkit.vcs.runner import Git

PUT = "refs/patchkit/put/"  # and the name of the branch
_BRANCHES = "refs/heads/"
_SHOWN = 5  # changed files named in a message
# What git keeps while an operation of the user's waits for them.
_WAITING = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """What is checked out, and all commits that patchkit put there and are still kept."""

    branch: str
    commit: str
    known: tuple[str, ...]


def find_put(git: Git, directory: Path, *, landing: Note | None = None) -> Put:
    """What patchkit put there, if HEAD still is that; ``landing``: or what an update was about to put.

    Raises:
        CHECKOUT_MOVED: HEAD is elsewhere.
    """
    refs = _refs(git)
    head = git.attempt("symbolic-ref", "--quiet", "HEAD").stdout.decode("utf-8", "replace").strip()
    branch = head.removeprefix(_BRANCHES)
    at = refs.get(head) if head else None
    put = refs.get(PUT + branch)
    if landing is not None and branch == landing.branch and at in (landing.old, landing.new):
        put = at
    if at is None or put != at:
        raise _moved(directory, branch, at, put, refs)
    known = tuple(sha for name, sha in refs.items() if name.startswith(PUT))
    return Put(branch=branch, commit=at, known=known)


def check_target(git: Git, directory: Path, branch: str, *, landing: Note | None = None) -> None:
    """Refuse to move a branch of the checkout that is not what patchkit put there.

    Raises:
        CHECKOUT_MOVED: it has commits of the user's, or another worktree has it checked out.
    """
    refs = _refs(git)
    listed = git.run("worktree", "list", "--porcelain").split(b"\n\n")
    for block in listed[1:]:  # the first is the checkout itself; git 2.39 moves a branch under the others
        fields = block.split(b"\n")
        if f"branch {_BRANCHES}{branch}".encode() in fields:
            place = os.fsdecode(fields[0].removeprefix(b"worktree "))
            raise GitError(
                f"the branch {branch} of the checkout {directory} is checked out elsewhere",
                code="CHECKOUT_MOVED",
                where=Location(path=place),
                why="it would move under the files there",
                hint=f"git -C {shlex.quote(place)} switch --detach",
            )
    at, put = refs.get(_BRANCHES + branch), refs.get(PUT + branch)
    if at in (None, put) or (landing is not None and at == landing.new):
        return
    raise GitError(
        f"the branch {branch} of the checkout {directory} is not what patchkit put there",
        code="CHECKOUT_MOVED",
        where=Location(path=str(directory)),
        why=f"it is at {at}, patchkit left " + (put or "no such branch"),
        hint=f"give it another name: {_git(directory)} branch -m {branch} my-work",
    )


def check_idle(directory: Path) -> None:
    """Refuse while git works there, or waits for the user to go on with something.

    Raises:
        CHECKOUT_CHANGED: with the file that says so.
    """
    folder = directory / ".git"
    with disk_errors(folder, "preparing the checkout"):
        found = next((name for name in (*_WAITING, "index.lock") if (folder / name).exists()), None)
    if found is not None:
        raise GitError(
            f"git is in the middle of something in the checkout {directory}",
            code="CHECKOUT_CHANGED",
            where=Location(path=str(folder / found)),
            why=f"there is {folder / found}",
            hint=f"see: {_git(directory)} status; end it, or name another folder with --checkout",
        )


def check_untouched(directory: Path, paths: Sequence[str]) -> None:
    """Refuse when there are paths that the user changed.

    Raises:
        CHECKOUT_CHANGED: naming the first of them.
    """
    if paths:
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        raise GitError(
            f"the checkout {directory} has changes that are not patchkit's",
            code="CHECKOUT_CHANGED",
            where=tuple(Location(path=str(directory / path)) for path in paths[:_SHOWN]),
            why=f"changed, added or removed: {', '.join(paths[:_SHOWN])}{more}",
            hint="keep them, and name another folder with --checkout; "
            f"or set them aside: {_git(directory)} stash --include-untracked",
        )


def _moved(directory: Path, branch: str, at: str | None, put: str | None, refs: dict[str, str]) -> GitError:
    ours = [name.removeprefix(PUT) for name in refs if name.startswith(PUT)]
    back = next((name for name in ours if refs.get(_BRANCHES + name) == refs[PUT + name]), None)
    if put is not None and at is not None:
        why = f"the branch {branch} is at {at}, patchkit left {put}"
        hint = f"keep it as my-work: {_git(directory)} branch my-work && {_git(directory)} reset --keep {put}"
    else:
        why = f"it is on the branch {branch}, which patchkit did not make" if branch else "HEAD is detached"
        hint = f"go back: {_git(directory)} switch {back}" if back is not None else "keep it"
    return GitError(
        f"the checkout {directory} is not at the commit patchkit put there",
        code="CHECKOUT_MOVED",
        where=Location(path=str(directory)),
        why=why,
        hint=f"{hint}; or name another folder with --checkout",
    )


def _refs(git: Git) -> dict[str, str]:
    """Every branch, and what patchkit put on its own."""
    out = git.run("for-each-ref", "--format=%(refname) %(objectname)", _BRANCHES, PUT)
    lines = out.decode("utf-8", "surrogateescape").splitlines()
    return {name: sha for name, _, sha in (line.rpartition(" ") for line in lines)}


def _git(directory: Path) -> str:
    return f"git -C {shlex.quote(str(directory))}"
