"""The commit message of a patch: why, what to expect and from where, and trailers a program can read."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from patchkit.base.errors import ErrorGroup, Location, PatchkitError
from patchkit.candidate.workspace import Workspace
from patchkit.series.catalogue import Series, load_series
from patchkit.series.lock import Lock, Pin, PinWanted, load_lock
from patchkit.series.patch import BREAKS_MAIL
from patchkit.series.profile import ArchProfile, load_profile
from patchkit.series.selection import Selected, select_patches
from patchkit.upstream.cache import Cache, open_cache
from patchkit.upstream.pin import obtain

if TYPE_CHECKING:
    from patchkit.edits.place import PlacedPatch


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
class Choice:
    """What a request comes to before anything is placed; ``selected`` has the patches left out, too.

    ``request`` names every patch that is opt-in, ``series`` has the functions where the pin has them.
    """

    request: Request
    lock: Lock
    pin: Pin
    series: Series
    archs: tuple[str, ...]
    profiles: tuple[ArchProfile, ...]
    selected: tuple[Selected, ...]


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
    choice = choose(request, workspace, lock)
    return place(choice, obtain_base(choice, workspace, cache), workspace, cache)


def choose(request: Request, workspace: Workspace, lock: Lock | None = None) -> Choice:
    """The pin, the GPUs and the patches of a request; ``lock`` as in :func:`plan_with`."""
    series_dir = workspace.series
    lock = load_lock(series_dir.lock) if lock is None else lock
    pin = lock.pin(request.upstream)
    series = load_series(series_dir.patches)
    if pin.followed:
        # Here and in place(): parsing and rendering are a third of what a second apply would import.
        from patchkit.candidate.following import followed_series  # noqa: PLC0415

        series = followed_series(series, pin)
    archs = tuple(sorted(set(request.archs)))
    profiles = tuple(load_profile(series_dir.profiles, arch) for arch in archs)
    request = with_opt_ins(request, series, profiles, pin.build)
    chosen = select_patches(
        series, profiles, pin.build, only=request.only, without=request.without, with_=request.with_
    )
    for selected in chosen:
        if not selected.targets and selected.patch.id in (*request.with_, *request.only):
            workspace.reporter.warn(
                f"asked for, and not in the series: {selected.patch.id}, {selected.reason}"
            )
    return Choice(
        request=request,
        lock=lock,
        pin=pin,
        series=series,
        archs=archs,
        profiles=profiles,
        selected=chosen,
    )


def obtain_base(choice: Choice, workspace: Workspace, cache: Cache) -> str:
    """The commit of the pin, in the cache; raises as :func:`patchkit.upstream.pin.obtain`."""
    request = choice.request
    return obtain(
        choice.pin,
        cache=cache,
        source=request.source,
        upstream_url=request.upstream_url,
        reporter=workspace.reporter,
    ).commit


def place(choice: Choice, base: str, workspace: Workspace, cache: Cache) -> Plan:
    """Place every chosen patch on ``base``."""
    from patchkit.edits.place import place_patch  # noqa: PLC0415  # see choose()
    from patchkit.edits.tree import UpstreamFiles, read_upstream  # noqa: PLC0415  # see choose()

    series_dir, reporter = workspace.series, workspace.reporter
    repository = cache.peek(reporter)
    files = UpstreamFiles({})
    if repository is not None and any(selected.targets for selected in choice.selected):
        files = read_upstream(repository, base, choice.series.folders)
    planned: list[PlannedPatch] = []
    steps: list[tuple[Selected, PlacedPatch]] = []
    errors: list[PatchkitError] = []
    for selected in choice.selected:
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
        pin=choice.pin,
        base=base,
        archs=choice.archs,
        patches=tuple(planned),
        errors=tuple(errors),
        profiles=choice.profiles,
        series=choice.series,
        lock=choice.lock,
        request=choice.request,
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


_WIDTH = 72
_GLUE = "\0"  # no text of a patch.toml holds it


def commit_subject(selected: Selected) -> str:
    """``id: title``."""
    return f"{selected.patch.id}: {selected.patch.title}"


def patch_digest(placed: PlacedPatch) -> str:
    """sha256 over the sha256 of every rendered text, by name."""
    text = json.dumps(dict(placed.rendered), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def commit_message(plan: Plan, selected: Selected, placed: PlacedPatch, *, unlocked: bool) -> str:
    """Subject, body and trailers, wrapped at 72 columns, ending in a newline."""
    patch = selected.patch
    parts = [commit_subject(selected), _fill(patch.why)]
    parts.append(_fill(f"Expected: {patch.effect} ({patch.effect_source})"))
    parts.append(_fill(f"Without it: {patch.without}"))
    parts.append("\n".join(f"Link: {link}" for link in patch.links))
    trailers = [f"Patchkit-Id: {patch.id}"]
    for profile in sorted(selected.targets, key=lambda profile: profile.arch):
        digests = "".join(f"{entry.path}{entry.sha256}" for entry in profile.inputs)
        trailers.append(
            f"Patchkit-Profile: {profile.arch} {hashlib.sha256(digests.encode()).hexdigest()[:16]}"
        )
    trailers.append(f"Patchkit-Digest: {patch_digest(placed)}")
    if unlocked:
        trailers.append("Patchkit-Unlocked: inputs differ from the lock")
    trailers.append(f"Upstream-Commit: {plan.pin.commit or plan.base}")
    return "\n\n".join([*parts, "\n".join(trailers)]) + "\n"


def _fill(text: str) -> str:
    """Wrapped, without breaking in front of what would end the message for git am."""
    words = text.split()
    joined = words[0] if words else ""
    for position in range(1, len(words)):
        glued = BREAKS_MAIL.match(" ".join(words[position : position + 2]) + " ")
        joined += (_GLUE if glued else " ") + words[position]
    lines = textwrap.fill(joined, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines.replace(_GLUE, " ")
