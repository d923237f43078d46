"""Which patches pay off: the whole decision, with a meter as its only input.

The steps:

1. Correctness before speed: a patch that makes the results of all patches together wrong is dropped.
2. All patches against none, for some rounds: how much there is to gain, and how noisy the machine is.
3. Each patch is left out of the others; independent patches are left out in all combinations. All arms of a
   round run one after the other, in random order; every two that differ by one patch give one value of its
   effect. A patch is evaluated after 8 values and then at growing intervals, until it is clear.
4. Of patches that touch the same kernel at most one is dropped at a time. Its neighbours are then measured
   again without it, because the gain of one may depend on the other.
5. The picked patches must give right results on their own, and are measured against none in separate rounds.
   If nothing is picked, these rounds measure none against itself.

A real GPU, the CPU and the simulated machine of the tests all run this code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from patchkit.gpu.hardware.bench.rounds import draw_order
from patchkit.gpu.hardware.bench.statistics import (
    LEAST,
    Estimates,
    Interval,
    fewest_rounds,
    of_rounds,
)
from patchkit.prove.bench.visits import Stage
from patchkit.prove.pick.factorial import Arm, design_round

BUILDS = 24
"""Maximum builds per round, if more builds save rounds; enough for a full factorial of four patches."""
PickVerdict = Literal["keep", "leave out", "unclear"]

WRONG_KEEP = 0.01
"""The probability that a run keeps any patch that makes some test slower by ``least`` or more."""
IDLE_KEEP = 0.05
"""The probability that a run keeps any patch that makes no test faster."""
_WRONG_DROP = 0.001  # error of a bound at look 1, as nothing is kept because of it; at look 2 a quarter of it
_IDLE_DROP = 0.01  # error of the bounds that show that no test gains, at each look; a mistake costs ``least``
FIRST_LOOK = fewest_rounds(_WRONG_DROP)
"""Rounds before the first bound of a patch is computed."""
_WIDENING = 1.25  # factor between two looks
# The looks share the allowed error of a bound: this share at the first look that can keep a patch, the rest
# over all later ones. They see nearly the same rounds: of 8 million walks with 13 looks, 25 % apart, at most
# 8.8 a passed a bound that is wrong with probability a (1e-4) at one look, so 13 full shares are not needed.
_FIRST_SHARE = 0.3
_LATER_LOOKS = 9.0
WHOLE_ROUNDS = 5
"""Rounds of all patches against none."""
_MOST_PAIRS = 300  # per patch; its bound is then a fifth of the noise of single pairs
CHECK_ROUNDS = 8
"""Rounds of the picked patches against none."""
# In eight rounds of four tests one in ten looks slower by chance, while each patch was kept by much surer
# bounds. So a loss must persist: on a busy CPU one of 11 right sets had been withdrawn (2026-11-27).
_CHECK_MOST = 24
_CHECK_SHARE = 0.15  # of the time, reserved for the last step
SHOWN_CHANCE = 0.025  # on each side of an interval in a table
_NO_CHANCE = 0.5  # without noise, one value is its own bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A patch to decide on.

    ``requires`` are patches that it needs, ``touches`` those that edit the same kernel. ``fixes``: without it
    this build is known to give wrong results, so it is kept even without a gain.
    """

    id: str
    fixes: bool = False
    requires: frozenset[str] = frozenset()
    touches: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One arm runs all tests of one model once. ``round`` counts from 0 within its ``stage``."""

    stage: Stage
    round: int
    model: str
    arm: Arm
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitTimes:
    """``times`` by test, in any unit; ``seconds`` is the duration of the whole visit."""

    times: Mapping[str, float]
    seconds: float


class Meter(Protocol):
    """The source of measurements. Equal answers lead to the same questions in the same order."""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Build these arms: they will be measured next."""
        ...

    def measure(self, visit: Visit) -> VisitTimes:
        """Run a visit. An error ends the run; a new run continues from there."""
        ...

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """Describe what an arm computes wrong; None if its results are right.

        ``is_search``: the arm is a part of the last wrong one, and the question is only whether the same
        fault is in this part.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPlan:
    """``models`` by name; ``seconds`` is the time for measuring; ``seed`` determines the random orders.

    ``builds`` limits the builds per round when patches are combined; leaving out each patch once is always
    possible. ``is_exact``: the meter has no noise, as the timing model. Then one round is enough, and an
    effect counts from ``least`` on, which is the meter's own error.
    """

    members: tuple[Member, ...]
    models: tuple[str, ...]
    seconds: float
    least: float = LEAST
    seed: str = ""
    builds: int = BUILDS
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectOnTest:
    """The effect of a patch, or of a set, on a test: fractions, positive is faster."""

    model: str
    test: str
    low: float
    change: float
    high: float

    @property
    def text(self) -> str:
        """The change and its interval; a single value has none, as ``+108.1% to +108.1%`` looks certain."""
        interval = f" ({self.low:+.1%} to {self.high:+.1%})" if self.low < self.high else ""
        return f"{self.change:+.1%}{interval}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchDecision:
    """The verdict on a patch, after ``pairs`` pairs of runs with and without it.

    ``context`` is the set that it was left out of.
    """

    json_keys: ClassVar = "id verdict why pairs context effects"

    id: str
    verdict: PickVerdict
    why: str
    effects: tuple[EffectOnTest, ...] = ()
    pairs: int = 0
    context: Arm = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The whole result: ``whole`` is all patches against none, ``check`` the picked ones against none.

    ``noise`` is none against itself, ``seconds`` the time spent measuring. ``is_checked``: the check had all
    its rounds.
    """

    picked: Arm
    decisions: tuple[PatchDecision, ...]
    whole: tuple[EffectOnTest, ...]
    check: tuple[EffectOnTest, ...]
    noise: tuple[EffectOnTest, ...]
    seconds: float
    rounds: Mapping[str, int]
    is_checked: bool


Key = tuple[str, str]  # model and test


@dataclass(slots=True, kw_only=True)
class _Evaluation:
    """Evaluates one patch by leaving it out of ``context``; ``number`` counts its contexts so far.

    ``values`` has the logarithm of the speed ratio of each pair of runs.
    """

    member: str
    context: Arm
    without: Arm
    number: int
    values: dict[Key, list[float]] = field(default_factory=dict)
    looks: int = 0  # all looks; keep_looks are those at which it could be kept
    keep_looks: int = 0
    next_look: int = FIRST_LOOK

    @property
    def pairs(self) -> int:
        """The number of pairs of runs, with and without the patch, that each test has."""
        return min((len(values) for values in self.values.values()), default=0)


class _OutOfTime(Exception):
    """The next round would exceed the time."""


@dataclass(slots=True, kw_only=True)
class _Pick:
    plan: PickPlan
    meter: Meter
    notify: Callable[[str], None]
    spent: float = 0.0
    tenths_reported: int = 0
    pace: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    decisions: dict[str, PatchDecision] = field(default_factory=dict)
    tests: set[Key] = field(default_factory=set)

    # -- the steps

    def run(self) -> Picked:
        order = [member.id for member in self.plan.members]
        right = self._right(tuple(order))
        whole, noise = self._whole(right)
        kept = self._each(right)
        picked = self._closed(kept)
        if picked and picked != right and (fault := self.meter.fault_of(picked)) is not None:
            self._withdraw(picked, f"the picked patches give wrong results without the others: {fault}")
            picked = ()
        check, is_checked = self._check(picked, noise)
        if is_checked and (slower := self._slower(check)):
            worst = min(slower, key=lambda one: one.change)
            where = f"{worst.test} of {worst.model}"
            self._withdraw(picked, f"the picked patches together are slower in {where}: {worst.text}")
            picked = ()
        return Picked(
            picked=picked,
            decisions=tuple(self.decisions[name] for name in order),
            whole=whole,
            check=check,
            noise=self._shown(noise),
            seconds=round(self.spent, 3),
            rounds=dict(self.rounds),
            is_checked=is_checked,
        )

    def _right(self, arm: Arm) -> Arm:
        """The arm without the patches that make it wrong, found by bisecting for the shortest wrong prefix.

        A part never has a patch without those that it needs, because such a candidate cannot be made.
        """
        while arm and (fault := self.meter.fault_of(arm)) is not None:
            low, high = 0, len(arm)  # arm[:low] (as far as it can be made) is right, arm[:high] is wrong
            while high - low > 1:
                middle = (low + high) // 2
                part = self._makeable(arm[:middle])
                found = self.meter.fault_of(part, is_search=True) if part else None
                if found is None:
                    low = middle
                else:
                    high, fault = middle, found
            culprit = arm[low]
            out = {culprit, *self._dependents(culprit, arm)}
            self._decide(culprit, "leave out", f"gives wrong results: {fault}")
            for name in sorted(out - {culprit}):
                self._decide(name, "leave out", f"needs {culprit}, which gives wrong results")
            self.notify(f"{culprit} gives wrong results and is dropped: {fault}")
            arm = tuple(name for name in arm if name not in out)
        return arm

    def _whole(self, arm: Arm) -> tuple[tuple[EffectOnTest, ...], dict[Key, list[float]]]:
        noise: dict[Key, list[float]] = {}
        values: dict[Key, list[float]] = {}
        if not arm:
            return (), noise
        self.meter.prepare([(), arm])
        for number in range(1 if self.plan.is_exact else WHOLE_ROUNDS):
            try:
                times = self._round("whole", number, [(), arm], again=True)
            except _OutOfTime:
                break
            _add(values, times, (), arm)
            _add_again(noise, times)
        effects = self._shown(values)
        for one in effects:
            self.notify(f"all against none, {one.test} of {one.model}: {one.text}")
        return effects, noise

    def _each(self, right: Arm) -> Arm:
        """Leave each patch out until all are clear or the time is over; returns the patches that are kept."""
        current = right
        contexts: dict[str, int] = {}
        kept: set[str] = set()
        waiting = list(right)
        number = 0
        while waiting:
            open_ = [self._evaluation(name, current, contexts) for name in waiting]
            ended, number = self._measure_open(open_, current, number)
            for one in open_:
                verdict = self.decisions[one.member].verdict
                if verdict == "keep":
                    kept.add(one.member)
            if not ended:  # the time is over, so patches that depend on undecided ones stay undecided
                self._give_up(current, kept)
                break
            dropped = self._to_drop(current, kept)
            if not dropped:
                break
            current = tuple(name for name in current if name not in dropped)
            kept -= dropped
            waiting = [
                name
                for name in current
                if self._neighbours(name) & dropped or (name not in kept and name in self.decisions)
            ]
            kept -= set(waiting)
        return tuple(name for name in current if name in kept)

    def _check(self, picked: Arm, noise: dict[Key, list[float]]) -> tuple[tuple[EffectOnTest, ...], bool]:
        """Measure picked against none; if nothing is picked, only the noise: evidence of a loss needs it."""
        values: dict[Key, list[float]] = {}
        if not picked:
            self._only_noise(noise)
            return (), False
        self.meter.prepare([(), picked])
        least = 1 if self.plan.is_exact else CHECK_ROUNDS
        most = 1 if self.plan.is_exact else _CHECK_MOST
        effects: tuple[EffectOnTest, ...] = ()
        for number in range(most):
            try:
                times = self._round("check", number, [(), picked], again=True)
            except _OutOfTime:
                return effects, number >= least
            _add(values, times, (), picked)
            _add_again(noise, times)
            effects = self._shown(values)
            if number + 1 >= least and not self._slower(effects):
                break
        return effects, True

    def _only_noise(self, noise: dict[Key, list[float]]) -> None:
        if not noise or self.plan.is_exact:
            return
        for number in range(CHECK_ROUNDS):
            try:
                _add_again(noise, self._round("check", number, [()], again=True))
            except _OutOfTime:
                return

    # -- leaving out

    def _evaluation(self, name: str, current: Arm, contexts: dict[str, int]) -> _Evaluation:
        out = {name, *self._dependents(name, current)}
        contexts[name] = contexts.get(name, 0) + 1
        evaluation = _Evaluation(
            member=name,
            context=current,
            without=tuple(each for each in current if each not in out),
            number=contexts[name],
        )
        self._decide(name, "unclear", "not measured")
        return evaluation

    def _measure_open(
        self, evaluations: Sequence[_Evaluation], current: Arm, number: int
    ) -> tuple[bool, int]:
        """Run rounds until every patch is clear; False if the time is over before."""
        open_ = list(evaluations)
        design = design_round(
            current,
            {one.member: frozenset(one.context) - set(one.without) for one in open_},
            {name: frozenset(self._neighbours(name)) for name in current},
            1 if self.plan.is_exact else self.plan.builds,
        )
        self.meter.prepare(design.arms)
        while open_:
            design = design.only(frozenset(one.member for one in open_))
            if not self._has_time("each", len(design.arms)):
                design = design.one_by_one()
            try:
                times = self._round("each", number, design.arms)
            except _OutOfTime:
                for one in open_:
                    self._still_open(one)
                return False, number
            number += 1
            for one in open_:
                for without, with_ in design.pairs(one.member):
                    _add(one.values, times, without, with_)
            open_ = [one for one in open_ if not self._look(one)]
        return True, number

    def _look(self, one: _Evaluation) -> bool:
        """Whether the patch is clear now; if so, its decision is recorded."""
        if not self.plan.is_exact:
            if one.pairs < one.next_look:
                return False
            one.next_look = max(one.pairs + 1, math.ceil(one.pairs * _WIDENING))
            if one.pairs < self._first_keep(one.number) <= one.next_look:
                one.next_look = self._first_keep(one.number)
        estimates = {key: of_rounds(values) for key, values in one.values.items()}
        if verdict := self._verdict(one, estimates):
            word, why = verdict
            self._decide(
                one.member,
                word,
                why,
                effects=self._shown(one.values),
                pairs=one.pairs,
                context=one.context,
            )
            self.notify(f"{one.member}: {word} after {one.pairs} pairs of runs, {why}")
            return True
        if one.pairs >= _MOST_PAIRS or self.plan.is_exact:
            self._still_open(one)
            return True
        return False

    def _verdict(
        self, one: _Evaluation, estimates: Mapping[Key, Estimates]
    ) -> tuple[PickVerdict, str] | None:
        least = math.log1p(self.plan.least)
        one.looks += 1
        chance = _NO_CHANCE if self.plan.is_exact else _WRONG_DROP / one.looks**2
        rough = _bounds(estimates, chance)
        lost = [key for key, each in rough.items() if each.high < 0 and each.middle < -least]
        won = [key for key, each in rough.items() if each.low > 0 and each.middle > least]
        if lost:
            worst = min(lost, key=lambda key: rough[key].middle)
            also = "" if not won else f", although it is faster in {_name(won[0])}"
            return "leave out", f"slower in {_name(worst)} by {_size(rough[worst])}{also}"
        hopes = rough if self.plan.is_exact else _bounds(estimates, _IDLE_DROP)
        fixes = self._member(one.member).fixes
        if not fixes and all(each.high < least for each in hopes.values()):
            return "leave out", f"no test gains {self.plan.least:.1%} from it"
        if self.plan.is_exact:
            return self._worth(rough, rough, fixes=fixes)
        if one.pairs < self._first_keep(one.number):
            return None
        one.keep_looks += 1
        loss, idle = self._chances(one.number, one.keep_looks)
        safe, shown = (_bounds(estimates, chance) for chance in (loss, idle))
        return self._worth(safe, shown, fixes=fixes)

    def _worth(
        self, safe: Mapping[Key, Interval], shown: Mapping[Key, Interval], *, fixes: bool
    ) -> tuple[PickVerdict, str] | None:
        """Keep it if some test gains or it is a fix, and no test may lose by the bounds in ``safe``."""
        least = math.log1p(self.plan.least)
        gains = [key for key, each in shown.items() if each.low > 0 and each.middle >= least]
        if not (gains or fixes) or any(each.low <= -least for each in safe.values()):
            return None
        if not gains:
            return (
                "keep",
                f"fixes wrong results of this build, and no test loses {self.plan.least:.1%} by it",
            )
        best = max(gains, key=lambda key: shown[key].middle)
        return "keep", f"faster in {_name(best)} by {_size(shown[best])}"

    def _chances(self, number: int, look: int) -> tuple[float, float]:
        """The allowed error of a bound at this look; all looks in all contexts of all patches share it.

        A patch that loses is kept only if the bound of that very test is wrong, so the number of tests does
        not matter. A patch without effect may look faster in any of them.
        """
        part = _FIRST_SHARE if look == 1 else (1 - _FIRST_SHARE) / _LATER_LOOKS
        share = 0.5**number * part / max(1, len(self.plan.members))
        tests = max(1, len(self.tests))
        return WRONG_KEEP * share, IDLE_KEEP * share / tests

    def _first_keep(self, number: int) -> int:
        return max(FIRST_LOOK, fewest_rounds(min(self._chances(number, 1))))

    def _still_open(self, one: _Evaluation) -> None:
        effects = self._shown(one.values)
        why = "the time ran out before its first round"
        if one.pairs:
            widest = max(effects, key=lambda each: each.high - each.low)
            why = f"after {one.pairs} pairs of runs {widest.test} of {widest.model} is still {widest.text}"
        self._decide(one.member, "unclear", why, effects=effects, pairs=one.pairs, context=one.context)
        self.notify(f"{one.member}: unclear, {why}")

    def _to_drop(self, current: Arm, kept: set[str]) -> set[str]:
        """The patches to drop now: one of those that touch one kernel, largest losses and latest first."""
        dropped: set[str] = set()
        wanted = [name for name in current if name not in kept]
        wanted.sort(key=lambda name: (self._loss(name), -current.index(name)))
        for name in wanted:
            out = {name, *self._dependents(name, current)}
            if not any((self._neighbours(each) | {each}) & dropped for each in out):
                dropped |= out
        for name in dropped:
            if name in kept:
                needed = next(iter(sorted(self._needs(name) & dropped)))
                self._decide(name, "leave out", f"requires {needed}, which is excluded")
        return dropped

    def _loss(self, name: str) -> float:
        return min((one.change for one in self.decisions[name].effects), default=0.0)

    def _give_up(self, current: Arm, kept: set[str]) -> None:
        """Drop patches whose neighbour leaves without a measurement, because there is no time for one."""
        while True:
            leaving = {name for name in current if name not in kept}
            unsure = {name for name in kept if (self._neighbours(name) | self._needs(name)) & leaving}
            if not unsure:
                return
            for name in unsure:
                other = min((self._neighbours(name) | self._needs(name)) & leaving)
                self._decide(name, "unclear", f"not measured without {other}, which edits the same kernel")
            kept -= unsure

    def _closed(self, kept: Arm) -> Arm:
        """The patches that are kept, without those that need a patch which is not."""
        picked = self._makeable(kept)
        for name in kept:
            if name not in picked:
                needed = min(self._needs(name) - set(picked))
                self._decide(name, "unclear", f"requires {needed}, which is excluded")
        return picked

    def _makeable(self, arm: Arm) -> Arm:
        """The arm without patches that need one which is not in it."""
        names = set(arm)
        while lacking := {name for name in names if not self._needs(name) <= names}:
            names -= lacking
        return tuple(name for name in arm if name in names)

    def _withdraw(self, picked: Arm, why: str) -> None:
        for name in picked:
            self._decide(name, "unclear", why)

    def _slower(self, check: Sequence[EffectOnTest]) -> list[EffectOnTest]:
        """Tests whose whole interval is a loss of relevant size."""
        return [one for one in check if one.high < 0 and one.change < -self.plan.least]

    # -- dependencies between patches

    def _member(self, name: str) -> Member:
        return next(member for member in self.plan.members if member.id == name)

    def _needs(self, name: str) -> frozenset[str]:
        here = {member.id for member in self.plan.members}
        return frozenset(self._member(name).requires & here)

    def _neighbours(self, name: str) -> set[str]:
        other = {member.id for member in self.plan.members if name in member.touches}
        return other | set(self._member(name).touches)

    def _dependents(self, name: str, arm: Arm) -> list[str]:
        """The patches of the arm that need it, directly or indirectly."""
        found = {name}
        while more := {each for each in arm if each not in found and self._needs(each) & found}:
            found |= more
        return sorted(found - {name})

    # -- rounds

    def _has_time(self, stage: Stage, runs: int) -> bool:
        limit = self.plan.seconds * (1.0 if stage == "check" else 1.0 - _CHECK_SHARE)
        needs = sum(self.pace.get(model, 0.0) for model in self.plan.models) * runs
        return self.spent + needs <= limit

    def _round(
        self, stage: Stage, number: int, arms: Sequence[Arm], *, again: bool = False
    ) -> dict[tuple[Arm, bool], dict[Key, float]]:
        """Run every arm once with every model, in random order."""
        runs = [(arm, False) for arm in arms] + ([((), True)] if again else [])
        if not self._has_time(stage, len(runs)):
            raise _OutOfTime
        times: dict[tuple[Arm, bool], dict[Key, float]] = {run: {} for run in runs}
        for model in self.plan.models:
            for arm, is_again in draw_order(runs, number, f"{self.plan.seed} {stage} {model}"):
                visit = Visit(stage=stage, round=number, model=model, arm=arm, is_again=is_again)
                found = self.meter.measure(visit)
                self.spent += found.seconds
                before = self.pace.get(model)
                self.pace[model] = found.seconds if before is None else 0.8 * before + 0.2 * found.seconds
                for test, time in found.times.items():
                    times[arm, is_again][model, test] = math.log(time)
                    self.tests.add((model, test))
        self.rounds[stage] = self.rounds.get(stage, 0) + 1
        tenth = int(10 * self.spent / self.plan.seconds)
        if tenth > self.tenths_reported:
            self.tenths_reported = tenth
            self.notify(f"measured {self.spent / 60:.1f} of {self.plan.seconds / 60:g} minutes")
        return times

    def _shown(self, values: Mapping[Key, Sequence[float]]) -> tuple[EffectOnTest, ...]:
        """The effects for a table."""
        chance = _NO_CHANCE if self.plan.is_exact else SHOWN_CHANCE
        found = {key: of_rounds(each).interval(chance).fractions for key, each in values.items() if each}
        return tuple(
            EffectOnTest(model=model, test=test, low=one.low, change=one.middle, high=one.high)
            for (model, test), one in found.items()
        )

    def _decide(
        self,
        name: str,
        verdict: PickVerdict,
        why: str,
        *,
        effects: tuple[EffectOnTest, ...] = (),
        pairs: int = 0,
        context: Arm = (),
    ) -> None:
        earlier = self.decisions.get(name)
        if earlier is not None and not effects:
            effects, pairs, context = earlier.effects, earlier.pairs, earlier.context
        self.decisions[name] = PatchDecision(
            id=name, verdict=verdict, why=why, effects=effects, pairs=pairs, context=context
        )


def pick(plan: PickPlan, meter: Meter, notify: Callable[[str], None] = lambda _: None) -> Picked:
    """Decide on every patch; ``notify`` is called with each result. Raises the errors of the meter."""
    return _Pick(plan=plan, meter=meter, notify=notify).run()


def _add(
    values: dict[Key, list[float]],
    times: Mapping[tuple[Arm, bool], Mapping[Key, float]],
    before: Arm,
    after: Arm,
) -> None:
    for key, time in times[before, False].items():
        values.setdefault(key, []).append(time - times[after, False][key])


def _add_again(values: dict[Key, list[float]], times: Mapping[tuple[Arm, bool], Mapping[Key, float]]) -> None:
    for key, time in times[(), False].items():
        values.setdefault(key, []).append(time - times[(), True][key])


def _bounds(estimates: Mapping[Key, Estimates], chance: float) -> dict[Key, Interval]:
    return {key: each.bound(chance) for key, each in estimates.items()}


def _name(key: Key) -> str:
    return f"{key[1]} of {key[0]}"


def _size(effect: Interval) -> str:
    return f"{abs(math.expm1(effect.middle)):.1%}"
