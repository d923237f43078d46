"""The decision on machines whose noise is small: what is kept, and what hangs together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from simulated_machine import MODELS, PLANTED, RIGHT, SimulatedMachine

from patchkit.prove.pick.decide import Member, Picked, PickPlan, Visit, VisitTimes, pick
from patchkit.prove.pick.factorial import Arm

Factor = Callable[[Arm, str, str], float]


def _pick(
    members: Sequence[Member], factor: Factor, *, seconds: float = 1e6, seed: int = 1
) -> tuple[Picked, SimulatedMachine]:
    machine = SimulatedMachine(seed=seed, noise=0.002, factor=factor, stalls=0.0, throttling=0.0)
    plan = PickPlan(members=tuple(members), models=("m",), seconds=seconds)
    return pick(plan, machine), machine


def _why(picked: Picked) -> dict[str, tuple[str, str]]:
    return {one.id: (one.verdict, one.why) for one in picked.decisions}


def test_the_planted_patches_are_told_apart_with_a_reason_each() -> None:
    machine = SimulatedMachine(seed=2, noise=0.003)
    picked = pick(PickPlan(members=PLANTED, models=MODELS, seconds=1e6), machine)
    assert picked.picked == RIGHT
    told = _why(picked)
    assert {name: word for name, (word, _) in told.items() if word != "leave out"} == dict.fromkeys(
        RIGHT, "keep"
    )
    assert told["0002-slow-text"][1].startswith("slower in tg128")
    assert told["0003-nothing"][1] == "no test gains 2.0% from it"
    assert told["0004-wrong"][1] == "gives wrong results: MUL_MAT of one case"
    assert "although it is faster in tg128 of small" in told["0006-one-model"][1]
    assert all("0004-wrong" not in visit.arm for visit in machine.visits)  # right before measured
    assert {(one.model, one.test) for one in picked.check} == {(m, t) for m in MODELS for t in machine.base}


def test_every_arm_of_a_round_runs_once_and_the_order_changes() -> None:
    _, machine = _pick([Member(id="a"), Member(id="b")], lambda arm, *_: 0.9 if "a" in arm else 1.0)
    rounds: dict[int, list[Arm]] = {}
    for visit in machine.visits:
        if visit.stage == "each":
            rounds.setdefault(visit.round, []).append(visit.arm)
    assert all(len(set(arms)) == len(arms) for arms in rounds.values())
    assert len({tuple(arms) for arms in rounds.values() if len(arms) == 4}) > 1


def test_of_two_patches_that_do_the_same_to_one_kernel_one_stays() -> None:
    members = [Member(id="a", touches=frozenset("b")), Member(id="b")]
    picked, _ = _pick(members, lambda arm, *_: 0.9 if arm else 1.0)
    assert picked.picked == ("a",)
    assert _why(picked)["b"] == ("leave out", "no test gains 2.0% from it")


def test_of_two_patches_that_only_together_are_slow_one_goes() -> None:
    def factor(arm: Arm, _model: str, _test: str) -> float:
        return {(): 1.0, ("a",): 0.95, ("b",): 0.93, ("a", "b"): 1.0}[arm]

    picked, _ = _pick([Member(id="a", touches=frozenset("b")), Member(id="b")], factor)
    assert picked.picked == ("b",)


def test_a_patch_goes_with_the_one_that_it_needs() -> None:
    members = [Member(id="a"), Member(id="b", requires=frozenset("a"))]

    def factor(arm: Arm, _model: str, test: str) -> float:
        slow = 1.2 if "a" in arm and test == "tg128" else 1.0
        return slow * (0.9 if "b" in arm and test == "pp512" else 1.0)

    picked, machine = _pick(members, factor)
    assert picked.picked == ()
    assert _why(picked)["b"] == ("leave out", "requires a, which is excluded")
    assert ("b",) not in {visit.arm for visit in machine.visits}


def test_a_patch_that_others_need_stays_for_what_they_bring() -> None:
    members = [Member(id="a"), Member(id="b", requires=frozenset("a"))]
    picked, _ = _pick(members, lambda arm, *_: 0.9 if "b" in arm else 1.0)
    assert picked.picked == ("a", "b")


def test_two_wrong_patches_are_both_found() -> None:
    class Wrong(SimulatedMachine):
        asked: ClassVar[list[tuple[Arm, bool]]] = []

        def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
            self.asked.append((arm, is_search))
            bad = sorted({"b", "d"} & set(arm))
            return f"case of {bad[0]}" if bad else None

    machine = Wrong(seed=1, noise=0.002, factor=lambda arm, *_: 0.9 ** len(arm))
    members = tuple(Member(id=name) for name in "abcde")
    picked = pick(PickPlan(members=members, models=("m",), seconds=1e6), machine)
    assert picked.picked == ("a", "c", "e")
    assert _why(picked)["d"] == ("leave out", "gives wrong results: case of d")
    # Whole are the sets that might be measured: what is left without d is looked at in all that it computes.
    assert [arm for arm, is_search in machine.asked if not is_search] == [
        ("a", "b", "c", "d", "e"),
        ("a", "c", "d", "e"),
        ("a", "c", "e"),
    ]


def test_the_last_patch_is_wrong_and_the_others_are_looked_at_whole() -> None:
    asked: list[tuple[Arm, bool]] = []

    class Wrong(SimulatedMachine):
        def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
            asked.append((arm, is_search))
            return "case of b" if "b" in arm else None

    machine = Wrong(seed=1, noise=0.002, factor=lambda arm, *_: 0.9 ** len(arm))
    plan = PickPlan(members=(Member(id="a"), Member(id="b")), models=("m",), seconds=1e6)
    assert pick(plan, machine).picked == ("a",)
    assert asked == [(("a", "b"), False), (("a",), True), (("a",), False)]


def test_patches_that_need_each_other_are_never_parted() -> None:
    class Wrong(SimulatedMachine):
        def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
            del is_search
            assert ("b" in arm) == ("c" in arm)
            return "case of c" if "c" in arm else None

    members = (
        Member(id="a"),
        Member(id="b", requires=frozenset("c")),
        Member(id="c", requires=frozenset("b")),
        Member(id="d"),
    )
    machine = Wrong(seed=1, noise=0.002, factor=lambda arm, *_: 0.9 ** len(arm))
    picked = pick(PickPlan(members=members, models=("m",), seconds=1e6), machine)
    assert picked.picked == ("a", "d")
    assert _why(picked)["c"] == ("leave out", "gives wrong results: case of c")
    assert _why(picked)["b"] == ("leave out", "needs c, which gives wrong results")


def test_without_time_nothing_is_kept_and_every_patch_says_so() -> None:
    picked, machine = _pick([Member(id="a"), Member(id="b")], lambda arm, *_: 0.8 ** len(arm), seconds=100)
    assert picked.picked == ()
    assert {word for word, _ in _why(picked).values()} == {"unclear"}
    assert len(machine.visits) * machine.seconds <= 100


@pytest.mark.parametrize("seconds", [60, 200, 300, 400, 700])
def test_the_time_is_kept(seconds: float) -> None:
    picked, machine = _pick(PLANTED[:3], lambda arm, *_: 0.95 ** len(arm), seconds=seconds)
    # The first round is started without knowing what one takes.
    assert picked.seconds <= max(seconds, 3 * machine.seconds)
    assert picked.seconds == len(machine.visits) * machine.seconds


def test_a_set_that_is_slower_than_upstream_as_a_whole_is_not_picked() -> None:
    # Each is worth its place beside the other, and both together are worth less than neither.
    def factor(arm: Arm, _model: str, _test: str) -> float:
        return {0: 1.0, 1: 1.3, 2: 1.1}[len(arm)]

    picked, _ = _pick([Member(id="a", touches=frozenset("b")), Member(id="b")], factor)
    assert picked.picked == ()
    assert all(why.startswith("the picked patches together are slower") for _, why in _why(picked).values())


def test_a_set_is_withdrawn_for_a_test_that_is_surely_slower_not_for_the_noisiest() -> None:
    """Both together against neither: pp512 loses 6 % in every round, tg128 more on average, now and then."""
    draw = random.Random(7)

    def factor(arm: Arm, _model: str, test: str) -> float:
        if len(arm) < 2:
            return 10.0 if arm else 1.0
        return 1.06 if test == "pp512" else 1.25 * math.exp(draw.gauss(0, 0.8))

    picked, _ = _pick([Member(id="a", touches=frozenset("b")), Member(id="b")], factor)
    sure, noisy = (next(one for one in picked.check if one.test == test) for test in ("pp512", "tg128"))
    assert noisy.change < sure.change < sure.high < 0 < noisy.high
    told = f"the picked patches together are slower in pp512 of m: {sure.text}"
    assert (picked.picked, _why(picked)["a"]) == ((), ("unclear", told))


def test_where_nothing_is_picked_upstream_still_runs_twice_for_the_noise() -> None:
    picked, machine = _pick([Member(id="a")], lambda arm, *_: 1.1 if arm else 1.0)
    assert picked.picked == ()
    last = [(visit.round, visit.arm) for visit in machine.visits if visit.stage == "check"]
    assert last == [(number, ()) for number in range(8) for _ in range(2)]


def test_a_picked_set_that_is_slower_for_eight_rounds_by_chance_is_picked() -> None:
    class Unlucky(SimulatedMachine):
        def measure(self, visit: Visit) -> VisitTimes:
            found = SimulatedMachine.measure(self, visit)
            is_hit = visit.stage == "check" and visit.round < 8 and visit.arm
            return replace(
                found, times={name: time * (1.2 if is_hit else 1.0) for name, time in found.times.items()}
            )

    machine = Unlucky(seed=1, noise=0.002, factor=lambda arm, *_: 0.9 if arm else 1.0)
    picked = pick(PickPlan(members=(Member(id="a"),), models=("m",), seconds=1e6), machine)
    assert picked.picked == ("a",)
    assert 8 < picked.rounds["check"] <= 24


def test_a_picked_set_that_computes_wrong_without_the_others_is_not_picked() -> None:
    class Masked(SimulatedMachine):
        def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
            del is_search
            return "ROPE of one case" if arm == ("a",) else None

    machine = Masked(seed=1, noise=0.002, factor=lambda arm, *_: 0.9 if "a" in arm else 1.0)
    picked = pick(PickPlan(members=(Member(id="a"), Member(id="b")), models=("m",), seconds=1e6), machine)
    assert picked.picked == ()
    assert "give wrong results without the others: ROPE of one case" in _why(picked)["a"][1]


@pytest.mark.parametrize("is_exact", [True, False])
def test_what_mends_need_not_gain_and_may_not_lose(is_exact: bool) -> None:
    def factor(arm: Arm, *_: str) -> float:
        return 1.05 if "slow" in arm else 1.0

    machine = SimulatedMachine(
        seed=1, noise=0.0 if is_exact else 0.002, factor=factor, stalls=0.0, throttling=0.0
    )
    members = (Member(id="right", fixes=True), Member(id="slow", fixes=True), Member(id="nothing"))
    plan = PickPlan(members=members, models=("m",), seconds=1e6, is_exact=is_exact)
    picked = pick(plan, machine)
    assert picked.picked == ("right",)
    assert _why(picked)["right"][1].startswith("fixes wrong results of this build")
    assert _why(picked)["slow"][1].startswith("slower in ")
    assert _why(picked)["nothing"][1] == "no test gains 2.0% from it"


def test_without_noise_one_round_tells_all() -> None:
    class Model:
        visits = 0

        def prepare(self, arms: Sequence[Arm]) -> None:
            pass

        def measure(self, visit: Visit) -> VisitTimes:
            self.visits += 1
            return VisitTimes(times={"pp512": 0.9 if "a" in visit.arm else 1.0}, seconds=1.0)

        def fault_of(self, _arm: Arm, *, is_search: bool = False) -> str | None:
            del is_search
            return None

    model = Model()
    members = (Member(id="a"), Member(id="b"))
    picked = pick(PickPlan(members=members, models=("m",), seconds=1e6, is_exact=True), model)
    assert picked.picked == ("a",)
    assert model.visits == 9  # none, all and none again; all and each left out; none, picked and none again
