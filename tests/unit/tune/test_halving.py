"""Successive halving on recorded speeds: the fastest wins, noise never decides."""

from __future__ import annotations

import random

import pytest

from patchkit.gpu.hardware.bench.statistics import compare
from patchkit.tune.device import FIRST_ROUNDS, RUNGS, race

MOST = FIRST_ROUNDS * 2 ** (RUNGS - 1)


class Recorded:
    """Recorded times of rounds; ``speed`` is that of an arm relative to upstream."""

    def __init__(self, speeds: dict[tuple[int, ...], float], noise: float, seed: int = 5) -> None:
        chance = random.Random(seed)
        self.times = {
            arm: [
                tuple(
                    1e9 / factor * chance.uniform(1 - noise, 1 + noise) for factor in (1.0, speed, 1.0)
                )
                for _ in range(MOST)
            ]
            for arm, speed in speeds.items()
        }  # fmt: skip
        self.asked: dict[tuple[int, ...], list[int]] = {arm: [] for arm in speeds}

    def __call__(self, arm, rounds):
        self.asked[arm].append(rounds)
        baseline, candidate, again = zip(*self.times[arm][:rounds], strict=True)
        return compare(baseline, candidate, again, least=0.01)


SPEEDS = {(256, 4): 1.0, (128, 8): 1.6, (64, 4): 1.2, (256, 8): 1.4, (128, 4): 0.8}


def test_the_fastest_wins_and_slow_arms_run_few_rounds() -> None:
    recorded = Recorded(SPEEDS, noise=0.005)
    result = race(list(SPEEDS), recorded)
    assert result.winner == (128, 8)
    assert [standing.arm for standing in result.standings] == [
        (128, 8),
        (256, 8),
        (64, 4),
        (256, 4),
        (128, 4),
    ]
    assert recorded.asked[128, 8] == [3, 6, 12]
    assert recorded.asked[128, 4] == [3]


def test_arms_within_noise_are_kept_and_there_is_no_winner() -> None:
    recorded = Recorded(dict.fromkeys(SPEEDS, 1.3), noise=0.2)
    result = race(list(SPEEDS), recorded)
    assert result.winner is None
    assert all(asked == [3, 6, 12] for asked in recorded.asked.values())


def test_an_arm_that_is_not_faster_than_upstream_does_not_win() -> None:
    result = race([(1,), (2,)], Recorded({(1,): 1.0, (2,): 0.7}, noise=0.004))
    assert result.winner is None
    assert "upstream" in result.why
    assert result.standings[0].arm == (1,)


def test_two_equal_winners_give_no_winner() -> None:
    result = race([(1,), (2,)], Recorded({(1,): 1.5, (2,): 1.5}, noise=0.004))
    assert result.winner is None
    assert "overlap" in result.why


def test_a_single_arm_is_compared_with_upstream_only() -> None:
    assert race([(1,), (1,)], Recorded({(1,): 1.5}, noise=0.004)).winner == (1,)


def test_no_arms_are_no_race() -> None:
    with pytest.raises(ValueError, match="no arms"):
        race([], Recorded({}, noise=0.0))


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_never_wins(seed) -> None:
    speeds = {(number,): 1.0 for number in range(6)}
    assert race(list(speeds), Recorded(speeds, noise=0.03, seed=seed)).winner is None
