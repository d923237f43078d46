"""Chooses the best setting of each variant from the outcomes of all candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.plain import fields_of
from patchkit.tune.cost import Judged, Modelled, estimate, front, margin, rank, why_worse
from patchkit.tune.family import Candidate, Family, Setting
from patchkit.tune.outcome import Failure, Outcome, with_launch_lds

Compiled = Mapping[str, Outcome]  # by unit
CompileUnits = Callable[[Sequence[str]], Compiled]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one variant. ``order`` has the eligible candidates, the best first.

    ``best`` is confirmed by the checks. ``kept`` is why it is not the first of the order, or None;
    ``measured``: because it was measured on hardware. ``failures`` are candidates that did not compile.
    """

    json_keys: ClassVar = (
        "variant upstream=upstream.candidate.setting best=best.candidate.setting margin kept measured "
        "front=front_settings order=order_settings candidates=judged "
        "failures=failed"
    )

    variant: str
    upstream: Judged
    best: Judged
    order: tuple[Judged, ...]
    others: tuple[Judged, ...]
    front: tuple[Judged, ...]
    margin: str
    kept: str | None
    measured: bool
    failures: tuple[tuple[Candidate, Failure], ...]

    @property
    def front_settings(self) -> list[Setting]:
        """The settings of the Pareto front."""
        return [each.candidate.setting for each in self.front]

    @property
    def order_settings(self) -> list[Setting]:
        """The eligible settings, the best first."""
        return [each.candidate.setting for each in self.order]

    @property
    def failed(self) -> list[dict[str, object]]:
        """The failures with their settings."""
        return [{"setting": one.setting, **fields_of(failure)} for one, failure in self.failures]

    @property
    def judged(self) -> tuple[Judged, ...]:
        """All candidates that compiled."""
        return (*self.order, *self.others)


def judge(
    family: Family,
    variant: str,
    settings: Iterable[Setting],
    compiled: Compiled,
    *,
    limits: HardwareLimits,
    compute_units: int | None,
) -> tuple[Judged, list[Judged], list[tuple[Candidate, Failure]]]:
    """Upstream's candidate of a variant, all candidates that compiled, and the failures.

    Raises:
        TUNE_KERNEL_UNTUNABLE: upstream's own setting did not compile.
    """
    base = Candidate(variant, family.baseline(variant))
    before = _launched(family, base, family.unit(base), compiled, limits)
    judged: list[Judged] = []
    failures: list[tuple[Candidate, Failure]] = []
    for setting in sorted({*settings, base.setting}):
        candidate = Candidate(variant, setting)
        outcome = _launched(family, candidate, family.unit(candidate), compiled, limits)
        if isinstance(outcome, Failure):
            failures.append((candidate, outcome))
            continue
        judged.append(
            Judged(
                candidate=candidate,
                figures=outcome,
                estimate=estimate(outcome, family.traits(candidate), limits, compute_units),
                refused=why_worse(outcome, before),
            )
        )
    upstream = next((each for each in judged if each.candidate == base), None)
    if upstream is None:
        failed = next(failure for candidate, failure in failures if candidate == base)
        raise ToolchainError(
            f"{variant}: upstream's own setting does not compile for {limits.arch}",
            code="TUNE_KERNEL_UNTUNABLE",
            where=Location(path=family.unit(base)),
            why=failed.message,
            hint="check the compiler version with: patchkit doctor",
        )
    return upstream, judged, failures


def settings_to_time(
    family: Family,
    variant: str,
    settings: Iterable[Setting],
    compiled: Compiled,
    *,
    limits: HardwareLimits,
    compute_units: int | None,
    exhaustive: bool,
    measured: Setting | None = None,
) -> tuple[Setting, ...]:
    """The settings to time: the Pareto front of the compiler's figures; all settings if ``exhaustive``.

    A setting that was measured on hardware is included, so that its modelled time is reported.

    Raises:
        TUNE_KERNEL_UNTUNABLE: upstream's own setting does not compile.
    """
    _, judged, _ = judge(family, variant, settings, compiled, limits=limits, compute_units=compute_units)
    found = judged if exhaustive else front(judged)
    found += [each for each in judged if each.candidate.setting == measured and each not in found]
    return tuple(each.candidate.setting for each in found)


def choose(  # noqa: PLR0913 - the inputs of the choice; all but the first five by name
    family: Family,
    variant: str,
    settings: Iterable[Setting],
    compiled: Compiled,
    compile_checks: CompileUnits,
    *,
    limits: HardwareLimits,
    compute_units: int | None,
    measured: Setting | None = None,
    modelled: Mapping[Setting, Modelled] | None = None,
) -> Verdict:
    """Choose the best setting of one variant.

    ``modelled`` has the times of :func:`settings_to_time`; if there are any, they decide.

    ``measured`` is the profile's setting if it was measured on hardware: it is kept if it is eligible,
    because a measurement is more reliable than any estimate. ``compile_checks`` compiles the units that
    confirm a candidate.

    Raises:
        TUNE_KERNEL_UNTUNABLE: upstream's own setting does not compile.
    """
    upstream, judged, failures = judge(
        family, variant, settings, compiled, limits=limits, compute_units=compute_units
    )
    if modelled:
        judged = [_timed(each, modelled) for each in judged]
        upstream = next(each for each in judged if each.candidate == upstream.candidate)
    order = rank(judged, upstream)
    wanted = [each for each in order if each.candidate.setting == measured]
    kept = "measured on hardware, see measured_on in the profile" if wanted else None
    best = next(
        each for each in [*wanted, *order] if _is_confirmed(family, each, upstream, compile_checks, limits)
    )
    if wanted and best is not wanted[0]:
        kept = None
    place = order.index(best)
    second = next(iter(order[place + 1 :]), None)
    if kept is None and place > 0:
        names = ", ".join("/".join(map(str, each.candidate.setting)) for each in order[:place])
        kept = f"{names} would be better, but is worse than upstream's in a kernel that shares the row"
    return Verdict(
        variant=variant,
        upstream=upstream,
        best=best,
        order=tuple(order),
        others=tuple(each for each in judged if each.refused is not None),
        front=tuple(front(judged)),
        margin=margin(best, second, upstream),
        kept=kept,
        measured=bool(wanted) and best is wanted[0],
        failures=tuple(failures),
    )


_NOT_WORTH_TIMING = "another one is as good in everything, and better in something"


def _timed(judged: Judged, modelled: Mapping[Setting, Modelled]) -> Judged:
    """Add the modelled time; it covers spills and waves, so those do not make a candidate ineligible."""
    time = modelled.get(judged.candidate.setting)
    refused = (judged.refused or _NOT_WORTH_TIMING) if time is None else None
    return replace(judged, modelled=time, refused=refused)


def _launched(
    family: Family, candidate: Candidate, unit: str, compiled: Compiled, limits: HardwareLimits
) -> Outcome:
    added = family.traits(candidate).launch_lds_bytes
    return with_launch_lds(compiled[unit], added, limits)


def _is_confirmed(
    family: Family, judged: Judged, upstream: Judged, compile_checks: CompileUnits, limits: HardwareLimits
) -> bool:
    """Whether no other instantiation that uses the row is worse than with upstream's setting."""
    if judged is upstream:
        return True
    mine, theirs = family.checks(judged.candidate), family.checks(upstream.candidate)
    for ours, base in zip(mine, theirs, strict=True):
        compiled = compile_checks([ours, base])  # one at a time, because most regressions show in the first
        after = _launched(family, judged.candidate, ours, compiled, limits)
        if why_worse(after, _launched(family, upstream.candidate, base, compiled, limits)) is not None:
            return False
    return True
