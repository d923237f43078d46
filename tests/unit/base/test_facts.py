"""Facts of a profile: which of them decisions can use."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.arch import Confidence, Fact, FactNotForDecisions, Facts, FactValue
from patchkit.base.errors import Location

PLACE = Location(path="gfx1151.toml", line=9)


def fact(value: FactValue, confidence: Confidence = "high") -> Fact:
    return Fact(value=value, source="a test", confidence=confidence, where=PLACE)


FACTS = Facts(
    where=PLACE,
    by_name={
        "vgprs_per_simd": fact(1536),
        "compute_units": fact(4, "low"),
        "wave_size": fact(32, "medium"),
        "bandwidth_gb_s": fact((90.0, 120.0), "high"),
        "matrix": fact("wmma"),
    },
)


def test_facts_that_decisions_can_use() -> None:
    assert FACTS.require("vgprs_per_simd") == 1536
    assert FACTS.require_int("wave_size") == 32
    assert FACTS.require("matrix") == "wmma"


@pytest.mark.parametrize(
    ("name", "why"),
    [("compute_units", "its confidence is low: a test"), ("bandwidth_gb_s", "speeds and product names")],
)
def test_facts_that_are_for_reports_only(name: str, why: str) -> None:
    assert FACTS.report(name) is FACTS.by_name[name]
    with pytest.raises(FactNotForDecisions, match=f"cannot depend on '{name}'") as caught:
        FACTS.require(name)
    assert caught.value.where == (PLACE,)
    assert caught.value.why is not None
    assert caught.value.why.startswith(why)


def test_a_fact_the_profile_does_not_state() -> None:
    assert FACTS.report("l2_mib") is None
    with refused("FACT_MISSING", match="has no fact 'l2_mib'"):
        FACTS.require("l2_mib")
