"""The rules of the gate logits."""

from __future__ import annotations

import math

import pytest

from patchkit.device.logits import Distance, Divergence, scenes
from patchkit.gates.logits import Pair, TextPair, allowed_distance, judge_logits, judge_text

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


def pair(after: Distance) -> Pair:
    return Pair(model="m", scene=scenes()[0], before=NEAR, after=after)


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
    assert "perplexity 1334.0000" in (problem.why or "")
    assert list(
        judge_text(TextPair(floor=1e-4, before=near, after=near.model_copy(update={"mean": math.nan})))
    )
