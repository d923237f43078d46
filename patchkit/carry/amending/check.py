"""Place the series before and after a change of its patches, on every build where the lock records them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import AnchorError, Location, PatchkitError, raise_all
from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import Workspace
from patchkit.carry.amending.site import Site
from patchkit.carry.amending.staged import Amendment
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.lock import holding_results, renew_inputs
from patchkit.carry.candidate.plan import Plan, make_plan
from patchkit.carry.candidate.relock import request_of
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.series.lock import Result, load_lock
from patchkit.carry.series.profile import targets_of
from patchkit.carry.upstream.pin import find_pinned

Ids = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Turns the ids of patches in a request for one series into those for another."""

_Files = dict[str, tuple[bytes | None, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The series before and after a change, placed for the same GPUs on the same build."""

    request: Request
    before: Plan
    after: Plan

    @property
    def name(self) -> str:
        """The build and the GPUs."""
        return f"{self.before.pin.name} {'+'.join(self.before.archs)}"

    @property
    def broken(self) -> tuple[str, ...]:
        """The patches that can be placed before the change and not after it."""
        failed = {each.id for each in self.before.patches if each.state == "failed"}
        return tuple(
            each.id for each in self.after.patches if each.state == "failed" and each.id not in failed
        )

    @property
    def differing(self) -> tuple[str, ...]:
        """The files that are not the same at the end of the series."""
        before, after = _files(self.before), _files(self.after)
        return tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))


def _files(plan: Plan) -> _Files:
    """Content and mode of every path that a plan changes; None for a path that it removes."""
    found: _Files = {}
    for _, placed in plan.steps:
        found |= dict.fromkeys(placed.gone, (None, None))
        for path, data in placed.changes.items():
            mode = placed.modes.get(path) or found.get(path, (None, None))[1]
            found[path] = (data, mode)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The builds where a change was compared. ``unchecked``: results of the lock, on builds not cached."""

    compared: tuple[Compared, ...]
    unchecked: tuple[str, ...]


def without(gone: Collection[str]) -> Ids:
    """The ids in a series without some patches."""
    return lambda ids: tuple(name for name in ids if name not in gone)


def compare_series(
    changed: Workspace,
    pipeline: Pipeline,
    named: Sequence[str],
    site: Site | None,
    ids: Ids = tuple,
) -> Checked:
    """Place the series before and after the change, at a site and for each result that has a named patch.

    ``changed`` is the workspace of the changed copy. ``ids`` turns ids of the old series into those of
    the new one. Raises PatchkitError if a request is not possible.
    """
    workspace, lock = pipeline.workspace, pipeline.lock
    new_lock = load_lock(changed.series.lock)  # the places of edits that moved are those of another patch
    followed = {pin.name: pin.followed for pin in new_lock.pins}
    requests: list[Request] = []
    unchecked: list[str] = []
    known = set(targets_of(workspace.series.profiles))
    for result in lock.results:
        if not {*named} & {*result.patches} or not known.issuperset(result.archs):
            continue
        if find_pinned(pipeline.repository, lock.pin(result.pin)) is None:
            unchecked.append(result.name)
            continue
        request = request_of(result, lock, workspace)
        requests += [request] if request not in requests else []
    if site is not None and all(lock.pin(each.upstream).build != site.pin.build for each in requests):
        requests.append(Request(archs=site.archs, upstream=site.pin, with_=tuple(named)))
    found = []
    for number, request in enumerate(requests, 1):
        name = f"{lock.pin(request.upstream).name} {'+'.join(request.archs)}"
        workspace.reporter.step(f"placing the series at {name}, {number} of {len(requests)}")
        before = make_plan(request, _quiet(workspace), pipeline.cache, lock)
        pin = lock.pin(request.upstream)
        new_pin = replace(pin, followed=followed.get(pin.name, pin.followed))
        new = replace(
            request,
            only=ids(request.only),
            with_=ids(request.with_),
            without=ids(request.without),
            upstream=new_pin,
        )
        after = make_plan(new, _quiet(changed), pipeline.cache, new_lock)
        found.append(Compared(request=request, before=before, after=after))
    return Checked(compared=tuple(found), unchecked=tuple(unchecked))


def _quiet(workspace: Workspace) -> Workspace:
    return replace(workspace, reporter=NullReporter())


def broken_errors(checked: Checked, change: str, hint: str) -> list[PatchkitError]:
    """An error for each patch that a change keeps from being placed, followed by the reasons."""
    errors: list[PatchkitError] = []
    for each in checked.compared:
        if not each.broken:
            continue
        known = {(error.code, error.message) for error in each.before.errors}
        new = [error for error in each.after.errors if (error.code, error.message) not in known]
        series = each.after.decision.series
        errors.append(
            AnchorError(
                f"{', '.join(each.broken)} cannot be placed at {each.name} after {change}",
                code="AMEND_BREAKS",
                where=[series.require(name).where for name in each.broken],
                why="\n".join(error.message for error in new),
                hint=hint,
            )
        )
        errors += new
    return errors


def require_equal(checked: Checked, change: str, hint: str) -> None:
    """Raise AMEND_BREAKS if the end of the series is not the same before and after a change."""
    errors = broken_errors(checked, change, hint)
    for each in checked.compared:
        if not each.broken and not each.before.errors and each.differing:
            errors.append(
                AnchorError(
                    f"{change} changes the result at {each.name}",
                    code="AMEND_BREAKS",
                    where=[Location(path=path) for path in each.differing],
                    why="the files at the end of the series have to stay the same",
                    hint=hint,
                )
            )
    raise_all(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """The lock after a change.

    ``renewed``: results whose file digests were updated. ``stale``: results to record again.
    """

    json_keys: ClassVar = "lock_renewed=renewed lock_stale=stale"

    renewed: tuple[str, ...]
    stale: tuple[str, ...]


def renew_lock(
    amendment: Amendment,
    pipeline: Pipeline,
    named: Collection[str],
    is_same: Callable[[Result], bool],
) -> LockState:
    """Record the new digests of files for the results with a named patch that the change does not affect.

    Only results whose files were as recorded before the change are renewed.
    """
    having = [result for result in pipeline.lock.results if {*named} & {*result.patches}]
    held = set().union(*(holding_results(pipeline.lock, name, pipeline.workspace.series) for name in named))
    keys = [result.key for result in having if result.key in held and is_same(result)]
    renewed = renew_inputs(keys, amendment.series)
    return LockState(
        renewed=tuple(result.name for result in renewed),
        stale=tuple(result.name for result in having if result.key not in keys),
    )
