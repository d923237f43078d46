"""Record the results of the series in the lock: a single one, or all of them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, UsageError, raise_all
from patchkit.base.series_folder import is_plain
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request, load_decision, refuse_excluded_edits
from patchkit.carry.candidate.lock import write_result
from patchkit.carry.candidate.plan import Plan, make_plan
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, Result, load_lock, record_result, replace_results
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import load_profiles, targets_of
from patchkit.carry.series.selection import opted_in
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import SourceWanted
from patchkit.carry.upstream.repository import Repository

_SHOWN = 3  # patches in a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedResult:
    """A result as the lock has it now; ``changed``: it was different before.

    ``was``: the patches of the result that it replaces.
    """

    json_keys: ClassVar = (
        "pin=result.pin build=result.build archs=result.archs patches=result.patches tree=result.tree "
        "commit=result.commit patches_before=was changed"
    )

    result: Result
    changed: bool
    was: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """Every result of the lock; ``dropped`` names those of GPUs that no longer have a profile."""

    json_keys: ClassVar = "results dropped changed"

    results: tuple[RecordedResult, ...]
    dropped: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the lock file was replaced."""
        return bool(self.dropped) or any(each.changed for each in self.results)


def relock(request: Request, workspace: Workspace) -> RecordedResult:
    """Make the commits of a request and record them; no branch moves.

    Raises the errors of planning. The lock is replaced as a whole or not at all.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        refuse_excluded_edits(request.without)
        plan = make_plan(request, workspace, cache)
        result = _make(plan, workspace, repository)
    changed = record_result(workspace.series.lock, plan.pin, result)
    _warn_undocumented([result], workspace)
    return RecordedResult(result=result, changed=changed, was=result.patches)


def relock_all(workspace: Workspace, *, source: SourceWanted, upstream_url: str | None) -> Relocked:
    """Make every result of the lock again, and replace the lock once, after all of them succeeded.

    ``source`` and ``upstream_url`` are for pins that are not cached, as in a Request.

    Raises:
        ErrorGroup: the errors of all results that could not be made; the lock is unchanged.
        LOCK_EMPTY: there is no result.
        LOCK_CHANGED: the lock was changed by another process while this one ran.
        PatchkitError: the errors of planning.
    """
    path = workspace.series.lock
    lock = load_lock(path)
    if not lock.results:
        raise UsageError(
            "the lock has no results to record again",
            code="LOCK_EMPTY",
            where=Location(path=lock.path),
            hint="patchkit lock"
            if is_plain(workspace.series.profiles)
            else "name a GPU: patchkit lock --arch gfx1151",
        )
    before = path.read_bytes()
    known = set(targets_of(workspace.series.profiles))
    kept = [result for result in lock.results if known.issuperset(result.archs)]
    requests = [
        replace(request_of(result, lock, workspace), source=source, upstream_url=upstream_url)
        for result in kept
    ]
    new_results = _make_all(requests, workspace)
    by_key: dict[tuple[object, ...], tuple[Result, Result]] = {}
    for old, new in zip(kept, new_results, strict=True):
        if new.key not in by_key or new.key == old.key:  # a change can make two results equal
            by_key[new.key] = (old, new)
    results = sorted(by_key.values(), key=lambda pair: pair[1].order)
    if [new for _, new in results] != sorted(lock.results, key=lambda each: each.order):
        replace_results(path, before, [new for _, new in results])
    _warn_undocumented([new for _, new in results], workspace)
    return Relocked(
        results=tuple(
            RecordedResult(result=new, changed=old != new, was=old.patches) for old, new in results
        ),
        dropped=tuple(result.name for result in lock.results if result not in kept),
    )


def request_of(result: Result, lock: Lock, workspace: Workspace) -> Request:
    """The request that gives the result again with the current series."""
    series = load_series(workspace.series.patches)
    profiles = load_profiles(workspace.series.profiles, result.archs)
    known = [patch for patch in result.patches if series.patch(patch) is not None]
    with_ = opted_in(series, profiles, known, result.build)
    request = Request(archs=result.archs, upstream=result.pin, with_=with_)
    today = load_decision(request, workspace, lock).ids
    # If the lock also has the result that the GPUs get by default now, this one excluded patches on purpose.
    is_part = today != result.patches and lock.result(result.pin, result.archs, today) is not None
    without = tuple(patch for patch in today if is_part and patch not in result.patches)
    return replace(request, without=without)


def _make_all(requests: Sequence[Request], workspace: Workspace) -> list[Result]:
    cache = open_cache(workspace.cache_root)
    results: list[Result] = []
    errors: list[PatchkitError] = []
    failed: list[str] = []
    with cache.hold(workspace.reporter) as repository:
        for number, request in enumerate(requests, start=1):
            name = f"{request.upstream} {'+'.join(request.archs)}"
            workspace.reporter.step(f"{name}, {number} of {len(requests)}")
            plan = make_plan(request, workspace, cache)
            if plan.errors:
                errors += plan.errors
                failed.append(name)
            else:
                results.append(_make(plan, workspace, repository))
    if errors:
        raise ErrorGroup(f"nothing was recorded: the series cannot be applied to {', '.join(failed)}", errors)
    return results


def check_documented(patches: Iterable[Patch]) -> None:
    """Raises PATCH_BAD, with the lines to add, for every patch that lacks documentation keys.

    A patch may lack them in a series, also in its lock, but not once it is published for others.
    """
    errors = [
        ConfigError(
            f"patch '{patch.id}' lacks keys that document it",
            code="PATCH_BAD",
            where=patch.where,
            why="published patches are read by people who did not write them",
            hint="add to its patch.toml, above the first table:\n" + "\n".join(patch.undocumented),
        )
        for patch in patches
        if patch.undocumented
    ]
    raise_all(errors, "patches lack keys that document them")


def _warn_undocumented(results: Iterable[Result], workspace: Workspace) -> None:
    """Warn of patches that cannot be published yet, because they lack documentation keys."""
    ids = {name for result in results for name in result.patches}
    lacking = [
        patch
        for patch in load_series(workspace.series.patches).patches
        if patch.id in ids and patch.undocumented
    ]
    if lacking:
        keys = dict.fromkeys(line.partition(" = ")[0] for patch in lacking for line in patch.undocumented)
        ids_shown = ", ".join(patch.id for patch in lacking[:_SHOWN])
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        workspace.reporter.warn(
            f"before verify --publish, add {', '.join(keys)} to patch.toml of {ids_shown}{more}"
        )


def _make(plan: Plan, workspace: Workspace, repository: Repository) -> Result:
    return write_result(plan, repository, workspace.series)[1]
