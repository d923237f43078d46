"""Decide which patches of a series some GPUs get on one upstream, and why they do not get the others.

:func:`decide` makes the decision once, from the series, the profiles, the pin and the request. Code that
places, judges or shows patches receives the decision and does not change it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.errors import UsageError, raise_all
from patchkit.base.reporter import Reporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.text import near_miss
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.inputs import dropped_on
from patchkit.carry.candidate.renames import followed_series
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.fault import FaultHere, find_faults
from patchkit.carry.series.lock import Lock, Pin, PinWanted, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, load_profiles
from patchkit.carry.series.selection import (
    LEFT_OUT,
    UNMET,
    Selected,
    Terms,
    is_opt_in,
    needed_trust,
    terms_of,
)
from patchkit.carry.series.switches import has_switch, switches_of
from patchkit.carry.series.trust import DEFAULT_TRUST, LEVELS, Claim, Level, admits
from patchkit.carry.upstream.pin import SourceWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The patches that the user asks for; empty: those that the GPUs have on by default.

    ``only`` empty: no restriction. ``with_opt_in`` adds every patch that is opt-in for these GPUs. ``trust``
    None: the default.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    with_opt_in: bool = False
    trust: Level | None = None

    def request(self, archs: Sequence[str], upstream: PinWanted) -> Request:
        """The wish for some GPUs on an upstream."""
        return Request(
            archs=tuple(archs),
            upstream=upstream,
            only=self.only,
            without=self.without,
            with_=self.with_,
            with_opt_in=self.with_opt_in,
            trust=self.trust,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no option is set."""
        return not (self.only or self.without or self.with_ or self.with_opt_in or self.trust)

    @property
    def options(self) -> str:
        """The command-line options, each with a leading space."""
        words = [f"--trust {self.trust}"] if self.trust is not None else []
        words += ["--with-opt-in"] if self.with_opt_in else []
        for option, names in (("--with", self.with_), ("--without", self.without), ("--only", self.only)):
            words += [f"{option} {shlex.quote(name)}" for name in names]
        return "".join(f" {word}" for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Wish):
    """A wish for some GPUs on an upstream. ``upstream`` None: the lock's default pin.

    ``accept_faults``: known faults of the build that the candidate may have.
    """

    archs: tuple[str, ...]
    upstream: PinWanted = None
    source: SourceWanted = "auto"
    upstream_url: str | None = None
    unlocked: bool = False
    accept_faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Every patch of the series, in order, with its GPUs on ``pin`` or the reason why it is not applied.

    In ``series`` functions are at their places on the pin. ``terms`` are by patch, one for each profile.
    ``with_`` and ``without`` include the patches that ``with_opt_in`` and ``trust`` add or exclude, and
    ``with_`` those of ``brought``: for a patch of the wish's ``with_`` the patches that it requires and that
    were added because of it. ``dropped``: patches that a bump dropped on this pin, with the reason.
    """

    wish: Wish
    pin: Pin
    series: Series
    profiles: tuple[ArchProfile, ...]
    terms: Mapping[str, tuple[Terms, ...]]
    selected: tuple[Selected, ...]
    with_: tuple[str, ...]
    without: tuple[str, ...]
    brought: Mapping[str, tuple[str, ...]]
    dropped: Mapping[str, str]

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs, sorted."""
        return tuple(profile.arch for profile in self.profiles)

    @property
    def ids(self) -> tuple[str, ...]:
        """The patches that are applied."""
        return tuple(each.patch.id for each in self.selected if each.targets)

    @property
    def trust(self) -> Level:
        """The requested trust setting, or the default."""
        return self.wish.trust or DEFAULT_TRUST

    @property
    def is_plain(self) -> bool:
        """Whether only plain patches were requested: without a GPU, or by name."""
        named = [self.series.patch(name) for name in self.wish.only]
        only_plain = bool(named) and all(patch is not None and patch.is_plain for patch in named)
        return self.archs == (PLAIN,) or only_plain

    @property
    def faults(self) -> tuple[FaultHere, ...]:
        """The known faults of this build on these GPUs, whether an applied patch fixes them or not."""
        return self.faults_with(self.selected)

    def faults_with(self, live: Iterable[Selected]) -> tuple[FaultHere, ...]:
        """The known faults if only these patches are applied, i.e. those that could be placed."""
        on = [(each.patch.id, tuple(profile.arch for profile in each.targets)) for each in live]
        return find_faults(self.series.faults, self.pin.build, self.archs, on)

    @property
    def offered(self) -> tuple[str, ...]:
        """The patches for this build that are opt-in for at least one of the GPUs."""
        return tuple(
            patch.id
            for patch in self.series.patches
            if patch.builds.covers(self.pin.build)
            and any(each.default == "opt-in" for each in self.terms[patch.id])
        )

    def opted_in(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those of the patches that none of the GPUs gets by default."""
        return tuple(name for name in ids if is_opt_in(self.terms[name]))

    def up_to(self, name: str) -> Decision:
        """The decision for the patches up to and including one, which does not depend on later ones."""
        at = [each.patch.id for each in self.selected].index(name)
        return replace(self, selected=self.selected[: at + 1])

    @property
    def more_trust(self) -> MoreTrust | None:
        """What the next trust setting that adds patches would add; None if none does, or with ``--only``."""
        if self.wish.only:
            return None
        found: dict[Level, list[str]] = {}
        for each in self.selected:
            name = each.patch.id
            if each.targets or name in self.wish.without or not each.patch.builds.covers(self.pin.build):
                continue
            needed = needed_trust(self.terms[name])
            if needed is not None and not admits(self.trust, needed):
                found.setdefault(needed, []).append(name)
        for level in LEVELS:
            if level in found:
                names = tuple(found[level])
                sources = (
                    who for name in names for each in self.terms[name] for who in each.assessment.gains
                )
                return MoreTrust(
                    trust=self.trust, level=level, patches=names, sources=tuple(dict.fromkeys(sources))
                )
        return None

    def warn(self, reporter: Reporter) -> None:
        """Warn about patches that a bump dropped here, and about requested ones that are not applied.

        Also calls :meth:`report_brought`.
        """
        self.report_brought(reporter)
        for name, why in self.dropped.items():
            reporter.warn(f"{name}: {why}")
        for each in self.selected:
            name = each.patch.id
            if not each.targets and name in (*self.wish.only, *self.with_) and name not in self.dropped:
                reporter.warn(f"requested, but not applied: {name}, {each.reason}{self._missing_line(each)}")

    def _missing_line(self, selected: Selected) -> str:
        """The profile line that would offer the patch, if its absence is the reason."""
        name = selected.patch.id
        lacking = [each for each in self.profiles if each is not NO_GPU and name not in each.patches]
        if not lacking or not any(f"not for {each.arch}" in selected.reason for each in lacking):
            return ""
        line = f'{name} = {{ default = "opt-in", why = "...", source = "..." }}'
        return f"; to offer it, add below [patches] in {lacking[0].where.path}:\n{line}"

    def report_brought(self, reporter: Reporter) -> None:
        """Report the patches that were added because a patch named with ``--with`` requires them."""
        for name, others in self.brought.items():
            reporter.info(f"--with {name} also adds {', '.join(others)}, which it requires")

    def warn_of_faults(self, reporter: Reporter) -> None:
        """Warn about each harmful fault that no applied patch fixes."""
        for found in self.faults:
            if found.archs and found.fault.is_harmful:
                reporter.warn(f"known fault of {self.pin.title}: {found.sentence()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreTrust:
    """The patches that ``--trust`` with ``level`` would add to a candidate made with ``trust``.

    ``sources``: who measured a gain of one of the patches on one of its GPUs.
    """

    trust: Level
    level: Level
    patches: tuple[str, ...]
    sources: tuple[str, ...] = ()

    def sentence(self) -> str:
        """One line, with the evidence for the patches."""
        reasons: dict[Level, str] = {
            "measured": "two sources or more",
            "published": "one source each, and the timing model agrees",
            "modelled": f"measured by {', '.join(self.sources)}" if self.sources else "not measured",
            "faults": "they fix faults not reported on these GPUs; their cost is not measured",
        }
        return (
            f"{self.trust}; --trust {self.level} would add {', '.join(self.patches)}: {reasons[self.level]}"
        )


def load_decision(request: Request, workspace: Workspace, lock: Lock | None = None) -> Decision:
    """The decision on a request, from the files of the series; nothing is fetched.

    ``lock`` is used instead of the series' own. Raises the errors of reading lock, series and profiles, and
    of :func:`decide`.
    """
    lock = lock or load_lock(workspace.series.lock)
    pin = lock.pin(request.upstream)
    series = load_series(workspace.series.patches)
    profiles = load_profiles(workspace.series.profiles, request.archs)
    dropped = dropped_on(
        pin,
        [each.arch for each in profiles],
        series,
        workspace.series,
        named=(*request.only, *request.with_, *request.without),
    )
    return decide(series, profiles, pin, request, dropped)


def decide(
    series: Series,
    profiles: Sequence[ArchProfile],
    pin: Pin,
    wish: Wish,
    dropped: Mapping[str, str] | None = None,
) -> Decision:
    """Which patches these GPUs get on ``pin``; ``dropped``: patches that a bump dropped, with the reason.

    In a candidate for several GPUs a patch is applied if the trust setting is enough for all GPUs that are
    offered it. A patch whose requirement is not applied is not applied either; requirements of a patch of
    ``wish.with_`` are added with it.

    Names of ``wish.without`` may be ``ID:EDIT``, an optional edit.

    Raises UNKNOWN_PATCH, OPTIONS_CONTRADICT, NOTHING_SELECTED or PATCH_PAIR_SPLIT (an ErrorGroup if there
    are several).
    """
    dropped = dropped or {}
    series = followed_series(series, pin)
    _refuse_trust(wish, profiles)
    terms = {
        patch.id: tuple(terms_of(series, patch, each, pin.build) for each in profiles)
        for patch in series.patches
    }
    brought = _brought(series, terms, pin.build, wish, dropped)
    wish_with = (*wish.with_, *(name for names in brought.values() for name in names))
    added, distrusted = _by_trust(series, terms, pin.build, replace(wish, with_=wish_with))
    with_, without = (*wish_with, *added), (*wish.without, *distrusted)
    excluded = _excluded_edits(series, pin.build, without)
    without = tuple(name for name in without if ":" not in name)
    for name in (*wish.only, *without, *with_):
        series.require(name)
    _refuse_contradictions(only=wish.only, without=without, with_=with_)
    chosen: dict[str, Selected] = {}
    refused = dict(dropped)
    for patch in series.patches:
        targets: tuple[ArchProfile, ...] = ()
        reason = _refusal(patch, pin.build, wish.only if patch.switches is None else (), without)
        if reason:
            refused[patch.id] = reason
        else:
            targets, reason = _targets(series, patch, profiles, terms[patch.id], is_named=patch.id in with_)
        if patch.id in dropped and (targets or patch.switches is not None):
            targets, reason = (), dropped[patch.id]
        mine = patch.for_build(pin.build).without_edits(excluded.get(patch.id, ()))
        chosen[patch.id] = Selected(patch=mine, targets=targets, reason=reason)
    splits = list(_splits(series, chosen, [*wish.only, *without]))
    raise_all(splits, "the request excludes required patches")
    _drop_unmet(series, chosen)
    if wish.only and not any(selected.targets for selected in chosen.values()):
        reasons = [f"{name}: {chosen[name].reason}" for name in dict.fromkeys(wish.only)]
        raise UsageError(
            "none of the patches named with --only can be applied",
            code="NOTHING_SELECTED",
            why="\n".join(reasons),
            hint="patchkit list shows which patches are on for each GPU",
        )
    for name, why in distrusted.items():
        chosen[name] = replace(chosen[name], reason=why)
    _add_switches(chosen, profiles, refused)
    return Decision(
        wish=wish,
        pin=pin,
        series=series,
        profiles=tuple(profiles),
        terms=terms,
        selected=tuple(chosen.values()),
        with_=with_,
        without=(*without, *(f"{name}:{edit}" for name, edits in excluded.items() for edit in edits)),
        brought=brought,
        dropped=dropped,
    )


def excluded_edits(names: Iterable[str]) -> tuple[str, ...]:
    """The names of ``--without`` that are single edits: ``ID:EDIT``."""
    return tuple(name for name in names if ":" in name)


def refuse_excluded_edits(names: Iterable[str]) -> None:
    """Raise UsageError for a result of the lock without single edits: it names patches only."""
    found = excluded_edits(names)
    if found:
        raise UsageError(
            f"the lock cannot record a result without the edit {found[0]}",
            why="it records which patches are applied, and not which of their edits",
            hint="end the edit with last_build, or exclude the whole patch; "
            "an optional edit that does not fit is skipped anyway",
        )


def _excluded_edits(series: Series, build: int, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By patch, the optional edits that ``ID:EDIT`` names. Raises UNKNOWN_PATCH, UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for each in names:
        name, colon, edit = each.partition(":")
        if not colon:
            continue
        patch = series.require(name).for_build(build)
        optional = [one.id for one in patch.edits if one.optional]
        if edit not in [one.id for one in patch.edits]:
            raise UsageError(
                f"patch '{name}' has no edit '{edit}' for {build_name(build)}",
                code="UNKNOWN_PATCH",
                where=patch.where,
                hint=near_miss(edit, optional) or f"optional edits: {', '.join(optional) or 'none'}",
            )
        if edit not in optional:
            raise UsageError(
                f"edit '{edit}' of patch '{name}' is not optional",
                where=next(one.where for one in patch.edits if one.id == edit),
                why="the other edits of the patch may depend on it",
                hint=f"if none does, add optional = true to it; to exclude the whole patch: --without {name}",
            )
        found[name] = (*found.get(name, ()), *([edit] if edit not in found.get(name, ()) else []))
    return found


def _add_switches(
    chosen: dict[str, Selected], profiles: Sequence[ArchProfile], excluded: Collection[str]
) -> None:
    """Apply the patch with the run-time switches for every GPU that gets a patch with a switch.

    It has no gain of its own, so no profile or claim names it, and ``--only`` need not. ``excluded``: patches
    that no GPU may get, with ``--without`` for example.
    """
    for name, each in chosen.items():
        if each.patch.switches is None or name in excluded:
            continue
        getting = {gpu.arch for one in chosen.values() if has_switch(one.patch) for gpu in one.targets}
        targets = tuple(gpu for gpu in profiles if gpu.arch in getting)
        reason = "" if targets else "no applied patch has a run-time switch"
        chosen[name] = replace(each, targets=targets, reason=reason)
    switches = switches_of([each.patch for each in chosen.values() if each.targets])
    for name, each in chosen.items():
        if each.targets:
            chosen[name] = replace(each, switches=switches)


def required_by(series: Series, names: Iterable[str]) -> tuple[str, ...]:
    """The patches that these require, directly or not, in the order of the series; without themselves."""
    named = {*names}
    found: set[str] = set()
    waiting = [*named]
    while waiting:
        patch = series.patch(waiting.pop())
        new = {each.patch for each in patch.requires} - found if patch is not None else set()
        found |= new
        waiting += new
    return tuple(patch.id for patch in series.patches if patch.id in found - named)


def _brought(
    series: Series,
    terms: Mapping[str, tuple[Terms, ...]],
    build: int,
    wish: Wish,
    dropped: Mapping[str, str],
) -> dict[str, tuple[str, ...]]:
    """By patch of ``wish.with_``, the patches that it requires and that would not be applied without it.

    Nothing is added for a patch if one of those is not available here, because it cannot be applied anyway.
    Patches that the wish excludes are not added, so that they are reported as required.
    """
    trust = wish.trust or DEFAULT_TRUST
    excluded = {*wish.without}
    if wish.only:
        excluded |= {patch.id for patch in series.patches} - {*wish.only}
    found: dict[str, tuple[str, ...]] = {}
    known = {*wish.with_}
    for name in dict.fromkeys(() if wish.with_opt_in else wish.with_):
        needed = required_by(series, [name])
        patches = [patch for patch in series.patches if patch.id in (name, *needed)]
        if not all(
            patch.builds.covers(build)
            and patch.id not in dropped
            and any(each.is_offered for each in terms[patch.id])
            for patch in patches
        ):
            continue
        missing = tuple(
            each
            for each in needed
            if each not in known | excluded
            and any(one.is_offered and not admits(trust, one.needs) for one in terms[each])
        )
        if missing:
            found[name] = missing
            known |= {*missing}
    return found


def _refuse_trust(wish: Wish, profiles: Sequence[ArchProfile]) -> None:
    """Raise OPTIONS_CONTRADICT for a trust setting together with an option that makes it meaningless."""
    conflict = None
    if wish.only:
        conflict = f"--only {wish.only[0]}", "--only names the patches, regardless of their evidence"
    elif wish.with_opt_in:
        conflict = "--with-opt-in", "it adds every opt-in patch, regardless of its evidence"
    elif tuple(profiles) == (NO_GPU,):
        conflict = f"--arch {PLAIN}", "plain patches are applied at any trust setting"
    if wish.trust is not None and conflict is not None:
        raise UsageError(
            f"--trust {wish.trust} and {conflict[0]} contradict each other",
            code="OPTIONS_CONTRADICT",
            why=conflict[1],
        )


def _by_trust(
    series: Series, terms: Mapping[str, tuple[Terms, ...]], build: int, wish: Wish
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The patches that ``with_opt_in`` or ``trust`` adds, and those that ``trust`` excludes, with reasons."""
    named = {*wish.with_, *wish.without}
    others = [each for each in series.patches if each.builds.covers(build) and each.id not in named]
    if wish.with_opt_in:
        opt_in = (each.id for each in others if any(one.default == "opt-in" for one in terms[each.id]))
        return tuple(opt_in), {}
    added: list[str] = []
    distrusted: dict[str, str] = {}
    if wish.trust is None:
        return (), distrusted
    for patch in others:
        unsure = [
            each for each in terms[patch.id] if each.default == "on" and not admits(wish.trust, each.needs)
        ]
        if unsure:
            reason = "; ".join(dict.fromkeys(each.why for each in unsure))
            distrusted[patch.id] = f"{reason}: needs --trust {DEFAULT_TRUST}"
        elif any(each.default == "opt-in" for each in terms[patch.id]) and admits(
            wish.trust, needed_trust(terms[patch.id])
        ):
            added.append(patch.id)
    _distrust_unmet(others, distrusted)
    return tuple(name for name in added if name not in distrusted), distrusted


def _distrust_unmet(patches: Sequence[Patch], distrusted: dict[str, str]) -> None:
    """Add the patches that require a distrusted one, directly or indirectly."""
    before = -1
    while len(distrusted) != before:
        before = len(distrusted)
        for patch in patches:
            unmet = next((each.patch for each in patch.requires if each.patch in distrusted), None)
            if unmet is not None:
                distrusted.setdefault(patch.id, f"requires '{unmet}', which needs more trust")


def _refuse_contradictions(*, only: Sequence[str], without: Sequence[str], with_: Sequence[str]) -> None:
    for name in without:
        for option, named in (("--only", only), ("--with", with_)):
            if name in named:
                raise UsageError(
                    f"{option} {name} and --without {name} contradict each other",
                    code="OPTIONS_CONTRADICT",
                )
    for name in with_ if only else ():
        if name not in only:
            raise UsageError(
                f"--with {name} adds a patch that --only excludes",
                code="OPTIONS_CONTRADICT",
                hint=f"add --only {name}",
            )


def _refusal(patch: Patch, build: int, only: Collection[str], without: Collection[str]) -> str:
    """Why no GPU gets the patch; empty if that depends on the GPU."""
    if patch.builds.by_code is False:
        return patch.builds.by_code_why
    if not patch.builds.covers(build):
        last = f"to {build_name(patch.builds.last)}" if patch.builds.last is not None else "and later"
        return f"not for this build: {build_name(patch.builds.first)} {last} only ({patch.builds.why})"
    return LEFT_OUT if patch.id in without or (only and patch.id not in only) else ""


def _targets(
    series: Series, patch: Patch, profiles: Sequence[ArchProfile], terms: Sequence[Terms], *, is_named: bool
) -> tuple[tuple[ArchProfile, ...], str]:
    """The GPUs that get the patch, or why none of them does."""
    targets = []
    reasons = []
    for profile, each in zip(profiles, terms, strict=True):
        if each.default == "on" or (each.default == "opt-in" and is_named):
            targets.append(profile)
        elif each.default == "opt-in":
            why = each.why.rstrip(".")
            reasons.append(f"optional for {profile.arch} ({why}): add --with {patch.id}")
        elif profile is NO_GPU:
            reasons.append("it has a guard, so it is only for GPUs")
        elif patch.id in profile.patches:
            reasons.append(f"off for {profile.arch}: {each.why}")
        else:
            known = profile.patches or any(profile.arch in claim.archs for claim in _claims(series))
            reasons.append(f"not for {profile.arch}" + ("" if known else f": {profile.note}"))
    return tuple(targets), "; ".join(reasons) if not targets else ""


def _claims(series: Series) -> Iterator[Claim]:
    return (claim for patch in series.patches for claim in patch.claims)


def _splits(series: Series, chosen: Mapping[str, Selected], named: Sequence[str]) -> Iterator[UsageError]:
    """Errors for requirements that the request itself excludes."""
    for patch in series.patches:
        for requirement in patch.requires:
            needed = chosen[requirement.patch]
            if chosen[patch.id].targets and needed.reason == LEFT_OUT:
                yield UsageError(
                    f"'{patch.id}' requires '{requirement.patch}', which the request excludes",
                    code="PATCH_PAIR_SPLIT",
                    where=requirement.where,
                    why=requirement.why,
                    hint=f"request both, or add --without {patch.id}"
                    if patch.id not in named
                    else f"add --only {requirement.patch}",
                )


def _drop_unmet(series: Series, chosen: dict[str, Selected]) -> None:
    """Remove targets for which a requirement is not applied, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for patch in series.patches:
            current = chosen[patch.id]
            for requirement in patch.requires:
                needed = chosen[requirement.patch]
                targets = tuple(profile for profile in current.targets if profile in needed.targets)
                if targets != current.targets:
                    why = needed.reason or "not for the same GPUs"
                    reason = f"requires '{requirement.patch}', {UNMET}: {why}"
                    current = replace(current, targets=targets, reason=reason if not targets else "")
                    chosen[patch.id] = current
                    changed = True
