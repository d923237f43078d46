"""Compile both sides of a proposal: host code once, device code for each GPU; the kernels that changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchkit.carry.series.profile import ArchProfile
from patchkit.gpu.emulated.runtime import host_job
from patchkit.prove.gates.resources import KernelRow
from patchkit.prove.trying import compare_kernels, differing_units
from patchkit.toolchain.compile import CompileFailed, compile_all
from patchkit.toolchain.compiler import Compiler
from patchkit.toolchain.units import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """``rows`` are the kernels whose code changed; ``skipped`` of the differing files were not compiled."""

    rows: tuple[KernelRow, ...]
    units: int
    skipped: int


def compile_both(
    trees: tuple[SourceTree, SourceTree],
    profiles: Mapping[str, ArchProfile],
    compiler: Compiler,
    *,
    likely: bool,
) -> Compiled:
    """Compile the source files that differ, for the GPUs of ``profiles``.

    Raises CompileFailed, ToolchainError and CacheError.
    """
    archs = tuple(profiles)
    units, named = differing_units(*trees)
    wanted = named if likely and named else units
    jobs = [host_job(trees[1], unit, archs[0], compiler, rocwmma=False) for unit in wanted]
    for result in compile_all(jobs, compiler, what="compiling host code", unit="files"):
        if isinstance(result, CompileFailed):
            raise result
    rows, _ = compare_kernels(wanted, trees, archs, profiles, compiler)
    return Compiled(rows=tuple(rows), units=len(wanted), skipped=len(units) - len(wanted))
