"""Resolve all patches that are in conflict on a build: what git can merge, and one folder for the rest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import InterruptNote, Location, PatchkitError, UsageError
from patchkit.base.files import disk_errors
from patchkit.base.series_folder import refuse_installed
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.history import with_commits
from patchkit.carry.bump.request import BumpRequest, Variant, find_variants
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.judging.classes import Classified
from patchkit.carry.judging.conflict_markers import Order
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.resolving.case import Case, Destination, Resolved, find_case, regenerate, with_order
from patchkit.carry.resolving.conflict import STATE
from patchkit.carry.resolving.run import (
    Conflicted,
    ResolveRequest,
    abort_resolve,
    continue_resolve,
    find_target,
    obtain_target,
    regenerate_case,
    write_conflict,
)
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import obtain
from patchkit.carry.upstream.repository import Repository

FOLDER = Path("conflicts")
"""The default folder, in the current one, with a folder per patch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerated:
    """The plain patches that were resolved before a bump; ``left``: those still in conflict, and why."""

    json_keys: ClassVar = "regenerated=done left"

    done: tuple[Resolved, ...]
    left: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All conflicts of one build. ``conflicts``: those written to folders below ``folder`` for the user.

    ``unfinished``: patches whose folder was there before, and is kept. ``waiting``: patches that cannot be
    resolved yet, or only by hand, with the reason.
    """

    json_keys: ClassVar = "build folder regenerated=done conflicts unfinished waiting"

    build: int
    folder: Path
    done: tuple[Resolved, ...]
    conflicts: tuple[Conflicted, ...]
    unfinished: tuple[str, ...]
    waiting: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The folders of a session that became edits, and the errors of those that are not finished.

    ``kept``: files that patchkit did not write, by folder.
    """

    json_keys: ClassVar = "build folder resolved=done errors kept"

    build: int
    folder: Path
    done: tuple[Resolved, ...]
    errors: dict[str, PatchkitError]
    kept: dict[str, tuple[str, ...]]


@dataclass(slots=True)
class _Each:
    """The result for each patch in conflict. ``open``: what the user has to look at, by patch."""

    done: list[Resolved] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    open: dict[str, tuple[Case, Variant, Sequence[PatchkitError]]] = field(default_factory=dict)


def regenerate_all(request: BumpRequest, workspace: Workspace) -> Regenerated:
    """Write new edits for every plain patch in conflict at the target that git can merge.

    Patches with a guard are named in a warning before that, and are in ``left``.

    Raises as :func:`patchkit.carry.resolving.run.run_resolve`, and as finding the variants of a bump. Patches
    are written one by one, so those written before an error are kept, and are complete.
    """
    cache = open_cache(workspace.cache_root)
    found, pin = _find(request, workspace, cache)
    each = _resolve_each(request, found, pin, workspace, cache)
    return Regenerated(done=tuple(each.done), left=each.left)


def run_session(
    request: BumpRequest, folder: Path, workspace: Workspace, order: Order | None = None
) -> Session:
    """The same, and write a folder with the conflicts of each other patch that can be resolved now.

    ``order``: where lines go that a patch inserts at the same place as upstream; None to ask. Patches with
    other conflicts, too, get a folder. Folders that are there already are kept.

    Raises as :func:`regenerate_all`, and CacheError.
    """
    cache = open_cache(workspace.cache_root)
    found, pin = _find(request, workspace, cache)
    each = _resolve_each(request, found, pin, workspace, cache, order)
    unfinished = tuple(name for name in each.open if (folder / name / STATE).exists())
    cases = {name: one for name, one in each.open.items() if name not in unfinished}
    cases = _with_commits(cases, request, found, workspace, cache)
    conflicts: list[Conflicted] = []
    command = session_command(folder, "--continue")
    waiting = {name: why for name, why in each.left.items() if name not in each.open}
    with disk_errors(folder, "writing the conflicts", "use another folder with --into"):
        if cases:
            folder.mkdir(parents=True, exist_ok=True)
    with cache.hold(workspace.reporter) as repository:
        lock = load_lock(workspace.series.lock)
        pipeline = Pipeline(workspace=workspace, cache=cache, repository=repository, lock=lock)
        for name, (case, variant, problems) in cases.items():
            one = ResolveRequest(patch=name, into=folder / name)
            try:
                conflicts.append(write_conflict(one, case, problems, variant, pipeline, command))
            except PatchkitError as error:
                waiting[name] = error.message
    return Session(
        build=pin.build,
        folder=folder,
        done=tuple(each.done),
        conflicts=tuple(conflicts),
        unfinished=unfinished,
        waiting=waiting,
    )


def continue_session(folder: Path, workspace: Workspace) -> Continued:
    """Write the user's resolution of every conflict in a folder that is finished.

    Raises UsageError. A patch is written completely or not at all; the errors of patches that are not
    finished are in the result.
    """
    names = _names_in(folder, workspace)
    done: list[Resolved] = []
    errors: dict[str, PatchkitError] = {}
    kept: dict[str, tuple[str, ...]] = {}
    with InterruptNote("patches that were written are complete; the other folders are kept"):
        for name in names:
            try:
                resolved, left = continue_resolve(ResolveRequest(patch=name, into=folder / name), workspace)
            except PatchkitError as error:
                errors[name] = error
                continue
            done.append(resolved)
            kept |= {name: left} if left else {}
    _remove_empty(folder)
    build = done[0].build if done else 0
    return Continued(build=build, folder=folder, done=tuple(done), errors=errors, kept=kept)


def abort_session(folder: Path, workspace: Workspace) -> tuple[dict[str, tuple[str, ...]], int]:
    """Remove all folders of a session; return files of others that are kept, by patch, and the build."""
    build = 0
    kept: dict[str, tuple[str, ...]] = {}
    for name in _names_in(folder, workspace):
        left, build = abort_resolve(ResolveRequest(patch=name, into=folder / name))
        kept |= {name: left} if left else {}
    _remove_empty(folder)
    return kept, build


def session_command(folder: Path, *options: str) -> str:
    """The command that goes on with a session."""
    into = ["--into", str(folder)] if folder != FOLDER else []
    return shlex.join(["patchkit", "resolve", "--all", *options, *into])


def _names_in(folder: Path, workspace: Workspace) -> tuple[str, ...]:
    """The patches of the series that have a conflict folder there, in order. Raises UsageError."""
    series = load_series(workspace.series.patches)
    names = tuple(each.id for each in series.patches if (folder / each.id / STATE).exists())
    if not names:
        raise UsageError(
            f"{folder} has no conflicts of this series",
            where=Location(path=str(folder)),
            hint="make them with patchkit resolve --all --to bN, or name their folder with --into",
        )
    return names


def _remove_empty(folder: Path) -> None:
    with disk_errors(folder, "removing the conflicts"):
        if not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _find(request: BumpRequest, workspace: Workspace, cache: Cache) -> tuple[Pin, Pin]:
    refuse_installed(workspace.series)
    lock = load_lock(workspace.series.lock)
    return find_target(request.to, request.source, request.upstream_url, lock, workspace, cache)


def _resolve_each(
    request: BumpRequest, found: Pin, pin: Pin, workspace: Workspace, cache: Cache, order: Order | None = None
) -> _Each:
    """Write what git can merge, patch by patch, and collect the rest."""
    lock = load_lock(workspace.series.lock)
    variants, _ = find_variants(request, lock, pin, workspace.series)
    result = _Each()
    with (
        InterruptNote("the series is unchanged") as note,
        cache.hold(workspace.reporter) as repository,
    ):
        target = Destination(pin=pin, base=obtain_target(request, pin, found, workspace, cache))
        pipeline = Pipeline(workspace=workspace, cache=cache, repository=repository, lock=lock)
        for variant in variants:
            plain, guarded = _in_conflict(variant, target, workspace, cache, repository)
            if guarded:
                names = ", ".join(guarded)
                workspace.reporter.warn(f"in conflict too, and to be changed by hand: {names} (GPU guard)")
            for name in guarded:
                command = shlex.join(["patchkit", "resolve", name, "--to", pin.name])
                result.left[name] = f"it has a GPU guard, so change its edits by hand; {command} shows where"
            for name in plain:
                try:
                    case = find_case(name, target, variant, workspace, cache, repository)
                    if isinstance(case, Classified):
                        continue  # the new edits of an earlier patch have resolved it
                    doubts = case.doubts()
                    done = _merged(case, order, pipeline)
                except PatchkitError as error:
                    result.left[name] = f"{error.message}: {error.why}" if error.why else error.message
                    continue
                if isinstance(done, Resolved):
                    result.done.append(done)
                    names = ", ".join(dict.fromkeys(each.patch for each in result.done))
                    note.text = f"new edits of {names} were written and are kept"
                    result.left.pop(name, None)
                    result.open.pop(name, None)
                else:
                    why = "; ".join(f"{path}: {doubt}" for path, doubt in doubts.items())
                    result.left[name] = why or "; ".join(each.message for each in done)
                    result.open.setdefault(name, (case, variant, done))
    return result


def _merged(case: Case, order: Order | None, pipeline: Pipeline) -> Resolved | tuple[PatchkitError, ...]:
    """Write git's merge, with insertions at the same place in this order; or return the errors."""
    if order is None or not case.has_only_insertions():
        return regenerate_case(case, pipeline)
    try:
        ordered = with_order(case, order)
    except PatchkitError as error:
        return (error,)
    return regenerate(ordered, pipeline, "ordered")


def _in_conflict(
    variant: Variant, target: Destination, workspace: Workspace, cache: Cache, repository: Repository
) -> tuple[list[str], list[str]]:
    """The patches of a variant in conflict at the target, in order: plain ones, and those with a guard."""
    series = load_series(workspace.series.patches)
    judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
    last: dict[str, Rendering] = {}
    for pin in variant.compared:
        then = judge.decide(pin, variant.archs, Wish(with_=variant.with_), as_recorded=True)
        last |= judge.render(then, judge.read(obtain(pin, cache=cache, reporter=workspace.reporter)))
    decision = judge.decide(target.pin, variant.archs, Wish(with_=variant.with_, without=variant.without))
    judged = judge.judge(decision, judge.read(target.base), last)
    found = [each.id for each in judged.verdicts if each.patch_class == "conflict"]
    plain = {patch.id for patch in series.patches if patch.is_plain}
    return [name for name in found if name in plain], [name for name in found if name not in plain]


_Cases = dict[str, tuple[Case, Variant, Sequence[PatchkitError]]]


def _with_commits(
    cases: _Cases, request: BumpRequest, found: Pin, workspace: Workspace, cache: Cache
) -> _Cases:
    """The cases with the upstream commits that changed their functions; one search for each old pin."""
    series = load_series(workspace.series.patches)
    verdicts: dict[str, Classified] = {}
    for old, names in _by_old_pin(cases):
        mine = tuple(cases[name][0].verdict for name in names)
        mine, _ = with_commits(mine, request, old, found, cache, series, workspace.reporter)
        verdicts |= dict(zip(names, mine, strict=True))
    return {
        name: (replace(case, verdict=verdicts[name]), variant, problems)
        for name, (case, variant, problems) in cases.items()
    }


def _by_old_pin(cases: _Cases) -> Iterator[tuple[Pin, list[str]]]:
    pins = {case.old.name: case.old for case, _, _ in cases.values()}
    for name, pin in pins.items():
        yield pin, [patch for patch, (case, _, _) in cases.items() if case.old.name == name]
