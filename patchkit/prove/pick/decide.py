"""Which patches pay: the whole decision, fed by a meter and nothing else.

The steps:

1. Right before measured: a patch with which all of them compute wrong is out.
2. All of them against none, some rounds: what there is to gain, and how noisy the machine is.
3. Each is left out of the rest, and those that have nothing to do with each other in all combinations. All
   arms of a round run one after the other, in an order drawn by lot; two that differ by one patch are a value
   of its effect. A patch is looked at after 8 values and then ever more rarely, until it is clear.
4. Of the patches that touch one kernel at most one is left out at a time; then its neighbours are measured
   anew without it, because what one of them brings may hang on the other.
5. What is picked must compute right by itself, and is measured against none, in rounds of its own. Where
   nothing is picked, these rounds are none against itself.

A real GPU, the CPU and the simulated machine of the tests drive this very code.
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
from patchkit.prove.pick.crossing import Arm, cross

BUILDS = 24
"""So many builds are measured side by side, if that spares rounds: what four or five patches cross in."""
Verdict = Literal["keep", "leave out", "unclear"]

WRONG_KEEP = 0.01
"""The chance that a run keeps any patch that makes some test slower by ``least`` or more."""
IDLE_KEEP = 0.05
"""The chance that a run keeps any patch that makes no test faster."""
_WRONG_DROP = 0.001  # of a bound at the first look, as nothing is kept because of it; then a quarter
_IDLE_DROP = 0.01  # of the bounds that say that no test gains, at each look: what it costs is a gain of least
_FIRST_LOOK = fewest_rounds(_WRONG_DROP)
_WIDENING = 1.25  # between two looks
# What a bound may be wrong by is shared by the looks: this much at the first to keep at, and the
# rest by all later ones. They see nearly the same rounds: of 8 million walks with 13 looks, 25 % apart,
# at most 8.8 a passed a bound that is wrong with the chance a (1e-4) at one look: 13 lots need not be paid.
_FIRST_SHARE = 0.3
_LATER_LOOKS = 9.0
_WHOLE_ROUNDS = 5
_MOST_PAIRS = 300  # of one patch: a bound then is a fifth of the noise of single ones
_CHECK_ROUNDS = 8
# Of eight rounds of four tests one in ten looks slower by chance; each patch was kept by far surer bounds, so
# a loss has to last: on a busy CPU one of 11 right sets had been withdrawn (2026-11-27).
_CHECK_MOST = 24
_CHECK_SHARE = 0.15  # of the time, which the last step is to have
SHOWN_CHANCE = 0.025  # on either side of an interval in a table
_NO_CHANCE = 0.5  # one value without noise is its own bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A patch to decide on. ``requires`` and ``touches`` name patches: those it needs, those whose kernel.

    ``mends``: without it this build is known to compute something wrong, so it need not gain to be kept.
    """

    id: str
    mends: bool = False
    requires: frozenset[str] = frozenset()
    touches: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One arm running all tests of one model once. ``round`` counts from 0 within its ``stage``."""

    stage: Stage
    round: int
    model: str
    arm: Arm
    is_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """``times`` by test, in any unit; ``seconds`` is all that the visit took."""

    times: Mapping[str, float]
    seconds: float


class Meter(Protocol):
    """Who measures. The same questions come in the same order whenever the same answers were given."""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Have these arms ready: they are about to be measured."""
        ...

    def measure(self, visit: Visit) -> Measured:
        """Run it. What it raises ends the run; asked again, it goes on from there."""
        ...

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong, in words; None when it computes right.

        ``is_search``: it is a part of the last arm that was wrong, and all that is asked is whether that
        fault is in this part.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``models`` by name; ``seconds`` is the time for measuring; ``seed`` draws the orders.

    ``builds`` is the most that are measured side by side to cross patches; each is left out once however many
    that takes. ``is_exact``: the meter has no noise, as the timing model: one round tells all, and an effect
    counts from ``least`` on, which then is the meter's own error.
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
    """What a patch, or a set, does to a test: fractions, positive is faster."""

    model: str
    test: str
    low: float
    change: float
    high: float

    @property
    def told(self) -> str:
        """The change with its interval; one value has none, and ``+108.1% to +108.1%`` would look certain."""
        interval = f" ({self.low:+.1%} to {self.high:+.1%})" if self.low < self.high else ""
        return f"{self.change:+.1%}{interval}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of a patch, and why, after so many ``pairs`` of runs with it and without it.

    ``context`` is the set that it was left out of.
    """

    json_keys: ClassVar = "id verdict why pairs context effects"

    id: str
    verdict: Verdict
    why: str
    effects: tuple[EffectOnTest, ...] = ()
    pairs: int = 0
    context: Arm = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """The whole result. ``whole`` is all against none, ``check`` picked against none, ``noise`` none itself.

    ``seconds`` were measured, ``is_checked`` says whether the check had its rounds.
    """

    picked: Arm
    decisions: tuple[Decision, ...]
    whole: tuple[EffectOnTest, ...]
    check: tuple[EffectOnTest, ...]
    noise: tuple[EffectOnTest, ...]
    seconds: float
    rounds: Mapping[str, int]
    is_checked: bool


Key = tuple[str, str]  # model and test


@dataclass(slots=True, kw_only=True)
class _Evaluation:
    """One patch being left out of ``context``; ``number`` counts the contexts it was tried in.

    ``values`` has a logarithm of each pair of runs.
    """

    member: str
    context: Arm
    without: Arm
    number: int
    values: dict[Key, list[float]] = field(default_factory=dict)
    looks: int = 0  # all of them, and those at which it could be kept
    keep_looks: int = 0
    next_look: int = _FIRST_LOOK

    @property
    def pairs(self) -> int:
        """How many pairs of runs, with it and without it, there are of each test."""
        return min((len(values) for values in self.values.values()), default=0)


class _OutOfTime(Exception):
    """The next round would not end within the time."""


@dataclass(slots=True, kw_only=True)
class _Pick:
    plan: Plan
    meter: Meter
    heard: Callable[[str], None]
    spent: float = 0.0
    told: int = 0
    pace: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    tests: set[Key] = field(default_factory=set)

    # -- the steps

    def run(self) -> Picked:
        order = [member.id for member in self.plan.members]
        right = self._right(tuple(order))
        whole, noise = self._whole(right)
        kept = self._each(right)
        picked = self._closed(kept)
        if picked and picked != right and (fault := self.meter.fault_of(picked)) is not None:
            self._withdraw(picked, f"what is picked computes wrong without the others: {fault}")
            picked = ()
        check, is_checked = self._check(picked, noise)
        if is_checked and (slower := self._slower(check)):
            worst = min(slower, key=lambda one: one.change)
            where = f"{worst.test} of {worst.model}"
            self._withdraw(picked, f"the picked set together is slower in {where}: {worst.told}")
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
        """The arm without the patches that make it wrong: the shortest wrong beginning is searched for.

        No part has a patch without those that it needs: such a candidate cannot be made.
        """
        while arm and (fault := self.meter.fault_of(arm)) is not None:
            low, high = 0, len(arm)  # what can be made of arm[:low] is right, of arm[:high] wrong
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
            self._decide(culprit, "leave out", f"computes wrong: {fault}")
            for name in sorted(out - {culprit}):
                self._decide(name, "leave out", f"needs {culprit}, which computes wrong")
            self.heard(f"{culprit} computes wrong and is out: {fault}")
            arm = tuple(name for name in arm if name not in out)
        return arm

    def _whole(self, arm: Arm) -> tuple[tuple[EffectOnTest, ...], dict[Key, list[float]]]:
        noise: dict[Key, list[float]] = {}
        values: dict[Key, list[float]] = {}
        if not arm:
            return (), noise
        self.meter.prepare([(), arm])
        for number in range(1 if self.plan.is_exact else _WHOLE_ROUNDS):
            try:
                times = self._round("whole", number, [(), arm], again=True)
            except _OutOfTime:
                break
            _add(values, times, (), arm)
            _add_again(noise, times)
        effects = self._shown(values)
        for one in effects:
            self.heard(f"all against none, {one.test} of {one.model}: {one.told}")
        return effects, noise

    def _each(self, right: Arm) -> Arm:
        """Leave each one out until all are clear, or the time is over; what is kept."""
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
            if not ended:  # no time is left: what hangs on something undecided is undecided, too
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
        """Picked against none. Where nothing is picked, the noise alone: evidence of a loss needs it."""
        values: dict[Key, list[float]] = {}
        if not picked:
            self._only_noise(noise)
            return (), False
        self.meter.prepare([(), picked])
        least = 1 if self.plan.is_exact else _CHECK_ROUNDS
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
        for number in range(_CHECK_ROUNDS):
            try:
                _add_again(noise, self._round("check", number, [()], again=True))
            except _OutOfTime:
                return

    # -- leaving out

    def _evaluation(self, name: str, current: Arm, contexts: dict[str, int]) -> _Evaluation:
        out = {name, *self._dependents(name, current)}
        contexts[name] = contexts.get(name, 0) + 1
        made = _Evaluation(
            member=name,
            context=current,
            without=tuple(each for each in current if each not in out),
            number=contexts[name],
        )
        self._decide(name, "unclear", "not measured")
        return made

    def _measure_open(
        self, evaluations: Sequence[_Evaluation], current: Arm, number: int
    ) -> tuple[bool, int]:
        """Rounds until every one is clear; False when the time is over before."""
        open_ = list(evaluations)
        crossing = cross(
            current,
            {one.member: frozenset(one.context) - set(one.without) for one in open_},
            {name: frozenset(self._neighbours(name)) for name in current},
            1 if self.plan.is_exact else self.plan.builds,
        )
        self.meter.prepare(crossing.arms)
        while open_:
            crossing = crossing.only(frozenset(one.member for one in open_))
            if not self._has_time("each", len(crossing.arms)):
                crossing = crossing.one_by_one()
            try:
                times = self._round("each", number, crossing.arms)
            except _OutOfTime:
                for one in open_:
                    self._still_open(one)
                return False, number
            number += 1
            for one in open_:
                for without, with_ in crossing.pairs(one.member):
                    _add(one.values, times, without, with_)
            open_ = [one for one in open_ if not self._look(one)]
        return True, number

    def _look(self, one: _Evaluation) -> bool:
        """Whether it is clear now; the decision is noted then."""
        if not self.plan.is_exact:
            if one.pairs < one.next_look:
                return False
            one.next_look = max(one.pairs + 1, math.ceil(one.pairs * _WIDENING))
            if one.pairs < self._first_keep(one.number) <= one.next_look:
                one.next_look = self._first_keep(one.number)
        estimates = {key: of_rounds(values) for key, values in one.values.items()}
        if verdict := self._told_apart(one, estimates):
            word, why = verdict
            self._decide(
                one.member,
                word,
                why,
                effects=self._shown(one.values),
                pairs=one.pairs,
                context=one.context,
            )
            self.heard(f"{one.member}: {word} after {one.pairs} pairs of runs, {why}")
            return True
        if one.pairs >= _MOST_PAIRS or self.plan.is_exact:
            self._still_open(one)
            return True
        return False

    def _told_apart(self, one: _Evaluation, estimates: Mapping[Key, Estimates]) -> tuple[Verdict, str] | None:
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
        mends = self._member(one.member).mends
        if not mends and all(each.high < least for each in hopes.values()):
            return "leave out", f"no test gains {self.plan.least:.1%} by it"
        if self.plan.is_exact:
            return self._worth(rough, rough, mends=mends)
        if one.pairs < self._first_keep(one.number):
            return None
        one.keep_looks += 1
        loss, idle = self._chances(one.number, one.keep_looks)
        safe, shown = (_bounds(estimates, chance) for chance in (loss, idle))
        return self._worth(safe, shown, mends=mends)

    def _worth(
        self, safe: Mapping[Key, Interval], shown: Mapping[Key, Interval], *, mends: bool
    ) -> tuple[Verdict, str] | None:
        """To keep, if some test gains or it mends, and no test may lose; ``safe`` has bounds for that."""
        least = math.log1p(self.plan.least)
        gains = [key for key, each in shown.items() if each.low > 0 and each.middle >= least]
        if not (gains or mends) or any(each.low <= -least for each in safe.values()):
            return None
        if not gains:
            return (
                "keep",
                f"mends what this build computes wrong, and no test loses {self.plan.least:.1%} by it",
            )
        best = max(gains, key=lambda key: shown[key].middle)
        return "keep", f"faster in {_name(best)} by {_size(shown[best])}"

    def _chances(self, number: int, look: int) -> tuple[float, float]:
        """How wrong a bound may be at this look: all looks in all contexts of all patches share the whole.

        A patch that loses is kept only if its bound is wrong in that very test, so tests need no share; one
        that does nothing may look faster in any of them.
        """
        part = _FIRST_SHARE if look == 1 else (1 - _FIRST_SHARE) / _LATER_LOOKS
        share = 0.5**number * part / max(1, len(self.plan.members))
        tests = max(1, len(self.tests))
        return WRONG_KEEP * share, IDLE_KEEP * share / tests

    def _first_keep(self, number: int) -> int:
        return max(_FIRST_LOOK, fewest_rounds(min(self._chances(number, 1))))

    def _still_open(self, one: _Evaluation) -> None:
        effects = self._shown(one.values)
        why = "the time was over before its first round"
        if one.pairs:
            widest = max(effects, key=lambda each: each.high - each.low)
            why = f"after {one.pairs} pairs of runs {widest.test} of {widest.model} is still {widest.told}"
        self._decide(one.member, "unclear", why, effects=effects, pairs=one.pairs, context=one.context)
        self.heard(f"{one.member}: unclear, {why}")

    def _to_drop(self, current: Arm, kept: set[str]) -> set[str]:
        """Who leaves now: of those who touch one kernel one, losses first, then the last of the series."""
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
                self._decide(name, "leave out", f"needs {needed}, which is left out")
        return dropped

    def _loss(self, name: str) -> float:
        return min((one.change for one in self.decisions[name].effects), default=0.0)

    def _give_up(self, current: Arm, kept: set[str]) -> None:
        """Without time to measure again, nothing is kept whose neighbour leaves unmeasured."""
        while True:
            leaving = {name for name in current if name not in kept}
            unsure = {name for name in kept if (self._neighbours(name) | self._needs(name)) & leaving}
            if not unsure:
                return
            for name in unsure:
                other = min((self._neighbours(name) | self._needs(name)) & leaving)
                self._decide(name, "unclear", f"not measured without {other}, whose kernel it touches")
            kept -= unsure

    def _closed(self, kept: Arm) -> Arm:
        """What is kept, without what needs a patch that is not."""
        picked = self._makeable(kept)
        for name in kept:
            if name not in picked:
                needed = min(self._needs(name) - set(picked))
                self._decide(name, "unclear", f"needs {needed}, which is left out")
        return picked

    def _makeable(self, arm: Arm) -> Arm:
        """The arm without the patches that need one which is not in it."""
        names = set(arm)
        while lacking := {name for name in names if not self._needs(name) <= names}:
            names -= lacking
        return tuple(name for name in arm if name in names)

    def _withdraw(self, picked: Arm, why: str) -> None:
        for name in picked:
            self._decide(name, "unclear", why)

    def _slower(self, check: Sequence[EffectOnTest]) -> list[EffectOnTest]:
        """Those whose whole interval is a loss, and one that counts."""
        return [one for one in check if one.high < 0 and one.change < -self.plan.least]

    # -- what hangs together

    def _member(self, name: str) -> Member:
        return next(member for member in self.plan.members if member.id == name)

    def _needs(self, name: str) -> frozenset[str]:
        here = {member.id for member in self.plan.members}
        return frozenset(self._member(name).requires & here)

    def _neighbours(self, name: str) -> set[str]:
        other = {member.id for member in self.plan.members if name in member.touches}
        return other | set(self._member(name).touches)

    def _dependents(self, name: str, arm: Arm) -> list[str]:
        """Those of the arm that need it, directly or not."""
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
        """Every arm once with every model, in an order drawn by lot."""
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
        if tenth > self.told:
            self.told = tenth
            self.heard(f"measured {self.spent / 60:.1f} of {self.plan.seconds / 60:g} minutes")
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
        verdict: Verdict,
        why: str,
        *,
        effects: tuple[EffectOnTest, ...] = (),
        pairs: int = 0,
        context: Arm = (),
    ) -> None:
        earlier = self.decisions.get(name)
        if earlier is not None and not effects:
            effects, pairs, context = earlier.effects, earlier.pairs, earlier.context
        self.decisions[name] = Decision(
            id=name, verdict=verdict, why=why, effects=effects, pairs=pairs, context=context
        )


def pick(plan: Plan, meter: Meter, heard: Callable[[str], None] = lambda _: None) -> Picked:
    """Decide on every patch; ``heard`` is told what becomes clear. Raises what the meter raises."""
    return _Pick(plan=plan, meter=meter, heard=heard).run()


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
