"""Gate ``launch``: the kernels that run before and after, recorded from the real host code without a GPU.

For every GPU of the candidate, each attention case and each small model runs on the launch recorder with both
trees, and the launches are checked by the rules of :mod:`patchkit.prove.gates.launch.rules`. For every other
GPU the two logs must be identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.base.errors import PatchkitError
from patchkit.base.text import counted
from patchkit.carry.placing.wmma import wmma_table
from patchkit.gpu.emulated.device import EmulatedDevice
from patchkit.gpu.emulated.runtime import RecordedBackend, build_backend
from patchkit.prove.build import CandidateBuildFailed, build_sides
from patchkit.prove.gates.base import GateResult, RunSetup
from patchkit.prove.gates.launch.evidence import Built, BuiltSide, GpuRecord, LaunchEvidence
from patchkit.prove.gates.launch.geometry import Code, Guarded
from patchkit.prove.gates.launch.launch_text import (
    aborting_lines,
    guarded_evidence,
    guarded_lines,
    other_evidence,
    other_lines,
)
from patchkit.prove.gates.launch.recorded_gpus import choose_gpus
from patchkit.prove.gates.launch.rules import (
    about_matrices,
    check_graphs,
    check_guarded,
    check_matrices,
    check_support,
    check_unguarded,
    unshown_matrices,
    upstream_own,
)
from patchkit.prove.gates.launch.runs import (
    CandidateAborts,
    CasePair,
    Comparison,
    GpuRuns,
    RecordedSides,
    compare_all,
)
from patchkit.prove.gates.touched import CompiledPair, compile_touched
from patchkit.prove.subject import Subject
from patchkit.toolchain.compile import CompiledUnit, CompileFailed
from patchkit.toolchain.compiler import open_compiler

_NOT_PROVEN = (
    "numeric results: the recorder computes nothing",
    "kernels of units that no patch touches: their code is not inspected; assumed to use 256 registers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGate:
    """``deep``: models at depths up to 65536 tokens on the GPUs of the candidate, else up to 4096.

    ``others`` names the GPUs outside of the guard to check; None: all.
    """

    deep: bool = True
    others: tuple[str, ...] | None = None
    name: str = "launch"

    @classmethod
    def make(cls, _: RunSetup) -> LaunchGate:
        """The gate of a run."""
        return cls()

    def run(self, subject: Subject) -> GateResult:
        """Record both trees and compare. Raises the errors of the compiler, the recorder and the disk."""
        if not subject.changed_files:
            return GateResult(
                gate=self.name,
                verdict="passed",
                summary="the candidate equals upstream's tree, so no launch can change; nothing was recorded",
            )
        if subject.toolchain is None:
            return GateResult.without_compiler(self.name)
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        touched = compile_touched(subject, compiler, ("device",))
        broken = [pair.after for pair in touched if isinstance(pair.after, CompileFailed)]
        if broken:
            return self._not_built(broken)
        arch = subject.archs[0]
        try:
            programs = build_sides(subject, "cpu", is_timed=False)
        except CandidateBuildFailed as error:
            return self._not_built([error])
        before = build_backend(subject.trees[0], compiler, arch, programs.before)
        try:
            after = build_backend(subject.trees[1], compiler, arch, programs.after)
        except CompileFailed as error:
            return self._not_built([error])
        code = {arch: _code(touched, arch) for arch in subject.archs}
        sides = RecordedSides(before=before, after=after, code=code)
        gpus = choose_gpus(subject, self.others)
        problems: list[PatchkitError] = []
        guarded_rows: list[str] = []
        archs: dict[str, GpuRecord] = {}
        every: list[Comparison] = []
        unshown: list[str] = []
        family: list[str] = []
        wanted = [self._runs(device, subject) for device in gpus.devices]
        subject.reporter.step(f"recording launches as {' '.join(one.device.arch for one in wanted)}")
        for compared in compare_all(wanted, sides, compiler):
            if isinstance(compared, CandidateAborts):
                problems.append(compared)
                continue
            device = compared.device
            is_mine = device.arch in subject.archs
            is_live = any(device.arch in patch.archs for patch in subject.patches)
            every.append(compared)
            problems += check_support(device.arch, *compared.support)
            if not (is_mine or is_live):
                problems += check_unguarded(compared)
                archs[device.arch] = other_evidence(compared)
                continue
            # Only its family is guarded: no unit was compiled for this GPU, so the code of kernels is
            # unknown.
            guarded = _guarded(subject, device, *sides.code.get(device.arch, ({}, {})))
            pairs = compared.pairs()
            problems += _broken_rules(compared, pairs, guarded)
            if not is_mine:
                family.append(device.arch)
                archs[device.arch] = other_evidence(compared)
                continue
            own = upstream_own(pairs, guarded)
            guarded_rows += guarded_lines(compared, pairs, own)
            unshown += unshown_matrices(compared, guarded.about_matrices)
            archs[device.arch] = guarded_evidence(compared, pairs, own)
        others = [compared for compared in every if compared.device.arch not in subject.archs]
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=_summary(subject, len(gpus.devices), family, problems),
            problems=tuple(problems),
            evidence=LaunchEvidence(built=_built(subject, sides), archs=archs),
            not_run=(*gpus.remarks, *unshown, *_NOT_PROVEN, *_not_understood(every), *aborting_lines(every)),
            lines=(*guarded_rows, *other_lines(others)),
        )

    def _runs(self, device: EmulatedDevice, subject: Subject) -> GpuRuns:
        is_mine = device.arch in subject.archs
        matrices = is_mine or bool(about_matrices(subject.patches))
        return GpuRuns(device=device, deep=self.deep and is_mine, matrices=matrices)

    def _not_built(self, errors: Sequence[PatchkitError]) -> GateResult:
        return GateResult(
            gate=self.name,
            verdict="failed",
            summary="the candidate does not compile, so no launch can be recorded",
            problems=tuple(errors),
        )


def _broken_rules(compared: Comparison, pairs: Sequence[CasePair], guarded: Guarded) -> list[PatchkitError]:
    """The rules broken on a GPU that patches are active on."""
    may_change = bool(guarded.about_matrices)
    return [
        *check_guarded(pairs, guarded),
        *check_graphs(compared, matrices_may_change=may_change, leaving=guarded.leaving, own=guarded.own),
        *check_matrices(compared, guarded),
    ]


def _code(touched: Sequence[CompiledPair], arch: str) -> tuple[Code, Code]:
    """The kernels of the touched units for one GPU, before and after, by unit and mangled name."""
    mine = [pair for pair in touched if pair.arch == arch]
    after = [pair.after for pair in mine if isinstance(pair.after, CompiledUnit)]
    before, now = (
        {unit.unit: {kernel.name: kernel for kernel in unit.kernels} for unit in side}
        for side in ([pair.before for pair in mine], after)
    )
    return before, now


def _guarded(subject: Subject, device: EmulatedDevice, before: Code, after: Code) -> Guarded:
    live = [patch for patch in subject.patches if device.arch in patch.archs]
    # Not every GPU has a table, and it is only needed for a patch that follows it.
    follows = any("wmma" in patch.patch.launches.tables for patch in live)
    table = wmma_table(subject.profiles[device.arch]) if follows else ()
    return Guarded(
        device=device,
        code=after,
        code_before=before,
        rows={(row.variant.head_size, row.variant.ncols, row.variant.acc): row for row in table},
        moves=tuple(move for patch in live for move in patch.patch.moves),
        promises=tuple(promise for patch in live for promise in patch.patch.launches.cases),
        about_matrices=about_matrices(live),
        leaving=tuple(
            name for patch in live for name in (*patch.patch.launches.to_host, *patch.patch.launches.replaces)
        ),
        own=tuple(name for patch in live for name in patch.patch.launches.own),
    )


def _built(subject: Subject, sides: RecordedSides) -> Built:
    toolchain = subject.toolchain
    rocwmma = toolchain.rocwmma if toolchain is not None else None
    return Built(
        baseline=_built_side(sides.before),
        candidate=_built_side(sides.after),
        definitions="upstream's defaults with GGML_HIP_ROCWMMA_FATTN and GGML_BACKEND_DL",
        clang=toolchain.clang_version if toolchain is not None else None,
        hip_headers=toolchain.hip_version if toolchain is not None else None,
        rocwmma=f"{rocwmma.kind} {rocwmma.version}" if rocwmma is not None else "stand-in",
        figures={
            arch: dict(zip(("before", "after"), map(len, sides.kernels(arch)), strict=True))
            for arch in subject.archs
        },
    )


def _built_side(backend: RecordedBackend) -> BuiltSide:
    return BuiltSide(
        programs="upstream's CMake, GGML_BACKEND_DL, CPU only",
        programs_key=backend.programs.identity,
        host_library=f"host pass of {backend.library.units} units, -O0, with {backend.arch} as the target",
        host_library_key=backend.library.key,
        device_code="none: kernels are registered by name, with the unit they come from",
    )


def _summary(subject: Subject, played: int, family: Sequence[str], problems: Sequence[PatchkitError]) -> str:
    if problems:
        return f"{counted(len(problems), 'rule')} broken on {played} GPUs"
    others = played - len(subject.archs) - len(family)
    let_in = f", and on {' '.join(family)} of the same family without checking their code" if family else ""
    return (
        f"the rules hold on {' '.join(subject.archs)}{let_in}; "
        f"{others} other GPUs launch the same as the baseline"
    )


def _not_understood(every: Sequence[Comparison]) -> list[str]:
    unknown = next((compared.not_understood for compared in every if compared.not_understood), ())
    return (
        [f"{len(unknown)} of upstream's cases: unknown variables, for example {unknown[0]}"]
        if unknown
        else []
    )
