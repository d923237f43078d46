"""A tuning request, and the settings that it selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.arch import FactNotForDecisions
from patchkit.base.errors import UsageError
from patchkit.carry.series.profile import ArchProfile
from patchkit.tune.family import Exclusion, Family, Setting
from patchkit.tune.registry import DEFAULT, KernelName


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What to tune.

    ``near``: only settings that differ from upstream's in at most so many values. ``exhaustive``: also time
    settings that are not on the Pareto front. ``exclude``: candidates not to choose, such as
    ``Q4_K-128:128/2=why``. ``again``: retry candidates that failed to compile.
    """

    arch: str
    kernel: KernelName = DEFAULT
    upstream: str | None = None
    variants: tuple[str, ...] = ()
    near: int | None = None
    exhaustive: bool = False
    exclude: tuple[str, ...] = ()
    jobs: int | None = None
    again: bool = False


def choose_settings(request: TuneRequest, family: Family) -> dict[str, tuple[Setting, ...]]:
    """The legal settings of each variant to compile besides upstream's.

    Raises:
        TUNE_OPTIONS: a name is not a variant of the kernel.
    """
    banned = {(each.variant, each.setting) for each in exclusions(family, request)}
    return {
        variant: tuple(
            setting for setting in _near(family, variant, request.near) if (variant, setting) not in banned
        )
        for variant in _variants(family, request.variants)
    }


def compute_units(profile: ArchProfile) -> int | None:
    """The GPU's compute units; None if the profile's fact has low confidence, so it must not decide."""
    try:
        return profile.facts.require_int("compute_units")
    except FactNotForDecisions:
        return None


def exclusions(family: Family, request: TuneRequest) -> tuple[Exclusion, ...]:
    """Parse ``--exclude``: candidates that must not be chosen, such as ``Q4_K-128:128/2=why``.

    Raises:
        TUNE_OPTIONS: one is not a legal candidate.
    """
    found = []
    for word in request.exclude:
        name, _, why = word.partition("=")
        variant, _, values = name.partition(":")
        setting = tuple(int(value) for value in values.split("/") if value.isdigit())
        if variant not in family.variants or setting not in family.legal(variant):
            raise UsageError(
                f"'{name}' is not a legal setting of {family.name}",
                code="TUNE_OPTIONS",
                hint="use VARIANT:SETTING, for example: --exclude Q4_K-128:128/2",
            )
        found.append(Exclusion(variant=variant, setting=setting, why=why or "excluded by --exclude"))
    return tuple(found)


def _near(family: Family, variant: str, near: int | None) -> tuple[Setting, ...]:
    """The legal settings that differ from upstream's in at most ``near`` values."""
    base = family.baseline(variant)
    return tuple(
        setting
        for setting in family.legal(variant)
        if near is None or sum(mine != theirs for mine, theirs in zip(setting, base, strict=True)) <= near
    )


def _variants(family: Family, wanted: Sequence[str]) -> tuple[str, ...]:
    for name in wanted:
        if name not in family.variants:
            raise UsageError(
                f"{family.name} has no variant '{name}'",
                code="TUNE_OPTIONS",
                hint=f"variants: {', '.join(family.variants)}",
            )
    return tuple(name for name in family.variants if not wanted or name in wanted)
