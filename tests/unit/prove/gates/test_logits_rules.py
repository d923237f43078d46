"""The rules of the gate logits."""

from __future__ import annotations

import math

import pytest

from patchkit.gpu.hardware.logits import Distance, Divergence, scenes
from patchkit.prove.gates.logits import ScenePair, TextPair, allowed_distance, judge_logits, judge_text

NEAR = Distance(
    rows=25,
    vocabulary=512,
    nmse=2e-5,
    worst=4e-5,
    worst_row=3,
    kl=4e-5,
    kl_worst=1e-4,
    same_top=25,
    is_finite=True,
)


def pair(after: Distance) -> ScenePair:
    return ScenePair(model="m", scene=scenes()[0], before=NEAR, after=after)


def test_as_near_as_the_baseline_passes() -> None:
    assert not list(judge_logits([pair(NEAR), pair(NEAR.model_copy(update={"nmse": 5e-5}))]))


@pytest.mark.parametrize("worse", [{"nmse": 7e-5}, {"kl": 2e-4}, {"nmse": math.nan}, {"kl": math.inf}])
def test_further_than_three_times_the_baseline_fails(worse) -> None:
    (problem,) = judge_logits([pair(NEAR.model_copy(update=worse))])
    assert problem.code == "LOGITS_FAR"
    assert "the baseline has 2.0e-05" in (problem.why or "")


def test_values_that_are_no_numbers_fail_by_themselves() -> None:
    (problem,) = judge_logits([pair(NEAR.model_copy(update={"is_finite": False}))])
    assert problem.code == "LOGITS_NOT_FINITE"


RACING = NEAR.model_copy(update={"nmse": 0.5, "kl": 0.4})


def theirs(after: Distance, apart: Distance, before: Distance = RACING) -> ScenePair:
    return ScenePair(model="m", scene=scenes()[0], before=before, after=after, apart=apart)


def test_where_upstream_is_wrong_the_same_numbers_are_named_and_not_judged() -> None:
    same = theirs(RACING, NEAR)
    assert not list(judge_logits([same]))
    assert not same.is_judged


def test_where_upstream_is_wrong_the_candidate_may_be_right() -> None:
    right = theirs(NEAR, RACING)
    assert not list(judge_logits([right]))
    assert right.is_judged


def test_where_upstream_is_wrong_other_wrong_numbers_are_the_candidates() -> None:
    other = theirs(NEAR.model_copy(update={"nmse": 1.9}), NEAR.model_copy(update={"nmse": 1.8}))
    (problem,) = judge_logits([other])
    assert problem.code == "LOGITS_FAR"
    assert "upstream's own are NMSE 5.0e-01 from the CPU's" in (problem.why or "")
    # On a GPU a race may end in another way each time.
    assert not list(judge_logits([other], is_repeatable=False))


def test_where_upstream_is_wrong_a_part_that_is_mended_is_no_fault_and_no_proof() -> None:
    nearer = theirs(NEAR.model_copy(update={"nmse": 0.05}), NEAR.model_copy(update={"nmse": 0.48}))
    assert not list(judge_logits([nearer]))
    assert not nearer.is_judged
    (problem,) = judge_logits([theirs(NEAR.model_copy(update={"nmse": 0.06}), RACING)])  # less than ten times
    assert problem.code == "LOGITS_FAR"


def test_no_numbers_of_the_candidate_are_a_fault_also_where_upstream_is_wrong() -> None:
    nothing = NEAR.model_copy(update={"nmse": math.nan, "is_finite": False})
    (problem,) = judge_logits([theirs(nothing, nothing)])
    assert problem.code == "LOGITS_NOT_FINITE"
    assert not list(judge_logits([theirs(nothing, nothing, before=nothing)]))


def test_a_baseline_without_any_distance_leaves_room() -> None:
    assert allowed_distance(NEAR.model_copy(update={"nmse": 0.0, "kl": 0.0})) == (5e-5, 1e-4)


def test_a_text_read_further_off_than_allowed_fails() -> None:
    near = Divergence(mean=4e-5, worst=1e-3, perplexity=7.0, base_perplexity=7.0)
    assert not list(
        judge_text(TextPair(floor=1e-4, before=near, after=near.model_copy(update={"mean": 1e-4})))
    )
    (problem,) = judge_text(
        TextPair(floor=1e-4, before=near, after=near.model_copy(update={"mean": 0.002, "perplexity": 1334.0}))
    )
    assert problem.code == "LOGITS_FAR"
    assert "perplexity is 1334.0000" in (problem.why or "")
    assert list(
        judge_text(TextPair(floor=1e-4, before=near, after=near.model_copy(update={"mean": math.nan})))
    )
