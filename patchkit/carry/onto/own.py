"""Find patchkit's own commits in the history of a user's commit, and revert them.

A commit has them if the user merged, rebased or cherry-picked a branch that patchkit made. Because the
patches cannot be placed on top of themselves, one commit on top of the user's reverts the old ones first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.text import counted
from patchkit.carry.judging.derive import merge_file
from patchkit.carry.placing.tree import EXECUTABLE, REGULAR
from patchkit.carry.upstream.clone import TAKEN_OUT, Clone, Commit, copy_trees, read_object
from patchkit.carry.upstream.commits import NewCommit, write_commits
from patchkit.carry.upstream.git import IDENTITY_EMAIL
from patchkit.carry.upstream.repository import Repository

_KEYS = ("Patchkit-Id", "Patchkit-Digest", "Patchkit-Profile", TAKEN_OUT)
_FIELDS = ("%H", "%ae", "%ce", *(f"%(trailers:key={key},valueonly,separator=%x2C)" for key in _KEYS))
_LIST = ("rev-list", "--topo-order", "--encoding=UTF-8", "--basic-regexp")
_REGULAR = (REGULAR, EXECUTABLE)
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40})", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommit:
    """A commit with one patch. ``archs``: the GPUs it was made for; empty for a plain patch.

    ``is_copy``: the user rebased or cherry-picked it. ``changes``: pairs of trees, before and after. For a
    copy these are the trees of patchkit's original commits, so that other changes of the user in the copy do
    not count as patchkit's. ``is_sure`` is False if neither the clone nor the cache has an original; then
    ``changes`` are the copy's own.
    """

    json_keys: ClassVar = "id commit=sha archs is_copy"

    sha: str
    id: str
    archs: tuple[str, ...]
    is_copy: bool
    is_sure: bool
    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A commit with patchkit's trailers."""

    sha: str
    author: str
    committer: str
    id: str
    digest: str
    archs: tuple[str, ...]
    takes_out: bool

    @property
    def is_copy(self) -> bool:
        """Whether the committer is not patchkit."""
        return self.committer != IDENTITY_EMAIL


def find_own(clone: Clone, commit: Commit, ids: Collection[str], cache: Repository) -> tuple[OwnCommit, ...]:
    """The commits of these patches in the history of ``commit`` that were not reverted, newest first.

    Commits that an earlier run reverted are skipped. Whether the change is still in the code is not checked.
    The trees of ``changes`` are copied into the cache.

    Raises CLONE_UNUSABLE.
    """
    reverted = _reverted(clone.refs, commit.sha)
    rows = [row for row in _rows(clone.refs, commit.sha) if row.sha not in reverted]
    ends = [f"^{row.sha}" for row in rows if row.takes_out]
    if ends:
        rows = [row for row in _rows(clone.refs, commit.sha, *ends) if row.sha not in reverted]
    rows = [row for row in rows if row.id in ids and row.author == IDENTITY_EMAIL]
    has_copies = any(row.is_copy for row in rows)
    all_rows = [*_rows(clone.refs, "--all"), *_rows(cache, "--all")] if has_copies else []
    own = tuple(_own(row, all_rows, clone.refs, cache) for row in rows)
    trees = dict.fromkeys(tree for each in own for change in each.changes for tree in change)
    lacking = [tree for tree in trees if not cache.has_object(tree)]
    if lacking:
        copy_trees(clone, commit.sha, lacking, cache)
    return own


def _rows(repository: Repository, *revisions: str) -> Iterator[_Row]:
    """The commits with patchkit's trailers in a set of revisions, newest first."""
    grep = [f"--grep=^{key}: " for key in ("Patchkit-Id", TAKEN_OUT)]
    args = (*_LIST, f"--format={'%x09'.join(_FIELDS)}", *grep)
    for line in repository.git.run(*args, *revisions, "--").decode("utf-8", "replace").splitlines():
        fields = line.split("\t")
        if len(fields) == len(_FIELDS):
            sha, author, committer, name, digest, profiles, takes_out = fields
            yield _Row(
                sha=sha,
                author=author,
                committer=committer,
                id=name,
                digest=digest,
                archs=tuple(sorted({each.split(" ")[0] for each in profiles.split(",") if each})),
                takes_out=bool(takes_out) and IDENTITY_EMAIL in (author, committer),
            )


def _reverted(repository: Repository, sha: str) -> frozenset[str]:
    """The ancestors that ``git revert`` reverted, unless that was reverted again later."""
    args = (*_LIST, "--format=%x00%H%x00%B", "--grep=^This reverts commit ", sha, "--")
    parts = repository.git.run(*args).decode("utf-8", "replace").split("\0")
    found: set[str] = set()
    for revert, message in zip(parts[1::2], parts[2::2], strict=True):
        if revert not in found:
            found.update(_REVERTS.findall(message))
    return frozenset(found)


def _own(row: _Row, rows: Sequence[_Row], clone: Repository, cache: Repository) -> OwnCommit:
    alike = [each for each in rows if not each.is_copy and (each.id, each.digest) == (row.id, row.digest)]
    originals = alike if row.is_copy else [row]
    return OwnCommit(
        sha=row.sha,
        id=row.id,
        archs=row.archs,
        is_copy=row.is_copy,
        is_sure=bool(originals),
        changes=tuple(_changes([each.sha for each in originals] or [row.sha], clone, cache)),
    )


def _changes(shas: Sequence[str], clone: Repository, cache: Repository) -> Iterator[tuple[str, str]]:
    """The trees before and after each of the commits."""
    for sha in dict.fromkeys(shas):
        for repository in (clone, cache):
            before, after = repository.resolve(f"{sha}^^{{tree}}", f"{sha}^{{tree}}")
            if before is not None and after is not None:
                yield before, after
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertedCommits:
    """A commit in the cache, on top of the user's, that reverts ``commits``."""

    commit: Commit
    commits: tuple[OwnCommit, ...]


def revert_own(
    own: Sequence[OwnCommit], commit: Commit, clone: Clone, cache: Repository
) -> RevertedCommits | None:
    """Revert patchkit's commits by one on top of ``commit``, in the cache; None if it has none of them.

    Raises:
        ONTO_PATCHED: it has only a part of a change, or the changed lines were edited later.
        GitError, CacheError: errors of git or the disk.
    """
    current: dict[str, _File | None] = {}
    reverted: list[OwnCommit] = []
    stuck: list[OwnCommit] = []
    for each in own:
        found = [_without(change, current, commit.sha, cache) for change in each.changes]
        good = [files for files in found if files is not None]
        if any(good):
            current |= next(filter(None, good))
            reverted.append(each)
        elif not good:
            stuck.append(each)
    if stuck:
        why = "lines of these patches were edited later, or only parts of the patches are there"
        raise refuse_replacing(stuck, own, commit, clone, why)
    if not reverted:
        return None
    before = _files(cache, commit.sha, list(current))
    changed = {path: file for path, file in current.items() if file is not None and file != before.get(path)}
    (written,) = write_commits(
        cache,
        commit.sha,
        [
            NewCommit(
                message=_message(reverted),
                changes={path: file.data for path, file in changed.items()},
                gone=tuple(path for path, file in current.items() if file is None and path in before),
                modes={path: file.mode for path, file in changed.items()},
            )
        ],
        date=commit.date,
    )
    return RevertedCommits(commit=read_object(cache, written.commit), commits=tuple(reverted))


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    mode: str
    data: bytes


def _files(repository: Repository, treeish: str, paths: Sequence[str]) -> dict[str, _File]:
    """The files of a tree at these paths; folders, links and submodules are empty."""
    modes = {path: entry.mode for path, entry in repository.find_entries(treeish, paths).items()}
    data = repository.read_blobs(treeish, [path for path, mode in modes.items() if mode in _REGULAR])
    return {path: _File(mode=mode, data=data.get(path, b"")) for path, mode in modes.items()}


def _without(
    change: tuple[str, str], current: Mapping[str, _File | None], sha: str, cache: Repository
) -> dict[str, _File | None] | None:
    """The files of the commit with the change reverted, if it is there; None if it is there only in part."""
    before, after = change
    paths = [each.path for each in cache.git.changes(before, after)]
    old, new, ours = (_files(cache, tree, paths) for tree in (before, after, sha))
    found: dict[str, _File | None] = {}
    for path in paths:
        was, patched = old.get(path), new.get(path)
        mine = current[path] if path in current else ours.get(path)
        if mine == patched:
            found[path] = was
        elif mine == was:
            continue
        elif was is None or patched is None or mine is None:
            return None
        else:
            data = _merged(mine.data, patched.data, was.data, cache.reporter)
            if data is None:
                return None
            if data != mine.data:
                found[path] = _File(mode=was.mode if mine.mode == patched.mode else mine.mode, data=data)
    return found


def _merged(ours: bytes, base: bytes, theirs: bytes, reporter: Reporter) -> bytes | None:
    """``ours`` with ``theirs`` -> ``base`` reverted; None unless applying that again gives ``ours``."""
    if b"\0" in ours + base + theirs:
        return None
    without, conflicts = merge_file(ours, base, theirs, reporter)
    if conflicts:
        return None
    again, conflicts = merge_file(without, theirs, base, reporter)
    return without if not conflicts and again == ours else None


def _message(reverted: Sequence[OwnCommit]) -> str:
    many = counted(len(reverted), "patch", "patches")
    rows = "\n".join(f"{each.sha[:12]} {each.id}" for each in reverted)
    trailers = "\n".join(f"{TAKEN_OUT}: {each.sha}" for each in reverted)
    why = "They are applied again on top of this commit, in their current version."
    return f"Revert {many} of patchkit, to apply them again\n\n{why}\n\n{rows}\n\n{trailers}\n"


def refuse_replacing(
    what: Sequence[OwnCommit], own: Sequence[OwnCommit], commit: Commit, clone: Clone, why: str
) -> UsageError:
    """The error for commits that patchkit must not replace, with the commands to revert all of them."""
    name = f"without-patchkit-{commit.sha[:7]}"
    reverts = " ".join(each.sha[:12] for each in own)
    return UsageError(
        f"{commit.sha[:12]} contains patchkit's own commits, which patchkit cannot replace",
        code="ONTO_PATCHED",
        where=[Location(path=str(clone.top), label=f"{each.sha[:12]} {each.id}") for each in what],
        why=why,
        hint=f"revert them yourself: {clone.command} switch -c {name} {commit.sha[:12]} && {clone.command} "
        f"revert {reverts}; then run the same command with --onto {name}. If git finds nothing to revert for "
        "a commit, make an empty commit with the message 'This reverts commit' and its full id",
    )
