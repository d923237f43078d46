"""Classify every patch on a commit of the user's clone, and plan those that can be placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import (
    AnchorError,
    ErrorGroup,
    GitError,
    Location,
    PatchkitError,
    SourceError,
    UsageError,
)
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import llama_cpp
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Request, Wish, required_by
from patchkit.carry.candidate.plan import Plan, PlannedPatch, make_plan
from patchkit.carry.candidate.renames import faulted_series
from patchkit.carry.candidate.target import known_pins
from patchkit.carry.judging.classes import GOOD, Classified
from patchkit.carry.judging.judge import JudgedSeries, SeriesJudge
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.onto.builds_by_code import read_code
from patchkit.carry.onto.own import OwnCommit, find_own, revert_own
from patchkit.carry.onto.pin import BuildFound, Onto, build_of, pin_of
from patchkit.carry.onto.project import find_project
from patchkit.carry.placing.tree import UpstreamFiles
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.fault import find_faults
from patchkit.carry.series.lock import Lock, Pin, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, load_profiles
from patchkit.carry.series.selection import Selected, terms_of
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.clone import Clone, Commit, copy_commit, open_clone
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository


def _last_renderings(
    decision: Decision, lock: Lock, clone: Clone, judge: SeriesJudge, cache: Cache
) -> tuple[dict[str, Rendering], tuple[str, ...]]:
    """The last rendering of each chosen patch, from the pins nearest to the build; and these pins' names.

    If a pin cannot be fetched, this warns and continues; patches without a rendering are not compared.
    """
    wanted = [each.patch for each in decision.selected if each.targets]
    wish = Wish(with_=decision.with_, without=decision.without)
    build, reporter = decision.pin.build, judge.workspace.reporter
    project = decision.pin.project or llama_cpp()
    found: dict[str, Rendering] = {}
    used: list[str] = []
    for pin in sorted(lock.pins, key=lambda pin: (abs(pin.build - build), pin.build)):
        if not any(each.id not in found and each.builds.covers(pin.build) for each in wanted):
            continue
        try:
            fetched = _copy_from_clone(pin, clone, judge.repository)
            commit = obtain(pin, cache=cache, fetched=fetched, reporter=reporter)
            then = judge.decide(replace(pin, project=project), decision.archs, wish)
            shown_as = None if project.is_laid_out_as(llama_cpp()) else project
            found = {**judge.render(then, judge.read(commit, shown_as=shown_as)), **found}
        except (SourceError, GitError, ErrorGroup) as error:
            reporter.warn(
                f"could not fetch {pin.name} for comparison; moved edits may not be detected: {error.message}"
            )
            continue
        used.append(pin.name)
    return found, tuple(used)


def _copy_from_clone(pin: Pin, clone: Clone, repository: Repository) -> str | None:
    """Copy the pin's commit from the clone, if that has all of it, so that it need not be downloaded."""
    if pin.commit is None or pin.commit_object is None or repository.has_object(f"{pin.tree}^{{tree}}"):
        return None
    if not clone.ask("rev-parse", "--verify", "--quiet", f"{pin.commit}^{{commit}}"):
        return None
    try:
        copy_commit(clone, pin.commit, pin.tree, repository)
    except GitError:
        return None
    return pin.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class OntoPlan:
    """The plan for a commit. ``verdicts`` has one entry per patch of the series.

    ``reference``: names of the pins that the patches were compared with. ``dropped``: conflicts that
    ``--drop-conflicts`` excluded. ``is_head``: whether the clone has the commit checked out. ``replaced``:
    patchkit's commits in the history that are reverted first.
    """

    json_keys: ClassVar = (
        "project repository=clone.top commit=commit.sha build compared_with=reference dropped opt_in "
        "opt_in_here replaced"
    )

    plan: Plan
    clone: Clone
    commit: Commit
    build: BuildFound
    verdicts: tuple[Classified, ...]
    reference: tuple[str, ...]
    dropped: tuple[str, ...]
    is_head: bool
    replaced: tuple[OwnCommit, ...] = ()

    @property
    def project(self) -> str:
        """The name of the project, with its folder if the repository keeps it in one."""
        return (self.plan.pin.project or llama_cpp()).title

    @property
    def not_replaced(self) -> tuple[str, ...]:
        """The patches of ``replaced`` that are not applied again."""
        again = {each.id for each in self.plan.patches if each.state == "apply"}
        return tuple(dict.fromkeys(each.id for each in reversed(self.replaced) if each.id not in again))

    @property
    def in_range(self) -> frozenset[str]:
        """Patches that these GPUs get on this build, including those that failed or are unnecessary."""
        return frozenset(
            each.id
            for each in self.verdicts
            if each.patch_class in GOOD
            or (each.patch_class not in {"off", "out of range"} and self._covers(each.id))
        )

    def _covers(self, name: str) -> bool:
        patch = self.plan.decision.series.patch(name)
        return patch is not None and patch.builds.covers(self.plan.pin.build)

    @property
    def opt_in(self) -> tuple[str, ...]:
        """Placed patches that are opt-in for these GPUs."""
        return self.plan.decision.opted_in(each.id for each in self.plan.patches if each.placed is not None)

    @property
    def opt_in_here(self) -> tuple[str, ...]:
        """Patches for this build that are opt-in for these GPUs, and available."""
        return tuple(sorted(self.plan.decision.offered))


def place_request(request: Request, onto: Onto | None, workspace: Workspace) -> Plan:
    """The plan of a request on its pin, or on a commit of the user's clone.

    Raises an ErrorGroup of everything that could not be placed, and as :func:`make_plan` and
    :func:`plan_onto`.
    """
    cache = open_cache(workspace.cache_root)
    plan = (
        make_plan(request, workspace, cache)
        if onto is None
        else plan_onto(request, onto, workspace, cache).plan
    )
    if plan.errors:
        raise ErrorGroup("the series cannot be placed", plan.errors)
    return plan


def plan_onto(
    request: Request, onto: Onto, workspace: Workspace, cache: Cache, *, drop_conflicts: bool = False
) -> OntoPlan:
    """Copy the commit into the cache, classify every patch on it, and plan. The clone is only read.

    Patches that cannot be placed are in ``plan.errors``, or excluded with ``drop_conflicts``. Raises as
    :func:`patchkit.carry.onto.apply.run_onto`.
    """
    series_dir = workspace.series
    lock = load_lock(series_dir.lock)
    series = load_series(series_dir.patches)
    profiles = load_profiles(series_dir.profiles, request.archs)
    folders = series.folders or (llama_cpp().folders.library,)
    there = find_project(
        onto.directory, onto.revision, open_clone(onto.directory, workspace.reporter), folders
    )
    clone, commit, project = there.clone, there.commit, there.project
    archs = [profile.arch for profile in profiles]
    code = read_code(there, series.faults)
    faults = code.faults if code is not None else None
    here = faulted_series(series, faults)
    build = build_of(
        onto,
        there,
        code,
        known_pins(lock, workspace.series.catalogue),
        workspace,
        _relevant(here, profiles, request),
        lambda number: find_faults(here.faults, number, archs, ()),
    )
    pin = pin_of(clone, commit, build.low, project, faults)
    with cache.hold(workspace.reporter) as repository:
        obtain(pin, cache=cache, reporter=workspace.reporter)
        own = find_own(clone, commit, {patch.id for patch in series.patches}, repository)
        _refuse_other_gpus(own, request, clone)
        without = revert_own(own, commit, clone, repository)
        if without is not None:
            pin = pin_of(clone, without.commit, build.low, project, faults)
            obtain(pin, cache=cache, fetched=pin.commit, reporter=workspace.reporter)
        judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
        decision = judge.decide(pin, archs, request)
        files = judge.read(str(pin.commit), project)
        decision.report_brought(workspace.reporter)
        decision.warn_of_faults(workspace.reporter)
        last, reference = _last_renderings(decision, lock, clone, judge, cache)
        judged = judge.judge(decision, files, last, is_pin=False)
    _refuse_patched(judged, files, commit)
    in_range = {*decision.ids}
    conflicts = tuple(
        each
        for each in judged.verdicts
        if each.patch_class == "conflict" or (each.patch_class == "retired" and each.id in in_range)
    )
    errors = () if drop_conflicts else _errors(conflicts, commit)
    plan = Plan(
        decision=decision,
        pin=judged.pin,
        base=str(pin.commit),
        patches=tuple(_planned(judged, is_failed=bool(errors))),
        errors=errors,
    )
    return OntoPlan(
        plan=plan,
        clone=clone,
        commit=commit,
        build=build,
        verdicts=judged.verdicts,
        reference=reference,
        dropped=tuple(each.id for each in conflicts) if drop_conflicts else (),
        is_head=clone.ask("rev-parse", "--verify", "--quiet", "HEAD") == (commit.sha,),
        replaced=without.commits if without is not None else (),
    )


def _refuse_other_gpus(own: Sequence[OwnCommit], request: Request, clone: Clone) -> None:
    """Refuse to revert patches for other GPUs, which would not be applied again. Raises ONTO_PATCHED."""
    others = [each for each in own if each.archs and not set(each.archs) <= set(request.archs)]
    if others:
        archs = sorted({arch for each in others for arch in each.archs} | {*request.archs} - {PLAIN})
        raise UsageError(
            f"the history contains patchkit's commits for {' '.join(others[0].archs)}",
            code="ONTO_PATCHED",
            where=[Location(path=str(clone.top), label=f"{each.sha[:12]} {each.id}") for each in others],
            why="a branch has the patches for all of its GPUs; making it again would lose these",
            hint=f"name all of its GPUs: {' '.join(f'--arch {arch}' for arch in archs)}",
        )


def _refuse_patched(judged: JudgedSeries, files: UpstreamFiles, commit: Commit) -> None:
    """Refuse a commit that has a part of a patch, because the code would be duplicated, and compile.

    A patch that the commit has as a whole is classified as upstreamed. Here a function has our guard, but the
    patch is not there as a whole. Raises ONTO_PATCHED.
    """
    classes = {each.id: each.patch_class for each in judged.verdicts}
    found: dict[str, str] = {}
    for selected in judged.decision.selected:
        patch = selected.patch
        if not selected.targets or patch.is_plain or classes[patch.id] not in {*GOOD, "conflict"}:
            continue
        for edit in patch.edits:
            if edit.function is None or edit.file not in files.base:
                continue
            scopes = files.upstream_scopes(edit.file)
            for entity in scopes.entities:
                text = scopes.source.data[entity.span.start : entity.span.end]
                if entity.answers_to(edit.function) and _is_guarded(selected, text):
                    found.setdefault(f"{entity.name} in {edit.file}", patch.id)
    if found:
        raise UsageError(
            f"{commit.sha[:12]} already contains changes of patchkit",
            code="ONTO_PATCHED",
            where=[Location(path=place, label=patch) for place, patch in found.items()],
            why="these functions already have code under the guard for the same GPUs; it would be duplicated",
            hint="use a commit without them (--onto REV), or remove them first with git revert or "
            "git rebase --onto (git log --committer=patchkit finds them)",
        )


def _is_guarded(selected: Selected, text: bytes) -> bool:
    """Whether a line checks for a GPU of the patch and for all macros of its guard."""
    macros = [f"defined({macro})".encode() for macro in selected.patch.macros]
    gpus = [f"defined({profile.device_macro})".encode() for profile in selected.targets]
    return any(
        all(macro in line for macro in macros) and any(gpu in line for gpu in gpus)
        for line in text.splitlines()
    )


def _relevant(series: Series, profiles: Sequence[ArchProfile], request: Request) -> list[Patch]:
    """Patches that these GPUs get at some build, so that the build range of each must be decided."""
    found = []
    with_ = {*request.with_, *required_by(series, request.with_)}
    for patch in series.patches:
        choices = {terms_of(series, patch, profile, None).default for profile in profiles}
        named = request.with_opt_in or request.trust is not None or patch.id in with_
        is_wanted = "opt-in" in choices and named
        is_excluded = patch.id in request.without or (request.only and patch.id not in request.only)
        if ("on" in choices or is_wanted) and not is_excluded:
            found.append(patch)
    return found


def _errors(conflicts: Sequence[Classified], commit: Commit) -> tuple[PatchkitError, ...]:
    """The conflicts as errors: causes first, then their consequences, and last what to do."""
    found: list[PatchkitError] = []
    for verdict in sorted(conflicts, key=lambda each: not each.problems):
        found += verdict.problems
        if not verdict.problems:
            lines = verdict.agreement.lines if verdict.agreement is not None else ()
            found.append(
                AnchorError(
                    f"{verdict.id}: {verdict.reason}", code="ONTO_CONFLICT", why="\n".join(lines) or None
                )
            )
    if conflicts:
        without = " ".join(f"--without {each.id}" for each in conflicts)
        found.append(
            AnchorError(
                f"these patches cannot be placed on {commit.sha[:12]}: "
                f"{', '.join(each.id for each in conflicts)}",
                code="ONTO_CONFLICT",
                why="\n".join(f"{each.id} ({each.patch_class}): {each.reason}" for each in conflicts),
                hint=f"no branch was made. Exclude them by name ({without}), or every patch that cannot be "
                "placed (--drop-conflicts); patchkit plan with the same options shows both sides",
            )
        )
    return tuple(found)


def _planned(judged: JudgedSeries, *, is_failed: bool) -> Iterator[PlannedPatch]:
    """Each patch of the series, as ``plan`` shows it."""
    renderings = judged.last
    for selected, verdict in zip(judged.decision.selected, judged.verdicts, strict=True):
        rendering = renderings.get(selected.patch.id)
        if rendering is not None:
            yield PlannedPatch(selected=rendering.selected, placed=rendering.placed, state="apply")
            continue
        failed = is_failed and verdict.patch_class in {"conflict", "retired"} and bool(selected.targets)
        yield PlannedPatch(
            selected=selected,
            placed=None,
            state="failed" if failed else "skipped",
            reason=selected.reason or f"{verdict.patch_class}: {verdict.reason}",
        )
