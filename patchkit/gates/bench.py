"""The gate ``bench`` on a backend: both sides built, a model chosen, then measured.

Without a model of the user's a small one with random weights is measured: enough to see a loss, but the gains
that patches promise were measured with real models, so none is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError, UsageError
from patchkit.candidate.build import CandidateBuildFailed, Machine, build_sides, check_device, sides_evidence
from patchkit.candidate.subject import Subject
from patchkit.device.bench.conditions import Conditions, summarise
from patchkit.device.bench.options import BenchPlan
from patchkit.device.bench.rounds import Judged, Promise, Rounds, judge, promises_for
from patchkit.device.bench.run import BenchGainMissing, BenchSession, BenchSetup, BenchSlower, open_session
from patchkit.device.runner import Runner
from patchkit.gates.base import DeviceSetup, GateResult
from patchkit.gpu.models import SmallModel, head_size_of, model_file

ROUNDS = 10
"""Planned rounds: a loss of 10 % is then seen on a machine whose runs differ by 1.5 %, as is simulated in
tests/property/test_bench_power.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchGate:
    """Runs where ``runner`` says.

    ``head_size`` is the model's, for the promises that name one (None: unknown, so none is asked for).
    ``name`` differs where no GPU takes part.
    """

    setup: BenchSetup
    runner: Runner
    head_size: int | None = None
    rounds: int = ROUNDS
    name: str = "bench"

    def run(self, subject: Subject) -> GateResult:
        """Measure and judge; raises what :meth:`BenchSession.add_round` raises."""
        rules = [(patch.id, patch.bench) for patch in subject.patches]
        promise = promises_for(rules, subject.archs, self.head_size)
        folder = subject.cache_root / "evidence" / subject.candidate_tree / self.name
        with open_session(self.setup, folder, runner=self.runner, reporter=subject.reporter) as session:
            rounds, looks, judged = self._measure(session, promise)
            session.close()
        return _result(self, session, rounds, looks, judged)

    def _measure(
        self, session: BenchSession, promise: Promise
    ) -> tuple[Rounds, list[Conditions], tuple[Judged, ...]]:
        arguments = session.arguments()
        rounds, looks = Rounds(), []
        judged: tuple[Judged, ...] = ()
        total = self.rounds
        with session.reporter.progress("measuring", "rounds") as advance:
            while rounds.count < total:
                looks.append(session.add_round(rounds.count, arguments, rounds))
                advance(rounds.count, total)
                if rounds.count == total:
                    judged = judge(rounds, promise)
                    if total == self.rounds and any(one.judgement == "open" for one in judged):
                        total *= 2
        return rounds, looks, judged


def _result(
    gate: BenchGate,
    session: BenchSession,
    rounds: Rounds,
    looks: Sequence[Conditions],
    judged: Sequence[Judged],
) -> GateResult:
    problems = tuple(_problem(one, session.folder) for one in judged if one.judgement in {"lost", "short"})
    still_open = [one for one in judged if one.judgement == "open"]
    counts = {name: sum(one.comparison.verdict == name for one in judged) for name in _VERDICTS}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    head = f"{len(judged)} tests in {rounds.count} rounds on {gate.runner.name}: {told}"
    if problems:
        summary = f"{head}; {len(problems)} not as the patches promise"
    elif still_open:
        summary = f"{head}; {len(still_open)} left open, which is no pass"
    else:
        summary = head
    return GateResult(
        gate=gate.name,
        verdict="failed" if problems else "not run" if still_open else "passed",
        summary=summary,
        problems=problems,
        evidence={
            "runner": gate.runner.name,
            "model": gate.setup.model.name,
            "head_size": gate.head_size,
            "tests": [one.as_json() for one in judged],
            "samples": rounds.as_json(),
            "conditions": [look.values for look in looks],
            "rounds_taken_from_an_interrupted_run": session.resumed // 3,
        },
        not_run=tuple(f"{one.test.name}: {one.why}" for one in still_open),
        lines=(*_table(judged), *summarise(looks)),
    )


_VERDICTS = ("faster", "same", "slower", "undecided")


def _table(judged: Sequence[Judged]) -> tuple[str, ...]:
    titles = (
        f"{'test':<16}{'baseline':>10}{'candidate':>11}  {'change':>7}  {'99 % interval':<18}{'verdict':<11}"
    )
    return (f"{titles}sees", *(_row(one) for one in judged))


def _row(one: Judged) -> str:
    data = one.as_json()
    low, high = data["interval"] if isinstance(data["interval"], list) else (0.0, 0.0)
    interval = f"{low:+.1%} to {high:+.1%}"
    return (
        f"{one.test.name:<16}{one.baseline:>10.1f}{one.candidate:>11.1f}  {one.change:>+7.1%}  "
        f"{interval:<18}{one.comparison.verdict:<11}-{one.comparison.smallest_loss_seen:.1%}"
        f"{' control' if one.control else ''}"
    )


def _problem(one: Judged, folder: Path) -> PatchkitError:
    kind = BenchSlower if one.judgement == "lost" else BenchGainMissing
    effect = one.as_json()["interval"]
    return kind(
        f"{one.test.name} changes by {one.change:+.1%}: {one.baseline:.1f} to {one.candidate:.1f} tokens/s",
        where=Location(path=str(folder)),
        why=f"{one.why}; 99 % interval {effect}, {one.comparison.rounds} rounds",
        hint="the samples lie in that folder; patchkit verify --gate bench measures again",
    )


PROGRAMS = ("llama-bench",)
# Four layers of the width of a 1B model: attention at depth takes its share, and the file has some 0.2 GB.
_GPU_MODEL = SmallModel(head_size=64, heads=32, kv_heads=8, layers=4)
_CPU_MODEL = SmallModel(head_size=64)
# One thread: ggml's threads wait for each other by spinning, which on a busy machine measures the others.
_CPU_PLAN = BenchPlan(
    prompts=(128,), generated=(16,), depths=(0, 128), batch=128, micro_batch=128, repetitions=7, threads=1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOnDevice:
    """``plan`` None: the usual one of the machine. ``runner`` is where it runs; it is built here."""

    machine: Machine
    runner: Runner
    model: Path | None = None
    plan: BenchPlan | None = None
    rounds: int = ROUNDS

    @classmethod
    def make(cls, setup: DeviceSetup) -> BenchOnDevice:
        """The gate on a device."""
        return cls(machine=setup.machine, runner=setup.runner, model=setup.model)

    @property
    def name(self) -> str:
        """The gate's name on this machine."""
        return self.machine.gate_name("bench")

    def run(self, subject: Subject) -> GateResult:
        """Build, measure, judge; raises what building and :class:`BenchGate` raise, and MODEL_MISSING."""
        if self.model is not None and not self.model.is_file():
            raise UsageError(
                "there is no such model",
                code="MODEL_MISSING",
                where=Location(path=str(self.model)),
                hint="--model names a GGUF",
            )
        try:
            sides = build_sides(subject, self.machine.backend, PROGRAMS)
        except CandidateBuildFailed as error:
            return GateResult(gate=self.name, verdict="failed", summary=error.message, problems=(error,))
        small = _CPU_MODEL if self.machine.is_cpu else _GPU_MODEL
        model = self.model or model_file(small, subject.cache_root, subject.reporter)
        setup = BenchSetup(
            baseline=sides.before.folder,
            candidate=sides.after.folder,
            model=model,
            plan=self._plan(),
            baseline_tree=subject.baseline_tree,
            candidate_tree=subject.candidate_tree,
            check_talk=lambda talk, where: check_device(self.machine, talk, subject.archs, where),
        )
        result = BenchGate(
            setup=setup,
            runner=self.runner,
            head_size=head_size_of(model) if self.model is not None and not self.machine.is_cpu else None,
            rounds=self.rounds,
            name=self.name,
        ).run(subject)
        extra = (self.machine.note,) if self.machine.note else ()
        if self.model is None and not self.machine.is_cpu:
            extra = (*extra, "the gains that patches promise: they are of real models (--model GGUF)")
        return replace(
            result,
            evidence={
                **result.evidence_json,
                "backend": self.machine.backend,
                "sides": sides_evidence(sides),
            },
            not_run=(*result.not_run, *extra),
        )

    def _plan(self) -> BenchPlan:
        if self.plan is not None:
            return self.plan
        return _CPU_PLAN if self.machine.is_cpu else BenchPlan(device=self.machine.device)
