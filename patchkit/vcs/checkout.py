"""A repository of the user's own with a commit checked out, in a folder they named.

Vocabulary: a *checkout* is a whole repository that needs the cache no more: own objects, own settings, the
commit on a branch. Its *mark* is a file that only patchkit writes. What patchkit *put* on a branch is kept by
a ref of the checkout's own, so that commits of the user's are known as such. It is *clean* while HEAD is what
patchkit put there and no file differs (ignored files, such as build folders, do not count and stay).

A new checkout is built beside its place and renamed there. An update touches a clean one only; it writes a
note first, and after a kill the next run reads it and finishes, if every file is still as git left it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.errors import GitError, Location
from patchkit.vcs.carry import carry
from patchkit.vcs.checkout_state import (
    PUT,
    check_idle,
    check_target,
    check_untouched,
    find_put,
)
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.ownership import ATTRIBUTES
from patchkit.vcs.place import usable_place
from patchkit.vcs.repository import Repository
from patchkit.vcs.resume import Note, finish_update, read_note, write_note
from patchkit.vcs.runner import Git
from patchkit.vcs.verify import find_other

_MARK = "patchkit-checkout"
_MARK_TEXT = (
    b"patchkit made this repository, and updates it on request as long as nothing in it was changed.\n"
)
_DOING = "preparing the checkout"
_ELSEWHERE = "name a folder on another disk with --checkout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A folder with a commit in it, on a branch; ``changed`` is false when it was so before."""

    directory: Path
    commit: str
    changed: bool


def checkout(
    repository: Repository,
    commit: str,
    directory: Path,
    *,
    branch: str,
    origin: str | None = None,
    kept: Sequence[Path] = (),
) -> Checkout:
    """Have ``directory`` hold ``commit`` on ``branch``; the caller holds the cache's lock.

    ``origin`` becomes the remote of that name in a new checkout. ``kept`` are folders that no checkout may be
    in; the cache is one of them anyway.

    Raises:
        PlaceUnusable: there can be no checkout there; nothing was touched.
        CHECKOUT_FOREIGN, CHECKOUT_OLD: it has content that is not such a checkout; nothing was touched.
        CHECKOUT_CHANGED, CHECKOUT_MOVED: it is one, but the user worked in it; nothing was touched.
        CHECKOUT_DIFFERS: git wrote other bytes than the commit has.
        ObjectDamaged: the cache does not hold the commit as it was; no file was touched.
        CacheError: the disk refused.
        GitError: git refused.
    """
    directory = usable_place(directory, (repository.path.parent, *kept))
    with disk_errors(directory, _DOING, _ELSEWHERE):
        _clear_remains(directory)
        empty = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    if empty:
        _create(repository, commit, directory, branch, origin)
        return Checkout(directory=directory, commit=commit, changed=True)
    _check_ours(repository, directory)
    changed = _update(repository, _git_in(repository, directory), directory, commit, branch)
    return Checkout(directory=directory, commit=commit, changed=changed)


def _create(repository: Repository, commit: str, directory: Path, branch: str, origin: str | None) -> None:
    partial = _partial(directory)
    try:
        with disk_errors(directory, _DOING, _ELSEWHERE):
            (partial / ".git").mkdir(parents=True)
            (partial / ".git" / _MARK).write_bytes(_MARK_TEXT)
        git = replace(_git_in(repository, partial), writes_to=directory.parent)
        # Formats are named: a later git may make repositories of another kind by default.
        replace(git, git_dir=None, work_tree=None).run(
            "init",
            "--quiet",
            "--template=",
            "--object-format=sha1",
            f"--initial-branch={branch}",
            os.fspath(partial),
        )
        _write_attributes(partial)
        if origin is not None:
            git.run("remote", "add", "origin", origin)
        carry(repository, git, commit)
        git.run("reset", "--quiet", "--hard", commit)
        _check_written(git, partial, commit)
        git.run("update-ref", PUT + branch, commit)
        with disk_errors(directory, _DOING, _ELSEWHERE):
            partial.rename(directory)
    except BaseException:
        with contextlib.suppress(OSError, GitError):
            _clear_remains(directory)
        raise


def _update(repository: Repository, git: Git, directory: Path, commit: str, branch: str) -> bool:
    note = read_note(directory / ".git")
    if note is not None:
        _finish(git, directory, note)
    check_idle(directory)
    _check_attributes(directory)
    put = find_put(git, directory)
    out = git.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    entries = out.decode("utf-8", "surrogateescape").split("\0")
    check_untouched(directory, [entry[3:] for entry in entries if entry])
    if (put.branch, put.commit) == (branch, commit):
        return False
    check_target(git, directory, branch)
    carry(repository, git, commit, put.known)
    note = write_note(directory / ".git", old=put.commit, new=commit, branch=branch)
    args = ("checkout", "--quiet", "--no-overwrite-ignore", "-B", branch, commit)
    finished = git.attempt(*args)
    if finished.status != 0:
        # git looks at everything before it writes: refusing, it has changed nothing.
        if "would be overwritten" in finished.stderr:
            note.remove()
            raise GitError(
                f"the checkout {directory} has files in the way of the new commit",
                code="CHECKOUT_CHANGED",
                where=Location(path=str(directory)),
                why=finished.stderr.strip(),
                hint="move them away and run the command again",
            )
        raise git.failure(args, finished)
    _check_written(git, directory, commit, since=put.commit)
    _land(git, note)
    return True


def _finish(git: Git, directory: Path, note: Note) -> None:
    """Complete an update that a kill cut in two, if nobody worked there since."""
    find_put(git, directory, landing=note)
    check_target(git, directory, note.branch, landing=note)
    check_untouched(directory, finish_update(git, note))
    _land(git, note)


def _land(git: Git, note: Note) -> None:
    git.run("update-ref", PUT + note.branch, note.new)
    note.remove()


def _check_written(git: Git, directory: Path, commit: str, *, since: str | None = None) -> None:
    own = Repository(path=directory / ".git", reporter=git.reporter, keep_open=git.keep_open)
    other = find_other(own, commit, directory, since=since)
    if other is not None:
        raise GitError(
            f"{other} came out as something else than the commit has",
            code="CHECKOUT_DIFFERS",
            where=Location(path=str(directory / other)),
            why=f"the file system, or settings in {directory / '.git' / 'config'}, change what git writes",
            hint="name another folder with --checkout",
        )


def _check_ours(repository: Repository, directory: Path) -> None:
    """Refuse what is not a checkout of patchkit's."""
    mark = directory / ".git" / _MARK
    with disk_errors(directory, _DOING, _ELSEWHERE):
        if mark.is_file() and not mark.is_symlink() and not mark.parent.is_symlink():
            return
        admin = _pointed_at(directory)
    if admin is not None and admin.parts[-3:-1] == (repository.path.name, "worktrees"):
        remove = shlex.join(["git", f"--git-dir={admin.parent.parent}", "worktree", "remove", str(directory)])
        raise GitError(
            f"{directory} is a worktree of the cache, as earlier versions of patchkit made them",
            code="CHECKOUT_OLD",
            where=Location(path=str(directory)),
            why="commits made in it lie in the cache; checkouts are repositories of their own now"
            if admin.exists()
            else f"{admin} is gone: the cache was deleted or moved",
            hint=f"name a new folder with --checkout; if nothing in this one is yours: {remove}"
            if admin.exists()
            else "name a new folder with --checkout; the files of this one stay as they are",
        )
    raise GitError(
        f"{directory} is not empty and is no checkout of patchkit's",
        code="CHECKOUT_FOREIGN",
        where=Location(path=str(directory)),
        why="patchkit writes only into folders that are new, empty or its own",
        hint="name a new folder with --checkout",
    )


def _pointed_at(directory: Path) -> Path | None:
    """The folder that a file ``.git`` names; None when there is none."""
    try:
        text = os.fsdecode((directory / ".git").read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    key, _, path = text.rstrip("\n").partition(": ")
    return Path(path) if key == "gitdir" else None


def _check_attributes(directory: Path) -> None:
    """Attributes of the tree must not change a byte; see :data:`ATTRIBUTES`."""
    path = directory / ".git" / "info" / "attributes"
    with disk_errors(path, _DOING, _ELSEWHERE):
        is_there = path.exists()
        is_ours = is_there and path.read_bytes() == ATTRIBUTES
    if not is_there:
        _write_attributes(directory)
    elif not is_ours:
        raise GitError(
            f"{path} is not as patchkit wrote it",
            code="CHECKOUT_CHANGED",
            where=Location(path=str(path)),
            why="attributes can change what git writes into the files",
            hint=f"keep it, and name another folder with --checkout; or: rm {shlex.quote(str(path))}",
        )


def _write_attributes(directory: Path) -> None:
    path = directory / ".git" / "info" / "attributes"
    with disk_errors(path, _DOING, _ELSEWHERE):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ATTRIBUTES)


def _clear_remains(directory: Path) -> None:
    """Remove what a killed run left of this checkout: the folder being built."""
    partial = _partial(directory)
    if not partial.is_dir():
        return
    # A kill may have come before the mark: then there is an empty folder .git at most.
    found = [*partial.iterdir()]
    begun = all(path.name == ".git" and path.is_dir() and not any(path.iterdir()) for path in found)
    if not begun and not (partial / ".git" / _MARK).is_file():
        raise GitError(
            f"{partial} is in the way and is not patchkit's",
            code="CHECKOUT_FOREIGN",
            where=Location(path=str(partial)),
            hint="move it away and run the command again",
        )
    shutil.rmtree(partial)


def _git_in(repository: Repository, directory: Path) -> Git:
    return replace(repository.git, git_dir=directory / ".git", work_tree=directory, writes_to=directory)


def _partial(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.patchkit-partial")
