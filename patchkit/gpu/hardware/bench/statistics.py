"""How much faster one build is than another, with intervals that are exact for any number of runs.

Builds that ran in the same rounds are compared round by round, by Wilcoxon's signed ranks. A value is the
logarithm of the ratio of two builds' times in one round. Heat, a stall or another program meets either build
with the same chance, because their order changes from round to round, so the values are symmetric around the
true effect, and nothing else is assumed of the noise. The mean of two runs against a single one is not
symmetric when runs stall, so values are never that.

Separate runs, as files of llama-bench have them, share no rounds and may differ in number: they are compared
by Wilcoxon's rank sums, which require that the noise of both is alike. Either way the effect is the median of
all estimates that the values allow (Hodges and Lehmann), and its bounds are two of these estimates.
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
"""The smallest change of speed worth a verdict, as a fraction.

Interleaved runs on gfx1151 were seen to differ by 1.5 % by themselves (justinappler's notes;
docs/records/bench.md).
"""
CONFIDENCE = 0.99
"""Of each interval; a gate looks at many tests, so one wrong in twenty would be too many."""
_CHANCE = (1 - CONFIDENCE) / 2  # that one end of an interval is wrong
_MOST_KEPT = 128  # numbers of rounds whose distribution is remembered


def fewest_rounds(chance: float) -> int:
    """How many rounds it takes until a bound can be wrong with at most this chance."""
    return math.ceil(-math.log2(chance) - 1e-9)


FEWEST = fewest_rounds(_CHANCE)
"""Rounds from which on there is an interval of 99 %: 8. All of n values lie on one side of the true effect
with probability 2^(1-n), so even the range of seven values misses it more often."""


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
    def fractions(self) -> Interval:
        """Of logarithms of ratios: 0.1 is ten per cent faster; five digits."""
        low, middle, high = (round(math.expm1(each), 5) for each in (self.low, self.middle, self.high))
        return Interval(low=low, middle=middle, high=high)

    @property
    def ends(self) -> tuple[float, float]:
        """Without the middle."""
        return self.low, self.high

    @property
    def half(self) -> float:
        """The larger of the two distances from the middle."""
        return max(self.middle - self.low, self.high - self.middle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One test, candidate against baseline; positive is faster.

    ``effect`` is the candidate against the baseline over ``rounds`` rounds, ``noise`` the baseline against
    itself in the same rounds; ``least`` is the smallest effect worth a verdict. All are logarithms of ratios.
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
    def verdict(self) -> SpeedVerdict:
        """By :func:`judge_interval`; unclear with fewer rounds than an interval takes."""
        if self.rounds < FEWEST:
            return "unclear"
        return judge_interval(self.effect, margin=self.margin, least=self.least)

    @property
    def smallest_loss_seen(self) -> float:
        """The loss, as a fraction, from which on this run would have said slower: its stated power."""
        return -math.expm1(-(self.margin + self.effect.half))


def judge_interval(effect: Interval, *, margin: float, least: float) -> SpeedVerdict:
    """The interval lies beyond the margin, within what is not worth a verdict, or neither."""
    if effect.low > margin:
        return "faster"
    if effect.high < -margin:
        return "slower"
    return "same" if effect.reach <= least else "unclear"


def compare(
    baseline: Sequence[float], candidate: Sequence[float], again: Sequence[float], *, least: float
) -> Comparison:
    """Compare times (any unit) of the three arms, one per round each.

    Each round is compared with itself, so that what slows a whole round does not count. ``least`` is
    the smallest fraction that is worth a verdict.
    """
    if not len(baseline) == len(candidate) == len(again):
        raise ValueError("rounds are not whole")
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
    """All estimates of an effect that some values allow, sorted.

    Were there no effect, ``cases`` would be equally likely, and in ``ways[n]`` of them n estimates would lie
    on one side of it.
    """

    values: Sequence[float]
    ways: Sequence[int]
    cases: int

    def bound(self, chance: float) -> Interval:
        """Their median, and bounds that are wrong with at most this chance; infinite where none is."""
        left_out = _left_out(self.ways, chance * self.cases)
        middle = statistics.median(self.values)
        if left_out is None:
            return Interval(low=-math.inf, middle=middle, high=math.inf)
        return Interval(low=self.values[left_out], middle=middle, high=self.values[-1 - left_out])

    def interval(self, chance: float = _CHANCE) -> Interval:
        """The same; of too few values all that was seen."""
        found = self.bound(chance)
        return replace(found, low=max(found.low, self.values[0]), high=min(found.high, self.values[-1]))


def of_rounds(values: Sequence[float]) -> Estimates:
    """Of effects that were measured in one round each: the averages of all pairs, each with itself, too.

    :func:`fewest_rounds` says how many have a bound.
    """
    averages = sorted((one + other) / 2 for one, other in combinations_with_replacement(values, 2))
    return Estimates(values=averages, ways=_ways_of_signs(len(values)), cases=2 ** len(values))


def of_separate_runs(before: Sequence[float], after: Sequence[float]) -> Estimates:
    """How many times ``before`` the values of ``after`` are: each of one side by each of the other.

    :func:`is_enough` says whether there is a bound.
    """
    return Estimates(
        values=sorted(later / earlier for later in after for earlier in before),
        ways=_ways_of_ranks(len(before), len(after)),
        cases=math.comb(len(before) + len(after), len(after)),
    )


def is_enough(before: int, after: int) -> bool:
    """Whether so many values of two separate runs have an interval of 99 %: five each have, four not."""
    return _CHANCE * math.comb(before + after, after) >= 1


def _left_out(ways: Sequence[int], likely: float) -> int | None:
    """The largest total that, with those below it, comes up in at most ``likely`` ways; None: not even 0."""
    below = 0
    for total, more in enumerate(ways):
        below += more
        if below > likely:
            return total - 1 if total else None
    return None


@lru_cache(maxsize=_MOST_KEPT)
def _ways_of_signs(rounds: int) -> tuple[int, ...]:
    """In how many ways signs give each sum of ranks, from none to half of all."""
    most = rounds * (rounds + 1) // 4 + 1
    ways = [1, *[0] * most]
    for rank in range(1, rounds + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return tuple(ways)


@lru_cache(maxsize=_MOST_KEPT)
def _ways_of_ranks(before: int, after: int) -> tuple[int, ...]:
    """In how many orders of all values so many pairs have that of ``after`` below, from none to half of all.

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
