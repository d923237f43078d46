"""What a request gives on a pin: every patch of the series placed in memory, or the reason why it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.base.plain import fields_of, plain
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.inputs import left_out_on
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.fault import FaultHere, find_faults
from patchkit.carry.series.lock import Lock, Pin, PinWanted, load_lock
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profiles
from patchkit.carry.series.selection import Selected, live_in, select_patches
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import SourceWanted, obtain

if TYPE_CHECKING:
    from patchkit.carry.placing.place import PlacedEdit, PlacedPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``upstream`` None: the lock's default pin. ``only`` empty: every patch the profiles have on.

    ``with_opt_in`` adds every patch that these GPUs get only when it is asked for. ``accept_faults``: known
    faults of the build that the candidate may have.
    """

    archs: tuple[str, ...]
    upstream: PinWanted = None
    source: SourceWanted = "auto"
    upstream_url: str | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    unlocked: bool = False
    with_opt_in: bool = False
    accept_faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request comes to before anything is placed; ``selected`` has the patches left out, too.

    ``request`` names every patch that is opt-in, ``series`` has the functions where the pin has them.
    """

    request: Request
    lock: Lock
    pin: Pin
    series: Series
    profiles: tuple[ArchProfile, ...]
    selected: tuple[Selected, ...]

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs, sorted."""
        return tuple(profile.arch for profile in self.profiles)

    @property
    def is_plain(self) -> bool:
        """Whether plain patches are all that was asked for: no GPU, or by name."""
        named = [self.series.patch(name) for name in self.request.only]
        only_plain = bool(named) and all(patch is not None and patch.is_plain for patch in named)
        return self.archs == (PLAIN,) or only_plain

    @property
    def faults(self) -> tuple[FaultHere, ...]:
        """What is known to be wrong in this build on these GPUs, mended by the chosen patches or not."""
        return find_faults(self.series.faults, self.pin.build, self.archs, live_in(self.selected))

    def warn_of_faults(self, reporter: Reporter) -> None:
        """Say each fault that no chosen patch mends and that does harm."""
        for found in self.faults:
            if found.archs and found.fault.is_harmful:
                reporter.warn(f"known fault of {self.pin.title}: {found.sentence()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """One patch of the series; ``placed`` is None when it is skipped or has failed."""

    selected: Selected
    placed: PlacedPatch | None
    state: Literal["apply", "skipped", "failed"]

    @property
    def id(self) -> str:
        """The patch's."""
        return self.selected.patch.id

    @property
    def reason(self) -> str:
        """Why it is skipped."""
        return self.selected.reason

    @property
    def targets(self) -> tuple[str, ...]:
        """The GPUs for which it is live: those asked for, and all of the family that guards it."""
        if not self.selected.targets:
            return ()
        from patchkit.carry.placing.context import make_guard  # noqa: PLC0415  # see choose()

        guard = make_guard(self.selected.patch.guard, self.selected.targets)
        return tuple(target.arch for target in guard.targets)

    @property
    def edits(self) -> tuple[PlacedEdit, ...]:
        """Where its edits go."""
        return self.placed.edits if self.placed is not None else ()

    @property
    def new_files(self) -> tuple[str, ...]:
        """The files that it adds."""
        return self.placed.new_files if self.placed is not None else ()

    @property
    def told_files(self) -> tuple[str, ...]:
        """What becomes of whole files, a line each."""
        return self.selected.patch.told_files if self.placed is not None else ()

    def as_json(self) -> dict[str, object]:
        """As ``plan`` shows it."""
        return {
            "id": self.id,
            "title": self.selected.patch.title,
            "state": self.state,
            "reason": self.reason,
            "targets": list(self.targets),
            "new_files": list(self.new_files),
            **(self.placed.files_as_json() if self.placed is not None else {}),
            "edits": [
                fields_of(edit, "seen_in") | {"confidence": edit.confidence, "seen_in": list(edit.seen_in)}
                for edit in self.edits
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Choice):
    """A choice placed on ``base``, the commit of the pin in the cache."""

    base: str
    patches: tuple[PlannedPatch, ...]
    errors: tuple[PatchkitError, ...]

    @property
    def steps(self) -> tuple[tuple[Selected, PlacedPatch], ...]:
        """What apply commits, in order; empty when there are errors."""
        placed = [(each.selected, each.placed) for each in self.patches if each.placed is not None]
        return () if self.errors else tuple(placed)

    @property
    def ids(self) -> tuple[str, ...]:
        """The patches of the steps."""
        return tuple(selected.patch.id for selected, _ in self.steps)

    @property
    def files(self) -> dict[str, bytes]:
        """What the steps make of the files that they change."""
        made: dict[str, bytes] = {}
        for _, placed in self.steps:
            made = {path: data for path, data in made.items() if path not in placed.gone}
            made |= placed.changes
        return made

    @property
    def modes(self) -> dict[str, str]:
        """The modes of those files that the steps give one, as git writes them."""
        made: dict[str, str] = {}
        for _, placed in self.steps:
            made = {path: mode for path, mode in made.items() if path not in placed.gone}
            made |= placed.modes
        return made

    def check(self) -> None:
        """Raise one ErrorGroup of everything that was found, if anything was."""
        if self.errors:
            raise ErrorGroup("the series cannot be applied", self.errors)

    def as_json(self) -> dict[str, object]:
        """As ``plan`` shows it."""
        return {
            "pin": self.pin.as_json(),
            "archs": list(self.archs),
            "patches": [patch.as_json() for patch in self.patches],
            "faults": plain(self.faults),
            "errors": [{"code": error.code, "message": error.message} for error in self.errors],
        }


def make_plan(
    request: Request, workspace: Workspace, cache: Cache | None = None, lock: Lock | None = None
) -> Plan:
    """Plan a request. Fetches the pin into the cache if it is not there; writes nothing else.

    Errors of places and templates are collected in ``Plan.errors``; whatever makes planning itself
    impossible (a bad lock, profile, patch.toml or request, an unobtainable pin) is raised.

    Args:
        request: what is asked for.
        workspace: the series and the cache.
        cache: that of the workspace, where the caller holds it already.
        lock: stands in for the series' own: that is how a bump plans a pin before it is recorded.
    """
    cache = cache or open_cache(workspace.cache_root)
    choice = choose(request, workspace, lock)
    return place(choice, obtain_base(choice, workspace, cache), workspace, cache)


def choose(request: Request, workspace: Workspace, lock: Lock | None = None) -> Choice:
    """The pin, the GPUs and the patches of a request; ``lock`` as in :func:`make_plan`."""
    lock = lock or load_lock(workspace.series.lock)
    pin = lock.pin(request.upstream)
    series = load_series(workspace.series.patches)
    if pin.followed:
        # Here and in place(): parsing and rendering are a third of what a second apply would import.
        from patchkit.carry.candidate.following import followed_series  # noqa: PLC0415

        series = followed_series(series, pin)
    profiles = load_profiles(workspace.series.profiles, request.archs)
    request = name_opt_ins(request, series, profiles, pin.build)
    named = (*request.only, *request.with_)
    left_out = left_out_on(
        pin, [each.arch for each in profiles], series, workspace.series, named=(*named, *request.without)
    )
    for name, why in left_out.items():
        workspace.reporter.warn(f"{name}: {why}")
    selected = select_patches(
        series,
        profiles,
        pin.build,
        only=request.only,
        without=request.without,
        with_=request.with_,
        left_out=left_out,
    )
    for each in selected:
        if not each.targets and each.patch.id in named:
            workspace.reporter.warn(
                f"asked for, and not in the series: {each.patch.id}, {each.reason}{_line_for(each, profiles)}"
            )
    return Choice(request=request, lock=lock, pin=pin, series=series, profiles=profiles, selected=selected)


def _line_for(selected: Selected, profiles: Sequence[ArchProfile]) -> str:
    """The line that a profile lacks, where that is why the patch is not there."""
    lacking = [each for each in profiles if each is not NO_GPU and selected.patch.id not in each.patches]
    if not selected.reason.startswith("not for") or not lacking:
        return ""
    line = f'{selected.patch.id} = {{ default = "opt-in", why = "...", source = "..." }}'
    return f"; add below [patches] of {lacking[0].where.path}:\n{line}"


def obtain_base(choice: Choice, workspace: Workspace, cache: Cache) -> str:
    """The commit of the pin, in the cache; raises as :func:`patchkit.carry.upstream.pin.obtain`."""
    return obtain(
        choice.pin,
        cache=cache,
        source=choice.request.source,
        upstream_url=choice.request.upstream_url,
        reporter=workspace.reporter,
    )


def place(choice: Choice, base: str, workspace: Workspace, cache: Cache) -> Plan:
    """Place every chosen patch on ``base``."""
    from patchkit.carry.placing.place import place_patch  # noqa: PLC0415  # see choose()
    from patchkit.carry.placing.tree import UpstreamFiles, read_upstream  # noqa: PLC0415  # see choose()

    series_dir, reporter = workspace.series, workspace.reporter
    repository = cache.peek(reporter)
    files = UpstreamFiles({})
    if repository is not None and any(selected.targets for selected in choice.selected):
        files = read_upstream(repository, base, choice.series.read)
    planned: list[PlannedPatch] = []
    errors: list[PatchkitError] = []
    for selected in choice.selected:
        if not selected.targets:
            planned.append(PlannedPatch(selected=selected, placed=None, state="skipped"))
            continue
        reporter.step(f"placing {selected.patch.id}")
        try:
            placed = place_patch(selected, files, series_dir.patches, series_dir.templates)
        except PatchkitError as exc:
            errors.extend(exc.errors if isinstance(exc, ErrorGroup) else [exc])
            planned.append(PlannedPatch(selected=selected, placed=None, state="failed"))
            continue
        for warning in placed.warnings:
            reporter.warn(f"{selected.patch.id}: {warning}")
        files.write(placed.changes, placed.gone, placed.modes)
        planned.append(PlannedPatch(selected=selected, placed=placed, state="apply"))
    return Plan(
        request=choice.request,
        lock=choice.lock,
        pin=choice.pin,
        series=choice.series,
        profiles=choice.profiles,
        selected=choice.selected,
        base=base,
        patches=tuple(planned),
        errors=tuple(errors),
    )


def name_opt_ins(request: Request, series: Series, profiles: Sequence[ArchProfile], build: int) -> Request:
    """The request with the patches named that ``with_opt_in`` stands for."""
    if not request.with_opt_in:
        return request
    named = (*request.with_, *request.without)
    found = [
        patch.id
        for patch in series.patches
        if patch.builds.covers(build)
        and patch.id not in named
        and any(patch.id in profile.patches_by_default("opt-in") for profile in profiles)
    ]
    return replace(request, with_=(*request.with_, *found), with_opt_in=False)
