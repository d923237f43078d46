"""What a request gives on a pin: every patch of the series placed in memory, or the reason why it is not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from patchkit.base.errors import ErrorGroup, PatchkitError, UsageError
from patchkit.base.plain import fields_of, plain
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.inputs import left_out_on
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.fault import FaultHere, find_faults
from patchkit.carry.series.lock import Lock, Pin, PinWanted, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profiles
from patchkit.carry.series.selection import (
    Selected,
    live_in,
    needed_trust,
    opt_in_of,
    select_patches,
    terms_of,
)
from patchkit.carry.series.trust import DEFAULT_TRUST, LEVELS, Level, admits, standing_of
from patchkit.carry.upstream.cache import Cache, open_cache
from patchkit.carry.upstream.pin import SourceWanted, obtain

if TYPE_CHECKING:
    from patchkit.carry.placing.place import PlacedEdit, PlacedPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``upstream`` None: the lock's default pin. ``only`` empty: every patch the profiles have on.

    ``with_opt_in`` adds every patch that these GPUs get only when it is asked for. ``trust`` None: as far as
    everybody trusts who says nothing. ``accept_faults``: known faults of the build that the candidate may
    have.
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
    trust: Level | None = None
    accept_faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a request comes to before anything is placed; ``selected`` has the patches left out, too.

    ``request`` names every patch that is opt-in, and every one that the trust leaves out: ``distrusted`` has
    these again, each with what is known of it. ``series`` has the functions where the pin has them.
    """

    request: Request
    lock: Lock
    pin: Pin
    series: Series
    profiles: tuple[ArchProfile, ...]
    selected: tuple[Selected, ...]
    distrusted: Mapping[str, str] = field(default_factory=dict)

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

    @property
    def more_trust(self) -> MoreTrust | None:
        """What the next word of trust that adds anything would add; None where none does, or nobody asks."""
        if self.request.only:
            return None
        trust = self.request.trust or DEFAULT_TRUST
        refused = {*self.request.without} - {*self.distrusted}
        found: dict[Level, list[str]] = {}
        for each in self.selected:
            if each.targets or each.patch.id in refused or not each.patch.builds.covers(self.pin.build):
                continue
            needed = needed_trust(self.series, each.patch, self.profiles, self.pin.build)
            if needed is not None and not admits(trust, needed):
                found.setdefault(needed, []).append(each.patch.id)
        for level in LEVELS:
            if level in found:
                names = tuple(found[level])
                return MoreTrust(trust=trust, level=level, patches=names, sources=self._sources(names))
        return None

    def _sources(self, names: Collection[str]) -> tuple[str, ...]:
        """Who measured a gain of these patches on one of these GPUs."""
        standings = (
            standing_of(patch.claims, arch, self.pin.build, self.series.trust)
            for patch in self.series.patches
            if patch.id in names
            for arch in self.archs
        )
        return tuple(dict.fromkeys(who for standing in standings for who in standing.gains))

    def warn_of_faults(self, reporter: Reporter) -> None:
        """Say each fault that no chosen patch mends and that does harm."""
        for found in self.faults:
            if found.archs and found.fault.is_harmful:
                reporter.warn(f"known fault of {self.pin.title}: {found.sentence()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreTrust:
    """What ``--trust`` with the word ``level`` would add to a candidate that was made with ``trust``.

    ``sources``: who measured a gain of one of them on one of its GPUs.
    """

    trust: Level
    level: Level
    patches: tuple[str, ...]
    sources: tuple[str, ...] = ()

    def sentence(self) -> str:
        """One line, which says what the patches rest on."""
        rests: dict[Level, str] = {
            "measured": "two sources or more",
            "published": "one source each, and the model agrees",
            "modelled": f"measured by {', '.join(self.sources) or 'nobody'}",
            "faults": "against faults that nobody reported here; nobody measured what it costs",
        }
        return f"{self.trust}; --trust {self.level} would add {', '.join(self.patches)}: {rests[self.level]}"


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
            "trust": self.request.trust or DEFAULT_TRUST,
            "more_trust": plain(self.more_trust),
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
        from patchkit.carry.candidate.renames import followed_series  # noqa: PLC0415

        series = followed_series(series, pin)
    profiles = load_profiles(workspace.series.profiles, request.archs)
    request, distrusted = name_patches(request, series, profiles, pin.build)
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
    selected = tuple(
        replace(each, reason=distrusted[each.patch.id]) if each.patch.id in distrusted else each
        for each in selected
    )
    for each in selected:
        if not each.targets and each.patch.id in named:
            workspace.reporter.warn(
                f"asked for, and not in the series: {each.patch.id}, {each.reason}{_line_for(each, profiles)}"
            )
    return Choice(
        request=request,
        lock=lock,
        pin=pin,
        series=series,
        profiles=profiles,
        selected=selected,
        distrusted=distrusted,
    )


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
    from patchkit.carry.placing.whereabouts import add_whereabouts  # noqa: PLC0415  # see choose()

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
            found = exc.errors if isinstance(exc, ErrorGroup) else (exc,)
            add_whereabouts(found, selected.patch, files)
            errors.extend(found)
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
        distrusted=choice.distrusted,
        base=base,
        patches=tuple(planned),
        errors=tuple(errors),
    )


def name_patches(
    request: Request, series: Series, profiles: Sequence[ArchProfile], build: int
) -> tuple[Request, dict[str, str]]:
    """The request with the patches named that ``with_opt_in`` and ``trust`` stand for.

    Also those that the trust leaves out, each with what is known of it; who requires one of them is left out
    with it. In a candidate for several GPUs a patch is in when the trust is enough for all that are offered
    it. Raises REQUEST_CONTRADICTS.
    """
    refuse_trust(request, profiles)
    named = {*request.with_, *request.without}
    others = [each for each in series.patches if each.builds.covers(build) and each.id not in named]
    if request.with_opt_in:
        offered = opt_in_of(series, profiles, build)
        found = tuple(each.id for each in others if each.id in offered)
        return replace(request, with_=(*request.with_, *found), with_opt_in=False), {}
    if request.trust is None:
        return request, {}
    added, distrusted = [], {}
    for patch in others:
        terms = [terms_of(series, patch, profile, build) for profile in profiles]
        unsure = [each for each in terms if each.default == "on" and not admits(request.trust, each.needs)]
        if unsure:
            told = "; ".join(dict.fromkeys(each.why for each in unsure))
            distrusted[patch.id] = f"{told}: it takes --trust {DEFAULT_TRUST}"
        elif any(each.default == "opt-in" for each in terms) and admits(
            request.trust, needed_trust(series, patch, profiles, build)
        ):
            added.append(patch.id)
    _distrust_unmet(others, distrusted)
    with_ = (*request.with_, *(name for name in added if name not in distrusted))
    return replace(request, with_=with_, without=(*request.without, *distrusted)), distrusted


def _distrust_unmet(patches: Sequence[Patch], distrusted: dict[str, str]) -> None:
    """Add what requires one of the distrusted patches, until nothing changes."""
    before = -1
    while len(distrusted) != before:
        before = len(distrusted)
        for patch in patches:
            unmet = next((each.patch for each in patch.requires if each.patch in distrusted), None)
            if unmet is not None:
                distrusted.setdefault(patch.id, f"requires '{unmet}', which takes more trust")


def refuse_trust(request: Request, profiles: Sequence[ArchProfile]) -> None:
    """Raise REQUEST_CONTRADICTS for a trust beside what leaves nothing to it."""
    beside = None
    if request.only:
        beside = f"--only {request.only[0]}", "--only names the patches, whatever is known of them"
    elif request.with_opt_in:
        beside = "--with-opt-in", "that takes every patch there is, whatever is known of it"
    elif tuple(profiles) == (NO_GPU,):
        beside = f"--arch {PLAIN}", "patches for every build are in with any trust: none is about a GPU"
    if request.trust is not None and beside is not None:
        raise UsageError(
            f"--trust {request.trust} and {beside[0]} contradict each other",
            code="REQUEST_CONTRADICTS",
            why=beside[1],
            hint="drop one of them",
        )
