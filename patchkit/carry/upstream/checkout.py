"""Check out a commit into a folder of the user's, as a repository of its own.

A new checkout is built under another name and renamed. An update requires a clean checkout. It first writes
a note; if the update is killed, the next run reads the note and finishes, provided that every file is as git
left it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import GitError, InternalError, Location
from patchkit.base.files import disk_errors, usable_place, write_whole
from patchkit.carry.series.git_object import object_id
from patchkit.carry.upstream.git import Change
from patchkit.carry.upstream.packs import carry
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import ATTRIBUTES, Repository, TreeEntry, git_path

_NAME = "patchkit-update"
_NOTE = re.compile(r"(?P<old>[0-9a-f]{40}) (?P<new>[0-9a-f]{40}) (?P<branch>\S+)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An update in progress, from ``old`` to ``new``, which is to be on ``branch``."""

    path: Path
    old: str
    new: str
    branch: str

    def remove(self) -> None:
        """Remove the note, because the update is complete or has changed nothing."""
        with disk_errors(self.path, "preparing the checkout"):
            self.path.unlink()


def write_note(git_dir: Path, *, old: str, new: str, branch: str) -> Note:
    """Write a note into the checkout's repository before the first file changes."""
    note = Note(path=git_dir / _NAME, old=old, new=new, branch=branch)
    write_whole(note.path, f"{old} {new} {branch}\n", "preparing the checkout")
    return note


def read_note(git_dir: Path) -> Note | None:
    """The note of an interrupted update; None if there is none. Raises CHECKOUT_UNUSABLE."""
    path = git_dir / _NAME
    with disk_errors(path, "preparing the checkout"):
        if not path.exists():
            return None
        found = _NOTE.fullmatch(path.read_text("utf-8", errors="replace"))
    if found is None:
        raise InternalError(
            "the note of an interrupted checkout is damaged",
            code="CHECKOUT_UNUSABLE",
            where=Location(path=str(path)),
        )
    return Note(path=path, **found.groupdict())


def finish_update(work: Repository, directory: Path, note: Note) -> list[str]:
    """Complete an interrupted update of the checkout ``work``; returns the paths that the user changed.

    If there are any, nothing was changed.
    """
    changes = {each.path: each for each in work.git.changes(note.old, note.new)}
    touched = [path for path, each in changes.items() if not _is_ours(work, directory / path, each)]
    with disk_errors(work.path, "repairing the checkout"):
        (work.path / "index.lock").unlink(missing_ok=True)
    touched += [path for path in _changed_paths(work) if path not in changes]
    if not touched:
        work.git.run("checkout", "--quiet", "--force", "-B", note.branch, note.new)
    return touched


def _changed_paths(work: Repository) -> list[str]:
    """The files that differ from HEAD, and untracked ones."""
    out = work.git.run("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    return [entry[3:] for entry in out.decode("utf-8", "surrogateescape").split("\0") if entry]


def _is_ours(work: Repository, place: Path, change: Change) -> bool:
    if not place.is_file() or place.is_symlink():
        return not place.exists()
    data = place.read_bytes()
    old, new = (work.git.run("cat-file", "blob", sha) if sha.strip("0") else b"" for sha in change.ids)
    return data == old or new.startswith(data)


PUT = "refs/patchkit/put/"  # followed by the name of the branch
_BRANCHES = "refs/heads/"
_SHOWN = 5  # changed files listed in a message
# Files that git keeps during an unfinished operation of the user.
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
class CheckoutState:
    """The checked-out commit, and all commits put there by patchkit that are still kept."""

    branch: str
    commit: str
    known: tuple[str, ...]


def find_state(work: Repository, directory: Path, *, landing: Note | None = None) -> CheckoutState:
    """The state of the checkout, if HEAD is as patchkit left it, or as the update ``landing`` changed it.

    Raises:
        CHECKOUT_UNUSABLE: HEAD is elsewhere.
    """
    refs = list_refs(work, _BRANCHES, PUT)
    head = work.git.attempt("symbolic-ref", "--quiet", "HEAD").stdout.decode("utf-8", "replace").strip()
    branch = head.removeprefix(_BRANCHES)
    at = refs.get(head) if head else None
    put = refs.get(PUT + branch)
    if landing is not None and branch == landing.branch and at in (landing.old, landing.new):
        put = at
    if at is None or put != at:
        raise _moved(directory, branch, at, put, refs)
    known = tuple(sha for name, sha in refs.items() if name.startswith(PUT))
    return CheckoutState(branch=branch, commit=at, known=known)


def check_target(work: Repository, directory: Path, branch: str, *, landing: Note | None = None) -> None:
    """Refuse to move a branch of the checkout that is not as patchkit left it.

    Raises:
        CHECKOUT_UNUSABLE: it has commits of the user, or another worktree has it checked out.
    """
    refs = list_refs(work, _BRANCHES, PUT)
    listed = work.git.run("worktree", "list", "--porcelain").split(b"\n\n")
    for block in listed[1:]:  # skip the checkout itself; git 2.39 moves branches that other worktrees have
        fields = block.split(b"\n")
        if f"branch {_BRANCHES}{branch}".encode() in fields:
            place = os.fsdecode(fields[0].removeprefix(b"worktree "))
            raise GitError(
                f"the branch {branch} of the checkout {directory} is checked out elsewhere",
                code="CHECKOUT_UNUSABLE",
                where=Location(path=place),
                why="patchkit would move the branch, and the files there would no longer match it",
                hint=f"git -C {shlex.quote(place)} switch --detach",
            )
    at, put = refs.get(_BRANCHES + branch), refs.get(PUT + branch)
    if at in (None, put) or (landing is not None and at == landing.new):
        return
    raise GitError(
        f"the branch {branch} of the checkout {directory} is not at the commit that patchkit put there",
        code="CHECKOUT_UNUSABLE",
        where=Location(path=str(directory)),
        why=f"it is at {at}, but patchkit left " + (put or "no such branch"),
        hint=f"rename it: {_git(directory)} branch -m {branch} my-work",
    )


def check_idle(directory: Path) -> None:
    """Refuse while git is running in the checkout, or has an unfinished operation of the user.

    Raises:
        CHECKOUT_CHANGED: with the file that shows it.
    """
    folder = directory / ".git"
    with disk_errors(folder, "preparing the checkout"):
        found = next((name for name in (*_WAITING, "index.lock") if (folder / name).exists()), None)
    if found is not None:
        raise GitError(
            f"there is an unfinished git operation in the checkout {directory}",
            code="CHECKOUT_CHANGED",
            where=Location(path=str(folder / found)),
            why=f"{folder / found} exists",
            hint=f"see {_git(directory)} status; finish or abort it, or use another folder with --checkout",
        )


def check_untouched(directory: Path, paths: Sequence[str]) -> None:
    """Refuse if the user changed any of these paths.

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
            hint="keep them and use another folder with --checkout; "
            f"or set them aside: {_git(directory)} stash --include-untracked",
        )


def _moved(directory: Path, branch: str, at: str | None, put: str | None, refs: dict[str, str]) -> GitError:
    ours = [name.removeprefix(PUT) for name in refs if name.startswith(PUT)]
    back = next((name for name in ours if refs.get(_BRANCHES + name) == refs[PUT + name]), None)
    if put is not None and at is not None:
        why = f"the branch {branch} is at {at}, but patchkit left {put}"
        hint = f"keep it as my-work: {_git(directory)} branch my-work && {_git(directory)} reset --keep {put}"
    else:
        why = f"it is on the branch {branch}, which patchkit did not make" if branch else "HEAD is detached"
        hint = f"switch back: {_git(directory)} switch {back}" if back is not None else "keep it"
    return GitError(
        f"the checkout {directory} is not at the commit that patchkit put there",
        code="CHECKOUT_UNUSABLE",
        where=Location(path=str(directory)),
        why=why,
        hint=f"{hint}; or use another folder with --checkout",
    )


def _git(directory: Path) -> str:
    return f"git -C {shlex.quote(str(directory))}"


_MARK = "patchkit-checkout"
_MARK_TEXT = (
    b"patchkit made this repository, and updates it on request as long as nothing in it was changed.\n"
)
_DOING = "preparing the checkout"
_ELSEWHERE = "use a folder on another disk with --checkout"
_SUBMODULE, _LINK = "160000", "120000"


def check_out(
    repository: Repository,
    commit: str,
    directory: Path,
    *,
    branch: str,
    origin: str | None = None,
    kept: Sequence[Path] = (),
) -> None:
    """Make ``directory`` a checkout of ``commit`` on ``branch``; the caller holds the cache's lock.

    In a new checkout ``origin`` becomes the remote of that name. ``kept`` are folders that must not contain a
    checkout; the cache is always one of them.

    Raises:
        PLACE_UNUSABLE: a checkout cannot be there; nothing was touched.
        CHECKOUT_UNUSABLE: the folder has other content; nothing was touched.
        CHECKOUT_CHANGED, CHECKOUT_UNUSABLE: it is a checkout, but the user worked in it; nothing was touched.
        CHECKOUT_UNUSABLE: git wrote other bytes than the commit has.
        ObjectDamaged: the cache is damaged; no file was touched.
        CacheError: the disk reported an error.
        GitError: git failed.
    """
    directory = usable_place(directory, (repository.path.parent, *kept))
    with disk_errors(directory, _DOING, _ELSEWHERE):
        _clear_remains(directory)
        empty = not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    if empty:
        _create(repository, commit, directory, branch, origin)
    else:
        _check_ours(repository, directory)
        _update(repository, commit, directory, branch)


def _create(repository: Repository, commit: str, directory: Path, branch: str, origin: str | None) -> None:
    partial = _partial(directory)
    try:
        with disk_errors(directory, _DOING, _ELSEWHERE):
            (partial / ".git").mkdir(parents=True)
            (partial / ".git" / _MARK).write_bytes(_MARK_TEXT)
        work = replace(_repository_in(repository, partial), writes_to=directory.parent)
        # The format is explicit, because later versions of git may have another default.
        args = ("init", "--quiet", "--template=", "--object-format=sha1", f"--initial-branch={branch}")
        replace(work.git, git_dir=None, work_tree=None).run(*args, os.fspath(partial))
        _write_attributes(partial)
        if origin is not None:
            work.git.run("remote", "add", "origin", origin)
        carry(repository, work, commit)
        work.git.run("reset", "--quiet", "--hard", commit)
        _check_written(work, partial, commit)
        work.git.run("update-ref", PUT + branch, commit)
        with disk_errors(directory, _DOING, _ELSEWHERE):
            partial.rename(directory)
    except BaseException:
        with contextlib.suppress(OSError, GitError):
            _clear_remains(directory)
        raise


def _update(repository: Repository, commit: str, directory: Path, branch: str) -> None:
    work = _repository_in(repository, directory)
    note = read_note(work.path)
    if note is not None:
        _finish(work, directory, note)
    check_idle(directory)
    _check_attributes(directory)
    state = find_state(work, directory)
    check_untouched(directory, _changed_paths(work))
    if (state.branch, state.commit) == (branch, commit):
        return
    check_target(work, directory, branch)
    carry(repository, work, commit, state.known)
    note = write_note(work.path, old=state.commit, new=commit, branch=branch)
    args = ("checkout", "--quiet", "--no-overwrite-ignore", "-B", branch, commit)
    finished = work.git.attempt(*args)
    if finished.status != 0:
        # git checks everything before it writes, so a refusal means that nothing was changed.
        if "would be overwritten" in finished.stderr:
            note.remove()
            raise GitError(
                f"untracked files in the checkout {directory} would be overwritten",
                code="CHECKOUT_CHANGED",
                where=Location(path=str(directory)),
                why=finished.stderr.strip(),
                hint="move them away, then run the command again",
            )
        raise work.git.failure(args, finished)
    _check_written(work, directory, commit, since=state.commit)
    _land(work, note)


def _finish(work: Repository, directory: Path, note: Note) -> None:
    """Complete an update that was killed, unless the checkout was changed since."""
    find_state(work, directory, landing=note)
    check_target(work, directory, note.branch, landing=note)
    check_untouched(directory, finish_update(work, directory, note))
    _land(work, note)


def _land(work: Repository, note: Note) -> None:
    work.git.run("update-ref", PUT + note.branch, note.new)
    note.remove()


def _check_written(work: Repository, directory: Path, commit: str, *, since: str | None = None) -> None:
    """Refuse a file that differs from the commit; checks all files, or those changed ``since``."""
    entries = work.list_files(commit)
    if since is not None:
        before = set(work.list_files(since))
        entries = tuple(entry for entry in entries if entry not in before)
    with disk_errors(directory, "verifying the checkout"):
        other = next((entry.path for entry in entries if not _is_as_committed(directory, entry)), None)
    if other is not None:
        raise GitError(
            f"{other} differs from the commit after the checkout",
            code="CHECKOUT_UNUSABLE",
            where=Location(path=str(directory / other)),
            why=f"the file system, or settings in {directory / '.git' / 'config'}, changed what git wrote",
            hint="use another folder with --checkout",
        )


def _is_as_committed(directory: Path, entry: TreeEntry) -> bool:
    if entry.mode == _SUBMODULE:
        return True
    place = os.path.join(os.fsencode(directory), git_path(entry.path))  # noqa: PTH118  # paths of bytes
    if entry.mode == _LINK:
        return os.path.islink(place) and object_id("blob", os.readlink(place)) == entry.sha  # noqa: PTH114, PTH115
    if not os.path.isfile(place) or os.path.islink(place):  # noqa: PTH113, PTH114
        return False
    with open(place, "rb") as stream:  # noqa: PTH123
        return object_id("blob", stream.read()) == entry.sha


def _check_ours(repository: Repository, directory: Path) -> None:
    """Refuse a folder that is not a checkout made by patchkit."""
    mark = directory / ".git" / _MARK
    with disk_errors(directory, _DOING, _ELSEWHERE):
        if mark.is_file() and not mark.is_symlink() and not mark.parent.is_symlink():
            return
        admin = _pointed_at(directory)
    if admin is not None and admin.parts[-3:-1] == (repository.path.name, "worktrees"):
        remove = shlex.join(["git", f"--git-dir={admin.parent.parent}", "worktree", "remove", str(directory)])
        raise GitError(
            f"{directory} is a worktree of the cache, made by an earlier version of patchkit",
            code="CHECKOUT_UNUSABLE",
            where=Location(path=str(directory)),
            why="commits made in it are in the cache; checkouts are now repositories of their own"
            if admin.exists()
            else f"{admin} no longer exists: the cache was deleted or moved",
            hint=f"use a new folder with --checkout; if this one has none of your work: {remove}"
            if admin.exists()
            else "use a new folder with --checkout; the files of this one are not touched",
        )
    raise GitError(
        f"{directory} is not empty and not a checkout made by patchkit",
        code="CHECKOUT_UNUSABLE",
        where=Location(path=str(directory)),
        why="patchkit writes only into folders that are new, empty or its own",
        hint="use a new folder with --checkout",
    )


def _pointed_at(directory: Path) -> Path | None:
    """The folder that a ``.git`` file names; None if there is no such file."""
    try:
        text = os.fsdecode((directory / ".git").read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    key, _, path = text.rstrip("\n").partition(": ")
    return Path(path) if key == "gitdir" else None


def _check_attributes(directory: Path) -> None:
    """Refuse changed attributes, which could change bytes of files; see :data:`ATTRIBUTES`."""
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
            why="attributes can change the bytes that git writes",
            hint=f"keep it and use another folder with --checkout; or: rm {shlex.quote(str(path))}",
        )


def _write_attributes(directory: Path) -> None:
    path = directory / ".git" / "info" / "attributes"
    with disk_errors(path, _DOING, _ELSEWHERE):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ATTRIBUTES)


def _clear_remains(directory: Path) -> None:
    """Remove the partial folder of this checkout that a killed run left."""
    partial = _partial(directory)
    if not partial.is_dir():
        return
    # If the run was killed before it wrote the mark, there is at most an empty .git folder.
    found = [*partial.iterdir()]
    is_empty = all(path.name == ".git" and path.is_dir() and not any(path.iterdir()) for path in found)
    if not is_empty and not (partial / ".git" / _MARK).is_file():
        raise GitError(
            f"{partial} is in the way and was not made by patchkit",
            code="CHECKOUT_UNUSABLE",
            where=Location(path=str(partial)),
            hint="move it away, then run the command again",
        )
    shutil.rmtree(partial)


def _repository_in(repository: Repository, directory: Path) -> Repository:
    return replace(repository, path=directory / ".git", work_tree=directory, writes_to=directory)


def _partial(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.patchkit-partial")
