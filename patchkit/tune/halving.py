"""Which of a few settings is the fastest on hardware, by successive halving that does not outrun the noise.

Vocabulary: an *arm* is a setting with a build of its own; a *rung* is a number of rounds that every arm
still in the race has run; what an arm is compared with is upstream's build, in the same rounds, so that arms
need not run beside each other. After a rung the slower half is out, except for arms that the noise does not
tell from the slowest one kept. The next rung has twice the rounds.

The measuring is a parameter: a gate runs llama-bench, a test plays recorded outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchkit.bench.statistics import Comparison

# Intervals of fewer than three rounds are those of single values; three rungs are 3, 6 and 12 rounds.
FIRST_ROUNDS = 3
RUNGS = 3

Arm = tuple[int, ...]
Measure = Callable[[Arm, int], Comparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An arm after its last rung: its comparison with upstream's build, and the rung it left the race at."""

    arm: Arm
    comparison: Comparison
    rung: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """How it ended.

    ``standings`` has the fastest first. ``winner`` is None when the noise does not tell the first two
    apart, or the first is not faster than upstream's build.
    """

    standings: tuple[Standing, ...]
    winner: Arm | None
    why: str


def race(arms: Sequence[Arm], measure: Measure) -> Race:
    """Run the arms against each other; ``measure`` gives an arm's comparison over that many rounds in all.

    Rounds add up: a measurement of six has the three from before in it.
    """
    if not arms:
        raise ValueError("no arms")
    running = list(dict.fromkeys(arms))
    out: list[Standing] = []
    current: list[Standing] = []
    for rung in range(RUNGS):
        rounds = FIRST_ROUNDS * 2**rung
        current = [Standing(arm=arm, comparison=measure(arm, rounds), rung=rung) for arm in running]
        current.sort(key=_place)
        if rung + 1 < RUNGS:
            kept = _survivors(current)
            out = [*current[kept:], *out]
            current = current[:kept]
            running = [standing.arm for standing in current]
    winner, why = _verdict(current)
    return Race(standings=(*current, *out), winner=winner, why=why)


def _place(standing: Standing) -> tuple[float, Arm]:
    return (-standing.comparison.effect.middle, standing.arm)


def _survivors(standings: Sequence[Standing]) -> int:
    """How many of the sorted arms stay: half of them, and whoever the noise does not tell from the last."""
    kept = -(-len(standings) // 2)
    last = standings[kept - 1].comparison
    for standing in standings[kept:]:
        behind = last.effect.middle - standing.comparison.effect.middle
        if behind > max(last.margin, standing.comparison.margin):
            break
        kept += 1
    return kept


def _verdict(standings: Sequence[Standing]) -> tuple[Arm | None, str]:
    first = standings[0]
    if first.comparison.verdict != "faster":
        return None, f"the first is {first.comparison.verdict} beside upstream's build"
    if len(standings) > 1:
        second = standings[1].comparison
        ahead = first.comparison.effect.low - second.effect.high
        if ahead <= 0:
            return None, "the intervals of the first two overlap"
    return first.arm, "its interval lies beyond the noise, and beyond the next one's"
