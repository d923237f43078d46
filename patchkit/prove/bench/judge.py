"""Judge each test of a benchmark by what the patches promise and may cost."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.carry.series.promises import BenchRules, ExpectedGain
from patchkit.gpu.hardware.bench.rounds import Rounds
from patchkit.gpu.hardware.bench.rows import BenchTest
from patchkit.gpu.hardware.bench.statistics import FEWEST, LEAST, Comparison, compare

Judgement = Literal["ok", "lost", "short", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What all patches together promise, and may cost, for one model on one GPU."""

    allowed_loss: float
    control: tuple[str, ...]
    expected: tuple[tuple[str, ExpectedGain], ...]

    def gain_of(self, test: BenchTest) -> tuple[str, ExpectedGain] | None:
        """The largest gain promised for a test, and the patch that promises it."""
        fitting = [one for one in self.expected if _fits(test, one[1].test)]
        return max(fitting, key=lambda one: one[1].gain, default=None)

    def is_control(self, test: BenchTest) -> bool:
        """Whether no patch is expected to affect this test."""
        return any(_fits(test, pattern) for pattern in self.control)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedResult:
    """One test. Speeds are in tokens per second; ``why`` is the reason for a judgement other than ok."""

    test: BenchTest
    baseline: float
    candidate: float
    comparison: Comparison
    judgement: Judgement
    why: str
    control: bool

    @property
    def change(self) -> float:
        """The speedup as a fraction; 0.1 is ten per cent faster."""
        return math.expm1(self.comparison.effect.middle)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the speedup's interval, as fractions."""
        return self.comparison.effect.fractions.ends

    @property
    def noise(self) -> tuple[float, float]:
        """The same interval for the baseline against itself."""
        return self.comparison.noise.fractions.ends


def promises_for(
    patches: Sequence[tuple[str, BenchRules]], archs: Sequence[str], head_size: int | None
) -> Promise:
    """The promises on these GPUs for a model with that head size; None: unknown, so gains that need one drop.

    The allowed loss is the largest that any patch allows; a control is a test that all patches name as one.
    """
    gains = tuple(
        (patch, gain)
        for patch, rules in patches
        for gain in rules.expected
        if set(gain.archs) & set(archs)
        and (not gain.head_sizes or (head_size is not None and head_size in gain.head_sizes))
    )
    controls = [set(rules.control) for _, rules in patches]
    shared = set.intersection(*controls) if controls else set()
    return Promise(
        allowed_loss=max((rules.allowed_loss for _, rules in patches), default=0.0),
        control=tuple(sorted(shared)),
        expected=gains,
    )


def judge(rounds: Rounds, promise: Promise) -> tuple[SpeedResult, ...]:
    """Judge every test, in order. If a control is faster, promised gains stay open: the machine changed."""
    compared = {
        test: compare(
            rounds.medians(test, "baseline"),
            rounds.medians(test, "candidate"),
            rounds.medians(test, "again"),
            least=LEAST,
        )
        for test in rounds.tests
    }
    moved = [
        test.name for test in rounds.tests if promise.is_control(test) and compared[test].verdict == "faster"
    ]
    judged = []
    for test, comparison in compared.items():
        judgement, why = _judge_one(test, comparison, promise, moved)
        judged.append(
            SpeedResult(
                test=test,
                baseline=rounds.tokens_per_second(test, "baseline"),
                candidate=rounds.tokens_per_second(test, "candidate"),
                comparison=comparison,
                judgement=judgement,
                why=why,
                control=promise.is_control(test),
            )
        )
    return tuple(judged)


def _judge_one(
    test: BenchTest, comparison: Comparison, promise: Promise, moved: Sequence[str]
) -> tuple[Judgement, str]:
    if comparison.rounds < FEWEST:
        return "open", f"an interval of 99 % needs {FEWEST} rounds, there are {comparison.rounds}"
    # A loss within the noise of this run cannot be distinguished from none.
    allowed = max(-math.log1p(-promise.allowed_loss), comparison.least)
    if comparison.effect.high < -max(allowed, comparison.margin):
        return "lost", f"slower than the allowed {_percent(-allowed)}"
    gain = promise.gain_of(test)
    if gain is not None:
        return _judge_gain(comparison, *gain, moved)
    if comparison.effect.low < -allowed:
        seen = f"a loss below {comparison.smallest_loss_seen:.1%} would not be detected"
        return "open", f"the interval reaches below {_percent(-allowed)}; {seen}"
    return "ok", ""


def _judge_gain(
    comparison: Comparison, patch: str, expected: ExpectedGain, moved: Sequence[str]
) -> tuple[Judgement, str]:
    wanted = f"{patch} promises {expected.gain:+.0%} ({expected.source})"
    gain = math.log1p(expected.gain)
    if comparison.effect.high < gain:
        return "short", wanted
    if moved:
        return "open", f"the control {', '.join(moved)} is faster too, so the machine changed"
    if comparison.effect.low < max(gain, comparison.margin):
        return "open", f"the interval reaches below the gain that {wanted}"
    return "ok", wanted


def _percent(effect: float) -> str:
    return f"{math.expm1(effect):+.1%}"


def _fits(test: BenchTest, pattern: str) -> bool:
    return fnmatch.fnmatchcase(test.name, pattern)
