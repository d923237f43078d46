"""Which patches apply to (pin, GPUs), decided by data alone: claims, profiles, build ranges, requirements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import ErrorGroup, UsageError
from patchkit.base.text import near_miss
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, PatchDefault
from patchkit.carry.series.trust import (
    DEFAULT_TRUST,
    LEVELS,
    Claim,
    Level,
    Standing,
    admits,
    standing_of,
)

LEFT_OUT = "left out on request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One patch of the series and what the request makes of it; no ``targets``: skipped for ``reason``."""

    patch: Patch
    targets: tuple[ArchProfile, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a GPU gets a patch. ``needs``: the least trust with which it is in; None: only by name.

    ``standing`` is what its claims come to; ``why`` one sentence. Of a patch that is not offered ``needs`` is
    None, too.
    """

    is_offered: bool
    needs: Level | None
    standing: Standing
    why: str

    @property
    def default(self) -> PatchDefault:
        """Whether the GPU gets it when nobody asks."""
        if not self.is_offered:
            return "off"
        return "on" if admits(DEFAULT_TRUST, self.needs) else "opt-in"


def terms_of(series: Series, patch: Patch, profile: ArchProfile, build: int | None) -> Terms:
    """What the patch is to the GPU on that build; None: on any of the patch's builds.

    The word of the profile comes before what the claims say, and losses on the GPU before both. What mends
    wrong results that were seen on hardware is in with any trust: without it nothing is made. So are plain
    patches, which are for every GPU.
    """
    choice = profile.patches.get(patch.id)
    standing = standing_of(patch.claims, profile.arch, build, series.trust)
    is_offered = True
    needs: Level | None = None
    why = choice.why if choice is not None else standing.sentence()
    if choice is not None and choice.default == "off":
        is_offered = False
    elif standing.loses:
        why = standing.sentence()
    elif choice is not None and choice.default == "opt-in":
        needs = None if admits(DEFAULT_TRUST, standing.trust) else standing.trust
    elif patch.is_plain and choice is None:
        needs = "measured"
    elif (choice is not None or standing.claims) and _mends(series, patch, profile.arch, build):
        needs = "measured"
        why = "without it this build computes wrong results"
    elif choice is not None:
        # Whoever owns the series is one source, whom the default trusts.
        needs = "measured" if standing.trust == "measured" else DEFAULT_TRUST
    elif standing.claims:
        needs = standing.trust
    else:
        is_offered = False
    return Terms(is_offered=is_offered, needs=needs, standing=standing, why=why)


def _mends(series: Series, patch: Patch, arch: str, build: int | None) -> bool:
    return any(
        fault.patch == patch.id
        and fault.refuses
        and arch in fault.archs
        and (build is None or fault.builds.covers(build))
        for fault in series.faults
    )


def default_of(series: Series, patch: Patch, profile: ArchProfile, build: int | None) -> PatchDefault:
    """Whether the GPU gets the patch on that build when nobody asks."""
    return terms_of(series, patch, profile, build).default


def opt_in_of(series: Series, profiles: Iterable[ArchProfile], build: int) -> tuple[str, ...]:
    """The patches for a build that one of these GPUs gets only when it is asked for, in order."""
    profiles = tuple(profiles)
    return tuple(
        patch.id
        for patch in series.patches
        if patch.builds.covers(build)
        and any(default_of(series, patch, profile, build) == "opt-in" for profile in profiles)
    )


def select_patches(
    series: Series,
    profiles: Sequence[ArchProfile],
    build: int,
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    with_: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
) -> tuple[Selected, ...]:
    """Every patch of the series, in order, with its targets or the reason it is skipped.

    Each has the edits and files that are for ``build``; nobody else decides that. ``left_out``: patches that
    a bump left out, each with the reason.

    Raises UNKNOWN_PATCH, REQUEST_CONTRADICTS, NOTHING_SELECTED or PATCH_PAIR_SPLIT (an ErrorGroup when
    there are several).
    """
    _refuse_unknown(series, [*only, *without, *with_])
    _refuse_contradictions(only=only, without=without, with_=with_)
    chosen = {
        patch.id: _choose(
            series, patch.for_build(build), profiles, build, only=only, without=without, with_=with_
        )
        for patch in series.patches
    }
    for name, why in (left_out or {}).items():
        if chosen[name].targets:
            chosen[name] = Selected(patch=chosen[name].patch, targets=(), reason=why)
    splits = list(_splits(series, chosen, [*only, *without]))
    if splits:
        raise splits[0] if len(splits) == 1 else ErrorGroup("the request splits pairs of patches", splits)
    _drop_unmet(series, chosen)
    if only and not any(selected.targets for selected in chosen.values()):
        reasons = [f"{name}: {chosen[name].reason}" for name in dict.fromkeys(only)]
        raise UsageError(
            "none of the patches named with --only applies",
            code="NOTHING_SELECTED",
            why="\n".join(reasons),
            hint="patchkit list shows what is on for each GPU",
        )
    return tuple(chosen.values())


def needed_trust(series: Series, patch: Patch, profiles: Iterable[ArchProfile], build: int) -> Level | None:
    """The least trust with which every GPU that is offered the patch has it; None: only by name, or not."""
    terms = (terms_of(series, patch, profile, build) for profile in profiles)
    needs = [each.needs for each in terms if each.is_offered]
    known = [each for each in needs if each is not None]
    return max(known, key=LEVELS.index) if known and len(known) == len(needs) else None


def opted_in(
    series: Series, profiles: Sequence[ArchProfile], ids: Iterable[str], build: int | None
) -> tuple[str, ...]:
    """Those of the patches that these GPUs get on that build only when they are asked for."""
    found = []
    for name in ids:
        patch = series.patch(name)
        choices = [default_of(series, patch, each, build) for each in profiles] if patch is not None else []
        if "opt-in" in choices and "on" not in choices:
            found.append(name)
    return tuple(found)


def live_in(selected: Iterable[Selected]) -> list[tuple[str, tuple[str, ...]]]:
    """The patches of a choice that are in, as :func:`patchkit.carry.series.fault.find_faults` takes them."""
    return [(each.patch.id, tuple(profile.arch for profile in each.targets)) for each in selected]


def _refuse_contradictions(*, only: Sequence[str], without: Sequence[str], with_: Sequence[str]) -> None:
    for name in without:
        for option, named in (("--only", only), ("--with", with_)):
            if name in named:
                raise UsageError(
                    f"{option} {name} and --without {name} contradict each other",
                    code="REQUEST_CONTRADICTS",
                    hint="drop one of them",
                )
    for name in with_ if only else ():
        if name not in only:
            raise UsageError(
                f"--with {name} adds a patch that --only leaves out",
                code="REQUEST_CONTRADICTS",
                hint=f"add --only {name}",
            )


def _refuse_unknown(series: Series, names: Sequence[str]) -> None:
    known = [patch.id for patch in series.patches]
    for name in names:
        if name not in known:
            raise UsageError(
                f"the series has no patch '{name}'",
                code="UNKNOWN_PATCH",
                hint=near_miss(name, known) or f"patches: {', '.join(known)}",
            )


def _choose(
    series: Series,
    patch: Patch,
    profiles: Sequence[ArchProfile],
    build: int,
    *,
    only: Sequence[str],
    without: Sequence[str],
    with_: Sequence[str],
) -> Selected:
    if not patch.builds.covers(build):
        last = f"b{patch.builds.last}" if patch.builds.last is not None else "the newest"
        reason = f"out of era: for b{patch.builds.first} to {last} ({patch.builds.why})"
        return Selected(patch=patch, targets=(), reason=reason)
    if patch.id in without or (only and patch.id not in only):
        return Selected(patch=patch, targets=(), reason=LEFT_OUT)
    targets = []
    reasons = []
    for profile in profiles:
        terms = terms_of(series, patch, profile, build)
        if terms.default == "on" or (terms.default == "opt-in" and patch.id in with_):
            targets.append(profile)
        elif terms.default == "opt-in":
            reasons.append(f"opt-in for {profile.arch} ({terms.why}): add --with {patch.id}")
        elif profile is NO_GPU:
            reasons.append("it has a guard, so it is for GPUs only")
        elif patch.id in profile.patches:
            reasons.append(f"off for {profile.arch}: {terms.why}")
        else:
            known = profile.patches or any(profile.arch in claim.archs for claim in _claims(series))
            reasons.append(f"not for {profile.arch}" + ("" if known else f": {profile.note}"))
    return Selected(patch=patch, targets=tuple(targets), reason="; ".join(reasons) if not targets else "")


def _claims(series: Series) -> Iterator[Claim]:
    return (claim for patch in series.patches for claim in patch.claims)


def _splits(series: Series, chosen: Mapping[str, Selected], named: Sequence[str]) -> Iterator[UsageError]:
    """Requirements that the request itself leaves out."""
    for patch in series.patches:
        for requirement in patch.requires:
            needed = chosen[requirement.patch]
            if chosen[patch.id].targets and needed.reason == LEFT_OUT:
                yield UsageError(
                    f"'{patch.id}' without '{requirement.patch}' is refused",
                    code="PATCH_PAIR_SPLIT",
                    where=requirement.where,
                    why=requirement.why,
                    hint=f"ask for both, or add --without {patch.id}"
                    if patch.id not in named
                    else f"add --only {requirement.patch}",
                )


def _drop_unmet(series: Series, chosen: dict[str, Selected]) -> None:
    """Skip patches whose requirement does not apply to all of their targets; until nothing changes."""
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
                    reason = f"requires '{requirement.patch}', which does not apply: {why}"
                    current = Selected(patch=patch, targets=targets, reason=reason if not targets else "")
                    chosen[patch.id] = current
                    changed = True
