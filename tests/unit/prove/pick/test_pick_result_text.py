"""What people read of a pick."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.errors import UsageError
from patchkit.carry.onto.pin import Onto
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.prove.bench.test_list import parse_tests, plans_of, verifying_tests
from patchkit.prove.pick.command import PickReport
from patchkit.prove.pick.decide import EffectOnTest, PatchDecision, Picked
from patchkit.prove.pick.result_text import lines

_EFFECT = EffectOnTest(model="m", test="pp512", low=0.08, change=0.1, high=0.12)
_NONE = EffectOnTest(model="m", test="pp512", low=-0.01, change=0.0, high=0.01)


def _report(label: str = "measured") -> PickReport:
    picked = Picked(
        picked=("a",),
        decisions=(
            PatchDecision(
                id="a", verdict="keep", why="faster in pp512 of m by 10.0%", effects=(_EFFECT,), pairs=11
            ),
            PatchDecision(id="b", verdict="unclear", why="not measured"),
        ),
        whole=(_EFFECT,),
        check=(_EFFECT,),
        noise=(_NONE,),
        seconds=600.0,
        rounds={"whole": 5, "each": 11, "check": 8},
        is_checked=True,
    )
    return PickReport(
        picked=picked, label=label, device="ROCm0 of this machine", archs=("gfx1151",), upstream="b11549",
        tree="0" * 40, models={"m": "0" * 64}, tests=("pp512",), least=0.02, minutes=30.0, folder=Path("f"),
        file=Path("f/picked.toml"), measured=100, kept=0, conditions=("temperatures 50 to 70 degrees C",),
    )  # fmt: skip


def test_each_patch_has_a_sentence_and_a_row_and_what_is_open_is_said() -> None:
    text = "\n".join(lines(_report()))
    assert "keep        a  faster in pp512 of m by 10.0%" in text
    assert "+10.0% (+8.0% to +12.0%)" in text
    assert "upstream twice" in text
    assert "open:   b; to continue, run the same command with more --minutes" in text
    assert "next:   patchkit apply --picked f/picked.toml" in text
    assert "no GPU" not in text


def test_what_was_picked_in_a_clone_is_applied_in_that_clone() -> None:
    onto = Onto(revision="HEAD", directory=Path("my clone"), as_build=6901)
    text = "\n".join(lines(replace(_report(), onto=onto)))
    command = "patchkit apply --picked f/picked.toml --onto HEAD --repo 'my clone' --as-build 6901"
    assert f"next:   {command}" in text


def test_one_pair_of_runs_has_no_interval_and_few_are_said_to_be_few() -> None:
    report = _report()
    once = EffectOnTest(model="m", test="pp512", low=1.081, change=1.081, high=1.081)
    text = list(lines(replace(report, picked=replace(report.picked, whole=(once,)))))
    row = next(line for line in text if line.startswith("all patches"))
    assert row.split() == ["all", "patches", "+108.1%"]
    assert any("of fewer than 6 pairs" in line for line in text)


def test_modelled_times_are_called_so_first_and_last() -> None:
    text = list(lines(_report("modelled")))
    assert text[0].startswith("modelled on")
    assert "these times are modelled: no GPU was measured" in text


def test_a_set_that_was_not_measured_as_a_whole_says_so() -> None:
    report = _report()
    told = "\n".join(lines(replace(report, picked=replace(report.picked, is_checked=False))))
    assert "not measured against upstream" in told


def test_tests_are_grouped_by_depth_into_calls() -> None:
    tests = parse_tests("tg128, pp512,pp512@d16384,pp512")
    assert [test.name for test in tests] == ["tg128", "pp512", "pp512@d16384"]
    plans = plans_of(tests, BenchPlan(repetitions=2))
    assert [(plan.prompts, plan.generated, plan.depths) for plan in plans] == [
        ((512,), (128,), (0,)),
        ((512,), (), (16384,)),
    ]


@pytest.mark.parametrize(
    ("tests", "added"),
    [
        ("pp512,tg128", ["pp4"]),
        ("pp512@d8192,tg128,tg64@d4096", ["pp4", "pp4@d4096"]),
        ("pp512,pp512@d4096", ["pp4", "pp4@d4096"]),
    ],
)
def test_drafts_are_verified_at_each_depth_where_tokens_are_generated(tests: str, added: list[str]) -> None:
    assert [test.name for test in verifying_tests(parse_tests(tests), 3)] == added


def test_the_batch_that_verifies_drafts_is_named() -> None:
    assert not any("verifies" in line for line in lines(_report()))
    text = "\n".join(lines(replace(_report(), drafts=3)))
    assert "pp4 is the batch that verifies 3 drafts" in text


@pytest.mark.parametrize("text", ["", "pp", "pp0", "tg12x", "pp512@16384", "pg1", "pp512;tg1", "pp99999999"])
def test_what_is_no_test_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_tests(text)
    assert refused.value.code == "USAGE_VALUE"
