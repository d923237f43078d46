"""The power of the comparison, on simulated machines: what it catches and what it never says.

Machines warm up, share their memory with others and stall now and then; the simulated ones do too.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.gpu.hardware.bench.statistics import FEWEST, Comparison, compare


def _measured(*, seed: int, noise: float, gain: float, rounds: int = 10, stalls: float = 0.0) -> Comparison:
    draw = random.Random(seed)
    arms: tuple[list[float], list[float], list[float]] = ([], [], [])
    for number in range(rounds):
        slow = 1 + 0.1 * number / rounds + draw.gauss(0, 0.02)  # of the whole round: heat, other programs
        for times, faster in zip(arms, (0.0, gain, 0.0), strict=True):
            one = slow * math.exp(draw.gauss(0, noise)) / (1 + faster)
            times.append(one * (1 + draw.expovariate(2)) if draw.random() < stalls else one)
    return compare(*arms, least=0.02)


@pytest.mark.parametrize("stalls", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("rounds", [8, 10, 14, 20])
def test_at_most_one_interval_in_a_hundred_misses_the_true_effect(rounds: int, stalls: float) -> None:
    """Of 2000 measurements 20 may; 39 would by chance in fewer than one such test of 10,000."""
    missed = 0
    for seed in range(2000):
        found = _measured(seed=seed, noise=0.01, gain=0.05, rounds=rounds, stalls=stalls)
        missed += not found.effect.low <= math.log1p(0.05) <= found.effect.high
    assert missed < 39


@pytest.mark.parametrize(
    ("noise", "stalls"), [(0.002, 0.0), (0.01, 0.0), (0.03, 0.0), (0.01, 0.1), (0.1, 0.2)]
)
def test_a_build_against_itself_is_same_or_unclear_in_20_of_20(noise: float, stalls: float) -> None:
    verdicts = [_measured(seed=seed, noise=noise, gain=0.0, stalls=stalls).verdict for seed in range(20)]
    assert set(verdicts) <= {"same", "unclear"}


@pytest.mark.parametrize(("noise", "rounds"), [(0.002, 10), (0.01, 10), (0.015, 10), (0.02, 20)])
def test_a_loss_of_ten_per_cent_is_caught_in_20_of_20(noise: float, rounds: int) -> None:
    runs = [_measured(seed=seed, noise=noise, gain=-0.1, rounds=rounds) for seed in range(20)]
    assert [run.verdict for run in runs] == ["slower"] * 20


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_a_gain_of_half_is_seen(noise: float) -> None:
    assert {_measured(seed=seed, noise=noise, gain=0.5).verdict for seed in range(10)} == {"faster"}


@pytest.mark.parametrize("gain", [-0.5, 0.0, 0.5])
def test_too_few_rounds_for_such_an_interval_decide_nothing(gain: float) -> None:
    found = _measured(seed=1, noise=0.001, gain=gain, rounds=FEWEST - 1)
    assert (found.verdict, FEWEST) == ("unclear", 8)
    assert _measured(seed=1, noise=0.001, gain=gain, rounds=FEWEST).verdict != "unclear"


@given(st.integers(0, 10**6), st.floats(0.001, 0.2), st.sampled_from([0.0, 0.1, 0.3]))
def test_a_loss_of_ten_per_cent_is_never_called_same_or_faster_by_a_run_that_could_see_it(
    seed: int, noise: float, stalls: float
) -> None:
    found = _measured(seed=seed, noise=noise, gain=-0.1, rounds=10, stalls=stalls)
    if found.smallest_loss_seen <= 0.1:
        assert found.verdict in {"slower", "unclear"}


@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12),
    st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12),
    st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12),
)
def test_swapping_the_builds_swaps_the_verdict(
    baseline: list[float], candidate: list[float], again: list[float]
) -> None:
    size = len(baseline)
    one = compare(baseline, candidate[:size], baseline, least=0.02)
    other = compare(candidate[:size], baseline, candidate[:size], least=0.02)
    swapped = {"faster": "slower", "slower": "faster", "same": "same", "unclear": "unclear"}
    assert other.verdict == swapped[one.verdict]
    assert compare(baseline, baseline, again[:size], least=0.02).verdict in {"same", "unclear"}
