"""What apply would do, found out without writing a commit: the same code, stopped before the commits.

Vocabulary: a *request* is what the user asked for; a *plan* is every patch of the series with its
state, every edit with the place it resolved to, and every error there is, all in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchkit.config.lock import Lock, Pin, PinWanted, load_lock
from patchkit.config.profile import load_profile
from patchkit.config.profile_data import ArchProfile
from patchkit.config.series import Series, load_series
from patchkit.errors import ErrorGroup, Location, PatchkitError
from patchkit.fetch.cache import Cache, open_cache
from patchkit.fetch.pin import obtain
from patchkit.flow.following import followed_series
from patchkit.flow.place import PlacedPatch, place_patch
from patchkit.flow.selection import Selected, select_patches
from patchkit.flow.upstream import UpstreamFiles, read_upstream
from patchkit.flow.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``upstream`` None: the lock's default pin. ``only`` empty: every patch the profiles have on.

    ``with_opt_in`` adds every patch that these GPUs get only when it is asked for.
    """

    archs: tuple[str, ...]
    upstream: PinWanted = None
    source: Literal["auto", "git", "sdist"] = "auto"
    upstream_url: str | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    unlocked: bool = False
    with_opt_in: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEdit:
    """One edit and where it goes; ``digest`` is the token digest of its entity before the edit."""

    id: str
    file: str
    entity: str
    verb: str
    side: str
    locations: tuple[Location, ...]
    digest: str
    confidence: str
    seen_in: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """One patch; ``reason`` says why it is skipped or refused, ``targets`` for which GPUs it is live."""

    id: str
    title: str
    state: Literal["apply", "skipped", "failed"]
    reason: str
    targets: tuple[str, ...]
    new_files: tuple[str, ...]
    edits: tuple[PlannedEdit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole plan. ``steps`` is what apply commits, in order; empty when there are errors."""

    pin: Pin
    base: str
    archs: tuple[str, ...]
    patches: tuple[PlannedPatch, ...]
    errors: tuple[PatchkitError, ...]
    profiles: tuple[ArchProfile, ...]
    series: Series
    lock: Lock
    request: Request
    steps: tuple[tuple[Selected, PlacedPatch], ...]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "pin": {"build": self.pin.build, "commit": self.pin.commit, "tree": self.pin.tree},
            "archs": list(self.archs),
            "patches": [_patch_json(patch) for patch in self.patches],
            "errors": [{"code": error.code, "message": error.message} for error in self.errors],
        }


def make_plan(request: Request, workspace: Workspace) -> Plan:
    """Plan a request. Fetches the pin into the cache if it is not there; writes nothing else.

    Errors of places and templates are collected in ``Plan.errors``; whatever makes planning itself
    impossible (a bad lock, profile, patch.toml or request, an unobtainable pin) is raised.
    """
    return plan_with(request, workspace, open_cache(workspace.cache_root))


def plan_with(request: Request, workspace: Workspace, cache: Cache, lock: Lock | None = None) -> Plan:
    """As :func:`make_plan`, with a cache the caller may hold; a pin that is there is only read.

    ``lock`` stands in for the series' own: that is how a bump plans a pin before it is recorded.
    """
    series_dir, reporter = workspace.series, workspace.reporter
    lock = load_lock(series_dir.lock) if lock is None else lock
    pin = lock.pin(request.upstream)
    series = followed_series(load_series(series_dir.patches), pin)
    archs = tuple(sorted(set(request.archs)))
    profiles = tuple(load_profile(series_dir.profiles, arch) for arch in archs)
    request = with_opt_ins(request, series, profiles, pin.build)
    chosen = select_patches(
        series, profiles, pin.build, only=request.only, without=request.without, with_=request.with_
    )
    for selected in chosen:
        if not selected.targets and selected.patch.id in (*request.with_, *request.only):
            reporter.warn(f"asked for, and not in the series: {selected.patch.id}, {selected.reason}")
    pinned = obtain(
        pin, cache=cache, source=request.source, upstream_url=request.upstream_url, reporter=reporter
    )
    repository = cache.peek(reporter)
    files = UpstreamFiles({})
    if repository is not None and any(selected.targets for selected in chosen):
        files = read_upstream(repository, pinned.commit, series.folders)
    planned: list[PlannedPatch] = []
    steps: list[tuple[Selected, PlacedPatch]] = []
    errors: list[PatchkitError] = []
    for selected in chosen:
        if not selected.targets:
            planned.append(planned_patch(selected, None, "skipped"))
            continue
        reporter.step(f"placing {selected.patch.id}")
        try:
            placed = place_patch(selected, files, series_dir.patches, series_dir.templates)
        except PatchkitError as exc:
            errors.extend(exc.errors if isinstance(exc, ErrorGroup) else [exc])
            planned.append(planned_patch(selected, None, "failed"))
            continue
        files.write(placed.changes)
        planned.append(planned_patch(selected, placed, "apply"))
        steps.append((selected, placed))
    return Plan(
        pin=pin,
        base=pinned.commit,
        archs=archs,
        patches=tuple(planned),
        errors=tuple(errors),
        profiles=profiles,
        series=series,
        lock=lock,
        request=request,
        steps=() if errors else tuple(steps),
    )


def with_opt_ins(request: Request, series: Series, profiles: Sequence[ArchProfile], build: int) -> Request:
    """The request with the patches named that ``with_opt_in`` stands for."""
    if not request.with_opt_in:
        return request
    inside = [patch.id for patch in series.patches if patch.builds.covers(build)]
    found = [
        name
        for name in inside
        if name not in (*request.with_, *request.without)
        and any(name in each.patches and each.patches[name].default == "opt-in" for each in profiles)
    ]
    return replace(request, with_=(*request.with_, *found), with_opt_in=False)


def planned_patch(
    selected: Selected, placed: PlacedPatch | None, state: Literal["apply", "skipped", "failed"]
) -> PlannedPatch:
    """What the plan says of one patch; ``placed`` is None when it is not put in."""
    edits = [
        PlannedEdit(
            id=edit.id,
            file=edit.file,
            entity=edit.entity,
            verb=edit.verb,
            side=edit.side,
            locations=edit.locations,
            digest=edit.digest,
            confidence=edit.evidence.confidence,
            seen_in=edit.evidence.seen_in,
            text=edit.text,
        )
        for edit in (placed.edits if placed is not None else ())
    ]
    return PlannedPatch(
        id=selected.patch.id,
        title=selected.patch.title,
        state=state,
        reason=selected.reason,
        targets=tuple(profile.arch for profile in selected.targets),
        new_files=placed.new_files if placed is not None else (),
        edits=tuple(edits),
    )


def _patch_json(patch: PlannedPatch) -> dict[str, object]:
    return {
        "id": patch.id,
        "title": patch.title,
        "state": patch.state,
        "reason": patch.reason,
        "targets": list(patch.targets),
        "new_files": list(patch.new_files),
        "edits": [
            {
                "id": edit.id,
                "file": edit.file,
                "entity": edit.entity,
                "verb": edit.verb,
                "side": edit.side,
                "locations": [str(place) for place in edit.locations],
                "entity_digest": edit.digest,
                "confidence": edit.confidence,
                "seen_in": list(edit.seen_in),
                "text": edit.text,
            }
            for edit in patch.edits
        ],
    }
