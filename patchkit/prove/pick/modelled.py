"""``pick`` without a GPU: correctness on the emulated GPU, times from the timing model.

A model has no noise, so one round is enough, and an effect counts from the smallest requested change on.
Results are labelled as modelled: they show the steps, and where a measurement is worth its time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import UsageError
from patchkit.base.jobs import run_parallel
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulator import emulated_gpu
from patchkit.gpu.gguf import load_gguf_parts
from patchkit.gpu.modelled.network import Batch, operations_of, time_model
from patchkit.gpu.modelled.recording import Recorder, recorder_of
from patchkit.gpu.modelled.shape import ModelShape, shape_of_header
from patchkit.gpu.modelled.timings import Timings
from patchkit.prove.bench.test_list import WantedTest
from patchkit.prove.build import Machine, build_tree
from patchkit.prove.gates.backend_ops import BackendOpsGate
from patchkit.prove.gates.logits import LogitsGate
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.decide import Visit
from patchkit.prove.pick.factorial import Arm
from patchkit.prove.pick.meter import Sampled
from patchkit.prove.pick.source import arm_text, describe_failure
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.parts import GATE_PROGRAMS
from patchkit.toolchain.units import SourceTree

LABEL = "modelled"
_KV = "f16"


@dataclass(slots=True, kw_only=True)
class ModelledSource:
    """``models`` are read only for their shapes; ``arch`` is the GPU that is emulated and modelled."""

    arms: Arms
    arch: str
    timings: Timings
    models: Mapping[str, Path]
    hashes: Mapping[str, str]
    tests: Sequence[WantedTest]
    _shapes: dict[str, ModelShape] = field(default_factory=dict)
    _wrong_gate: str = ""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Do nothing: kernels are compiled when they are launched."""

    def sample(self, visit: Visit) -> Sampled:
        """Model every test of a visit; this takes none of the time for measuring."""
        shape = self._shape(visit.model)
        batches = {test: _batch(test) for test in self.tests}
        cases = list(
            dict.fromkeys(case for batch in batches.values() for case in operations_of(shape, batch, _KV))
        )
        with contextlib.ExitStack() as stack:
            recorder = self._recorder(visit.arm, stack)
            times = run_parallel(
                cases,
                lambda case: self.timings.time(case, recorder, repeated=False),
                reporter=self.timings.workspace.reporter,
                what=f"modelling {arm_text(visit.arm)} with {visit.model}",
                unit="operations",
                stop=self.timings.compiler.stop,
            )
        known = dict(zip(cases, times, strict=True))
        samples: dict[str, tuple[int, ...]] = {}
        for test, batch in batches.items():
            time = time_model(shape, batch, _KV, known.__getitem__)
            samples[test.name] = (max(1, round(1000 * time.us * max(1, test.generated))),)
        return Sampled(samples_ns=samples, seconds=0.0)

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """Run a sample of backend-ops and logits for an arm on the emulated GPU.

        In a search for the faulty patch, only the gate that found the fault runs.
        """
        machine = Machine(backend="hip", emulates=self.arch)
        subject = self.arms.subject(arm)
        for gate in (
            BackendOpsGate(machine=machine, is_sample=True),
            LogitsGate(machine=machine, is_sample=True),
        ):
            if is_search and self._wrong_gate not in ("", gate.name):
                continue
            result = gate.run(subject)
            if result.verdict == "failed":
                self._wrong_gate = gate.name
                return f"{describe_failure(result)} (emulated)"
        return None

    def tree_of(self, arm: Arm) -> str:
        """The hash of an arm's tree."""
        return self.arms.tree_of(arm)

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        return self.hashes[model]

    def _shape(self, model: str) -> ModelShape:
        if model not in self._shapes:
            path = self.models[model]
            self._shapes[model] = shape_of_header(load_gguf_parts(path), path)
        return self._shapes[model]

    def _recorder(self, arm: Arm, stack: contextlib.ExitStack) -> Recorder:
        subject = self.arms.subject(arm)
        root, tree = (
            (subject.candidate, subject.candidate_tree) if arm else (subject.baseline, subject.baseline_tree)
        )
        built = build_tree(subject, root, tree, "cpu", GATE_PROGRAMS, is_timed=False)
        compiler = self.timings.compiler
        gpu = emulated_gpu(device_of(subject.profiles[self.arch], guess_units=True), compiler)
        return stack.enter_context(recorder_of(built, SourceTree(root), gpu, compiler))


def _batch(test: WantedTest) -> Batch:
    """A prompt as one batch; for generated tokens the middle one, as in ``model``."""
    if test.prompt:
        return Batch(tokens=test.prompt, depth=test.depth)
    return Batch(tokens=1, depth=test.depth + test.generated // 2)


def modelled_source(
    arms: Arms, models: Mapping[str, Path], hashes: Mapping[str, str], tests: Sequence[WantedTest]
) -> ModelledSource:
    """The source for the one GPU of the candidate.

    Raises:
        OPTIONS_CONTRADICT: there are several GPUs, or the tools for it are missing.
        TIMING_UNKNOWN: the GPU has no timing file.
    """
    archs = arms.whole.archs
    toolchain = arms.toolchain
    if len(archs) != 1 or toolchain is None or archs[0] not in (subject := arms.subject(())).profiles:
        raise UsageError(
            f"--emulated --modelled is for one GPU, not for {' and '.join(archs)}",
            code="OPTIONS_CONTRADICT",
            hint="name one with --arch",
        )
    workspace = arms.workspace
    compiler = open_compiler(toolchain, workspace.cache_root, workspace.reporter)
    timings = Timings.of(workspace, subject.profiles[archs[0]], compiler)
    return ModelledSource(
        arms=arms, arch=archs[0], timings=timings, models=models, hashes=hashes, tests=tests
    )
