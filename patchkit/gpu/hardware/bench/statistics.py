"""How much faster one build is, with bootstrap intervals, and how noisy the measurement was."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["faster", "same", "slower", "undecided"]

CONFIDENCE = 0.99  # of each interval; a gate looks at many tests, so one in twenty would be too often
RESAMPLES = 2000  # the ends of a 99 % interval then rest on ten resamples each
_SEED = 20251031


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """``low <= middle <= high``, effects unless a function says otherwise."""

    low: float
    middle: float
    high: float

    @property
    def reach(self) -> float:
        """How far from no effect the interval goes."""
        return max(abs(self.low), abs(self.high))

    @property
    def half(self) -> float:
        """The larger of the two distances from the middle."""
        return max(self.middle - self.low, self.high - self.middle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One test, candidate against baseline; positive is faster.

    ``effect`` rests on the rounds, ``noise`` on the baseline against itself in the same rounds; ``least`` is
    the smallest effect worth a verdict.
    """

    effect: Interval
    noise: Interval
    least: float
    rounds: int

    @property
    def margin(self) -> float:
        """How large an effect must be to be called one."""
        return max(self.least, self.noise.reach)

    @property
    def verdict(self) -> Verdict:
        """The interval lies beyond the margin, within what is not worth a verdict, or neither."""
        if self.effect.low > self.margin:
            return "faster"
        if self.effect.high < -self.margin:
            return "slower"
        if self.effect.reach <= self.least:
            return "same"
        return "undecided"

    @property
    def smallest_loss_seen(self) -> float:
        """The loss, as a fraction, from which on this run would have said slower: its stated power."""
        return -math.expm1(-(self.margin + self.effect.half))


def bootstrap_median(values: Sequence[float]) -> Interval:
    """The median and the percentile interval of the medians of resamples.

    With few values the interval is that of the values themselves: wide, which is the honest side.
    """
    if not values:
        raise ValueError("no values")
    draw = random.Random(_SEED)  # noqa: S311  # resampling, no secret
    size = len(values)
    medians = [statistics.median(draw.choices(values, k=size)) for _ in range(RESAMPLES)]
    return _percentiles(medians, statistics.median(values))


def compare(
    baseline: Sequence[float], candidate: Sequence[float], again: Sequence[float], *, least: float
) -> Comparison:
    """Compare times (any unit) of the three arms, one per round each.

    Each round is compared with itself, so that what slows a whole round does not count. ``least`` is
    the smallest fraction that is worth a verdict.
    """
    if not len(baseline) == len(candidate) == len(again):
        raise ValueError("rounds are not whole")
    noise = bootstrap_median([math.log(one / two) for one, two in zip(baseline, again, strict=True)])
    effect = bootstrap_median(
        [
            (math.log(one) + math.log(two)) / 2 - math.log(ours)
            for one, two, ours in zip(baseline, again, candidate, strict=True)
        ]
    )
    return Comparison(effect=effect, noise=noise, least=math.log1p(least), rounds=len(baseline))


def bootstrap_mean(values: Sequence[float]) -> Interval | None:
    """The mean and its interval, in the unit of the values; None for a single value, which has none."""
    if len(values) < 2:  # noqa: PLR2004  # of one value nobody knows how much it scatters
        return None
    draw = random.Random(_SEED)  # noqa: S311  # resampling, no secret
    return _percentiles([_resampled_mean(draw, values) for _ in range(RESAMPLES)], statistics.fmean(values))


def bootstrap_change(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The change of the mean as a fraction (0.1: ten per cent more), both resampled by themselves.

    None when one side is a single value: then nothing is known of its scatter.
    """
    if min(len(before), len(after)) < 2:  # noqa: PLR2004  # as above
        return None
    draw = random.Random(_SEED)  # noqa: S311  # as above
    changes = [_resampled_mean(draw, after) / _resampled_mean(draw, before) - 1 for _ in range(RESAMPLES)]
    return _percentiles(changes, statistics.fmean(after) / statistics.fmean(before) - 1)


def _resampled_mean(draw: random.Random, values: Sequence[float]) -> float:
    return sum(draw.choices(values, k=len(values))) / len(values)


def _percentiles(values: list[float], middle: float) -> Interval:
    values.sort()
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(low=values[cut], middle=middle, high=values[-1 - cut])
