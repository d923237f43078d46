"""Bounds of an effect that hold at any small number of rounds, whatever the noise looks like.

Every value is the difference of two arms of one round whose order was drawn by lot, so heat, a stall or
another program meets either arm with the same chance: around the true effect the differences are symmetric.
That is all that Wilcoxon's signed ranks ask for; nothing is taken to be normal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

_MOST_KEPT = 128  # numbers of rounds whose distribution is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How much faster, as logarithms of ratios: the estimate with a bound on either side of it.

    ``low`` and ``high`` are one-sided bounds, each wrong with at most the chance that was asked for; with too
    few rounds for that they are infinite.
    """

    low: float
    middle: float
    high: float


def fewest_rounds(chance: float) -> int:
    """How many rounds it takes until a bound can be wrong with at most this chance."""
    return math.ceil(-math.log2(chance) - 1e-9)


def bound_effect(values: Sequence[float], chance: float) -> Effect:
    """The estimate of Hodges and Lehmann, with the bounds that belong to it."""
    return bound_averages(walsh_averages(values), len(values), chance)


def walsh_averages(values: Sequence[float]) -> list[float]:
    """The averages of all pairs of values, each with itself, too; sorted."""
    return sorted((one + other) / 2 for one, other in combinations_with_replacement(values, 2))


def bound_averages(averages: Sequence[float], rounds: int, chance: float) -> Effect:
    """As :func:`bound_effect`, from what :func:`walsh_averages` gave."""
    left_out = _ranks_left_out(rounds, chance)
    middle = statistics.median(averages)
    if left_out is None:
        return Effect(low=-math.inf, middle=middle, high=math.inf)
    return Effect(low=averages[left_out], middle=middle, high=averages[-1 - left_out])


def _ranks_left_out(rounds: int, chance: float) -> int | None:
    """The largest sum of ranks that is as unlikely as asked for; None when even zero is likelier."""
    below = 0
    for total, ways in enumerate(_ways(rounds)):
        below += ways
        if below > chance * 2**rounds:
            return total - 1 if total else None
    return None


@lru_cache(maxsize=_MOST_KEPT)
def _ways(rounds: int) -> tuple[int, ...]:
    """In how many ways signs give each sum of ranks, from none to half of all."""
    most = rounds * (rounds + 1) // 4 + 1
    ways = [1, *[0] * most]
    for rank in range(1, rounds + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return tuple(ways)
