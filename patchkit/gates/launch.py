"""Gate ``launch``: which kernels run, before and after, recorded from the real host code without a GPU.

On every GPU of the candidate each attention case and each small model is run on the launch recorder with
both trees, and the launches are held against the rules of :mod:`patchkit.gates.launch_rules`. On every other
GPU of the same wave size the two logs must be identical.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.build.compile import CompiledKernel, CompiledUnit, CompileFailed
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.sources import SourceTree
from patchkit.config.facts import FactNotForDecisions
from patchkit.errors import PatchkitError
from patchkit.gates.base import GateResult, Subject
from patchkit.gates.launch_errors import GraphChanged, UnguardedChanged, finding
from patchkit.gates.launch_geometry import Code, Guarded
from patchkit.gates.launch_report import arch_evidence, arch_lines, build_evidence
from patchkit.gates.launch_rules import attention, check_guarded, check_support, upstream_own
from patchkit.gates.launch_runs import Comparison, Sides, compare_on, last_step
from patchkit.gates.touched import Pair, compile_touched
from patchkit.occupancy.table import wmma_table
from patchkit.recorder.backend import build_backend
from patchkit.recorder.device import PlayedDevice, device_of
from patchkit.recorder.kernels import KernelName
from patchkit.recorder.log import Launch
from patchkit.recorder.programs import GPU_FOLDER
from patchkit.recorder.session import Figures

__all__ = ["LaunchGate"]

_SELECTION = "ggml/src/ggml-cuda/fattn.cu"
# Attention and what it launches around itself; their number depends on the kernel.
_AROUND = ("flash_attn",)
_KEPT = 20  # examples of what upstream itself breaks, in the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGate:
    """``deep``: models at depths up to 65536 tokens on the GPUs of the candidate, else up to 4096.

    ``others`` names the GPUs outside the guard to look at; None: all that the same host pass serves.
    """

    deep: bool = True
    others: tuple[str, ...] | None = None
    name: str = "launch"

    def run(self, subject: Subject) -> GateResult:
        """Record both trees and compare. Raises what the compiler, the recorder and the disk raise."""
        if subject.toolchain is None:
            return GateResult(
                gate=self.name, verdict="not run", summary="no compiler", not_run=("all of it: no compiler",)
            )
        compiler = open_compiler(subject.toolchain, subject.cache_root, subject.reporter)
        touched = compile_touched(subject, compiler, ("device",))
        broken = [pair.after for pair in touched if isinstance(pair.after, CompileFailed)]
        if broken:
            return GateResult(
                gate=self.name,
                verdict="failed",
                summary="the candidate does not compile: nothing can be launched",
                problems=tuple(broken),
            )
        sides = _sides(subject, compiler, touched)
        problems: list[PatchkitError] = []
        lines: list[str] = []
        archs: dict[str, object] = {}
        devices, left_out = _devices(subject, self.others)
        not_understood: tuple[str, ...] = ()
        for device in devices:
            subject.reporter.step(f"recording launches as {device.arch}")
            guarded = device.arch in subject.archs
            compared = compare_on(device, sides, compiler, deep=self.deep and guarded)
            not_understood = not_understood or compared.not_understood
            problems += check_support(device.arch, *compared.support)
            pairs = compared.pairs() if guarded else None
            lines += arch_lines(compared, pairs)
            archs[device.arch] = evidence = arch_evidence(compared, pairs)
            if pairs is not None:
                rules = _rules(subject, device, touched)
                problems += check_guarded(pairs, rules)
                problems += _graphs(compared)
                own = upstream_own(pairs, rules)
                evidence["upstream"] = {what: cases[:_KEPT] for what, cases in own.items()}
                lines += [f"  upstream itself, in {len(cases)} cases: {what}" for what, cases in own.items()]
            else:
                problems += _unguarded(compared)
        return GateResult(
            gate=self.name,
            verdict="failed" if problems else "passed",
            summary=_summary(subject, devices, problems),
            problems=tuple(problems),
            evidence={"built": build_evidence(subject, sides), "archs": archs},
            not_run=tuple(_not_run(subject, left_out, not_understood)),
            lines=tuple(lines),
        )


def _sides(subject: Subject, compiler: Compiler, touched: Sequence[Pair]) -> Sides:
    arch = subject.archs[0]
    before = build_backend(SourceTree(subject.baseline), compiler, arch)
    inside = all(path.startswith(f"{GPU_FOLDER}/") for path in subject.changed_files)
    after = build_backend(
        SourceTree(subject.candidate), compiler, arch, programs=before.programs if inside else None
    )
    figures: dict[str, tuple[Mapping[str, Figures], Mapping[str, Figures]]] = {}
    for name in subject.archs:
        mine = [pair for pair in touched if pair.arch == name]
        old = [kernel for pair in mine for kernel in pair.before.kernels]
        new = [kernel for kernels in _code(mine).values() for kernel in kernels.values()]
        figures[name] = _figures(old), _figures(new)
    return Sides(before=before, after=after, figures=figures)


def _figures(kernels: Sequence[CompiledKernel]) -> dict[str, Figures]:
    return {
        kernel.name: Figures(vgprs=kernel.figures.vgprs, lds=kernel.figures.lds_bytes) for kernel in kernels
    }


def _code(touched: Sequence[Pair]) -> Code:
    return {
        pair.unit: {kernel.name: kernel for kernel in pair.after.kernels}
        for pair in touched
        if isinstance(pair.after, CompiledUnit)
    }


def _devices(subject: Subject, others: Sequence[str] | None) -> tuple[list[PlayedDevice], list[str]]:
    """The GPUs of the candidate, then every other that the same host pass serves; and who was left out."""
    devices = [device_of(subject.profiles[name]) for name in subject.archs]
    first = devices[0]
    left_out: list[str] = []
    for name in sorted(set(subject.profiles) - set(subject.archs)):
        if others is not None and name not in others:
            left_out.append(f"launches as {name}: not asked for")
            continue
        try:
            device = device_of(subject.profiles[name])
        except FactNotForDecisions as error:
            left_out.append(f"launches as {name}: {error.message}")
            continue
        if device.wave_size == first.wave_size:
            devices.append(device)
        else:
            left_out.append(f"launches as {name}: its host pass is another one (wave{device.wave_size})")
    return devices, left_out


def _rules(subject: Subject, device: PlayedDevice, touched: Sequence[Pair]) -> Guarded:
    mine = [pair for pair in touched if pair.arch == device.arch]
    return Guarded(
        device=device,
        patches={patch.id for patch in subject.patches if device.arch in patch.archs},
        rows={
            (row.variant.head_size, row.variant.ncols, row.variant.acc): row
            for row in wmma_table(subject.profiles[device.arch])
        },
        code=_code(mine),
        code_before={pair.unit: {kernel.name: kernel for kernel in pair.before.kernels} for pair in mine},
    )


def _graphs(compared: Comparison) -> list[PatchkitError]:
    """A model's graph launches the same kernels as before around attention."""
    changed = []
    for run, before, after in compared.benches:
        old, new = (_without_attention(last_step(side)) for side in (before, after))
        if not old or old != new:
            changed.append(f"{run}: {_first_difference(old, new)}")
    if not changed:
        return []
    message = f"{compared.device.arch}: a model's graph changed outside of attention"
    return [finding(GraphChanged, message, changed, hint="the logs are named in the evidence")]


def _unguarded(compared: Comparison) -> list[PatchkitError]:
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
    return [finding(UnguardedChanged, message, changed, where=_SELECTION, hint=hint)]


def _without_attention(launches: Sequence[Launch]) -> list[tuple[KernelName, tuple[int, int, int]]]:
    return [
        (launch.kernel.name, launch.grid)
        for launch in launches
        if not launch.kernel.name.base.startswith(_AROUND)
    ]


def _first_difference(
    old: Sequence[tuple[KernelName, tuple[int, int, int]]],
    new: Sequence[tuple[KernelName, tuple[int, int, int]]],
) -> str:
    for index, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            return f"launch {index} was {left[0]} {left[1]}, is {right[0]} {right[1]}"
    return f"{len(old)} launches became {len(new)}"


def _names(launches: Sequence[Launch]) -> str:
    return " ".join(f"{launch.kernel.name}{launch.grid}" for launch in launches) or "nothing"


def _summary(subject: Subject, devices: Sequence[PlayedDevice], problems: Sequence[PatchkitError]) -> str:
    others = len(devices) - len(subject.archs)
    if problems:
        return f"{len(problems)} rules broken on {len(devices)} GPUs"
    return (
        f"the rules hold on {' '.join(subject.archs)}; {others} other GPUs launch what the baseline launches"
    )


def _not_run(subject: Subject, left_out: Sequence[str], not_understood: Sequence[str]) -> list[str]:
    found = [*left_out, "numbers: nothing is computed on the recorder"]
    units = "kernels of units that no patch touches: their code is not inspected; registers assumed 256"
    found.append(units)
    if len(left_out) + len(subject.archs) < len(subject.profiles):
        found.append("grids of other GPUs rest on assumed registers (the same on both sides)")
    if not_understood:
        found.append(f"{len(not_understood)} of upstream's cases: unknown variables, as {not_understood[0]}")
    return found
