"""Shapes at which upstream's own code aborts are left out on both sides, and told."""

from __future__ import annotations

import pytest

from patchkit.gpu.emulated.cases import Case, without_aborts
from patchkit.gpu.emulated.session import RecordedRunFailed


def case(name, size):
    return Case(id=name, head_size=size, head_size_v=size, kv_heads=1, gqa=1, kv=256, tokens=1)


CASES = (case("a", 64), case("b", 192), case("c", 192), case("d", 320), case("e", 128))


def baseline(*aborting):
    """A run that ends at the first case of one of these head sizes, as a process would."""

    def run(cases):
        for each in cases:
            if each.head_size in aborting:
                error = RecordedRunFailed("crashed")
                error.case = each.id
                raise error
        return [each.id for each in cases]

    return run


def test_a_baseline_that_ends_well_is_asked_everything():
    assert without_aborts(baseline(), CASES) == (CASES, ["a", "b", "c", "d", "e"], ())


def test_head_sizes_at_which_the_baseline_aborts_are_excluded_and_listed():
    asked, run, told = without_aborts(baseline(192, 320), CASES)
    assert run == [each.id for each in asked] == ["a", "e"]
    assert told == (
        "head size 192/192, 1 query heads per KV head (2 cases excluded): the baseline aborts in case b",
        "head size 320/320, 1 query heads per KV head (1 cases excluded): the baseline aborts in case d",
    )


def test_a_backend_that_runs_nothing_is_not_taken_for_single_shapes():
    cases = [case(str(size), size) for size in range(64, 90)]
    with pytest.raises(RecordedRunFailed):
        without_aborts(baseline(*range(64, 90)), cases)


def test_an_abort_outside_of_a_case_is_no_shape():
    def run(cases):
        raise RecordedRunFailed("crashed while loading")

    with pytest.raises(RecordedRunFailed):
        without_aborts(run, CASES)
