"""On what terms a GPU gets a patch, by data alone: claims, profiles and faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, PatchDefault
from patchkit.carry.series.trust import (
    DEFAULT_TRUST,
    LEVELS,
    Level,
    Standing,
    admits,
    standing_of,
)

LEFT_OUT = "left out on request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One patch of the series with the GPUs that get it; no ``targets``: it is not in, for ``reason``."""

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


def needed_trust(terms: Iterable[Terms]) -> Level | None:
    """The least trust with which every GPU that is offered the patch has it; None: only by name, or not."""
    needs = [each.needs for each in terms if each.is_offered]
    known = [each for each in needs if each is not None]
    return max(known, key=LEVELS.index) if known and len(known) == len(needs) else None


def is_opt_in(terms: Iterable[Terms]) -> bool:
    """Whether one of the GPUs gets the patch when it is asked for, and none when nobody asks."""
    defaults = {each.default for each in terms}
    return "opt-in" in defaults and "on" not in defaults


def opted_in(
    series: Series, profiles: Sequence[ArchProfile], ids: Iterable[str], build: int
) -> tuple[str, ...]:
    """Those of the patches that these GPUs get on that build only when they are asked for."""
    patches = ((name, series.patch(name)) for name in ids)
    return tuple(
        name
        for name, patch in patches
        if patch is not None and is_opt_in(terms_of(series, patch, each, build) for each in profiles)
    )
