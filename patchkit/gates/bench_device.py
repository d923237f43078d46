"""The gate ``bench`` on a backend: both sides built, a model chosen, then measured.

Without a model of the user's a small one with random weights is measured: enough to see a loss, but the gains
that patches promise were measured with real models, so none is asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.bench.options import BenchPlan
from patchkit.errors import Location, UsageError
from patchkit.gates.base import GateResult
from patchkit.gates.bench import ROUNDS, BenchGate
from patchkit.gates.bench_run import BenchSetup
from patchkit.gates.hardware import CandidateBuildFailed, Machine, build_sides, check_device, sides_evidence
from patchkit.gates.subject import Subject
from patchkit.recorder.model_file import SmallModel, model_file
from patchkit.recorder.model_shape import head_size_of
from patchkit.runner.base import Runner

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
            evidence={**result.evidence, "backend": self.machine.backend, "sides": sides_evidence(sides)},
            not_run=(*result.not_run, *extra),
        )

    def _plan(self) -> BenchPlan:
        if self.plan is not None:
            return self.plan
        return _CPU_PLAN if self.machine.is_cpu else BenchPlan(device=self.machine.device)
