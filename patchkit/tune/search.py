"""The best setting of each variant, from what the compiler made of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.occupancy import HardwareLimits
from patchkit.base.plain import fields_of
from patchkit.tune.cost import Judged, Modelled, estimate, front, margin, not_worse, rank
from patchkit.tune.family import Candidate, Family, Setting
from patchkit.tune.outcome import Failure, Figures, Outcome, as_launched

# unit -> outcomes, one for each version of the headers in a fixed order
Compiled = Mapping[str, tuple[Outcome, ...]]
Ask = Callable[[Sequence[str]], Compiled]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One variant. ``order`` has the eligible candidates, the best first; ``best`` is confirmed.

    ``kept`` says why a setting was taken that the order does not put first, ``measured`` whether it is
    for a measurement. ``failures`` are candidates
    that did not compile, with the compiler's words. ``reachable`` is the most waves per SIMD, reported,
    that any setting that was compiled reaches with all headers.
    """

    json_keys: ClassVar = (
        "variant upstream=upstream.candidate.setting best=best.candidate.setting margin kept measured "
        "most_waves_reachable=reachable front=front_settings order=order_settings candidates=judged "
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
    reachable: int
    failures: tuple[tuple[Candidate, Failure], ...]

    @property
    def front_settings(self) -> list[Setting]:
        """The settings of the front."""
        return [each.candidate.setting for each in self.front]

    @property
    def order_settings(self) -> list[Setting]:
        """The settings in their order."""
        return [each.candidate.setting for each in self.order]

    @property
    def failed(self) -> list[dict[str, object]]:
        """Each failure with its setting."""
        return [{"setting": one.setting, **fields_of(failure)} for one, failure in self.failures]

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Every candidate that compiled."""
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
    """Upstream's candidate of a variant, all that compiled with every headers, and those that did not.

    Raises:
        TUNE_NOTHING_COMPILED: upstream's own setting did not.
    """
    base = Candidate(variant, family.baseline(variant))
    before = _launched(family, base, family.unit(base), compiled, limits)
    judged: list[Judged] = []
    failures: list[tuple[Candidate, Failure]] = []
    for setting in sorted({*settings, base.setting}):
        candidate = Candidate(variant, setting)
        outcomes = _launched(family, candidate, family.unit(candidate), compiled, limits)
        figures = tuple(each for each in outcomes if isinstance(each, Figures))
        if len(figures) < len(outcomes):
            failed = next(each for each in outcomes if isinstance(each, Failure))
            failures.append((candidate, failed))
            continue
        worse = tuple(not_worse(mine, theirs) for mine, theirs in zip(outcomes, before, strict=True))
        traits = family.traits(candidate)
        judged.append(
            Judged(
                candidate=candidate,
                figures=figures,
                estimates=tuple(estimate(each, traits, limits, compute_units) for each in figures),
                worse=worse,
                refused=next((why for why in worse if why is not None), None),
            )
        )
    upstream = next((each for each in judged if each.candidate == base), None)
    if upstream is None:
        failed = next(failure for candidate, failure in failures if candidate == base)
        raise ToolchainError(
            f"{variant}: upstream's own setting does not compile for {limits.arch}",
            code="TUNE_NOTHING_COMPILED",
            where=Location(path=family.unit(base)),
            why=failed.message,
            hint="patchkit doctor shows the compiler",
        )
    return upstream, judged, failures


def worth_timing(  # noqa: PLR0913 - what a choice rests on; all but the first four by name
    family: Family,
    variant: str,
    settings: Iterable[Setting],
    compiled: Compiled,
    *,
    limits: HardwareLimits,
    compute_units: int | None,
    played: int,
    exhaustive: bool,
    measured: Setting | None = None,
) -> tuple[Setting, ...]:
    """The settings to time: those that no other beats in everything by the compiler's figures.

    If ``exhaustive``, the others too.
    What is worse than upstream's setting with other headers than those that are ``played`` is not worth it.
    A setting that hardware chose is, so that its time is shown.

    Raises:
        TUNE_NOTHING_COMPILED: upstream's own setting does not compile.
    """
    _, judged, _ = judge(family, variant, settings, compiled, limits=limits, compute_units=compute_units)
    found = judged if exhaustive else front(judged)
    found += [each for each in judged if each.candidate.setting == measured and each not in found]
    return tuple(each.candidate.setting for each in found if _worse_elsewhere(each, played) is None)


def _worse_elsewhere(judged: Judged, played: int) -> str | None:
    """Why it is worse than upstream's with other headers than those that are played."""
    return next((why for index, why in enumerate(judged.worse) if why is not None and index != played), None)


def choose(  # noqa: PLR0913 - what a choice rests on; all but the first five by name
    family: Family,
    variant: str,
    settings: Iterable[Setting],
    compiled: Compiled,
    ask: Ask,
    *,
    limits: HardwareLimits,
    compute_units: int | None,
    measured: Setting | None = None,
    modelled: Mapping[Setting, Modelled] | None = None,
    played: int = 0,
) -> Verdict:
    """The verdict on one variant.

    ``modelled`` are times of the settings that are :func:`worth_timing`: they decide, where they are.
    ``played`` is the place of the headers that these were compiled with.

    ``measured`` is a setting that the profile has from hardware: where it is eligible it is kept, since a
    measurement says more than any estimate. ``ask`` compiles the units that confirm a winner.

    Raises:
        TUNE_NOTHING_COMPILED: upstream's own setting does not compile.
    """
    upstream, judged, failures = judge(
        family, variant, settings, compiled, limits=limits, compute_units=compute_units
    )
    if modelled:
        judged = [_timed(each, modelled, played) for each in judged]
        upstream = next(each for each in judged if each.candidate == upstream.candidate)
    order = rank(judged, upstream)
    wanted = [each for each in order if each.candidate.setting == measured]
    kept = "measured on hardware; the profile says where" if wanted else None
    best = next(each for each in [*wanted, *order] if _confirmed(family, each, upstream, ask, limits))
    if wanted and best is not wanted[0]:
        kept = None
    place = order.index(best)
    second = next(iter(order[place + 1 :]), None)
    if kept is None and place > 0:
        names = ", ".join("/".join(map(str, each.candidate.setting)) for each in order[:place])
        kept = f"{names} would be ahead, and is worse than upstream's in a kernel that shares the row"
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
        reachable=max(min(figures.waves for figures in each.figures) for each in judged),
        failures=tuple(failures),
    )


NOT_WORTH_TIMING = "another one is as good in everything, and better in something"


def _timed(judged: Judged, modelled: Mapping[Setting, Modelled], played: int) -> Judged:
    """With its time. The code that was played has its spills and its waves, so these refuse nothing."""
    time, elsewhere = modelled.get(judged.candidate.setting), _worse_elsewhere(judged, played)
    untimed = judged.refused or NOT_WORTH_TIMING if time is None else None
    return replace(judged, modelled=time, refused=elsewhere or untimed)


def holds(family: Family, verdict: Verdict, compiled: Compiled, limits: HardwareLimits) -> str | None:
    """Why the chosen setting is worse than upstream's by these outcomes; None where it is not."""
    mine, theirs = verdict.best.candidate, verdict.upstream.candidate
    for ours, base in zip(family.units(mine), family.units(theirs), strict=True):
        after = _launched(family, mine, ours, compiled, limits)
        before = _launched(family, theirs, base, compiled, limits)
        for one, other in zip(after, before, strict=True):
            if (why := not_worse(one, other)) is not None:
                return why
    return None


def _launched(
    family: Family, candidate: Candidate, unit: str, compiled: Compiled, limits: HardwareLimits
) -> tuple[Outcome, ...]:
    added = family.traits(candidate).launch_lds_bytes
    return tuple(as_launched(outcome, added, limits) for outcome in compiled[unit])


def _confirmed(family: Family, judged: Judged, upstream: Judged, ask: Ask, limits: HardwareLimits) -> bool:
    if judged is upstream:
        return True
    mine, theirs = family.checks(judged.candidate), family.checks(upstream.candidate)
    for ours, base in zip(mine, theirs, strict=True):
        compiled = ask([ours, base])  # one at a time: most that are worse are so in the first
        pairs = zip(
            _launched(family, judged.candidate, ours, compiled, limits),
            _launched(family, upstream.candidate, base, compiled, limits),
            strict=True,
        )
        if any(not_worse(after, before) is not None for after, before in pairs):
            return False
    return True
