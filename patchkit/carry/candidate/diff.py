"""A candidate as one diff, and as patch files for ``git am``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from patchkit.base.errors import Location, UsageError
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.container import NAME, containerfile
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.candidate.trailers import without_trailers
from patchkit.carry.candidate.widened import widen
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import ObjectId, Pin, PinWanted, Sha256, load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.upstream.export import PATCH_ENDINGS, format_patches
from patchkit.carry.upstream.repository import Repository

# All options whose defaults may differ between versions of git.
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
    """One changed file, with its numbers of added and removed lines."""

    path: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDiff:
    """The difference between two commits: ``files`` in order of path, ``text`` as git writes it."""

    json_keys: ClassVar = "branch base tip files diff=text"

    branch: str
    base: str
    tip: str
    files: tuple[FileChange, ...]
    text: bytes


def make_diff(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, patch: str | None
) -> CandidateDiff:
    """The diff of the whole candidate, or of one patch.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no candidate to show.
        CANDIDATE_STALE: it has no commit of that patch.
        ConfigError: the lock has no such pin.
    """
    repository, candidate = find_candidate(workspace, archs, upstream)
    return difference(repository, candidate, patch)


def difference(repository: Repository, candidate: Candidate, patch: str | None) -> CandidateDiff:
    """The diff of a given candidate, or of one of its patches; raises CANDIDATE_STALE."""
    base, tip = (candidate.base, candidate.tip) if patch is None else _part(candidate, patch)
    text = repository.git.run("diff", *_OPTIONS, *_TEXT, base, tip, "--")
    files = _files(repository, base, tip)
    return CandidateDiff(branch=candidate.branch, base=base, tip=tip, files=files, text=text)


def _part(candidate: Candidate, patch: str) -> tuple[str, str]:
    before = candidate.base
    for commit in candidate.commits:
        if commit.id == patch:
            return before, commit.commit
        before = commit.commit
    raise UsageError(
        f"{candidate.branch} has no patch '{patch}'",
        code="CANDIDATE_STALE",
        where=Location(path=candidate.ref),
        hint=f"its patches: {', '.join(commit.id for commit in candidate.commits)}",
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
class ExportOptions:
    """``original_names``: the names of the imported patch files. ``trailers``: keep those of patchkit.

    ``release``: also write release.json. ``rocm``: also write the Containerfile of
    :mod:`patchkit.carry.candidate.container` for this version of ROCm.
    """

    original_names: bool = False
    trailers: bool = True
    release: bool = False
    rocm: str | None = None


_FileName = Annotated[str, Field(pattern=r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]*$", max_length=255)]
_Text = Annotated[str, Field(max_length=2000)]


class ReleasedPatch(BaseModel):
    """A patch file of a release."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: _FileName
    sha256: Sha256
    id: _Text
    subject: _Text


class Release(BaseModel):
    """release.json: the files of an export, in order, and the ``tree`` that they give on ``base_tree``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    upstream: _Text
    base: ObjectId
    base_tree: ObjectId
    tip: ObjectId
    tree: ObjectId
    patches: Annotated[tuple[ReleasedPatch, ...], Field(max_length=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPatches:
    """The patch files that were written, in order, made from ``base``..``tip``.

    ``empty``: the patches without a file, because they change nothing on this build.
    """

    branch: str
    base: str
    tip: str
    directory: Path
    files: tuple[Path, ...]
    empty: tuple[str, ...] = ()
    containerfile: Path | None = None


def run_export(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    directory: Path,
    is_widened: bool = False,
    options: ExportOptions | None = None,
) -> ExportedPatches:
    """Write one patch file per commit of the candidate into ``directory``; every run gives the same bytes.

    A patch that changes nothing on this build gets no file.

    ``is_widened``: with the guards of :mod:`patchkit.carry.candidate.widened`.
    ``options``: other than patch files with git's names and patchkit's trailers.

    Raises:
        The errors of :func:`patchkit.carry.candidate.widened.widen`.
        USAGE_VALUE: an image cannot fetch the base of this candidate.
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no candidate to export.
        PLACE_UNUSABLE: patchkit reads from this folder, or it cannot be replaced.
        GitError: the folder contains files that patchkit did not write.
        CacheError: the disk reported an error.
    """
    repository, candidate = find_candidate(workspace, archs, upstream)
    kept, tip = workspace.series.folders, candidate.tip
    options = options or ExportOptions()
    series = load_series(workspace.series.patches)
    shas = [candidate.base, *(each.commit for each in candidate.commits)]
    trees = [repository.tree_of(sha) for sha in shas]
    pairs = zip(candidate.commits, itertools.pairwise(trees), strict=True)
    commits = [commit for commit, (before, after) in pairs if before != after]
    if is_widened:
        profiles = {arch: load_profile(workspace.series.profiles, arch) for arch in candidate.archs}
        tip = widen(repository, candidate, series, profiles)
    if not options.trailers:
        tip = without_trailers(repository, candidate.base, tip)

    def describe(digests: Mapping[str, str]) -> str:
        """The text of release.json."""
        release = Release(
            upstream=candidate.pin,
            base=candidate.base,
            base_tree=repository.tree_of(candidate.base),
            tip=tip,
            tree=repository.tree_of(tip),
            patches=tuple(
                ReleasedPatch(file=name, sha256=digest, id=commit.id, subject=commit.subject)
                for (name, digest), commit in zip(digests.items(), commits, strict=True)
            ),
        )
        return json.dumps(release.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"

    originals = [series.require(commit.id).commit for commit in commits]
    files_of = [each.file if each is not None and each.file is not None else "" for each in originals]
    names = [name if name.endswith(PATCH_ENDINGS) else None for name in files_of]
    more = {}
    if options.rocm is not None:
        pin = upstream if isinstance(upstream, Pin) else load_lock(workspace.series.lock).pin(upstream)
        more[NAME] = containerfile(repository, replace(candidate, tip=tip), pin, options.rocm)
    files = format_patches(
        repository,
        candidate.base,
        tip,
        directory,
        kept=kept,
        names=names if options.original_names else (),
        more=more,
        describe=describe if options.release else None,
    )
    return ExportedPatches(
        branch=candidate.branch,
        base=candidate.base,
        tip=tip,
        directory=directory,
        files=files,
        empty=tuple(each.id for each in candidate.commits if each not in commits),
        containerfile=directory / NAME if more else None,
    )
