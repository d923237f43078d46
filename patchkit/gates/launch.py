"""Gate ``launch``: which kernels run, before and after, recorded from the real host code without a GPU.

On every GPU of the candidate each attention case and each small model is run on the launch recorder with
both trees, and the launches are held against the rules of :mod:`patchkit.gates.launch_rules`. On every other
GPU the two logs must be identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patchkit.build.compile import CompileFailed
from patchkit.build.compiler import open_compiler
from patchkit.errors import PatchkitError
from patchkit.gates.base import GateResult
from patchkit.gates.launch_cast import Cast, build_sides, code_after, make_cast
from patchkit.gates.launch_compared import check_graphs, check_unguarded
from patchkit.gates.launch_errors import CandidateAborts
from patchkit.gates.launch_geometry import TABLE_PATCH, Guarded
from patchkit.gates.launch_lines import aborting_lines, guarded_lines, other_lines
from patchkit.gates.launch_matrices import about_matrices, check_matrices, matrix_lines, unshown_matrices
from patchkit.gates.launch_report import arch_evidence, build_evidence, guarded_evidence
from patchkit.gates.launch_rules import check_guarded, check_support, upstream_own
from patchkit.gates.launch_runs import Comparison, compare_on
from patchkit.gates.subject import Subject
from patchkit.gates.touched import Pair, compile_touched
from patchkit.occupancy.table import wmma_table
from patchkit.recorder.device import PlayedDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGate:
    """``deep``: models at depths up to 65536 tokens on the GPUs of the candidate, else up to 4096.

    ``others`` names the GPUs outside the guard to look at; None: all.
    """

    deep: bool = True
    others: tuple[str, ...] | None = None
    name: str = "launch"

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
