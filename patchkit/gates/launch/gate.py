"""Gate ``launch``: which kernels run, before and after, recorded from the real host code without a GPU.

On every GPU of the candidate each attention case and each small model is run on the launch recorder with
both trees, and the launches are held against the rules of :mod:`patchkit.gates.launch.rules`. On every other
GPU the two logs must be identical.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.errors import PatchkitError
from patchkit.build.compile import CompiledKernel, CompiledUnit, CompileFailed
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.units import SourceTree
from patchkit.candidate.subject import Subject
from patchkit.gates.base import GateResult, RunSetup
from patchkit.gates.launch.errors import CandidateAborts, GraphChanged, UnguardedChanged, finding
from patchkit.gates.launch.geometry import TABLE_PATCH, Code, Guarded
from patchkit.gates.launch.rules import (
    Broken,
    CasePair,
    attention,
    check_guarded,
    check_support,
    upstream_own,
)
from patchkit.gates.launch.runs import (
    Comparison,
    Sides,
    aborting_lines,
    about_matrices,
    check_matrices,
    compare_on,
    guarded_lines,
    is_matrix,
    last_step,
    matrix_lines,
    other_lines,
    samples,
    transitions,
    unshown_matrices,
)
from patchkit.gates.touched import Pair, compile_touched
from patchkit.gpu.backend import build_backend
from patchkit.gpu.device import PlayedDevice, device_of
from patchkit.gpu.log import Launch
from patchkit.gpu.programs import GPU_FOLDER
from patchkit.gpu.runtime import SELECTION_UNIT
from patchkit.gpu.session import CaseRecord, Figures
from patchkit.kernels.wmma import wmma_table
from patchkit.series.facts import FactNotForDecisions
from patchkit.series.profile import ArchProfile

# hip/amd_detail/amd_hip_runtime.h (HIP 6.4) makes the second into the first: the only line in which the host
# pass of a unit of build 6900 differs between the two wave sizes (clang -E of all 103 units). Members of that
# name are the device properties, asked at run time.
_WAVE_SIZE = re.compile(rb"(?<![.\w])(?<!->)(warpSize|__AMDGCN_WAVEFRONT_SIZE(__)?)\b")
_SOURCES = frozenset({".cu", ".cuh", ".h"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """``devices``: the GPUs of the candidate first. ``remarks`` say what is not proven, and of whom."""

    devices: tuple[PlayedDevice, ...]
    remarks: tuple[str, ...]


def make_cast(subject: Subject, others: Sequence[str] | None) -> Cast:
    """The GPUs of the candidate, then every other that has a profile; ``others`` limits those by name.

    One host library plays all of them, as in a binary for all of them: host code asks at run time which
    GPU it has. The HIP headers do compile the wave size into host code; where a tree's GPU sources name
    that constant, GPUs of another wave size are left out.
    """
    mine = [device_of(subject.profiles[name]) for name in subject.archs]
    outside = sorted(set(subject.profiles) - set(subject.archs))
    skipped = [name for name in outside if others is not None and name not in others]
    remarks = [f"launches as {' '.join(skipped)}: not asked for"] if skipped else []
    use = _use_of_wave_size(subject.baseline) or _use_of_wave_size(subject.candidate)
    devices: list[PlayedDevice] = []
    elsewhere: list[str] = []
    for profile in (subject.profiles[name] for name in outside if name not in skipped):
        device, remark = _other(profile)
        if use is not None and device.wave_size != mine[0].wave_size:
            elsewhere.append(profile.arch)
        else:
            devices.append(device)
            remarks += remark
    if elsewhere:
        told = f"host code is compiled for waves of {mine[0].wave_size} lanes, and {use} depends on it"
        remarks.append(f"launches as {' '.join(elsewhere)}: {told}")
    if devices:
        remarks.append("grids of other GPUs: their kernels are assumed to use all registers, on both sides")
    return Cast(devices=(*mine, *devices), remarks=tuple(remarks))


def _use_of_wave_size(root: Path) -> str | None:
    """The first place in a tree's GPU sources that names the headers' constant (file:line), or None."""
    sources = (path for path in (root / GPU_FOLDER).rglob("*") if path.suffix in _SOURCES)
    for path in sorted(sources):
        found = _WAVE_SIZE.search(data := path.read_bytes())
        if found is not None:
            line = data.count(b"\n", 0, found.start()) + 1
            return f"{path.relative_to(root).as_posix()}:{line}"
    return None


def _other(profile: ArchProfile) -> tuple[PlayedDevice, list[str]]:
    """A GPU where only sameness is asked for; a guessed number of compute units is on both sides the same."""
    try:
        return device_of(profile), []
    except FactNotForDecisions:
        device = device_of(profile, guess_units=True)
    units = profile.facts.by_name["compute_units"].value
    return device, [
        f"grids of {profile.arch}: played with {units} compute units, which its profile only guesses"
    ]


def build_sides(subject: Subject, compiler: Compiler, touched: Sequence[Pair]) -> Sides | CompileFailed:
    """Both host libraries; what clang said when the candidate's does not compile.

    Raises:
        CompileFailed: the baseline does not compile.
        ToolchainError, CacheError: as :func:`patchkit.gpu.backend.build_backend`.
    """
    arch = subject.archs[0]
    before = build_backend(SourceTree(subject.baseline), compiler, arch)
    inside = all(path.startswith(f"{GPU_FOLDER}/") for path in subject.changed_files)
    try:
        after = build_backend(
            SourceTree(subject.candidate), compiler, arch, programs=before.programs if inside else None
        )
    except CompileFailed as error:
        return error
    figures: dict[str, tuple[Mapping[str, Figures], Mapping[str, Figures]]] = {}
    for name in subject.archs:
        mine = [pair for pair in touched if pair.arch == name]
        old = [kernel for pair in mine for kernel in pair.before.kernels]
        new = [kernel for kernels in code_after(mine).values() for kernel in kernels.values()]
        figures[name] = _figures(old), _figures(new)
    return Sides(before=before, after=after, figures=figures)


def code_after(touched: Sequence[Pair]) -> Code:
    """The candidate's code, by unit and mangled name."""
    return {
        pair.unit: {kernel.name: kernel for kernel in pair.after.kernels}
        for pair in touched
        if isinstance(pair.after, CompiledUnit)
    }


def _figures(kernels: Sequence[CompiledKernel]) -> dict[str, Figures]:
    return {
        kernel.name: Figures(vgprs=kernel.figures.vgprs, lds=kernel.figures.lds_bytes) for kernel in kernels
    }


# A kernel by name, with blocks per grid, threads per block and dynamic LDS in bytes.
_Shape = tuple[str, tuple[int, int, int], tuple[int, int, int], int]

# Attention and what it launches around itself; their number depends on the kernel.
_AROUND = ("flash_attn",)


def check_graphs(compared: Comparison, *, matrices_may_change: bool) -> list[PatchkitError]:
    """A model's graph launches the same besides attention, and besides matrices if these may change."""
    changed = []
    for run, before, after in compared.benches:
        old, new = (_others(last_step(side), matrices_may_change) for side in (before, after))
        if not old or old != new:
            changed.append(f"{run}: {_first_difference(old, new)}")
    if not changed:
        return []
    message = f"{compared.device.arch}: a model's graph changed outside of attention"
    return [finding(GraphChanged, message, changed, hint="the logs are named in the evidence")]


def check_unguarded(compared: Comparison) -> list[PatchkitError]:
    """Equal logs need no reading; where they differ, say which case and how."""
    arch = compared.device.arch
    changed = []
    if not compared.cases_identical:
        changed += [
            f"{pair.case}: {_names(attention(pair.before))} -> {_names(attention(pair.after))}"
            for pair in compared.pairs()
            if pair.before.section.steps != pair.after.section.steps
            or pair.before.is_supported != pair.after.is_supported
        ]
    changed += [str(run) for run, before, after in compared.benches if before.digest != after.digest]
    if not changed:
        return []
    message = f"{arch}: no patch is for this GPU, and it launches something else than before"
    hint = "the patch's guard lets it in: patchkit show PATCH"
    return [finding(UnguardedChanged, message, changed, where=SELECTION_UNIT, hint=hint)]


def _others(launches: Sequence[Launch], matrices_may_change: bool) -> list[_Shape]:  # noqa: FBT001
    return [
        (str(launch.kernel.name), launch.grid, launch.block, launch.lds)
        for launch in launches
        if not launch.kernel.name.base.startswith(_AROUND) and not (matrices_may_change and is_matrix(launch))
    ]


def _first_difference(old: Sequence[_Shape], new: Sequence[_Shape]) -> str:
    for index, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            return f"launch {index} was {_shape(left)}, is {_shape(right)}"
    return f"{len(old)} launches became {len(new)}"


def _shape(launch: _Shape) -> str:
    name, grid, block, lds = launch
    return f"{name} {grid} of {block} with {lds} bytes"


def _names(launches: Sequence[Launch]) -> str:
    return " ".join(f"{launch.kernel.name}{launch.grid}" for launch in launches) or "nothing"


_KEPT = 20  # examples of what upstream itself breaks


def build_evidence(subject: Subject, sides: Sides) -> dict[str, object]:
    """What was built, how, and with what."""
    toolchain = subject.toolchain
    rocwmma = toolchain.rocwmma if toolchain is not None else None
    return {
        "baseline": sides.before.as_json(),
        "candidate": sides.after.as_json(),
        "traced_unit": SELECTION_UNIT,
        "definitions": "upstream's defaults with GGML_HIP_ROCWMMA_FATTN and GGML_BACKEND_DL",
        "clang": toolchain.clang_version if toolchain is not None else None,
        "hip_headers": toolchain.hip_version if toolchain is not None else None,
        "rocwmma": f"{rocwmma.kind} {rocwmma.version}" if rocwmma is not None else "stand-in",
        "figures": {
            arch: {"before": len(before), "after": len(after)}
            for arch, (before, after) in sides.figures.items()
        },
    }


def arch_evidence(compared: Comparison) -> dict[str, object]:
    """One GPU: what was recorded, and where the logs are."""
    return {
        "supported": [sum(row.is_supported for row in rows) for rows in compared.support],
        "operations": len(compared.support[0]),
        "cases": len(compared.asked),
        "cases_identical": compared.cases_identical,
        "logs": [str(run.log) for run in compared.cases],
        "benches": [
            {
                "run": str(run),
                "identical": before.digest == after.digest,
                "logs": [str(before.log), str(after.log)],
            }
            for run, before, after in compared.benches
        ],
    }


def guarded_evidence(
    compared: Comparison, pairs: Sequence[CasePair], own: Sequence[Broken]
) -> dict[str, object]:
    """A GPU that a patch is for, besides: which kernels before and after, with names and geometry in full."""
    examples: dict[str, list[str]] = {}
    for broken in own:
        examples.setdefault(broken.message, []).append(str(broken))
    return {
        "transitions": [
            {"phase": phase, "before": before, "after": after, "cases": count}
            for (phase, before, after), count in sorted(transitions(pairs).items())
        ],
        "kernels": {
            "before": _kernels([pair.before for pair in pairs]),
            "after": _kernels([pair.after for pair in pairs]),
        },
        "samples": [
            {
                "case": str(pair.case),
                "before": [launch.as_json() for launch in attention(pair.before)],
                "after": [launch.as_json() for launch in attention(pair.after)],
            }
            for pair in samples(pairs)
        ],
        "models": [
            {
                "run": str(run),
                "before": [launch.as_json() for launch in last_step(before)],
                "after": [launch.as_json() for launch in last_step(after)],
            }
            for run, before, after in compared.benches
        ],
        "upstream": {
            message: {"cases": len(each), "first": each[:_KEPT]} for message, each in examples.items()
        },
    }


def _kernels(records: Sequence[CaseRecord]) -> dict[str, int]:
    counted = Counter(str(launch.kernel.name) for record in records for launch in attention(record))
    return dict(sorted(counted.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGate:
    """``deep``: models at depths up to 65536 tokens on the GPUs of the candidate, else up to 4096.

    ``others`` names the GPUs outside the guard to look at; None: all.
    """

    deep: bool = True
    others: tuple[str, ...] | None = None
    name: str = "launch"

    @classmethod
    def make(cls, _: RunSetup) -> LaunchGate:
        """The gate of a run."""
        return cls()

    def run(self, subject: Subject) -> GateResult:
        """Record both trees and compare. Raises what the compiler, the recorder and the disk raise."""
        if not subject.changed_files:
            return GateResult(
                gate=self.name,
                verdict="passed",
                summary="the candidate is upstream's tree: no patch changes a launch, nothing was recorded",
            )
        if subject.toolchain is None:
            return GateResult(
                gate=self.name, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",)
            )
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        touched = compile_touched(subject, compiler, ("device",))
        broken = [pair.after for pair in touched if isinstance(pair.after, CompileFailed)]
        if broken:
            return self._not_built(broken)
        sides = build_sides(subject, compiler, touched)
        if isinstance(sides, CompileFailed):
            return self._not_built([sides])
        cast = make_cast(subject, self.others)
        found = _Found()
        for device in cast.devices:
            subject.reporter.step(f"recording launches as {device.arch}")
            guarded = _rules(subject, device, touched) if device.arch in subject.archs else None
            deep = self.deep and guarded is not None
            matrices = guarded is not None or bool(about_matrices(subject.patches))
            try:
                compared = compare_on(device, sides, compiler, deep=deep, matrices=matrices)
            except CandidateAborts as error:
                found.problems.append(error)
            else:
                found.add(compared, guarded)
        return GateResult(
            gate=self.name,
            verdict="failed" if found.problems else "passed",
            summary=_summary(subject, cast.devices, found.problems),
            problems=tuple(found.problems),
            evidence={"built": build_evidence(subject, sides), "archs": found.evidence},
            not_run=found.not_proven(cast),
            lines=(*found.lines, *other_lines(found.others)),
        )

    def _not_built(self, errors: Sequence[CompileFailed]) -> GateResult:
        return GateResult(
            gate=self.name,
            verdict="failed",
            summary="the candidate does not compile: nothing can be launched",
            problems=tuple(errors),
        )


@dataclass(slots=True, kw_only=True)
class _Found:
    """What the GPUs gave so far."""

    problems: list[PatchkitError] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    evidence: dict[str, object] = field(default_factory=dict)
    others: list[Comparison] = field(default_factory=list)
    not_understood: tuple[str, ...] = ()
    every: list[Comparison] = field(default_factory=list)
    unshown: list[str] = field(default_factory=list)

    def not_proven(self, cast: Cast) -> tuple[str, ...]:
        """What was left out or assumed, of every GPU."""
        left_out = aborting_lines(self.every)
        return (*cast.remarks, *self.unshown, *_not_run(self.not_understood), *left_out)

    def add(self, compared: Comparison, guarded: Guarded | None) -> None:
        """One GPU; ``guarded`` are the rules when a patch is for it."""
        arch = compared.device.arch
        self.not_understood = self.not_understood or compared.not_understood
        self.every.append(compared)
        self.problems += check_support(arch, *compared.support)
        evidence = arch_evidence(compared)
        if guarded is None:
            self.problems += check_unguarded(compared)
            self.others.append(compared)
        else:
            pairs = compared.pairs()
            own = upstream_own(pairs, guarded)
            self.problems += check_guarded(pairs, guarded)
            self.problems += check_graphs(compared, matrices_may_change=bool(guarded.about_matrices))
            self.problems += check_matrices(compared, guarded)
            self.lines += [*guarded_lines(compared, pairs, own), *(f"  {x}" for x in matrix_lines(compared))]
            self.unshown += unshown_matrices(compared, guarded.about_matrices)
            evidence |= guarded_evidence(compared, pairs, own)
        self.evidence[arch] = evidence


def _rules(subject: Subject, device: PlayedDevice, touched: Sequence[Pair]) -> Guarded:
    mine = [pair for pair in touched if pair.arch == device.arch]
    live = [patch for patch in subject.patches if device.arch in patch.archs]
    names = {patch.id for patch in live}
    # Not every GPU has a table, and without the patch nothing reads it.
    table = wmma_table(subject.profiles[device.arch]) if TABLE_PATCH in names else ()
    return Guarded(
        device=device,
        patches=names,
        rows={(row.variant.head_size, row.variant.ncols, row.variant.acc): row for row in table},
        moves=tuple(move for patch in live for move in patch.moves),
        about_matrices=about_matrices(live),
        code=code_after(mine),
        code_before={pair.unit: {kernel.name: kernel for kernel in pair.before.kernels} for pair in mine},
    )


def _summary(subject: Subject, devices: Sequence[PlayedDevice], problems: Sequence[PatchkitError]) -> str:
    others = len(devices) - len(subject.archs)
    if problems:
        return f"{len(problems)} rule{'s'[: len(problems) != 1]} broken on {len(devices)} GPUs"
    return (
        f"the rules hold on {' '.join(subject.archs)}; {others} other GPUs launch what the baseline launches"
    )


def _not_run(not_understood: Sequence[str]) -> list[str]:
    found = [
        "numbers: nothing is computed on the recorder",
        "kernels of units that no patch touches: their code is not inspected; registers assumed 256",
    ]
    if not_understood:
        found.append(f"{len(not_understood)} of upstream's cases: unknown variables, as {not_understood[0]}")
    return found
