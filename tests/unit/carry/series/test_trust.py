"""Levels of trust: what claims come to, whoever made them and in whatever order."""

from __future__ import annotations

import itertools

import pytest

from patchkit.carry.series.trust import Claim, TrustRules, admits, assess_claims


def claim(kind: str, says: str, who: str = "ann", **more: object) -> Claim:
    return Claim(archs=("gfx1151",), kind=kind, says=says, who=who, link="a thread", figure="+1 %", **more)


GAIN = claim("hardware", "gain", "ann")
OTHER = claim("hardware", "gain", "bob")
LOSS = claim("hardware", "loss", "cid")
MODEL = claim("modelled", "gain", "patchkit")


@pytest.mark.parametrize(
    ("claims", "level", "trust"),
    [
        ([], None, None),
        ([GAIN, OTHER], "measured", "measured"),
        ([GAIN, MODEL], "published", "published"),
        ([GAIN], "published", "modelled"),
        ([GAIN, claim("modelled", "loss", "patchkit")], "published", None),
        ([GAIN, claim("modelled", "same", "patchkit")], "published", "modelled"),
        ([GAIN, OTHER, claim("modelled", "loss", "patchkit")], "measured", "measured"),
        ([MODEL], "modelled", "modelled"),
        ([MODEL, claim("modelled", "loss", "patchkit")], None, None),
        ([claim("hardware", "fixes"), claim("hardware", "fixes", "bob")], "measured", "measured"),
        ([claim("hardware", "fixes"), claim("emulated", "fixes", "patchkit")], "published", "published"),
        ([claim("emulated", "fixes", "patchkit")], "faults", "faults"),
        ([claim("concluded", "fixes", "patchkit")], "faults", "faults"),
        ([claim("concluded", "gain", "patchkit")], None, None),
    ],
)
def test_levels(claims: list[Claim], level: str | None, trust: str | None) -> None:
    for order in itertools.permutations(claims):
        assessment = assess_claims(order, "gfx1151", 11549)
        assert (assessment.level, assessment.trust) == (level, trust)


def test_one_source_is_one_however_often_it_speaks() -> None:
    assert assess_claims([GAIN, claim("hardware", "gain", "ann", build=9)], "gfx1151", 9).gains == ("ann",)


@pytest.mark.parametrize("says", ["loss", "mixed"])
def test_who_says_both_has_no_vote(says: str) -> None:
    assessment = assess_claims([GAIN, claim("hardware", says, "ann"), OTHER], "gfx1151", 1)
    assert (assessment.gains, assessment.losses, assessment.level) == (("bob",), (), "published")


def test_a_loss_takes_one_gain_away_and_two_end_the_default() -> None:
    assert assess_claims([GAIN, OTHER, LOSS, MODEL], "gfx1151", 1).level == "published"
    many = [claim("hardware", "gain", str(number)) for number in range(9)]
    assert not assess_claims([*many, LOSS], "gfx1151", 1).loses
    assessment = assess_claims([*many, LOSS, claim("hardware", "loss", "dan")], "gfx1151", 1)
    assert (assessment.loses, assessment.level, assessment.trust) == (True, None, None)
    assert assessment.sentence() == "measured slower by cid and dan"


def test_another_gpu_and_a_later_build_are_not_spoken_of() -> None:
    dated = claim("hardware", "gain", "bob", last_build=11062)
    assert assess_claims([GAIN, dated], "gfx1151", 11062).level == "measured"
    assert assess_claims([GAIN, dated], "gfx1151", 11063).level == "published"
    assert assess_claims([GAIN, dated], "gfx1150", 11062).claims == ()


def test_what_was_measured_in_its_place_makes_it_published_at_most() -> None:
    stand_ins = [claim("hardware", "gain", who, indirect=True) for who in ("ann", "bob", "eve")]
    assessment = assess_claims([*stand_ins, MODEL], "gfx1151", 1)
    assert assessment.level == "published"
    assert (
        assessment.sentence()
        == "published by ann, bob and eve for an equivalent change, the timing model agrees"
    )
    assert assess_claims([*stand_ins, GAIN, OTHER], "gfx1151", 1).level == "measured"
    assert assess_claims([*stand_ins, claim("hardware", "gain", "dan")], "gfx1151", 1).level == "published"
    slower = [claim("hardware", "loss", who, indirect=True) for who in ("ann", "bob")]
    assert assess_claims([*slower, MODEL], "gfx1151", 1).level == "modelled"


def test_how_many_sources_are_enough_is_the_series_to_say() -> None:
    three = TrustRules(measured=3, loses=1)
    assert assess_claims([GAIN, OTHER, MODEL], "gfx1151", 1, three).level == "published"
    assert assess_claims([GAIN, OTHER, LOSS], "gfx1151", 1, three).loses


def test_who_trusts_one_level_trusts_those_before_it() -> None:
    words = ("measured", "published", "modelled", "faults")
    assert [[admits(trust, needed) for needed in words] for trust in words] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
    assert not admits("faults", None)


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ([], "no evidence"),
        ([GAIN, OTHER], "measured by ann and bob"),
        ([GAIN, MODEL], "published by ann, the timing model agrees"),
        ([GAIN], "published by ann, not modelled"),
        ([GAIN, OTHER, LOSS], "published by ann and bob, not modelled; measured slower by cid"),
        ([MODEL], "faster in the timing model, not measured"),
        ([claim("emulated", "fixes")], "fixes a fault, speed not measured"),
        ([claim("concluded", "gain")], "not observed on this GPU"),
        ([GAIN, LOSS], "the measurements show no net gain; measured slower by cid"),
        ([claim("modelled", "loss")], "slower in the timing model, not measured"),
    ],
)
def test_the_level_is_told_with_what_it_was_made_of(claims: list[Claim], sentence: str) -> None:
    assert assess_claims(claims, "gfx1151", 1).sentence() == sentence
