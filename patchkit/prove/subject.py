"""A candidate as gates see it: its exported trees, its patches, and which patch each line comes from.

Everything is read from the candidate itself and not planned again, because gates must judge the bytes that
would be published. Git determines which files changed and which patch a line comes from.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from patchkit.base.arch import list_profiles
from patchkit.base.errors import GitError, Location
from patchkit.base.locks import locked
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import PLAIN, arch_options
from patchkit.base.upstreams import upstream_of
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.record import Candidate, CandidateCommit
from patchkit.carry.placing.context import make_guard
from patchkit.carry.placing.guard import Guard
from patchkit.carry.placing.place import place_patch
from patchkit.carry.placing.tree import ROCWMMA_OPTION, declares_option, read_upstream
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, load_profile, load_profiles
from patchkit.carry.series.selection import Selected
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.tree import overlay_tree
from patchkit.toolchain.units import SourceTree


def lock_evidence(cache_root: Path, tree: str, reporter: Reporter) -> AbstractContextManager[int]:
    """Lock the evidence of a tree: gates read files that they wrote earlier, so two runs must not overlap.

    Raises CacheError.
    """
    text = f"waiting for another patchkit that checks tree {tree[:12]}"
    return locked(cache_root / "evidence" / f"{tree}.lock", waiting=lambda: reporter.info(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPart:
    """One patch of the candidate: its commit and guard, and the files it changes (``touched``) and adds."""

    patch: Patch
    commit: str
    guard: Guard
    touched: tuple[str, ...]
    new_files: tuple[str, ...]

    @property
    def id(self) -> str:
        """The patch's id."""
        return self.patch.id

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs that the patch is active on."""
        return tuple(target.arch for target in self.guard.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One candidate.

    ``baseline`` and ``candidate`` are exported trees, with the hashes of their git trees; ``base`` is the
    pin's commit. ``label``: what built programs print as their commit; by default that of the pin, so that
    both trees share the programs. ``archs`` are the GPUs the candidate is for, ``profiles`` all profiles in
    ``profiles_folder``. ``authors`` maps each changed file of the candidate to the patch that each line comes
    from (None: upstream; index 0 is line 1). ``plain_baseline`` is the baseline plus the plain
    patches, if there are any. ``builds`` caches the builds of both trees by :mod:`patchkit.prove.build`;
    setting ``stop`` ends the compilers of gates on the emulated GPU.
    """

    baseline: Path
    baseline_tree: str
    candidate: Path
    candidate_tree: str
    build: int
    archs: tuple[str, ...]
    patches: tuple[PatchPart, ...]
    profiles: Mapping[str, ArchProfile]
    profiles_folder: Path
    authors: Mapping[str, tuple[str | None, ...]]
    toolchain: Toolchain | None
    cache_root: Path
    reporter: Reporter
    base: str = ""
    label: str = ""
    plain_baseline: Path | None = None
    _trees: list[SourceTree] = field(default_factory=list, init=False, compare=False, repr=False)
    builds: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    stop: threading.Event = field(default_factory=threading.Event, init=False, compare=False, repr=False)

    @property
    def trees(self) -> tuple[SourceTree, SourceTree]:
        """Baseline and candidate, shared by all gates, so that each file is read once."""
        if not self._trees:
            self._trees.extend((SourceTree(self.baseline), SourceTree(self.candidate)))
        before, after = self._trees
        return before, after

    @property
    def guarded_part(self) -> Subject:
        """The same candidate with its plain patches counted as part of the baseline."""
        guarded = tuple(patch for patch in self.patches if not patch.patch.is_plain)
        return replace(self, patches=guarded, baseline=self.plain_baseline or self.baseline)

    @property
    def offers_rocwmma(self) -> bool:
        """Whether the baseline can be built with rocWMMA: upstream dropped the option after build 10068."""
        path = self.baseline / upstream_of(self.baseline).ggml_options
        return path.is_file() and declares_option(ROCWMMA_OPTION, path.read_bytes())

    @property
    def is_without_rocwmma(self) -> bool:
        """Whether ``apply`` sets the build option that turns rocWMMA off, where upstream has that option."""
        if not self.offers_rocwmma:
            return False
        macros = {macro for part in self.patches if part.archs for macro in part.patch.macros}
        gpus = [self.profiles[arch] for arch in self.archs if arch != PLAIN]  # a plain series has none
        options = dict(option for gpu in gpus for option in gpu.cmake_options(macros))
        return options.get(ROCWMMA_OPTION) == "OFF"

    @property
    def plain(self) -> tuple[PatchPart, ...]:
        """The plain patches."""
        return tuple(patch for patch in self.patches if patch.patch.is_plain)

    @property
    def changed_files(self) -> tuple[str, ...]:
        """All files that a patch changes or adds, sorted."""
        return _files_of(self.patches)

    @property
    def computing_files(self) -> tuple[str, ...]:
        """The changed files whose changes could alter a result; all changed files if none could.

        Files that only the patch with the run-time switches changes are not among them: every program runs
        that code when it starts, and no operation depends on it.
        """
        return _files_of([part for part in self.patches if part.patch.switches is None]) or self.changed_files

    @property
    def backend_files(self) -> tuple[str, ...]:
        """Those of :attr:`computing_files` that a backend is built from; all of them if none is."""
        folders = upstream_of(self.baseline).folders.backends
        found = [
            path
            for path in self.computing_files
            if path.partition("/")[0] in folders or path.endswith((".cmake", "CMakeLists.txt"))
        ]
        return tuple(found) or self.computing_files

    def patches_of(self, path: str, line: int | None = None) -> tuple[str, ...]:
        """The patch that a line comes from, or the nearest one in the file; else all that change the file."""
        lines = self.authors.get(path, ())
        if line is not None and lines:
            near = [(abs(at - line), name) for at, name in enumerate(lines, start=1) if name is not None]
            if near:
                return (min(near)[1],)
        return tuple(patch.id for patch in self.patches if path in patch.touched or path in patch.new_files)

    def with_patches(self, place: Location) -> Location:
        """A place in the candidate, labelled with the patches of its line."""
        return replace(place, label=", ".join(self.patches_of(place.path, place.line)) or None)


def _files_of(parts: Sequence[PatchPart]) -> tuple[str, ...]:
    return tuple(sorted({path for part in parts for path in (*part.touched, *part.new_files)}))


_PROFILES = "--format=%(trailers:key=Patchkit-Profile,valueonly)"


def make_subject(
    workspace: Workspace, repository: Repository, candidate: Candidate, toolchain: Toolchain | None
) -> Subject:
    """Export both trees into ``<cache>/trees`` and read everything else from git.

    Raises:
        CANDIDATE_STALE: the candidate was made from another series.
        TREE_ENTRY_REFUSED, CacheError, GitError: exporting failed.
        ConfigError: the series or a profile is invalid.
    """
    series = load_series(workspace.series.patches)
    folder = workspace.series.profiles
    profiles = {arch: load_profile(folder, arch) for arch in list_profiles(folder)}
    trees = workspace.cache_root / "trees"
    baseline = export_tree(repository, candidate.base, trees)
    tip = export_tree(repository, candidate.tip, trees, like=baseline)
    parts = tuple(
        _part(repository, _patch_of(series, candidate, commit, folder), commit, profiles)
        for commit in candidate.commits
    )
    return Subject(
        baseline=baseline.root,
        baseline_tree=baseline.tree,
        candidate=tip.root,
        candidate_tree=tip.tree,
        build=candidate.build,
        archs=candidate.archs,
        patches=parts,
        profiles=profiles,
        profiles_folder=folder,
        authors=_authors(repository, candidate, parts, tip.root),
        toolchain=toolchain,
        cache_root=workspace.cache_root,
        reporter=workspace.reporter,
        base=candidate.base,
        plain_baseline=_with_plain(workspace, repository, candidate, series, parts, baseline.root),
    )


def _with_plain(
    workspace: Workspace,
    repository: Repository,
    candidate: Candidate,
    series: Series,
    parts: Sequence[PatchPart],
    baseline: Path,
) -> Path | None:
    """The baseline with only the plain patches, placed as in the candidate.

    Raises an ErrorGroup if they depend on changes by a guarded patch: then the two cannot be separated.
    """
    plain = [part for part in parts if part.patch.is_plain]
    if not plain or candidate.archs == (PLAIN,):
        return None  # no patch has a guard, so this tree is not needed
    files = read_upstream(repository, candidate.base, series.read)
    changes: dict[str, bytes] = {}
    gone: set[str] = set()
    every = load_profiles(workspace.series.profiles, candidate.archs)
    for part in plain:
        selected = Selected(patch=part.patch, targets=every, reason="")
        placed = place_patch(selected, files, workspace.series.patches, workspace.series.templates)
        files.write(placed.changes, placed.gone, placed.modes)
        changes = {path: data for path, data in changes.items() if path not in placed.gone}
        changes |= placed.changes
        gone = gone.union(placed.gone) - placed.changes.keys()
    return overlay_tree(baseline, changes, "plain", below=".", gone=gone)


def _patch_of(series: Series, candidate: Candidate, commit: CandidateCommit, profiles: Path) -> Patch:
    patch = series.patch(commit.id)
    if patch is None:
        raise GitError(
            f"{candidate.branch} has a commit of patch '{commit.id}', which is not in the series",
            code="CANDIDATE_STALE",
            where=Location(path=candidate.ref),
            why="the candidate was made from another series, or the patch was renamed since then",
            hint=shlex.join(["patchkit", "apply", *arch_options(candidate.archs, profiles)]),
        )
    return patch


def _part(
    repository: Repository, patch: Patch, commit: CandidateCommit, profiles: Mapping[str, ArchProfile]
) -> PatchPart:
    trailers = repository.git.run("log", "-1", _PROFILES, commit.commit, "--").decode("utf-8", "replace")
    targets = [profiles[line.split()[0]] for line in trailers.splitlines() if line.strip()]
    changes = repository.git.changes(f"{commit.commit}^", commit.commit)
    return PatchPart(
        patch=patch,
        commit=commit.commit,
        guard=make_guard(patch.guard, targets),
        touched=tuple(change.path for change in changes if change.letter != "A"),
        new_files=tuple(change.path for change in changes if change.letter == "A"),
    )


def _authors(
    repository: Repository, candidate: Candidate, parts: Sequence[PatchPart], root: Path
) -> dict[str, tuple[str | None, ...]]:
    by_commit = {part.commit: part.id for part in parts}
    paths = sorted({path for part in parts for path in (*part.touched, *part.new_files)})
    found: dict[str, tuple[str | None, ...]] = {}
    for path in paths:
        if not (root / path).is_file():
            continue
        out = repository.git.run(
            "blame", "--porcelain", "-s", f"{candidate.base}..{candidate.tip}", "--", path
        )
        found[path] = tuple(by_commit.get(sha) for sha in _blamed(out))
    return found


def _blamed(porcelain: bytes) -> list[str]:
    """The commit of each line. A header is a hash and two or three numbers; a text line starts with a tab."""
    commits: list[str] = []
    current = ""
    for line in porcelain.split(b"\n"):
        if line.startswith(b"\t"):
            commits.append(current)
            continue
        words = line.split(b" ")
        if len(words) in {3, 4} and len(words[0]) == 40 and words[1].isdigit():  # noqa: PLR2004 - as above
            current = words[0].decode("ascii")
    return commits
