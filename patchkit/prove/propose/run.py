"""``patchkit propose``: the commits of a pull request to llama.cpp, with the data that reviewers ask for.

The commit is that of the patch without run-time switches, and with upstream's guards. Cases for
test-backend-ops are a second commit, so that they can be run without the first. They are plain patches in
``proposals/``, next to fixes that are only meant for upstream. Upstream forbids commit messages and
descriptions that a program wrote, so these are left to the person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.arch import list_profiles
from patchkit.base.errors import ErrorGroup, UsageError
from patchkit.base.files import usable_place
from patchkit.base.series_folder import SeriesDir
from patchkit.base.upstreams import build_name, llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Wish, decide
from patchkit.carry.candidate.plan import place
from patchkit.carry.candidate.upstream_form import host_macro
from patchkit.carry.candidate.widened import upstream_commit, upstream_family
from patchkit.carry.onto.pin import Onto, find_commit_pin
from patchkit.carry.placing.context import make_guard
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.lock import Pin, PinWanted, load_lock
from patchkit.carry.series.measured import PatchMeasured, measured_in
from patchkit.carry.series.patch import GuardMacros, Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profile
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.commits import NewCommit, write_commits
from patchkit.carry.upstream.export import format_mailbox
from patchkit.carry.upstream.exported import ExportedTree, export_pin, export_tree
from patchkit.carry.upstream.repository import Repository
from patchkit.prove.gates.resources import KernelRow
from patchkit.prove.propose.compiled import compile_both
from patchkit.prove.propose.folder import Facts, write_folder
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import check_archs, find_toolchain
from patchkit.toolchain.units import SourceTree

PROPOSALS = "proposals"
"""The folder of a series with patches that are only meant for upstream: fixes, and test cases."""
_CASES = "-test"  # what the id of a patch with the cases for another patch ends with
_MESSAGE = (
    "TODO: write the title of this {kind} yourself\n\n"
    "Write this message yourself: llama.cpp does not take messages that a program wrote (its AGENTS.md).\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeRequest:
    """The patch to propose, and the folder to write.

    ``arch`` is the GPU that the patch is placed for, on a pin of the lock, or on ``onto``, a commit of the
    user's clone. ``others`` are further GPUs to compile for; if empty, those of the family, if the patch is
    for a family. ``likely``: compile only the source files that most likely change, as in ``try``.
    """

    patch: str
    arch: str
    directory: Path
    others: tuple[str, ...] = ()
    upstream: PinWanted = None
    onto: Onto | None = None
    likely: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The folder. ``base`` is the commit that the files apply to, ``gpus`` are those that the change is for.

    ``build`` is 0 if it is unknown for a commit of the user's clone. ``cases``: there is a commit with cases
    for test-backend-ops. ``kernels`` are those whose code changed on the GPUs in ``compiled_for``, in
    ``units`` compiled files; ``skipped`` files were not compiled. ``rules_changed``: texts with upstream's
    rules that differ from those that patchkit knows.
    """

    json_keys: ClassVar = (
        "patch build base directory files gpus cases compiled_for units skipped kernels rules_changed"
    )

    patch: str
    build: int
    base: str
    directory: Path
    files: tuple[str, ...]
    gpus: tuple[str, ...]
    cases: bool
    compiled_for: tuple[str, ...]
    units: int
    skipped: int
    kernels: tuple[KernelRow, ...]
    rules_changed: tuple[str, ...]


def run_propose(workspace: Workspace, request: ProposeRequest, environ: Mapping[str, str]) -> Proposal:
    """Write the folder. No ref moves, and nothing leaves this machine.

    Raises:
        UNKNOWN_PATCH: neither the series nor its proposals have the patch.
        PROPOSE_REFUSED: upstream has it, it is for other builds, it needs other patches, or a guard has no
            form for upstream.
        PLACE_UNUSABLE: the folder is not empty, or cannot be used.
        NOTHING_SELECTED, an ErrorGroup: the patch is not for this GPU, or cannot be placed.
        CompileFailed: a source file does not compile.
        ToolchainMissing, SDK_UNUSABLE: no compiler, or none for these GPUs.
        The errors of reading the series, of git and of the disk.
    """
    directory = _empty_place(request.directory, workspace)
    work = _Work.make(workspace, request)
    _refuse(work.patch, work.pin)
    toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    more = request.others or (work.gpus if work.family is not None else ())
    compiled_for = tuple(dict.fromkeys([request.arch, *more]))
    check_archs(toolchain, compiled_for, workspace.reporter)
    before = export_pin(work.pin, workspace)
    if work.family is not None:
        _check_macro(before, work.family)
    after, files = _write_commits(work, before)
    profiles = {each: load_profile(workspace.series.profiles, each) for each in compiled_for}
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    trees = SourceTree(before.root), SourceTree(after.root)
    compiled = compile_both(trees, profiles, compiler, likely=request.likely)
    facts = Facts(
        patch=work.patch,
        cases=work.cases,
        pin=work.pin,
        base=before.commit,
        root=before.root,
        family=work.family,
        gpus=tuple(load_profile(workspace.series.profiles, each) for each in work.gpus),
        compiled=compiled,
        compiled_for=compiled_for,
        toolchain=toolchain,
        measured=_measured(workspace.series, work),
    )
    names, changed = write_folder(directory, facts, files)
    return Proposal(
        patch=request.patch,
        build=work.pin.build,
        base=before.commit,
        directory=directory,
        files=names,
        gpus=work.gpus,
        cases=work.cases is not None,
        compiled_for=compiled_for,
        units=compiled.units,
        skipped=compiled.skipped,
        kernels=compiled.rows,
        rules_changed=changed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The change: a patch of ``series``, which is in ``folder``; ``cases`` is a patch of ``proposals``.

    ``family`` is None if the change is for all GPUs.
    """

    workspace: Workspace
    series: Series
    folder: SeriesDir
    proposals: Series | None
    patch: Patch
    cases: Patch | None
    profile: ArchProfile
    family: str | None
    pin: Pin

    @classmethod
    def make(cls, workspace: Workspace, request: ProposeRequest) -> _Work:
        """Find the patch and its cases. Raises UNKNOWN_PATCH, and the errors of reading the series."""
        place = _folder(workspace.series)
        proposals = load_series(place.patches) if place.patches.is_dir() else None
        series, folder = load_series(workspace.series.patches), workspace.series
        if proposals is not None and proposals.patch(request.patch) is not None:
            series, folder = proposals, place
        try:
            patch = series.require(request.patch)
        except UsageError as error:
            if proposals is not None:
                only = ", ".join(each.id for each in proposals.patches if not each.id.endswith(_CASES))
                error.why = f"{PROPOSALS}/ does not have it either, only {only}"
            raise
        profile = load_profile(workspace.series.profiles, request.arch)
        lock = load_lock(workspace.series.lock)
        return cls(
            workspace=workspace,
            series=series,
            folder=folder,
            proposals=proposals,
            patch=patch,
            cases=proposals.patch(request.patch + _CASES) if proposals is not None else None,
            profile=profile,
            family=upstream_family(patch, series, profile),
            pin=lock.pin(request.upstream)
            if request.onto is None
            else find_commit_pin(request.onto, workspace),
        )

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs with a profile that the change is for."""
        known = list_profiles(self.workspace.series.profiles)
        if self.family is None:
            return tuple(known)
        return tuple(arch for arch in known if arch in self.profile.relatives[self.family])

    def change(self, base: str, repository: Repository) -> NewCommit:
        """The commit of the patch; raises an ErrorGroup, NOTHING_SELECTED and PROPOSE_REFUSED."""
        profile = NO_GPU if self.patch.is_plain else self.profile
        tip = self._tip(self.series, self.folder, self.patch, profile, base, repository)
        guard = None if self.patch.is_plain else make_guard(self.patch.guard, [profile])
        is_within = isinstance(self.patch.guard, GuardMacros) and self.patch.guard.within_family
        family = None if is_within else self.family
        return upstream_commit(repository, tip, _MESSAGE.format(kind="change"), guard, family)

    def tests(self, base: str, repository: Repository) -> NewCommit | None:
        """The commit of the cases, None if there are none; raises an ErrorGroup and NOTHING_SELECTED."""
        if self.proposals is None or self.cases is None:
            return None
        folder = _folder(self.workspace.series)
        tip = self._tip(self.proposals, folder, self.cases, NO_GPU, base, repository)
        return upstream_commit(repository, tip, _MESSAGE.format(kind="test"), None, None)

    def _tip(
        self,
        series: Series,
        folder: SeriesDir,
        patch: Patch,
        profile: ArchProfile,
        base: str,
        repository: Repository,
    ) -> str:
        switches = tuple(each.id for each in series.patches if each.switches is not None)
        wish = Wish(only=(patch.id,), with_=() if patch.is_plain else (patch.id,), without=switches)
        decision = decide(series, (profile,), self.pin, wish)
        plan = place(decision, base, replace(self.workspace, series=folder), repository)
        if plan.errors:
            raise ErrorGroup(f"'{patch.id}' cannot be placed", plan.errors)
        return write_plan(plan, repository, unlocked=True)[0].tip


def make_patches(workspace: Workspace, request: ProposeRequest) -> dict[str, bytes]:
    """The files for git am alone, by name: the change, and its test cases if there are any.

    Raises as :func:`run_propose`; nothing is compiled or written.
    """
    work = _Work.make(workspace, request)
    _refuse(work.patch, work.pin)
    return _write_commits(work, export_pin(work.pin, workspace))[1]


def _write_commits(work: _Work, before: ExportedTree) -> tuple[ExportedTree, dict[str, bytes]]:
    """The tree with the change alone, and the files for git am."""
    cache = open_cache(work.workspace.cache_root)
    with cache.hold(work.workspace.reporter) as repository:
        commits = {"change": work.change(before.commit, repository)}
        tests = work.tests(before.commit, repository)
        if tests is not None:
            commits["tests"] = tests
        written = write_commits(repository, before.commit, list(commits.values()), date=work.pin.committed)
        ends = [before.commit, *(each.commit for each in written)]
        files = {
            f"{number:04d}-{kind}.patch": format_mailbox(repository, ends[number - 1], ends[number])
            for number, kind in enumerate(commits, 1)
        }
        trees = work.workspace.cache_root / "trees"
        return export_tree(repository, ends[1], trees, like=before), files


def _folder(series: SeriesDir) -> SeriesDir:
    return replace(series, root=series.root / PROPOSALS)


def _empty_place(directory: Path, workspace: Workspace) -> Path:
    directory = usable_place(directory, (workspace.cache_root, *workspace.series.folders))
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} is not an empty folder",
            code="PLACE_UNUSABLE",
            why="it may have parts of a pull request that you wrote, so nothing is overwritten",
            hint="name a new folder",
        )
    return directory


def _refuse(patch: Patch, pin: Pin) -> None:
    """Raise PROPOSE_REFUSED for a patch that upstream has or has no use for, or that needs others."""
    if patch.switches is not None:
        raise UsageError(
            f"'{patch.id}' is only for patched builds",
            code="PROPOSE_REFUSED",
            where=patch.where,
            why="it has the switches that turn patches off at run time, which a pull request leaves out",
            hint="name another patch; patchkit list shows them",
        )
    if patch.upstream is not None and patch.upstream.merged_in is not None:
        since = build_name(patch.upstream.merged_in)
        raise UsageError(
            f"there is nothing to propose: upstream has '{patch.id}' since {since}",
            code="PROPOSE_REFUSED",
            where=patch.where,
            why=patch.upstream.url or patch.upstream_text,
        )
    if pin.build and not patch.builds.covers(pin.build):
        until = f"to {build_name(patch.builds.last)}" if patch.builds.last is not None else "and later"
        raise UsageError(
            f"'{patch.id}' is not for {build_name(pin.build)}",
            code="PROPOSE_REFUSED",
            where=patch.where,
            why=f"it is for {build_name(patch.builds.first)} {until}: {patch.builds.why}",
        )
    if patch.requires:
        needed = ", ".join(each.patch for each in patch.requires)
        raise UsageError(
            f"'{patch.id}' cannot be proposed alone: it requires {needed}",
            code="PROPOSE_REFUSED",
            where=patch.where,
            why="a pull request to llama.cpp has one change",
            hint=f"propose {needed} first",
        )


def _check_macro(tree: ExportedTree, family: str) -> None:
    """Raise PROPOSE_REFUSED if upstream has no macro for the family."""
    file = llama_cpp().gpu_file("common.cuh")
    text = (tree.root / file).read_text("utf-8", "replace")
    if re.search(rf"#define {host_macro(family)}\(", text) is None:
        raise UsageError(
            f"{file} does not define {host_macro(family)}",
            code="PROPOSE_REFUSED",
            why="the change is for one family of GPUs, and this build has no macro for it",
        )


def _measured(series: SeriesDir, work: _Work) -> tuple[PatchMeasured, ...]:
    if work.folder != series:
        return ()  # a proposal, which no candidate has
    return measured_in(series, {work.patch.id: work.patch.folder})
