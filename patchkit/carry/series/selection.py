"""Whether and at which trust a GPU gets a patch, decided from claims, profiles and faults alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import ArchProfile, PatchDefault
from patchkit.carry.series.switches import Switches
from patchkit.carry.series.trust import (
    DEFAULT_TRUST,
    LEVELS,
    Assessment,
    Level,
    admits,
    assess_claims,
)

LEFT_OUT = "excluded on request"
UNMET = "which is not applied"  # in the reason of a patch whose requirement is not applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One patch of the series with the GPUs that get it; without ``targets`` it is off, for ``reason``.

    ``switches``: those of all applied patches; None if the candidate has none.
    """

    patch: Patch
    targets: tuple[ArchProfile, ...]
    reason: str
    switches: Switches | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The conditions on which a GPU gets a patch.

    ``needs``: the least trust setting with which it is applied; None: only by name, or not offered at all.
    ``assessment`` combines its claims; ``why`` is one sentence.
    """

    is_offered: bool
    needs: Level | None
    assessment: Assessment
    why: str

    @property
    def default(self) -> PatchDefault:
        """Whether the GPU gets it without being requested."""
        if not self.is_offered:
            return "off"
        return "on" if admits(DEFAULT_TRUST, self.needs) else "opt-in"


def terms_of(series: Series, patch: Patch, profile: ArchProfile, build: int | None) -> Terms:
    """The terms of the patch on the GPU and build; None: on any of the patch's builds.

    The profile's choice overrides the claims, and losses on the GPU override both. A patch that fixes wrong
    results seen on hardware is applied at any trust setting, because the build is rejected without it. So
    are plain patches, which are for every GPU.
    """
    choice = profile.patches.get(patch.id)
    assessment = assess_claims(patch.claims, profile.arch, build, series.trust)
    is_offered = True
    needs: Level | None = None
    why = choice.why if choice is not None else assessment.sentence()
    if choice is not None and choice.default == "off":
        is_offered = False
    elif assessment.loses:
        why = assessment.sentence()
    elif choice is not None and choice.default == "opt-in":
        needs = None if admits(DEFAULT_TRUST, assessment.trust) else assessment.trust
    elif patch.is_plain and choice is None:
        needs = "measured"
    elif (choice is not None or assessment.claims) and _fixes_results(series, patch, profile.arch, build):
        needs = "measured"
        why = "without it this build computes wrong results"
    elif choice is not None:
        # The maintainer's choice counts as one source, which is enough for the default trust.
        needs = "measured" if assessment.trust == "measured" else DEFAULT_TRUST
    elif assessment.claims:
        needs = assessment.trust
    else:
        is_offered = False
    return Terms(is_offered=is_offered, needs=needs, assessment=assessment, why=why)


def _fixes_results(series: Series, patch: Patch, arch: str, build: int | None) -> bool:
    return any(
        fault.patch == patch.id
        and fault.refuses
        and arch in fault.archs
        and (build is None or fault.builds.covers(build))
        for fault in series.faults
    )


def needed_trust(terms: Iterable[Terms]) -> Level | None:
    """The least trust setting with which every GPU that is offered the patch gets it; None: there is none."""
    needs = [each.needs for each in terms if each.is_offered]
    known = [each for each in needs if each is not None]
    return max(known, key=LEVELS.index) if known and len(known) == len(needs) else None


def is_opt_in(terms: Iterable[Terms]) -> bool:
    """Whether at least one of the GPUs gets the patch only on request, and none by default."""
    defaults = {each.default for each in terms}
    return "opt-in" in defaults and "on" not in defaults


def opted_in(
    series: Series, profiles: Sequence[ArchProfile], ids: Iterable[str], build: int
) -> tuple[str, ...]:
    """Those of the patches that these GPUs get on that build only on request."""
    patches = ((name, series.patch(name)) for name in ids)
    return tuple(
        name
        for name, patch in patches
        if patch is not None and is_opt_in(terms_of(series, patch, each, build) for each in profiles)
    )
