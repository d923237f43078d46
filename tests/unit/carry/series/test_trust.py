"""Levels of trust: what claims come to, whoever made them and in whatever order."""

from __future__ import annotations

import itertools

import pytest

from patchkit.carry.series.trust import Claim, TrustRules, admits, standing_of


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
        ([claim("hardware", "mends"), claim("hardware", "mends", "bob")], "measured", "measured"),
        ([claim("hardware", "mends"), claim("emulated", "mends", "patchkit")], "published", "published"),
        ([claim("emulated", "mends", "patchkit")], "faults", "faults"),
        ([claim("concluded", "mends", "patchkit")], "faults", "faults"),
        ([claim("concluded", "gain", "patchkit")], None, None),
    ],
)
def test_levels(claims: list[Claim], level: str | None, trust: str | None) -> None:
    for order in itertools.permutations(claims):
        standing = standing_of(order, "gfx1151", 11549)
        assert (standing.level, standing.trust) == (level, trust)


def test_one_source_is_one_however_often_it_speaks() -> None:
    assert standing_of([GAIN, claim("hardware", "gain", "ann", build=9)], "gfx1151", 9).gains == ("ann",)


@pytest.mark.parametrize("says", ["loss", "mixed"])
def test_who_says_both_has_no_vote(says: str) -> None:
    standing = standing_of([GAIN, claim("hardware", says, "ann"), OTHER], "gfx1151", 1)
    assert (standing.gains, standing.losses, standing.level) == (("bob",), (), "published")


def test_a_loss_takes_one_gain_away_and_two_end_the_default() -> None:
    assert standing_of([GAIN, OTHER, LOSS, MODEL], "gfx1151", 1).level == "published"
    many = [claim("hardware", "gain", str(number)) for number in range(9)]
    assert not standing_of([*many, LOSS], "gfx1151", 1).loses
    standing = standing_of([*many, LOSS, claim("hardware", "loss", "dan")], "gfx1151", 1)
    assert (standing.loses, standing.level, standing.trust) == (True, None, None)
    assert standing.sentence() == "slower for cid and dan"


def test_another_gpu_and_a_later_build_are_not_spoken_of() -> None:
    dated = claim("hardware", "gain", "bob", last_build=11062)
    assert standing_of([GAIN, dated], "gfx1151", 11062).level == "measured"
    assert standing_of([GAIN, dated], "gfx1151", 11063).level == "published"
    assert standing_of([GAIN, dated], "gfx1150", 11062).claims == ()


def test_what_was_measured_in_its_place_makes_it_published_at_most() -> None:
    stand_ins = [claim("hardware", "gain", who, indirect=True) for who in ("ann", "bob", "eve")]
    standing = standing_of([*stand_ins, MODEL], "gfx1151", 1)
    assert standing.level == "published"
    assert standing.sentence() == "published by ann, bob and eve for what does the same, the model agrees"
    assert standing_of([*stand_ins, GAIN, OTHER], "gfx1151", 1).level == "measured"
    assert standing_of([*stand_ins, claim("hardware", "gain", "dan")], "gfx1151", 1).level == "published"
    slower = [claim("hardware", "loss", who, indirect=True) for who in ("ann", "bob")]
    assert standing_of([*slower, MODEL], "gfx1151", 1).level == "modelled"


def test_how_many_sources_are_enough_is_the_series_to_say() -> None:
    three = TrustRules(measured=3, loses=1)
    assert standing_of([GAIN, OTHER, MODEL], "gfx1151", 1, three).level == "published"
    assert standing_of([GAIN, OTHER, LOSS], "gfx1151", 1, three).loses


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
        ([], "nothing is known"),
        ([GAIN, OTHER], "measured by ann and bob"),
        ([GAIN, MODEL], "published by ann, the model agrees"),
        ([GAIN], "published by ann, not modelled"),
        ([GAIN, OTHER, LOSS], "published by ann and bob, not modelled; slower for cid"),
        ([MODEL], "modelled, and measured by nobody"),
        ([claim("emulated", "mends")], "against a fault, and timed by nobody"),
        ([claim("concluded", "gain")], "nobody saw it on this GPU"),
        ([GAIN, LOSS], "no gain is left of what was measured; slower for cid"),
        ([claim("modelled", "loss")], "the model says that it is slower, and nobody measured it"),
    ],
)
def test_the_level_is_told_with_what_it_was_made_of(claims: list[Claim], sentence: str) -> None:
    assert standing_of(claims, "gfx1151", 1).sentence() == sentence
