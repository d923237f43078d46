"""One row per kernel: the compiler's figures before and after, and what our occupancy model says of them.

Vocabulary: a *variant* is one instance of a kernel template, by its demangled name without parameters;
a *trap* is a variant whose body cannot end (upstream pruned it). Reported waves are the compiler's, per
SIMD; resident waves count whole blocks only (:mod:`patchkit.occupancy.waves`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.build.compile import CompiledKernel, CompiledUnit
from patchkit.build.toolchain import Toolchain, llvm_tool
from patchkit.occupancy.waves import HardwareLimits, reported_waves, resident_waves
from patchkit.proc import run_tool
from patchkit.report import Reporter

RowState = Literal["same", "worse", "better", "mixed", "new", "gone", "pruned", "trap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One side of a row: registers per lane, bytes per block, waves per SIMD, threads per block."""

    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    threads: int
    waves: int
    model_waves: int
    resident_waves: int
    is_trap: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One variant in one unit on one GPU; a side is None where it does not exist."""

    unit: str
    arch: str
    variant: str
    before: Figures | None
    after: Figures | None

    @property
    def more_spills(self) -> int:
        """VGPRs spilled more than before."""
        return self.after.vgpr_spills - self.before.vgpr_spills if self.before and self.after else 0

    @property
    def fewer_waves(self) -> int:
        """Reported waves lost."""
        return self.before.waves - self.after.waves if self.before and self.after else 0

    @property
    def state(self) -> RowState:
        """What happened to the variant; traps are no kernels, so they are compared with nothing."""
        before = self.before if self.before and not self.before.is_trap else None
        after = self.after if self.after and not self.after.is_trap else None
        if before is None:
            return "new" if after is not None else "trap"
        if after is None:
            return "pruned" if self.after is not None else "gone"
        changes = {_sign(self.more_spills), _sign(self.fewer_waves)}
        if changes == {0}:
            return "same"
        if {1, -1} <= changes:
            return "mixed"
        return "worse" if 1 in changes else "better"

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Where the model's waves are not the compiler's."""
        sides = (("baseline", self.before), ("candidate", self.after))
        return tuple(
            f"{self.variant} ({side}): the model says {one.model_waves} waves, the compiler {one.waves}"
            for side, one in sides
            if one is not None and one.waves != one.model_waves
        )


def kernel_rows(
    before: CompiledUnit, after: CompiledUnit, names: Mapping[str, str], limits: HardwareLimits
) -> list[KernelRow]:
    """Every kernel of a unit, those of both sides first, in the compiler's order."""
    old = {kernel.name: _figures(kernel, limits) for kernel in before.kernels}
    new = {kernel.name: _figures(kernel, limits) for kernel in after.kernels}
    return [
        KernelRow(
            unit=after.unit,
            arch=after.arch,
            variant=variant_of(names.get(name, name)),
            before=old.get(name),
            after=new.get(name),
        )
        for name in dict.fromkeys([*old, *new])
    ]


def demangle(names: Iterable[str], toolchain: Toolchain, reporter: Reporter) -> dict[str, str]:
    """Demangled names by mangled ones; as they are when the compiler's LLVM has no demangler."""
    wanted = list(dict.fromkeys(names))
    tool = llvm_tool(toolchain, "llvm-cxxfilt", reporter) if wanted else None
    if tool is None:
        return {name: name for name in wanted}
    out = run_tool([str(tool)], stdin="\n".join([*wanted, ""]).encode(), reporter=reporter).stdout
    return dict(zip(wanted, out.decode("utf-8", "replace").splitlines(), strict=True))


def variant_of(name: str) -> str:
    """``flash_attn_tile<64, 64, 2>`` of ``void flash_attn_tile<64, 64, 2>(char const*, int)``."""
    text = name.removeprefix("void ").removeprefix("(anonymous namespace)::")
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return text[:at]
    return text


def figures_text(figures: Sequence[int]) -> str:
    """``245 -> 187``, or one number when nothing changed."""
    return str(figures[0]) if len(set(figures)) == 1 else " -> ".join(str(value) for value in figures)


def _figures(kernel: CompiledKernel, limits: HardwareLimits) -> Figures:
    seen = kernel.figures
    return Figures(
        vgprs=seen.vgprs,
        sgprs=seen.sgprs,
        vgpr_spills=seen.vgpr_spills,
        sgpr_spills=seen.sgpr_spills,
        scratch_bytes=seen.scratch_bytes,
        lds_bytes=seen.lds_bytes,
        threads=kernel.threads,
        waves=seen.waves,
        model_waves=reported_waves(seen.vgprs, seen.lds_bytes, kernel.threads, limits),
        resident_waves=resident_waves(seen.vgprs, seen.lds_bytes, kernel.threads, limits),
        is_trap=kernel.is_trap,
    )


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
