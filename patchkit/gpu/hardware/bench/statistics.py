"""Speed differences of builds, with intervals that are exact for any number of runs.

Builds measured in the same rounds are compared round by round, with Wilcoxon's signed-rank test. A value is
the logarithm of the ratio of two builds' times in one round. Heat, stalls and other programs affect both
builds with equal probability, because their order changes from round to round. So the values are symmetric
around the true effect, which is the only assumption about the noise. The mean of two runs against a single
one is not symmetric if runs stall, so values are never such ratios.

Separate runs, as in files of llama-bench, share no rounds and may differ in number. They are compared with
Wilcoxon's rank-sum test, which requires equal noise on both sides. In both cases, the effect is the median of
all pairwise estimates (Hodges-Lehmann), and its bounds are two of these estimates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement

from patchkit.base.verdict import SpeedVerdict

LEAST = 0.02
"""The smallest relevant change of speed, as a fraction.

Interleaved runs of the same build on gfx1151 differed by 1.5 % (justinappler's notes; docs/records/bench.md).
"""
CONFIDENCE = 0.99
"""Confidence of each interval. A gate checks many tests, so one wrong in twenty would be too many."""
_CHANCE = (1 - CONFIDENCE) / 2  # probability that one end of an interval is wrong
_MOST_KEPT = 128  # cached distributions, by number of rounds


def fewest_rounds(chance: float) -> int:
    """Number of rounds needed for a bound that is wrong with at most this probability."""
    return math.ceil(-math.log2(chance) - 1e-9)


FEWEST = fewest_rounds(_CHANCE)
"""Minimum number of rounds for a 99 % interval: 8. All n values are on one side of the true effect with
probability 2^(1-n), so even the range of seven values misses it too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """``low <= middle <= high``; effects unless a function documents otherwise."""

    low: float
    middle: float
    high: float

    @property
    def reach(self) -> float:
        """The largest absolute effect in the interval."""
        return max(abs(self.low), abs(self.high))

    @property
    def fractions(self) -> Interval:
        """Logarithms of ratios converted to fractions (0.1 is ten percent faster), with five digits."""
        low, middle, high = (round(math.expm1(each), 5) for each in (self.low, self.middle, self.high))
        return Interval(low=low, middle=middle, high=high)

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high."""
        return self.low, self.high

    @property
    def half(self) -> float:
        """The larger distance from the middle to an end."""
        return max(self.middle - self.low, self.high - self.middle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One test, candidate against baseline; positive is faster.

    ``effect`` is candidate against baseline over ``rounds`` rounds, ``noise`` baseline against itself in the
    same rounds; ``least`` is the smallest relevant effect. All are logarithms of ratios.
    """

    effect: Interval
    noise: Interval
    least: float
    rounds: int

    @property
    def margin(self) -> float:
        """The effect that an interval must exceed for a verdict of faster or slower."""
        return max(self.least, self.noise.reach)

    @property
    def verdict(self) -> SpeedVerdict:
        """The verdict of :func:`judge_interval`; unclear with too few rounds for an interval."""
        if self.rounds < FEWEST:
            return "unclear"
        return judge_interval(self.effect, margin=self.margin, least=self.least)

    @property
    def smallest_loss_seen(self) -> float:
        """The smallest loss, as a fraction, that this run would have detected (its power)."""
        return -math.expm1(-(self.margin + self.effect.half))


def judge_interval(effect: Interval, *, margin: float, least: float) -> SpeedVerdict:
    """Faster or slower if the interval is beyond the margin, same if within ``least``, else unclear."""
    if effect.low > margin:
        return "faster"
    if effect.high < -margin:
        return "slower"
    return "same" if effect.reach <= least else "unclear"


def compare(
    baseline: Sequence[float], candidate: Sequence[float], again: Sequence[float], *, least: float
) -> Comparison:
    """Compare times (in any unit) of the three arms, one per round each.

    Ratios are formed within rounds, so that what slows down a whole round cancels out. ``least`` is the
    smallest relevant fraction.
    """
    if not len(baseline) == len(candidate) == len(again):
        raise ValueError("the arms have different numbers of rounds")
    return Comparison(
        effect=of_rounds(
            [math.log(one / ours) for one, ours in zip(baseline, candidate, strict=True)]
        ).interval(),
        noise=of_rounds([math.log(one / two) for one, two in zip(baseline, again, strict=True)]).interval(),
        least=math.log1p(least),
        rounds=len(baseline),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """All pairwise estimates of an effect, sorted.

    Without an effect, all ``cases`` would be equally likely, and in ``ways[n]`` of them exactly n estimates
    would be on one side of zero effect.
    """

    values: Sequence[float]
    ways: Sequence[int]
    cases: int

    def bound(self, chance: float) -> Interval:
        """The median, with bounds that are wrong with at most this probability; infinite if impossible."""
        outside = _outer_ranks(self.ways, chance * self.cases)
        middle = statistics.median(self.values)
        if outside is None:
            return Interval(low=-math.inf, middle=middle, high=math.inf)
        return Interval(low=self.values[outside], middle=middle, high=self.values[-1 - outside])

    def interval(self, chance: float = _CHANCE) -> Interval:
        """As :meth:`bound`, but limited to the range of the values, if these are too few."""
        found = self.bound(chance)
        return replace(found, low=max(found.low, self.values[0]), high=min(found.high, self.values[-1]))


def of_rounds(values: Sequence[float]) -> Estimates:
    """Estimates from effects measured in one round each: averages of all pairs, each with itself included.

    :func:`fewest_rounds` gives the number of rounds needed for a bound.
    """
    averages = sorted((one + other) / 2 for one, other in combinations_with_replacement(values, 2))
    return Estimates(values=averages, ways=_ways_of_signs(len(values)), cases=2 ** len(values))


def of_separate_runs(before: Sequence[float], after: Sequence[float]) -> Estimates:
    """Estimates of the ratio of ``after`` to ``before``: all pairwise ratios.

    :func:`is_enough` tells whether there are enough values for a bound.
    """
    return Estimates(
        values=sorted(later / earlier for later in after for earlier in before),
        ways=_ways_of_ranks(len(before), len(after)),
        cases=math.comb(len(before) + len(after), len(after)),
    )


def is_enough(before: int, after: int) -> bool:
    """Whether two separate runs have enough values for a 99 % interval: five each, not four."""
    return _CHANCE * math.comb(before + after, after) >= 1


def _outer_ranks(ways: Sequence[int], likely: float) -> int | None:
    """The largest total that, with all lower ones, occurs in at most ``likely`` ways; None if not even 0."""
    below = 0
    for total, more in enumerate(ways):
        below += more
        if below > likely:
            return total - 1 if total else None
    return None


@lru_cache(maxsize=_MOST_KEPT)
def _ways_of_signs(rounds: int) -> tuple[int, ...]:
    """For each sum of ranks, from 0 to half of the maximum, the number of sign combinations that give it."""
    most = rounds * (rounds + 1) // 4 + 1
    ways = [1, *[0] * most]
    for rank in range(1, rounds + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return tuple(ways)


@lru_cache(maxsize=_MOST_KEPT)
def _ways_of_ranks(before: int, after: int) -> tuple[int, ...]:
    """For each number of inverted pairs, from 0 to half of all, the number of orders that have it.

    Coefficients of the Gaussian binomial: the product of (1 - q^(after + i)) / (1 - q^i), i up to ``before``.
    """
    most = before * after // 2 + 1
    ways = [1, *[0] * most]
    for number in range(1, before + 1):
        for total in range(most, after + number - 1, -1):
            ways[total] -= ways[total - after - number]
        for total in range(number, most + 1):
            ways[total] += ways[total - number]
    return tuple(ways)
