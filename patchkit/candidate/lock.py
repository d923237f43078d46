"""Recording results in the lock, after a patch, a template or a profile was changed on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.candidate.apply import write_plan
from patchkit.candidate.locking import make_result, read_inputs
from patchkit.candidate.plan import Plan, Request, plan_with
from patchkit.candidate.workspace import Workspace
from patchkit.series.catalogue import load_series
from patchkit.series.lock import Lock, Result, load_lock, record_result, replace_results
from patchkit.series.profile import list_profiles, load_profile
from patchkit.series.selection import opted_in, select_patches
from patchkit.upstream.cache import open_cache
from patchkit.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the lock now says for a request; ``changed``: it said something else before.

    ``was``: the patches that the result had whose place this one takes.
    """

    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    tree: str
    commit: str
    changed: bool
    was: tuple[str, ...]

    @property
    def name(self) -> str:
        """``b6900 gfx1151``, as a person tells results apart."""
        return _name(self.build, self.archs)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "build": self.build,
            "archs": list(self.archs),
            "patches": list(self.patches),
            "patches_before": list(self.was),
            "tree": self.tree,
            "commit": self.commit,
            "changed": self.changed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """Every result of the lock; ``dropped`` names those of GPUs that have no profile any more."""

    results: tuple[Recorded, ...]
    dropped: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the lock file was replaced."""
        return bool(self.dropped) or any(each.changed for each in self.results)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "results": [each.as_json() for each in self.results],
            "dropped": list(self.dropped),
            "changed": self.changed,
        }


def relock(request: Request, workspace: Workspace) -> Recorded:
    """Make the commits of a request and record them; no branch moves.

    Raises what planning raises; the lock is replaced as a whole or not at all.
    """
    cache = open_cache(workspace.cache_root)
    with cache.hold(workspace.reporter) as repository:
        plan = plan_with(request, workspace, cache)
        if plan.errors:
            raise ErrorGroup("the series cannot be applied", plan.errors)
        result = _make(plan, workspace, repository)
    changed = record_result(workspace.series.lock, plan.pin, result)
    return _recorded(result, changed=changed, was=result.patches)


def relock_all(
    workspace: Workspace, *, source: Literal["auto", "git", "sdist"], upstream_url: str | None
) -> Relocked:
    """Make every result of the lock anew, and replace the lock once, when all of them are made.

    ``source`` and ``upstream_url`` are for pins that are not cached, as in a Request.

    Raises:
        ErrorGroup: the errors of all results that cannot be made; the lock is as it was.
        LOCK_CHANGED: somebody else changed the lock meanwhile.
        PatchkitError: what planning raises.
    """
    path = workspace.series.lock
    lock = load_lock(path)
    before = path.read_bytes()
    known = set(list_profiles(workspace.series.profiles))
    kept = [result for result in lock.results if known.issuperset(result.archs)]
    requests = [
        replace(_request_of(result, lock, workspace), source=source, upstream_url=upstream_url)
        for result in kept
    ]
    made = _make_all(requests, workspace)
    rows: dict[tuple[int, tuple[str, ...], tuple[str, ...]], tuple[Result, Result]] = {}
    for old, new in zip(kept, made, strict=True):
        if new.key not in rows or new.key == old.key:  # a change can make two results one
            rows[new.key] = (old, new)
    results = [rows[key] for key in sorted(rows)]
    if [new for _, new in results] != sorted(lock.results, key=lambda each: each.key):
        replace_results(path, before, [new for _, new in results])
    return Relocked(
        results=tuple(_recorded(new, changed=old != new, was=old.patches) for old, new in results),
        dropped=tuple(_name(result.build, result.archs) for result in lock.results if result not in kept),
    )


def _request_of(result: Result, lock: Lock, workspace: Workspace) -> Request:
    """What has to be asked for today to get the result anew."""
    series = load_series(workspace.series.patches)
    profiles = [load_profile(workspace.series.profiles, arch) for arch in result.archs]
    known = [patch for patch in result.patches if series.patch(patch) is not None]
    with_ = opted_in(profiles, known)
    chosen = select_patches(series, profiles, result.build, only=(), without=(), with_=with_)
    today = tuple(each.patch.id for each in chosen if each.targets)
    # Where the lock has what the GPUs get today beside it, the rest was left out on purpose.
    is_part = today != result.patches and lock.result(result.build, result.archs, today) is not None
    return Request(
        archs=result.archs,
        upstream=f"b{result.build}",
        with_=with_,
        without=tuple(patch for patch in today if is_part and patch not in result.patches),
    )


def _make_all(requests: Sequence[Request], workspace: Workspace) -> list[Result]:
    cache = open_cache(workspace.cache_root)
    made: list[Result] = []
    errors: list[PatchkitError] = []
    failed: list[str] = []
    with cache.hold(workspace.reporter) as repository:
        for number, request in enumerate(requests, start=1):
            name = f"{request.upstream} {'+'.join(request.archs)}"
            workspace.reporter.step(f"{name}, {number} of {len(requests)}")
            plan = plan_with(request, workspace, cache)
            if plan.errors:
                errors += plan.errors
                failed.append(name)
            else:
                made.append(_make(plan, workspace, repository))
    if errors:
        raise ErrorGroup(f"nothing was recorded: the series cannot be applied on {', '.join(failed)}", errors)
    return made


def _make(plan: Plan, workspace: Workspace, repository: Repository) -> Result:
    inputs = read_inputs(plan, workspace.series)
    commits, tree = write_plan(plan, repository, unlocked=False)
    return make_result(plan, inputs, tree=tree, commit=commits[-1].commit if commits else plan.base)


def _recorded(result: Result, *, changed: bool, was: tuple[str, ...]) -> Recorded:
    return Recorded(
        build=result.build,
        archs=result.archs,
        patches=result.patches,
        tree=result.tree,
        commit=result.commit,
        changed=changed,
        was=was,
    )


def _name(build: int, archs: Sequence[str]) -> str:
    return f"b{build} {'+'.join(archs)}"
