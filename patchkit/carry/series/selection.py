"""Which patches apply to (pin, GPUs), decided by data alone: profiles, build ranges, requirements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from patchkit.base.errors import ErrorGroup, UsageError
from patchkit.base.text import near_miss
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import NO_GPU, ArchProfile, PatchDefault


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One patch of the series and what the request makes of it; no ``targets``: skipped for ``reason``."""

    patch: Patch
    targets: tuple[ArchProfile, ...]
    reason: str


def default_of(patch: Patch, profile: ArchProfile) -> PatchDefault:
    """Whether the GPU gets the patch when nobody asks: a plain one unless its profile says otherwise."""
    choice = profile.patches.get(patch.id)
    return choice.default if choice is not None else "on" if patch.is_plain else "off"


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
        patch.id: _choose(patch.for_build(build), profiles, build, only=only, without=without, with_=with_)
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


def opted_in(profiles: Sequence[ArchProfile], ids: Iterable[str]) -> tuple[str, ...]:
    """Those of the patches that these GPUs get only when they are asked for."""
    found = []
    for name in ids:
        choices = [profile.patches[name].default for profile in profiles if name in profile.patches]
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
        return Selected(patch=patch, targets=(), reason="left out on request")
    targets = []
    reasons = []
    for profile in profiles:
        choice, default = profile.patches.get(patch.id), default_of(patch, profile)
        if default == "on" or (default == "opt-in" and patch.id in with_):
            targets.append(profile)
        elif default == "opt-in":
            why = choice.why if choice is not None else ""
            reasons.append(f"opt-in for {profile.arch} ({why}): add --with {patch.id}")
        elif profile is NO_GPU:
            reasons.append("it has a guard, so it is for GPUs only")
        elif choice is not None:
            reasons.append(f"off for {profile.arch}: {choice.why}")
        else:
            reasons.append(f"not for {profile.arch}" + ("" if profile.patches else f": {profile.note}"))
    return Selected(patch=patch, targets=tuple(targets), reason="; ".join(reasons) if not targets else "")


def _splits(series: Series, chosen: Mapping[str, Selected], named: Sequence[str]) -> Iterator[UsageError]:
    """Requirements that the request itself leaves out."""
    for patch in series.patches:
        for requirement in patch.requires:
            needed = chosen[requirement.patch]
            if chosen[patch.id].targets and needed.reason == "left out on request":
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
