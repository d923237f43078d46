"""Recording in the lock what the series gives: one result, or all of them anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import ConfigError, ErrorGroup, Location, PatchkitError, UsageError
from patchkit.base.series_folder import is_plain
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request, load_decision
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A result as the lock has it now; ``changed``: it said something else before.

    ``was``: the patches of the result whose place this one takes.
    """

    json_keys: ClassVar = (
        "build=result.build archs=result.archs patches=result.patches tree=result.tree "
        "commit=result.commit patches_before=was changed"
    )

    result: Result
    changed: bool
    was: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """Every result of the lock; ``dropped`` names those of GPUs that have no profile any more."""

    json_keys: ClassVar = "results dropped changed"

    results: tuple[Recorded, ...]
    dropped: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the lock file was replaced."""
        return bool(self.dropped) or any(each.changed for each in self.results)


def relock(request: Request, workspace: Workspace) -> Recorded:
    """Make the commits of a request and record them; no branch moves.

    Raises what planning raises, and PATCH_UNDOCUMENTED; the lock is replaced as a whole or not at all.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = make_plan(request, workspace, cache)
        result = _make(plan, workspace, repository)
    changed = record_result(workspace.series.lock, plan.pin, result)
    return Recorded(result=result, changed=changed, was=result.patches)


def relock_all(workspace: Workspace, *, source: SourceWanted, upstream_url: str | None) -> Relocked:
    """Make every result of the lock anew, and replace the lock once, when all of them are made.

    ``source`` and ``upstream_url`` are for pins that are not cached, as in a Request.

    Raises:
        ErrorGroup: the errors of all results that cannot be made; the lock is as it was.
        LOCK_EMPTY: there is no result.
        LOCK_CHANGED: somebody else changed the lock meanwhile.
        PATCH_UNDOCUMENTED: a patch of a result does not say everything yet.
        PatchkitError: what planning raises.
    """
    path = workspace.series.lock
    lock = load_lock(path)
    if not lock.results:
        raise UsageError(
            "the lock records nothing that could be recorded anew",
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
        replace(_request_of(result, lock, workspace), source=source, upstream_url=upstream_url)
        for result in kept
    ]
    made = _make_all(requests, workspace)
    made_by_key: dict[tuple[object, ...], tuple[Result, Result]] = {}
    for old, new in zip(kept, made, strict=True):
        if new.key not in made_by_key or new.key == old.key:  # a change can make two results one
            made_by_key[new.key] = (old, new)
    results = [made_by_key[key] for key in sorted(made_by_key)]
    if [new for _, new in results] != sorted(lock.results, key=lambda each: each.key):
        replace_results(path, before, [new for _, new in results])
    return Relocked(
        results=tuple(Recorded(result=new, changed=old != new, was=old.patches) for old, new in results),
        dropped=tuple(result.name for result in lock.results if result not in kept),
    )


def _request_of(result: Result, lock: Lock, workspace: Workspace) -> Request:
    """What has to be asked for today to get the result anew."""
    series = load_series(workspace.series.patches)
    profiles = load_profiles(workspace.series.profiles, result.archs)
    known = [patch for patch in result.patches if series.patch(patch) is not None]
    with_ = opted_in(series, profiles, known, result.build)
    request = Request(archs=result.archs, upstream=build_name(result.build), with_=with_)
    today = load_decision(request, workspace, lock).ids
    # Where the lock has what the GPUs get today beside it, the rest was left out on purpose.
    is_part = today != result.patches and lock.result(result.build, result.archs, today) is not None
    without = tuple(patch for patch in today if is_part and patch not in result.patches)
    return replace(request, without=without)


def _make_all(requests: Sequence[Request], workspace: Workspace) -> list[Result]:
    cache = open_cache(workspace.cache_root)
    made: list[Result] = []
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
                made.append(_make(plan, workspace, repository))
    if errors:
        raise ErrorGroup(f"nothing was recorded: the series cannot be applied on {', '.join(failed)}", errors)
    return made


def check_documented(patches: Iterable[Patch]) -> None:
    """Raises PATCH_UNDOCUMENTED, with the lines to add, for every patch that does not say what others need.

    While a patch is being written it may lack them; what is recorded or published is for other people.
    """
    errors = [
        ConfigError(
            f"patch '{patch.id}' does not say everything yet",
            code="PATCH_UNDOCUMENTED",
            where=patch.where,
            why="what is recorded or published is for people who did not write it",
            hint="add to its patch.toml, above the first table:\n" + "\n".join(patch.undocumented),
        )
        for patch in patches
        if patch.undocumented
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else ErrorGroup("patches do not say everything yet", errors)


def _make(plan: Plan, workspace: Workspace, repository: Repository) -> Result:
    check_documented(selected.patch for selected, _ in plan.steps)
    return write_result(plan, repository, workspace.series)[1]
