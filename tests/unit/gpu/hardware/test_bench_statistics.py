"""Bounds by signed ranks: exact chances, counted out over all signs."""

from __future__ import annotations

import itertools
import math

import pytest

from patchkit.gpu.hardware.bench.statistics import (
    fewest_rounds,
    is_enough,
    of_rounds,
    of_separate_runs,
)


@pytest.mark.parametrize(("rounds", "chance"), [(8, 0.004), (8, 0.05), (10, 0.01), (12, 0.001)])
def test_a_bound_is_wrong_in_at_most_the_asked_share_of_all_signs(rounds: int, chance: float) -> None:
    # No effect: each difference has either sign, whatever its size. The lower bound is wrong above zero.
    sizes = [1.0 + 0.37 * number**1.5 for number in range(rounds)]
    signs = list(itertools.product((-1, 1), repeat=rounds))
    wrong = sum(
        of_rounds([sign * size for sign, size in zip(each, sizes, strict=True)]).bound(chance).low > 0
        for each in signs
    )
    assert 0 < wrong <= chance * len(signs)


def test_one_wild_value_moves_neither_estimate_nor_bound_far() -> None:
    calm = [0.10, 0.11, 0.09, 0.10, 0.12, 0.08, 0.10, 0.11, 0.09, 0.10, 0.10, 0.10]
    wild = [*calm[:-1], -3.0]
    assert of_rounds(wild).bound(0.05).middle == pytest.approx(0.10, abs=0.01)
    assert of_rounds(wild).bound(0.05).low > 0.05


@pytest.mark.parametrize(("chance", "rounds"), [(0.5, 1), (0.25, 2), (0.004, 8), (0.001, 10)])
def test_below_the_fewest_rounds_there_is_no_bound(chance: float, rounds: int) -> None:
    assert fewest_rounds(chance) == rounds
    assert math.isfinite(of_rounds([0.1] * rounds).bound(chance).low)
    if rounds > 1:
        assert of_rounds([0.1] * (rounds - 1)).bound(chance).low == -math.inf


def test_turning_the_signs_turns_the_bounds() -> None:
    values = [0.03, -0.01, 0.05, 0.02, 0.04, 0.00, 0.01, 0.06, 0.02]
    one, other = (of_rounds(each).bound(0.05) for each in (values, [-value for value in values]))
    assert (one.low, one.middle, one.high) == pytest.approx((-other.high, -other.middle, -other.low))


def test_the_interval_of_too_few_values_is_their_range() -> None:
    found = of_rounds([0.0, 1.0, 2.0]).interval()
    assert (found.low, found.middle, found.high) == (0.0, 1.0, 2.0)
    assert (found.half, found.reach) == (1.0, 2.0)
    with pytest.raises(ValueError, match="no median"):
        of_rounds([]).interval()


@pytest.mark.parametrize(("before", "after"), [(5, 5), (3, 10), (8, 4), (6, 7)])
def test_an_interval_of_separate_runs_misses_in_at_most_a_hundredth_of_all_orders(
    before: int, after: int
) -> None:
    values = [2 + 0.37 * number**1.5 for number in range(before + after)]
    orders = list(itertools.combinations(range(before + after), before))
    missed = 0
    for each in orders:
        one = [values[number] for number in each]
        other = [value for number, value in enumerate(values) if number not in each]
        found = of_separate_runs(one, other).interval()
        missed += not found.low <= 1 <= found.high
    assert is_enough(before, after)
    assert 0 < missed <= 0.01 * len(orders)


@pytest.mark.parametrize(("size", "left_out"), [(8, 7), (10, 16), (20, 105)])
def test_the_ranks_left_out_are_those_of_published_tables(size: int, left_out: int) -> None:
    """Critical values of U, two-sided, 1 %: Mann and Whitney's table, as textbooks have it."""
    ones = [1.0] * size
    steps = [1 + number / 1000 for number in range(size)]
    found = of_separate_runs(ones, steps).interval()
    assert found.low == sorted(step for step in steps for _ in ones)[left_out]


def test_four_values_of_each_side_have_no_such_interval() -> None:
    assert [is_enough(size, size) for size in (1, 2, 3, 4, 5)] == [False] * 4 + [True]
    found = of_separate_runs([1.0, 2.0], [2.0, 8.0]).interval()
    assert (found.low, found.middle, found.high) == (1.0, 3.0, 8.0)
