"""A tuning request, and the settings that it selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.arch import FactNotForDecisions
from patchkit.base.errors import UsageError
from patchkit.base.occupancy import limits_of
from patchkit.base.workspace import Workspace
from patchkit.carry.series.profile import ArchProfile
from patchkit.tune.family import Family, Setting
from patchkit.tune.record import Exclusion, Record
from patchkit.tune.registry import DEFAULT, KernelName
from patchkit.tune.report import read_report, shortlist


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What to tune.

    ``headers``: folders with rocWMMA, or ``stand-in``; by default those of the record, else the toolchain's.
    ``near``: only settings that differ from upstream's in at most so many values. ``exhaustive``: also time
    settings that are not on the Pareto front. ``exclude``: candidates not to choose, such as
    ``80-32-f32:128/8=why``. ``like``: compile only the ``shortlist`` best settings of each variant by that
    GPU's report. ``bounds``: only the profile's and upstream's settings of the wmma kernel, with all
    minimum-waves bounds that can have an effect. ``again``: retry candidates that failed to compile.
    """

    arch: str
    kernel: KernelName = DEFAULT
    upstream: str | None = None
    headers: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    near: int | None = None
    exhaustive: bool = False
    exclude: tuple[str, ...] = ()
    like: str | None = None
    shortlist: int = 3
    bounds: bool = False
    jobs: int | None = None
    again: bool = False


def choose_settings(
    workspace: Workspace,
    request: TuneRequest,
    family: Family,
    build: int,
    profile: ArchProfile,
    record: Record | None,
) -> dict[str, tuple[Setting, ...]]:
    """The settings of each variant to compile besides upstream's: those of the record, else all legal ones.

    Raises:
        TUNE_OPTIONS: a name is not a variant of the kernel.
        TUNE_RECORD_BAD: the GPU in ``like`` has no report.
    """
    banned = {(each.variant, each.setting) for each in exclusions(family, request)}
    settings = {
        variant: tuple(
            setting
            for setting in _near(family, variant, request.near)
            if (variant, setting) not in banned
            and (record is None or setting in record.candidates.get(variant, ()))
        )
        for variant in _variants(family, request.variants)
    }
    if request.bounds:
        current = family.current(profile)
        return {
            variant: tuple(each for each in chosen if each[:2] == current.get(variant, each)[:2])
            for variant, chosen in settings.items()
        }
    if request.like is None:
        return settings
    return shortlist(
        read_report(workspace.cache_root, request.like, family.name, build),
        family,
        settings,
        limits=limits_of(profile),
        compute_units=compute_units(profile),
        most=request.shortlist,
    )


def compute_units(profile: ArchProfile) -> int | None:
    """The GPU's compute units; None if the profile's fact has low confidence, so it must not decide."""
    try:
        return profile.facts.require_int("compute_units")
    except FactNotForDecisions:
        return None


def exclusions(family: Family, request: TuneRequest) -> tuple[Exclusion, ...]:
    """Parse ``--exclude``: candidates that must not be chosen, such as ``80-32-f32:128/8=why``.

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
                hint="use VARIANT:SETTING, for example: --exclude 80-32-f32:128/8",
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
