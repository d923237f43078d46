"""A checkout of a commit in a folder the user named, without ever touching a file of theirs.

Vocabulary: a *checkout* is a detached worktree of the cache's repository; its *admin folder* is git's
record of it inside that repository; it is *clean* while HEAD is the commit patchkit put there and no
file differs (ignored files, such as build folders, do not count and stay).

A new checkout is built beside its place and renamed there. An update writes a note into the admin
folder first; after a kill the next run reads it and finishes, if every file is still as git left it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.errors import GitError, Location
from patchkit.vcs.disk import disk_errors
from patchkit.vcs.place import usable_place
from patchkit.vcs.repository import Repository
from patchkit.vcs.resume import finish_update
from patchkit.vcs.runner import Git
from patchkit.vcs.verify import verify_files, verify_tree

__all__ = ["Checkout", "CheckoutChanged", "CheckoutForeign", "CheckoutMoved", "CheckoutOrphaned", "checkout"]

_OWN_REF = "refs/worktree/patchkit"  # refs/worktree/ is private to each worktree
_NOTE = "patchkit-update"
_DOING = "preparing the checkout"
_ELSEWHERE = "name a folder on another disk with --checkout"
_SHOWN = 5  # changed files named in a message


class CheckoutForeign(GitError):
    """The folder has content and is no checkout of this cache."""

    code = "CHECKOUT_FOREIGN"


class CheckoutChanged(GitError):
    """Files of the checkout were changed, added or removed by hand."""

    code = "CHECKOUT_CHANGED"


class CheckoutMoved(GitError):
    """HEAD of the checkout is not the commit patchkit put there."""

    code = "CHECKOUT_MOVED"


class CheckoutOrphaned(GitError):
    """The checkout belongs to this cache, but the cache no longer knows it."""

    code = "CHECKOUT_ORPHANED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A folder with a commit in it; ``changed`` is false when it was so before."""

    directory: Path
    commit: str
    changed: bool


def checkout(repository: Repository, commit: str, directory: Path, *, kept: Sequence[Path] = ()) -> Checkout:
    """Have ``directory`` hold ``commit``; the caller holds the cache's lock.

    ``kept`` are folders that no checkout may be in; the cache is one of them anyway.

    Raises:
        PlaceUnusable: there can be no checkout there; nothing was touched.
        CheckoutForeign: it has content that is not ours; nothing was touched.
        CheckoutChanged, CheckoutMoved, CheckoutOrphaned: it is ours, but the user worked in it;
            nothing was touched.
        ObjectDamaged: the cache does not hold the commit as it was; an update may have begun.
        CacheError: the disk refused.
        GitError: git refused.
    """
    directory = usable_place(directory, (repository.path.parent, *kept))
    with disk_errors(directory, _DOING, _ELSEWHERE):
        _clear_remains(repository, directory)
        empty = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    if empty:
        _create(repository, commit, directory)
        return Checkout(directory=directory, commit=commit, changed=True)
    admin = _admin_of(repository, directory)
    changed = _update(repository, replace(repository.git_in(admin, directory), writes_to=directory), commit)
    return Checkout(directory=directory, commit=commit, changed=changed)


def _create(repository: Repository, commit: str, directory: Path) -> None:
    partial = _partial(directory)
    verify_tree(repository, commit)
    with disk_errors(directory, _DOING, _ELSEWHERE):
        directory.parent.mkdir(parents=True, exist_ok=True)
    git = replace(repository.git, writes_to=directory.parent)
    try:
        git.run("worktree", "add", "--quiet", "--detach", os.fspath(partial), commit)
        admin = _made_at(partial)
        verify_files(repository, commit, partial)
        repository.git_in(admin).run("update-ref", _OWN_REF, commit)
        with disk_errors(directory, _DOING, _ELSEWHERE):
            _write_record(admin, directory)
            partial.rename(directory)
    except BaseException:
        with contextlib.suppress(OSError, GitError):
            _clear_remains(repository, directory)
        raise


def _update(repository: Repository, git: Git, commit: str) -> bool:
    admin, directory = _bound(git)
    note = admin / _NOTE
    if note.exists():
        _check_untouched(directory, finish_update(git, note.read_text().split()))
        _land(git, note, note.read_text().split()[1])
    old = _own_commit(git, admin, directory)
    out = git.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    entries = out.decode("utf-8", "surrogateescape").split("\0")
    _check_untouched(directory, [entry[3:] for entry in entries if entry])
    if old == commit:
        return False
    verify_tree(repository, commit)
    with disk_errors(note, "preparing the checkout"):
        note.write_text(f"{old} {commit}\n")
    finished = git.attempt("checkout", "--quiet", "--detach", "--no-overwrite-ignore", commit)
    if finished.status != 0:
        # git looks at everything before it writes: refusing, it has changed nothing.
        if "would be overwritten" in finished.stderr:
            note.unlink()
            raise CheckoutChanged(
                f"the checkout {directory} has files in the way of the new commit",
                where=Location(path=str(directory)),
                why=finished.stderr.strip(),
                hint="move them away and run the command again",
            )
        raise git.failure(("checkout", commit), finished)
    verify_files(repository, commit, directory, since=old)
    _land(git, note, commit)
    return True


def _land(git: Git, note: Path, commit: str) -> None:
    git.run("update-ref", _OWN_REF, commit)
    with disk_errors(note, "preparing the checkout"):
        note.unlink()


def _own_commit(git: Git, admin: Path, directory: Path) -> str:
    finished = git.attempt("rev-parse", "HEAD", _OWN_REF)
    found = finished.stdout.decode("utf-8", "replace").split()
    head, own = (found[0], found[1]) if finished.status == 0 else ("unknown", "no commit")
    on_branch = (admin / "HEAD").read_bytes().startswith(b"ref:")
    if on_branch or head != own:
        raise CheckoutMoved(
            f"the checkout {directory} is not at the commit patchkit put there",
            where=Location(path=str(directory)),
            why="it is on a branch" if on_branch else f"HEAD is {head}, patchkit left {own}",
            hint="keep it, and name another folder with --checkout",
        )
    return head


def _check_untouched(directory: Path, paths: Sequence[str]) -> None:
    if paths:
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        raise CheckoutChanged(
            f"the checkout {directory} has changes that are not patchkit's",
            where=tuple(Location(path=str(directory / path)) for path in paths[:_SHOWN]),
            why=f"changed, added or removed: {', '.join(paths[:_SHOWN])}{more}",
            hint="keep them, and name another folder with --checkout; or undo them with git",
        )


def _admin_of(repository: Repository, directory: Path) -> Path:
    """The admin folder of a checkout of ours, corrected if the user moved the checkout."""
    admin = _pointed_at(directory)
    if admin is None or not _is_of(repository, admin):
        raise CheckoutForeign(
            f"{directory} is not empty and is no checkout of this cache",
            where=Location(path=str(directory)),
            why="patchkit writes only into folders that are new, empty or its own",
            hint="name a new folder with --checkout",
        )
    try:
        recorded = _read_record(admin / "gitdir")
    except FileNotFoundError as error:
        raise CheckoutOrphaned(
            f"{directory} is a checkout that the cache no longer knows",
            where=Location(path=str(directory)),
            why=f"{admin} is gone: the cache was deleted or is another one",
            hint="move the folder away, or name another one with --checkout",
        ) from error
    if recorded != directory / ".git":
        if recorded.exists():
            raise CheckoutForeign(
                f"{directory} is a copy of the checkout {recorded.parent}",
                where=Location(path=str(directory)),
                hint=f"name {recorded.parent} or a new folder with --checkout",
            )
        with disk_errors(admin, "preparing the checkout"):
            _write_record(admin, directory)
    return admin


def _clear_remains(repository: Repository, directory: Path) -> None:
    """Remove what a killed run left of this checkout: the folder being built, records of no folder."""
    partial = _partial(directory)
    if partial.is_dir():
        admin = _pointed_at(partial)
        if any(partial.iterdir()) and not _is_of(repository, admin):
            raise CheckoutForeign(
                f"{partial} is in the way and is not patchkit's",
                where=Location(path=str(partial)),
                hint="move it away and run the command again",
            )
        shutil.rmtree(partial)
    places = {partial / ".git", directory / ".git"}
    for record in sorted(repository.path.glob("worktrees/*/gitdir")):
        place = _read_record(record)
        if place in places and not place.exists():
            shutil.rmtree(record.parent)


def _pointed_at(directory: Path) -> Path | None:
    """The admin folder that ``directory/.git`` names; None when it is no worktree."""
    try:
        text = os.fsdecode((directory / ".git").read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    key, _, path = text.rstrip("\n").partition(": ")
    return Path(path) if key == "gitdir" else None


def _made_at(partial: Path) -> Path:
    admin = _pointed_at(partial)
    if admin is None:
        raise AssertionError(f"git made no worktree at {partial}")
    return admin


def _is_of(repository: Repository, admin: Path | None) -> bool:
    # git writes the path without links, whatever way the user's path to the cache takes.
    return admin is not None and admin.parent.resolve() == (repository.path / "worktrees").resolve()


def _read_record(record: Path) -> Path:
    """The ``.git`` file of the checkout that an admin folder is of."""
    return Path(os.fsdecode(record.read_bytes().rstrip(b"\n")))


def _write_record(admin: Path, directory: Path) -> None:
    (admin / "gitdir").write_bytes(os.fsencode(directory / ".git") + b"\n")


def _bound(git: Git) -> tuple[Path, Path]:
    if git.git_dir is None or git.work_tree is None:
        raise AssertionError("a checkout has both")
    return git.git_dir, git.work_tree


def _partial(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.patchkit-partial")
