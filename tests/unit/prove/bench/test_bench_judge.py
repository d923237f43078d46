"""Rounds, comparisons and judgements, on samples made here."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from refusing import refused

from patchkit.carry.series.promises import BenchRules, ExpectedGain
from patchkit.gpu.hardware.bench.rounds import ARMS, Rounds, draw_order
from patchkit.gpu.hardware.bench.rows import BenchModel, BenchRow, BenchTest
from patchkit.gpu.hardware.bench.statistics import compare
from patchkit.prove.bench.judge import Promise, SpeedResult, judge, promises_for

NO_PROMISE = Promise(allowed_loss=0.0, control=(), expected=())


def _test(name: str = "pp") -> BenchTest:
    prompt, generated = (512, 0) if name == "pp" else (0, 128)
    return BenchTest(
        prompt=prompt, generated=generated, depth=0, type_k="f16", type_v="f16", flash="on", setting="s"
    )


def _row(test: BenchTest, time_ns: float) -> BenchRow:
    return BenchRow(
        test=test,
        samples_ns=(round(time_ns),),
        model=BenchModel(kind="llama", size_bytes=1, params=1),
        conditions={},
        backends=("CPU",),
        device="none",
        build=0,
        commit="unknown",
    )


@pytest.fixture
def measure() -> Callable[..., Rounds]:
    """Rounds of a machine with that noise, in which the candidate is faster by these fractions."""

    def make(*, noise: float = 0.005, rounds: int = 10, seed: int = 1, **gains: float) -> Rounds:
        draw = random.Random(seed)
        made = Rounds()
        for _ in range(rounds):
            arms = {}
            for arm in ARMS:
                faster = {name: gain if arm == "candidate" else 0.0 for name, gain in gains.items()}
                arms[arm] = [
                    _row(_test(name), 1e9 * math.exp(draw.gauss(0, noise)) / (1 + gain))
                    for name, gain in faster.items()
                ]
            made.add(arms)
        return made

    return make


def _judged(rounds: Rounds, promise: Promise = NO_PROMISE) -> dict[str, SpeedResult]:
    return {one.test.name: one for one in judge(rounds, promise)}


def _promise(gain: float, *, control: tuple[str, ...] = (), loss: float = 0.0) -> Promise:
    expected = ExpectedGain(test="pp*", gain=gain, archs=("gfx1151",), head_sizes=(), source="who")
    return Promise(allowed_loss=loss, control=control, expected=(("p", expected),))


def test_arms_run_by_lot_and_every_second_round_backwards() -> None:
    orders = [draw_order(ARMS, number, "seed") for number in range(40)]
    assert orders[::2] == [order[::-1] for order in orders[1::2]]
    assert {tuple(order) for order in orders} == set(itertools.permutations(ARMS))
    assert orders == [draw_order(ARMS, number, "seed") for number in range(40)]
    assert orders != [draw_order(ARMS, number, "other") for number in range(40)]


def test_a_round_is_whole_or_refused(measure: Callable[..., Rounds]) -> None:
    rounds = measure(pp=0.0, rounds=1)
    same = [_row(_test(), 1e9)]
    for broken in ([], [*same, *same], [_row(_test("tg"), 1e9)]):
        with refused("BENCH_FAILED"):
            rounds.add({"baseline": same, "candidate": broken, "again": same})
    assert rounds.count == 1
    with refused("BENCH_FAILED"):
        Rounds().add({"baseline": [], "candidate": [], "again": []})


def test_speed_is_tokens_over_the_median_of_medians(measure: Callable[..., Rounds]) -> None:
    rounds = measure(pp=1.0, noise=0.0)
    assert rounds.tokens_per_second(_test(), "baseline") == 512
    assert rounds.tokens_per_second(_test(), "candidate") == 1024


def test_arms_without_equal_rounds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different numbers of rounds"):
        compare([1.0], [1.0, 2.0], [1.0], least=0.02)


@pytest.mark.parametrize("gain", [-0.5, 0.0, 0.5])
def test_seven_rounds_leave_every_test_open(measure: Callable[..., Rounds], gain: float) -> None:
    judged = _judged(measure(pp=gain, rounds=7), _promise(0.3))["pp512@d0"]
    assert (judged.judgement, judged.why) == ("open", "an interval of 99 % needs 8 rounds, there are 7")


def test_noise_never_makes_two_builds_equal(measure: Callable[..., Rounds]) -> None:
    noisy = _judged(measure(pp=-0.1, noise=0.3))["pp512@d0"]
    assert noisy.comparison.verdict == "unclear"
    assert noisy.judgement == "open"
    assert "would not be detected" in noisy.why


def test_without_a_promise_only_losses_count(measure: Callable[..., Rounds]) -> None:
    assert _judged(measure(pp=0.0))["pp512@d0"].judgement == "ok"
    assert _judged(measure(pp=0.3))["pp512@d0"].judgement == "ok"
    lost = _judged(measure(pp=-0.1))["pp512@d0"]
    assert (lost.judgement, lost.comparison.verdict) == ("lost", "slower")
    assert lost.change == pytest.approx(-0.1, abs=0.01)


def test_a_loss_may_be_allowed(measure: Callable[..., Rounds]) -> None:
    allowed = Promise(allowed_loss=0.15, control=(), expected=())
    judged = _judged(measure(pp=-0.1), allowed)["pp512@d0"]
    assert (judged.judgement, judged.comparison.verdict) == ("ok", "slower")
    assert _judged(measure(pp=-0.3), allowed)["pp512@d0"].judgement == "lost"


def test_a_promise_is_kept_broken_or_open(measure: Callable[..., Rounds]) -> None:
    assert _judged(measure(pp=0.5), _promise(0.3))["pp512@d0"].judgement == "ok"
    assert _judged(measure(pp=0.1), _promise(0.3))["pp512@d0"].judgement == "short"
    assert _judged(measure(pp=0.3, noise=0.05), _promise(0.3))["pp512@d0"].judgement == "open"
    assert _judged(measure(pp=-0.1), _promise(0.3))["pp512@d0"].judgement == "lost"


def test_a_gain_is_not_believed_when_the_control_gained(measure: Callable[..., Rounds]) -> None:
    promise = _promise(0.3, control=("tg*",))
    both = _judged(measure(pp=0.5, tg=0.5), promise)
    assert both["pp512@d0"].judgement == "open"
    assert "control tg128@d0 is faster too" in both["pp512@d0"].why
    assert both["tg128@d0"].control
    assert _judged(measure(pp=0.5, tg=0.0), promise)["pp512@d0"].judgement == "ok"
    assert _judged(measure(pp=0.5, tg=-0.3), promise)["tg128@d0"].judgement == "lost"


def test_promises_are_of_these_gpus_and_this_head_size() -> None:
    gain = ExpectedGain(test="pp*", gain=0.3, archs=("gfx1151",), head_sizes=(64,), source="s")
    patches = [
        ("a", BenchRules(control=("tg*", "x"), expected=(gain,), why="w")),
        ("b", BenchRules(control=("tg*",), allowed_loss=0.01, why="w")),
    ]
    found = promises_for(patches, ("gfx1151",), 64)
    assert found == Promise(allowed_loss=0.01, control=("tg*",), expected=(("a", gain),))
    assert not promises_for(patches, ("gfx1100",), 64).expected
    assert not promises_for(patches, ("gfx1151",), 128).expected
    assert not promises_for(patches, ("gfx1151",), None).expected
    assert promises_for([], (), None) == NO_PROMISE
