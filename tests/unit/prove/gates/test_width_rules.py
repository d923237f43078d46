"""The rules of the gate width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from patchkit.prove.gates.width import (
    Declared,
    Drafted,
    WidthDistance,
    WidthScene,
    allowed_flips,
    allowed_spread,
    describe_excused,
    format_spread,
    format_widths,
    judge_width,
)

EQUAL = WidthDistance(width=2, rows=16, equal=16, nmse=0.0, worst=0.0, worst_row=0, is_finite=True)


def side(**others: Mapping[str, Any]) -> tuple[WidthDistance, ...]:
    """Distances in batches of 2, 3, 5 and 16, bit-identical except as given: ``w5={...}``."""
    unequal = {"equal": 3, "nmse": 1e-7, "worst": 4e-7, "worst_row": 7}
    return tuple(
        EQUAL.model_copy(update={"width": width, **(unequal | dict(found) if found is not None else {})})
        for width in (2, 3, 5, 16)
        for found in [others.get(f"w{width}")]
    )


# As upstream's quantized matmuls on gfx1151: one kernel up to 8 tokens, another one for 16.
UPSTREAM = side(w16={})


def scene(candidate: tuple[WidthDistance, ...], baseline: tuple[WidthDistance, ...] = UPSTREAM, **more: Any):
    return WidthScene(
        kind=more.pop("kind", "operation"), name="MUL_MAT", baseline=baseline, candidate=candidate, **more
    )


def test_what_is_as_upstreams_passes() -> None:
    assert not list(judge_width([scene(UPSTREAM), scene(side()), scene(side(), side())]))


def test_what_upstream_has_equal_to_the_bit_must_be_equal() -> None:
    (problem,) = judge_width([scene(side(w3={"nmse": 1e-15, "worst": 1e-15}, w16={}))])
    assert problem.code == "WIDTH_DIFFERS"
    assert "in batches of 3 tokens" in problem.message
    assert "upstream's are bit-identical" in (problem.why or "")
    assert "place 1 of its batch" in (problem.why or "")  # token 7 of batches of 3


def test_a_declared_change_may_be_as_far_as_upstreams_own_kernels() -> None:
    declared = (Declared(patch="limits", widths=(5,)),)
    near, far = side(w5={}, w16={}), side(w5={"nmse": 4e-7}, w16={})
    assert not list(judge_width([scene(near, declared=declared)]))
    (problem,) = judge_width([scene(far, declared=declared)])
    assert "at most 3.0e-07" in (problem.why or "")
    # It holds for its batches only.
    (problem,) = judge_width([scene(side(w3={}, w5={}, w16={}), declared=declared)])
    assert "in batches of 3 tokens" in problem.message
    (line,) = describe_excused([scene(near, declared=declared), scene(UPSTREAM, declared=declared)])
    assert line == (
        "results as close to single tokens as upstream's in batches of 5 tokens, because limits uses another "
        "kernel: MUL_MAT"
    )


@pytest.mark.parametrize("worse", [{"nmse": 7e-8}, {"worst": 2e-6}, {"nmse": math.nan, "worst": math.nan}])
def test_others_may_be_three_times_as_far_as_upstreams_furthest(worse: Mapping[str, float]) -> None:
    theirs = side(w3={"nmse": 2e-8}, w16={})
    # In batches of up to that size: 16 tokens may use a kernel that rounds otherwise.
    assert allowed_spread(scene(theirs, theirs), 16) == pytest.approx((3e-7, 1.2e-6))
    assert allowed_spread(scene(theirs, theirs), 3) == pytest.approx((6e-8, 1.2e-6))
    assert not list(judge_width([scene(side(w3={"nmse": 5.9e-8}, w16={"nmse": 2.9e-7}), theirs)]))
    (problem,) = judge_width([scene(side(w3=worse, w16={}), theirs)])
    assert problem.code == "WIDTH_DIFFERS"


def test_one_wrong_token_among_many_is_found() -> None:
    # The NMSE of all tokens hides it: it is far within three times upstream's.
    theirs = side(w3={"nmse": 1e-4, "worst": 2e-4}, w16={})
    (problem,) = judge_width([scene(side(w3={"nmse": 2e-4, "worst": 0.01}, w16={}), theirs)])
    assert "worst token" in (problem.why or "")


def test_values_that_are_no_numbers_fail_unless_they_are_upstreams() -> None:
    nothing = side(w5={"is_finite": False, "nmse": math.nan, "worst": math.nan}, w16={})
    (problem,) = judge_width([scene(nothing)])
    assert "not all finite" in (problem.why or "")
    assert not list(judge_width([scene(nothing, nothing)]))


def test_a_candidate_that_supports_less_is_broken() -> None:
    (problem,) = judge_width([scene(())])
    assert problem.code == "WIDTH_BROKEN"


def model(candidate: Sequence[WidthDistance], baseline: Sequence[WidthDistance], **more: Any) -> WidthScene:
    return scene(tuple(candidate), tuple(baseline), kind="model", **more)


def flipped(**flips: int) -> tuple[WidthDistance, ...]:
    """Distances of a model in which so many of 16 rows have another most likely token: ``w5=2``."""
    return tuple(
        one.model_copy(update={"same_top": 16 - flips.get(f"w{one.width}", 0)})
        for one in side(w2={}, w3={}, w5={}, w16={})
    )


def test_the_most_likely_token_may_change_as_often_as_upstreams() -> None:
    never, twice = flipped(), flipped(w3=1, w16=1)
    assert allowed_flips([model(twice, twice)]) == pytest.approx(2 + 2 * 2**0.5)
    assert not list(judge_width([model(twice, twice)]))
    assert not list(judge_width([model(flipped(w2=2, w3=2), twice)]))  # a count varies by its root
    (problem,) = judge_width([model(flipped(w2=3, w3=2), twice)])
    assert (problem.code, "the baseline has 2" in (problem.why or "")) == ("WIDTH_FLIPS", True)
    (problem,) = judge_width([model(flipped(w5=1), never)])
    assert problem.code == "WIDTH_FLIPS"


def test_a_declared_change_may_flip_as_often_as_upstreams_worst_width() -> None:
    declared = (Declared(patch="limits", widths=(5,)),)
    theirs = flipped(w16=4)
    assert allowed_flips([model(theirs, theirs, declared=declared)]) == pytest.approx(8 + 2 * 8**0.5)
    assert not list(judge_width([model(flipped(w5=5, w16=4), theirs, declared=declared)]))


SAME, LOST = Drafted(tokens=16, same=16), Drafted(tokens=16, same=8)


def test_a_draft_must_not_change_tokens_where_results_are_equal_to_the_bit() -> None:
    exact = side(w5={}, w16={})  # batches of four are in between
    (problem,) = judge_width([model(exact, exact, drafted=(SAME, LOST))])
    assert problem.code == "WIDTH_FLIPS"
    assert "with 1 of 1 models, on the baseline with 0" in (problem.why or "")
    for pair in ((SAME, SAME), (LOST, LOST), (LOST, SAME)):
        assert not list(judge_width([model(exact, exact, drafted=pair)]))


def test_a_draft_may_change_tokens_of_as_many_models_as_upstreams() -> None:
    one = flipped()

    def many(theirs: int, ours: int) -> list[WidthScene]:
        return [
            model(one, one, drafted=(LOST if at < theirs else SAME, SAME if at < 10 - ours else LOST))
            for at in range(10)
        ]

    assert not list(judge_width(many(2, 4)))  # near ties: a count varies by its root
    assert not list(judge_width(many(0, 2)))
    assert len(list(judge_width(many(2, 5)))) == 5
    assert len(list(judge_width(many(0, 3)))) == 3


def test_texts_of_tables() -> None:
    assert format_widths((2, 3, 4, 8, 16)) == "2-4, 8, 16"
    assert format_spread(UPSTREAM) == "equal 2-3, 5; 1.0e-07 (16)"
    assert format_spread(side()) == "equal 2-3, 5, 16"
    assert format_spread(()) == "not supported"
