"""The search for the first bad one: every place, every pattern of what cannot be tested."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.searching import FirstBad, Outcome, find_first_bad


def search(outcomes: list[Outcome]) -> tuple[FirstBad, list[int]]:
    """The result between the first and the last, and what was tested in order."""
    tested: list[int] = []

    def test(at: int) -> Outcome:
        assert 0 < at < len(outcomes) - 1
        tested.append(at)
        return outcomes[at]

    return find_first_bad(0, len(outcomes) - 1, test), tested


def test_every_first_bad_one_is_found_with_few_tests() -> None:
    for size in range(2, 70):
        for first in range(1, size):
            found, tested = search(["good" if at < first else "bad" for at in range(size)])
            assert found == FirstBad(good=first - 1, bad=first)
            assert len(tested) <= (size - 2).bit_length()


def test_all_patterns_of_skipped_ones_in_short_lists() -> None:
    for size in range(3, 9):
        for first, skips in product(range(1, size), product([False, True], repeat=size - 2)):
            outcomes: list[Outcome] = ["good" if at < first else "bad" for at in range(size)]
            for at, is_skipped in enumerate(skips, start=1):
                if is_skipped:
                    outcomes[at] = "skip"
            found, tested = search(outcomes)
            assert len(tested) == len(set(tested))
            assert outcomes[found.good] == "good"
            assert outcomes[found.bad] == "bad"
            assert found.skipped == tuple(range(found.good + 1, found.bad))
            assert found.good < first <= found.bad
            assert all(outcomes[at] == "skip" for at in found.skipped)


@given(size=st.integers(300, 2000), where=st.floats(0, 1), width=st.integers(1, 120), data=st.data())
def test_a_range_that_does_not_build_costs_few_tests(
    size: int, where: float, width: int, data: st.DataObject
) -> None:
    first = 1 + round(where * (size - 2))
    begin = data.draw(st.integers(1, size - 2))
    outcomes: list[Outcome] = ["good" if at < first else "bad" for at in range(size)]
    for at in range(begin, min(begin + width, size - 1)):
        outcomes[at] = "skip"
    found, tested = search(outcomes)
    assert found.good < first <= found.bad
    # Only where the first bad one is at the range itself, all of it has to be looked at.
    if not found.skipped:
        assert len(tested) <= 3 * size.bit_length()
