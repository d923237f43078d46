"""Which arms of an evidence file are compared, and what its rounds say."""

from __future__ import annotations

from measured_files import BOTH, FIRST, SECOND, UPSTREAM, measured

from patchkit.base.evidence import MeasuredArm, MeasuredTest, MeasuredVerdict
from patchkit.gpu.hardware.bench.rounds import Rounds
from patchkit.gpu.hardware.bench.rows import BenchTest
from patchkit.prove.bench.judge import Promise, judge
from patchkit.prove.evidence.figures import pairs_of, verdicts_of

DIGEST = "9" * 64


def arm(name: str, tree: str, *patches: str) -> MeasuredArm:
    return MeasuredArm(name=name, tree=tree, patches=dict.fromkeys(patches, DIGEST))


def by_pair(verdicts: tuple[MeasuredVerdict, ...], test: int) -> dict[tuple[str, str], str]:
    return {(one.of, one.against): one.verdict for one in verdicts if one.test == test}


def test_each_is_compared_with_what_it_differs_least_from_and_with_none() -> None:
    file = measured()
    assert set(pairs_of(file.arms)) == {
        ("all", "none"),
        ("all", "all-without-first"),
        ("all", "all-without-second"),
        ("all-without-first", "none"),
        ("all-without-second", "none"),
    }


def test_a_build_that_was_measured_twice_takes_part_once() -> None:
    arms = [arm("none", UPSTREAM), arm("again", UPSTREAM), arm("one", FIRST, "a")]
    assert pairs_of(arms) == (("one", "none"),)


def test_sets_that_contain_each_other_in_no_way_are_not_compared() -> None:
    assert pairs_of([arm("one", FIRST, "a"), arm("two", BOTH, "b")]) == ()


def test_what_gains_and_what_does_not_are_told_apart() -> None:
    prompts = by_pair(measured().verdicts, 0)
    assert prompts["all", "all-without-first"] == "faster"
    assert prompts["all", "all-without-second"] == "same"
    assert set(by_pair(measured().verdicts, 1).values()) == {"same"}


def test_a_loss_is_called_one() -> None:
    assert by_pair(measured(gains={"first": -0.05, "second": 0}).verdicts, 0)["all", "none"] == "slower"


def test_without_a_build_that_was_measured_twice_nothing_is_decided() -> None:
    file = measured()
    arms = [each for each in file.arms if each.name != "none-again"]
    rounds = [
        {name: times for name, times in one.items() if name != "none-again"} for one in file.tests[0].rounds
    ]
    test = file.tests[0].model_copy(update={"rounds": tuple(rounds)})
    found = verdicts_of(arms, [test])
    assert {one.verdict for one in found} == {"unclear"}
    assert {one.noise for one in found} == {None}


def test_seven_rounds_decide_nothing() -> None:
    assert {one.verdict for one in measured(rounds=7).verdicts} == {"unclear"}


def test_the_gate_bench_says_the_same_of_the_same_rounds() -> None:
    """Baseline, candidate, baseline again: the figures are those of ``judge``."""
    file = measured()
    test = file.tests[0]
    key = BenchTest(prompt=512, generated=0, depth=0, type_k="f16", type_v="f16", flash="on", setting="s")
    rounds = Rounds(
        samples={
            key: {
                "baseline": [one["none"] for one in test.rounds],
                "candidate": [one["all"] for one in test.rounds],
                "again": [one["none-again"] for one in test.rounds],
            }
        }
    )
    (judged,) = judge(rounds, Promise(allowed_loss=0.0, control=(), expected=()))
    found = next(one for one in file.verdicts if (one.test, one.of, one.against) == (0, "all", "none"))
    assert (found.change, found.low, found.high) == (round(judged.change, 5), *judged.interval)
    assert found.noise is not None
    assert (found.noise.low, found.noise.high) == judged.noise
    assert found.verdict == judged.comparison.verdict


def _crossed(rounds: int) -> tuple[list[MeasuredArm], MeasuredTest]:
    """Two patches in all combinations: ``a`` gains a tenth, ``b`` nothing; upstream twice in eight rounds."""
    arms = [
        arm("both", BOTH, "a", "b"),
        arm("a", FIRST, "a"),
        arm("b", SECOND, "b"),
        arm("none", UPSTREAM),
        arm("again", UPSTREAM),
    ]

    def time(each: MeasuredArm, number: int) -> tuple[int, ...]:
        wobble = 1 + 0.0003 * ((number + len(each.name)) % 3)
        return (int(1e9 * wobble / (1.1 if "a" in each.patches else 1.0)),)

    crossed = [{each.name: time(each, number) for each in arms[:4]} for number in range(rounds)]
    twice = [{each.name: time(each, number) for each in arms[3:]} for number in range(8)]
    return arms, measured().tests[0].model_copy(update={"rounds": (*crossed, *twice)})


def test_pairs_with_too_few_rounds_each_say_together_what_a_patch_does() -> None:
    arms, test = _crossed(4)
    found = {(one.of, one.against): one for one in verdicts_of(arms, [test])}
    assert {pair: one.rounds for pair, one in found.items()} == {
        ("both", "a"): 8,  # b, with a and without it
        ("both", "b"): 8,
        ("both", "none"): 4,
    }
    assert found["both", "b"].verdict == "faster"
    assert found["both", "a"].verdict == "same"
    assert found["both", "none"].verdict == "unclear"


def test_pairs_with_enough_rounds_speak_for_themselves() -> None:
    arms, test = _crossed(8)
    assert {(one.of, one.against): one.rounds for one in verdicts_of(arms, [test])} == {
        ("both", "a"): 8,
        ("both", "b"): 8,
        ("both", "none"): 8,
        ("a", "none"): 8,
        ("b", "none"): 8,
    }
