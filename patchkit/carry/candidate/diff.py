"""The candidate as one diff, and as files for plain ``git am``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import Location, UsageError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import PinWanted
from patchkit.carry.upstream.export import format_patches
from patchkit.carry.upstream.repository import Repository

# Everything that a newer git might default differently is named.
_OPTIONS = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--diff-algorithm=myers",
    "--no-indent-heuristic",
)
_TEXT = ("--unified=3", "--full-index")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One changed file, with its counts of lines."""

    path: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between two commits: ``files`` in order of path, ``text`` as git writes it."""

    json_keys: ClassVar = "branch base tip files diff=text"

    branch: str
    base: str
    tip: str
    files: tuple[FileChange, ...]
    text: bytes


def make_diff(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, patch: str | None
) -> Difference:
    """The whole of the candidate, or the part of one patch.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is no candidate to show.
        CANDIDATE_PATCH_MISSING: it has no commit of that patch.
        ConfigError: the lock has no such pin.
    """
    repository, candidate = find_candidate(workspace, archs, upstream)
    return difference(repository, candidate, patch)


def difference(repository: Repository, candidate: Candidate, patch: str | None) -> Difference:
    """The whole of a candidate that was found, or the part of one patch; raises CANDIDATE_PATCH_MISSING."""
    base, tip = (candidate.base, candidate.tip) if patch is None else _part(candidate, patch)
    text = repository.git.run("diff", *_OPTIONS, *_TEXT, base, tip, "--")
    files = _files(repository, base, tip)
    return Difference(branch=candidate.branch, base=base, tip=tip, files=files, text=text)


def _part(candidate: Candidate, patch: str) -> tuple[str, str]:
    before = candidate.base
    for made in candidate.commits:
        if made.id == patch:
            return before, made.commit
        before = made.commit
    raise UsageError(
        f"{candidate.branch} has no patch '{patch}'",
        code="CANDIDATE_PATCH_MISSING",
        where=Location(path=candidate.ref),
        hint=f"it has: {', '.join(made.id for made in candidate.commits)}",
    )


def _files(repository: Repository, base: str, tip: str) -> tuple[FileChange, ...]:
    out = repository.git.run("diff", *_OPTIONS, "--numstat", "-z", base, tip, "--")
    rows = [row.split("\t", 2) for row in out.decode("utf-8", "surrogateescape").split("\0") if row]
    # A binary file has "-" for both counts.
    return tuple(
        FileChange(path=path, added=int(added.replace("-", "0")), removed=int(removed.replace("-", "0")))
        for added, removed, path in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written: the patch files in order, made from ``base``..``tip``."""

    branch: str
    base: str
    tip: str
    directory: Path
    files: tuple[Path, ...]


def run_export(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, directory: Path
) -> Exported:
    """Write one patch file per commit of the candidate into ``directory``; the same bytes on every run.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_BROKEN: there is no candidate to export.
        PLACE_UNUSABLE: the folder is one that patchkit reads from, or cannot be replaced.
        GitError: the folder holds what patchkit did not write.
        CacheError: the disk refused.
    """
    repository, candidate = find_candidate(workspace, archs, upstream)
    kept = workspace.series.folders
    files = format_patches(repository, candidate.base, candidate.tip, directory, kept=kept)
    return Exported(
        branch=candidate.branch,
        base=candidate.base,
        tip=candidate.tip,
        directory=directory,
        files=files,
    )
