"""The figures of an evidence file, computed only from its raw rounds, with the statistics of gate ``bench``.

Both writing and checking a file use this. Which arms are compared follows from the arms themselves, so that
no unfavourable comparison can be omitted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from patchkit.base.evidence import MeasuredArm, MeasuredTest, MeasuredVerdict, Range
from patchkit.gpu.hardware.bench.statistics import FEWEST, LEAST, Comparison, Interval, of_rounds

ArmPair = tuple[str, str]
"""The names of two arms: the one that is compared, and the one it is compared with."""


def pairs_of(arms: Sequence[MeasuredArm]) -> tuple[ArmPair, ...]:
    """Which arm is compared with which, by name: an arm with more patches with arms that have some of these.

    Each is compared with its nearest subsets (no other arm lies between) and with its smallest subset. A tree
    that was measured twice counts once.
    """
    first: dict[str, MeasuredArm] = {}
    for arm in arms:
        first.setdefault(arm.tree, arm)
    several = list(first.values())
    sets = {arm.name: frozenset(arm.patches) for arm in several}
    found = []
    for arm in several:
        below = [other for other in several if sets[other.name] < sets[arm.name]]
        least = min(below, key=lambda each: len(sets[each.name]), default=None)
        for other in below:
            is_next = not any(sets[other.name] < sets[each.name] for each in below)
            if is_next or other is least:
                found.append((arm.name, other.name))
    return tuple(found)


def comparisons_of(arms: Sequence[MeasuredArm], test: MeasuredTest) -> tuple[tuple[ArmPair, ...], ...]:
    """The comparisons of a test: each a list of pairs of arms that ran in the same rounds.

    A comparison is normally one pair. Pairs that differ by the same single patch, share rounds, and have too
    few rounds each are combined: ``pick`` leaves patches out in many combinations, each only a few times.
    """
    sets = {arm.name: frozenset(arm.patches) for arm in arms}
    found: list[list[ArmPair]] = []
    thin: dict[str, list[tuple[set[int], list[ArmPair]]]] = {}
    for of, against in pairs_of(arms):
        rounds = {number for number, one in enumerate(test.rounds) if of in one and against in one}
        differing = sets[of] - sets[against]
        if not rounds:
            continue
        if len(rounds) >= FEWEST or len(differing) > 1:
            found.append([(of, against)])
            continue
        others = thin.setdefault(next(iter(differing)), [])
        shared = next(((seen, pairs) for seen, pairs in others if seen & rounds), None)
        if shared is None:
            found.append([(of, against)])
            others.append((rounds, found[-1]))
        else:
            shared[0].update(rounds)
            shared[1].append((of, against))
    return tuple(tuple(pairs) for pairs in found)


def verdicts_of(arms: Sequence[MeasuredArm], tests: Sequence[MeasuredTest]) -> tuple[MeasuredVerdict, ...]:
    """Every verdict that the rounds allow, by test, in the order of the arms."""
    found: list[MeasuredVerdict] = []
    for number, test in enumerate(tests):
        medians = [{arm: statistics.median(times) for arm, times in one.items()} for one in test.rounds]
        noises: dict[str, Interval | None] = {}
        for pairs in comparisons_of(arms, test):
            against = pairs[0][1]
            if against not in noises:
                noises[against] = _noise(medians, arms, against)
            found.append(_verdict(number, medians, pairs, noises[against]))
    return tuple(found)


def _verdict(
    number: int,
    medians: Sequence[dict[str, float]],
    pairs: Sequence[ArmPair],
    noise: Interval | None,
) -> MeasuredVerdict:
    """The verdict on a comparison in a test, named by its first pair."""
    effects = [
        math.log(one[against] / one[of])
        for one in medians
        for of, against in pairs
        if of in one and against in one
    ]
    effect = of_rounds(effects).interval()
    comparison = Comparison(
        effect=effect,
        noise=noise or Interval(low=0.0, middle=0.0, high=0.0),
        least=math.log1p(LEAST),
        rounds=len(effects),
    )
    of, against = pairs[0]
    shown = effect.fractions
    return MeasuredVerdict(
        test=number,
        of=of,
        against=against,
        rounds=len(effects),
        change=shown.middle,
        low=shown.low,
        high=shown.high,
        noise=None if noise is None else Range(low=noise.fractions.low, high=noise.fractions.high),
        verdict="unclear" if noise is None else comparison.verdict,
    )


def _noise(medians: Sequence[dict[str, float]], arms: Sequence[MeasuredArm], against: str) -> Interval | None:
    """How far a build differed from itself: the one that is compared with, else another one."""
    trees = [next(arm.tree for arm in arms if arm.name == against), *(arm.tree for arm in arms)]
    for tree in dict.fromkeys(trees):
        one, *others = [arm.name for arm in arms if arm.tree == tree]
        for other in others:
            found = [math.log(row[one] / row[other]) for row in medians if one in row and other in row]
            if len(found) >= FEWEST:
                return of_rounds(found).interval()
    return None


def speed_of(test: MeasuredTest, arm: str) -> float | None:
    """Tokens per second of an arm, the median over its rounds; None if it has none."""
    times = [statistics.median(one[arm]) for one in test.rounds if arm in one]
    return test.tokens * 1e9 / statistics.median(times) if times else None
