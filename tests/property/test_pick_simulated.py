"""How often ``pick`` is wrong, on simulated machines with drift, stalls and throttling."""

from __future__ import annotations

from collections import Counter

import pytest
from simulated_machine import (
    MODELS,
    PLANTED,
    RIGHT,
    SimulatedMachine,
)

from patchkit.prove.pick.decide import Member, PickPlan, pick

_HOUR = 3600.0
_NOISES = (0.003, 0.007, 0.01, 0.015)


def _planted(seed: int) -> tuple[str, ...]:
    machine = SimulatedMachine(seed=seed, noise=_NOISES[seed % len(_NOISES)])
    return pick(PickPlan(members=PLANTED, models=MODELS, seconds=_HOUR, seed=str(seed)), machine).picked


def _tally(runs: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(runs):
        picked = _planted(seed)
        found["wrong"] += bool(set(picked) - set(RIGHT))
        found["exact"] += picked == RIGHT
    return found


def test_the_planted_set_is_found_in_9_of_10_runs_and_no_loser_is_ever_kept() -> None:
    found = _tally(8)
    assert found["wrong"] == 0
    assert found["exact"] >= 8


@pytest.mark.thorough
def test_of_200_runs_at_most_one_in_a_hundred_keeps_a_loser() -> None:
    found = _tally(200)
    assert found["wrong"] <= 2
    assert found["exact"] >= 180


@pytest.mark.parametrize("runs", [10, pytest.param(200, marks=pytest.mark.thorough)])
def test_a_patch_just_slow_enough_to_matter_is_hardly_ever_kept(runs: int) -> None:
    # The hardest loser: a large gain elsewhere, and a loss of exactly what is worth a verdict.
    def factor(arm: tuple[str, ...], _model: str, test: str) -> float:
        if not arm:
            return 1.0
        return 1 / 1.2 if test.startswith("pp") else 1.02

    kept = 0
    for seed in range(runs):
        machine = SimulatedMachine(seed=seed, noise=_NOISES[seed % len(_NOISES)], factor=factor)
        picked = pick(
            PickPlan(members=(Member(id="a"),), models=("m",), seconds=_HOUR, seed=str(seed)), machine
        )
        kept += bool(picked.picked)
    assert kept <= max(1, runs // 100)
