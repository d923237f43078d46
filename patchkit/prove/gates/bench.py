"""Gate ``bench``: builds both sides, measures them alternately with llama-bench; the candidate is not slower.

Without a model from the user it measures a small one with random weights. That is enough to see a loss, but
gains promised by patches were measured with real models, so they are not required of it.

On the emulated GPU llama-bench runs once on each side and must finish; nothing is concluded about speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from patchkit.base.errors import GateError, Location, PatchkitError
from patchkit.base.evidence import MeasuredMachine, ReadVerdict
from patchkit.base.report.blocks import (
    Block,
    Row,
    Table,
    columns,
    figure,
    percent,
)
from patchkit.base.upstreams import llama_cpp
from patchkit.base.verdict import SpeedVerdict
from patchkit.gpu.emulated.models import SmallModel, check_model, head_size_of, model_file
from patchkit.gpu.hardware.bench.conditions import summarise
from patchkit.gpu.hardware.bench.measure import Arm, Bench, Setup, open_bench
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.rounds import AGAIN, BASELINE, CANDIDATE, Rounds
from patchkit.gpu.hardware.bench.rows import BenchTest
from patchkit.gpu.hardware.runner import Runner
from patchkit.prove.bench.arms import small_model
from patchkit.prove.bench.judge import Judgement, Promise, SpeedResult, judge, promises_for
from patchkit.prove.bench.measured_on import machine_of
from patchkit.prove.build import CandidateBuildFailed, Sides, build_sides, check_device
from patchkit.prove.gates.base import (
    Both,
    Count,
    DeviceEvidence,
    DeviceGate,
    DeviceSetup,
    GateResult,
    Many,
    Number,
    Record,
)
from patchkit.prove.gates.bench_emulated import (
    NO_SPEED,
    BenchBroken,
    Completed,
    complete_bench,
    launches_table,
)
from patchkit.prove.gates.emulated import not_proven_on, verdict_on
from patchkit.prove.gates.sides import BuiltSides, built_sides, sides_on
from patchkit.prove.subject import Subject

ROUNDS = 10
"""Planned rounds: a loss of 10 % is then detected on a machine whose runs differ by 1.5 %, as simulated in
tests/property/test_bench_power.py."""


_MOST_TESTS = 50  # far above any plan of ours, which has six tests and at most 20 rounds; the intervals
_MOST_ROUNDS = 100  # of fifty tests of a hundred rounds take some seconds
_IN_OUTCOME = 6  # tests in one line
_KINDS = {"pp": "prompt processing", "tg": "text generation"}


class JudgedTest(Record):
    """One test. Changes and interval ends are fractions; ``why`` is the reason for the judgement."""

    test: str
    setting: str
    baseline_tokens_per_second: Number
    candidate_tokens_per_second: Number
    change: Number
    interval: Both[Number]
    baseline_against_itself: Both[Number]
    margin: Number
    smallest_loss_seen: Number
    rounds: Count
    verdict: ReadVerdict
    judgement: Judgement
    why: str
    control: bool


_Nanoseconds = Annotated[int, Field(ge=1, le=10**15)]
_Round = Annotated[tuple[_Nanoseconds, ...], Field(strict=False, min_length=1)]
_Rounds = Annotated[tuple[_Round, ...], Field(strict=False, max_length=_MOST_ROUNDS)]


class ArmSamples(Record):
    """The times of each arm, one list per round."""

    baseline: _Rounds
    candidate: _Rounds
    again: _Rounds


class SampledTest(Record):
    """One test, as :class:`patchkit.gpu.hardware.bench.rows.BenchTest`, with its samples."""

    prompt: Count
    generated: Count
    depth: Count
    type_k: str
    type_v: str
    flash: str
    setting: str
    samples_ns: ArmSamples


class Samples(Record):
    """All measured times."""

    format: Literal[1]
    tests: Annotated[tuple[SampledTest, ...], Field(strict=False, max_length=_MOST_TESTS)]


class BenchEvidence(DeviceEvidence):
    """What was measured where, how each test was judged, and the machine's state in each round.

    On the emulated GPU nothing is measured; ``completed`` has what ran on each side. ``machine`` is the
    machine that was measured, as in an evidence file.
    """

    runner: str
    model: str
    head_size: Count | None
    tests: Many[JudgedTest]
    samples: Samples
    conditions: Many[dict[str, str]]
    rounds_taken_from_an_interrupted_run: Count
    backend: str
    sides: BuiltSides
    completed: Many[Completed] = ()
    machine: MeasuredMachine | None = None

    @property
    def outcome(self) -> str:
        """The measured change of each test."""
        shown = ", ".join(f"{one.test} {percent(one.change)}" for one in self.tests[:_IN_OUTCOME])
        more = len(self.tests) - _IN_OUTCOME
        return f"{shown} and {more} more" if more > 0 else shown

    def blocks(self) -> Iterator[Block]:
        """A table of all tests with their intervals."""
        if self.completed:
            yield launches_table(self.completed, str(self.emulated or self.runner))
            return
        titles = ("result", "test", "baseline t/s #", "candidate t/s #", "change #", "99 % interval #")
        yield Table(
            name="bench",
            caption=f"llama-bench with {self.model} on {self.runner}",
            columns=columns(*titles, "baseline vs. itself #", "smallest visible loss #", "rounds #", "why"),
            rows=tuple(
                Row(
                    cells=(
                        f"{one.judgement}: {one.verdict}{', control' if one.control else ''}",
                        one.test,
                        figure(one.baseline_tokens_per_second),
                        figure(one.candidate_tokens_per_second),
                        percent(one.change),
                        " to ".join(map(percent, one.interval)),
                        " to ".join(map(percent, one.baseline_against_itself)),
                        f"-{one.smallest_loss_seen * 100:.1f} %",
                        str(one.rounds),
                        one.why,
                    ),
                )
                for one in self.tests
            ),
            note="Intervals are of the change within a round, over all rounds. 'open' does not pass.",
        )

    def provenance(self) -> Iterator[tuple[str, str]]:
        """Adds the model."""
        yield from super().provenance()
        yield "model", self.model


def _judged_test(one: SpeedResult) -> JudgedTest:
    return JudgedTest(
        test=one.test.name,
        setting=one.test.setting,
        baseline_tokens_per_second=round(one.baseline, 3),
        candidate_tokens_per_second=round(one.candidate, 3),
        change=round(one.change, 5),
        interval=one.interval,
        baseline_against_itself=one.noise,
        margin=round(math.expm1(one.comparison.margin), 5),
        smallest_loss_seen=round(one.comparison.smallest_loss_seen, 5),
        rounds=one.comparison.rounds,
        verdict=one.comparison.verdict,
        judgement=one.judgement,
        why=one.why,
        control=one.control,
    )


def _sampled(test: BenchTest, rounds: Rounds) -> SampledTest:
    return SampledTest(**asdict(test), samples_ns=ArmSamples.model_validate(rounds.samples[test]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchGate:
    """Measures ``setup``, whose arms are the two sides and the baseline a second time.

    ``timeout_s`` and ``check_talk`` as for :func:`open_bench`. ``head_size`` is the model's, for promises
    that name one (None: unknown, so these are not required). ``name`` differs on the CPU backend.
    ``backend``, ``sides`` and ``measured_on`` are for the evidence.
    """

    setup: Setup
    timeout_s: float = 3600.0
    check_talk: Callable[[str, Path], None] | None = None
    head_size: int | None = None
    rounds: int = ROUNDS
    name: str = "bench"
    backend: str = ""
    sides: BuiltSides = field(default_factory=dict)
    measured_on: MeasuredMachine | None = None

    def run(self, subject: Subject) -> GateResult:
        """Measure and judge. Raises the errors of :func:`open_bench` and :meth:`Bench.measure`."""
        rules = [(patch.id, patch.patch.bench) for patch in subject.patches]
        promise = promises_for(rules, subject.archs, self.head_size)
        folder = subject.cache_root / "evidence" / subject.candidate_tree / self.name / self.setup.key
        with open_bench(
            folder,
            self.setup,
            reporter=subject.reporter,
            timeout_s=self.timeout_s,
            check_talk=self.check_talk,
        ) as bench:
            rounds, judged = _judged(bench, self.rounds, promise)
            if any(one.judgement == "open" for one in judged):
                rounds, judged = _judged(bench, 2 * self.rounds, promise)
            bench.journal.finish()
        return _result(self, bench, rounds, judged)


def _judged(bench: Bench, count: int, promise: Promise) -> tuple[Rounds, tuple[SpeedResult, ...]]:
    """Measure up to ``count`` rounds and judge them."""
    bench.measure(count)
    rounds = bench.rounds(count)
    return rounds, judge(rounds, promise)


def _result(gate: BenchGate, bench: Bench, rounds: Rounds, judged: Sequence[SpeedResult]) -> GateResult:
    folder = bench.journal.folder
    problems = tuple(_problem(one, folder) for one in judged if one.judgement in {"lost", "short"})
    still_open = [one for one in judged if one.judgement == "open"]
    counts = {name: sum(one.comparison.verdict == name for one in judged) for name in _VERDICTS}
    verdicts = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    head = f"{len(judged)} tests in {rounds.count} rounds on {gate.setup.runner.name}: {verdicts}"
    if problems:
        summary = f"{head}; {len(problems)} slower or below what the patches promise"
    elif still_open:
        summary = f"{head}; {len(still_open)} still open, which does not pass"
    else:
        summary = head
    return GateResult(
        gate=gate.name,
        verdict="failed" if problems else "not run" if still_open else "passed",
        summary=summary,
        problems=problems,
        evidence=BenchEvidence(
            runner=gate.setup.runner.name,
            model=gate.setup.model.name,
            head_size=gate.head_size,
            tests=tuple(_judged_test(one) for one in judged),
            samples=Samples(format=1, tests=tuple(_sampled(test, rounds) for test in rounds.tests)),
            conditions=bench.conditions,
            rounds_taken_from_an_interrupted_run=bench.kept // len(gate.setup.arms),
            backend=gate.backend,
            sides=gate.sides,
            machine=gate.measured_on,
        ),
        not_run=tuple(f"{one.test.name}: {one.why}" for one in still_open),
        lines=(*_table(judged), *summarise(bench.conditions)),
    )


_VERDICTS = get_args(SpeedVerdict)


def _table(judged: Sequence[SpeedResult]) -> tuple[str, ...]:
    titles = (
        f"{'test':<16}{'baseline':>10}{'candidate':>11}  {'change':>7}  {'99 % interval':<18}{'verdict':<11}"
    )
    return (f"{titles}smallest visible loss", *(_row(one) for one in judged))


def _row(one: SpeedResult) -> str:
    low, high = one.interval
    interval = f"{low:+.1%} to {high:+.1%}"
    return (
        f"{one.test.name:<16}{one.baseline:>10.1f}{one.candidate:>11.1f}  {one.change:>+7.1%}  "
        f"{interval:<18}{one.comparison.verdict:<11}-{one.comparison.smallest_loss_seen:.1%}"
        f"{' control' if one.control else ''}"
    )


def _problem(one: SpeedResult, folder: Path) -> PatchkitError:
    def problem(*, code: str) -> GateError:
        return GateError(
            f"{one.test.name} changes by {one.change:+.1%}: "
            f"{one.baseline:.1f} to {one.candidate:.1f} tokens/s",
            code=code,
            where=Location(path=str(folder)),
            why=f"{one.why}; 99 % interval {list(one.interval)}, {one.comparison.rounds} rounds",
            hint="the samples are in that folder; to measure again: patchkit verify --gate bench",
        )

    return problem(code="BENCH_SLOWER") if one.judgement == "lost" else problem(code="BENCH_GAIN_MISSING")


PROGRAMS = (llama_cpp().programs.bench,)
_EMULATED_MODEL = SmallModel(head_size=128)
# One thread: ggml's threads spin while they wait, so on a busy machine more threads would measure other load.
_CPU_PLAN = BenchPlan(
    prompts=(128,), generated=(16,), depths=(0, 128), batch=128, micro_batch=128, repetitions=7, threads=1
)
# Prompts longer than one physical batch, and single tokens, each with an empty and with a filled KV cache.
_EMULATED_PLAN = BenchPlan(
    prompts=(96,), generated=(4,), depths=(0, 512), batch=64, micro_batch=64, repetitions=1, threads=1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOnDevice(DeviceGate):
    """Builds and measures; ``plan`` None: the machine's usual plan. ``runner`` runs it; building is local."""

    NAME = "bench"
    runner: Runner
    model: Path | None = None
    plan: BenchPlan | None = None
    rounds: int = ROUNDS

    @classmethod
    def make(cls, setup: DeviceSetup) -> BenchOnDevice:
        """The gate on a device."""
        return cls(machine=setup.machine, runner=setup.runner, model=setup.model)

    def run(self, subject: Subject) -> GateResult:
        """Build, measure, judge. Raises the errors of building and :class:`BenchGate`, and MODEL_MISSING."""
        if self.model is not None:
            check_model(self.model)
        try:
            if self.machine.is_emulated:
                with sides_on(self.machine, subject, PROGRAMS) as emulated:
                    return self._complete(subject, emulated)
            sides = build_sides(subject, self.machine.backend, PROGRAMS)
        except (CandidateBuildFailed, BenchBroken) as error:
            return GateResult.ended_by(self.name, error)
        model = self.model or small_model(self.machine, subject.cache_root, subject.reporter)
        result = BenchGate(
            setup=Setup(
                arms=(
                    Arm(label=BASELINE, folder=sides.before.folder, tree=subject.baseline_tree),
                    Arm(label=CANDIDATE, folder=sides.after.folder, tree=subject.candidate_tree),
                    Arm(label=AGAIN, folder=sides.before.folder, tree=subject.baseline_tree),
                ),
                model=model,
                plan=self._plan(),
                runner=self.runner,
            ),
            check_talk=lambda talk, where: check_device(self.machine, talk, subject.archs, where),
            head_size=head_size_of(model) if self.model is not None and not self.machine.is_cpu else None,
            rounds=self.rounds,
            name=self.name,
            backend=self.machine.backend,
            sides=built_sides(sides),
            measured_on=machine_of(
                subject.cache_root,
                self.runner,
                self.machine.backend,
                subject.archs[0],
                subject.toolchain,
                subject.candidate_tree[:16],
            ),
        ).run(subject)
        not_run = [*result.not_run, *not_proven_on(self.machine, subject)]
        if self.model is None and not self.machine.is_cpu:
            not_run.append("the gains that patches promise: they need a real model (--model GGUF)")
        return replace(result, not_run=tuple(not_run))

    def _complete(self, subject: Subject, sides: Sides) -> GateResult:
        model = self.model or model_file(_EMULATED_MODEL, subject.cache_root, subject.reporter)
        done = complete_bench(subject, sides, self.machine, self._plan(), model)
        return GateResult(
            gate=self.name,
            verdict=verdict_on(self.machine, ()),
            summary=(
                f"llama-bench finishes on the {self.machine.label}, both sides, "
                f"{len(done.after.tests)} tests; speed is not judged"
            ),
            evidence=BenchEvidence(
                runner=self.runner.name,
                model=model.name,
                head_size=head_size_of(model),
                tests=(),
                samples=Samples(format=1, tests=()),
                conditions=(),
                rounds_taken_from_an_interrupted_run=0,
                backend=self.machine.backend,
                sides=built_sides(sides),
                completed=(done.before, done.after),
            ),
            not_run=(NO_SPEED, *not_proven_on(self.machine, subject)),
            lines=done.lines,
        )

    def _plan(self) -> BenchPlan:
        if self.plan is not None:
            return self.plan
        if self.machine.is_emulated:
            return replace(_EMULATED_PLAN, device=self.machine.device)
        return _CPU_PLAN if self.machine.is_cpu else BenchPlan(device=self.machine.device)
