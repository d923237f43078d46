"""One candidate through the compiler, once: its figures, or its failure, kept by content.

A compiler that reports errors, crashes or does not end is a result like any other: it is written down
and not tried again unless asked. What says nothing about the candidate (no compiler, a full disk,
Ctrl-C) is raised, and nothing is written down.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.build.compile import (
    CompiledKernel,
    CompiledUnit,
    CompileFailed,
    CompilerCrashed,
    Job,
    compile_unit,
    compiler_argv,
)
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.sources import SourceTree
from patchkit.build.store import key_of
from patchkit.build.toolchain import Toolchain
from patchkit.occupancy.waves import HardwareLimits, resident_waves
from patchkit.proc import ToolCrashed, ToolTimeout
from patchkit.report import NullReporter
from patchkit.tune.isa import loop_lines, mix_of
from patchkit.tune.mca import turn_latency
from patchkit.tune.outcome import Failure, Figures, Outcome, outcome_from_json, outcome_to_json
from patchkit.tune.prelude import precompile, with_prelude
from patchkit.vcs.disk import write_whole

_FORMAT = 1  # of a kept outcome; a change makes every old one unknown
_TIMEOUT_S = 300.0  # sixty times what the slowest candidate of build 6900 takes (5 s alone on a core)
_FLAGS = ("-Iggml/src/ggml-cuda",)  # units lie in a folder of their own below it
_FILE = "outcome.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything but the unit: a compiler, the tree with the units, a GPU, and llvm-mca if there is one.

    ``kernel`` is the plain name of the function; a unit may hold others. ``prelude`` is the precompiled
    form of what every unit includes, if there is one; it saves time and changes no figure.
    """

    compiler: Compiler
    tree: SourceTree
    limits: HardwareLimits
    kernel: str
    rocwmma: bool
    mca: Path | None
    again: bool = False
    prelude: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A measurement that can be sent to another process: paths, not open things."""

    toolchain: Toolchain
    cache_root: Path
    tree: Path
    limits: HardwareLimits
    kernel: str
    rocwmma: bool
    mca: Path | None
    again: bool
    prelude: Path | None
    unit: str


def measure_elsewhere(order: Order) -> Outcome:
    """:func:`measure` in a process that shares only the file system."""
    bench = Bench(
        compiler=open_compiler(order.toolchain, order.cache_root, NullReporter()),
        tree=SourceTree(order.tree),
        limits=order.limits,
        kernel=order.kernel,
        rocwmma=order.rocwmma,
        mca=order.mca,
        again=order.again,
        prelude=order.prelude,
    )
    return measure(order.unit, bench)


def prepare(bench: Bench, prelude: str) -> Bench:
    """The bench with the header ``prelude`` of its tree precompiled, where the compiler can do that.

    Raises:
        ToolMissing, ToolStopped, ToolTimeout, CacheError: the compiler did not get that far.
    """
    return replace(bench, prelude=precompile(_job(prelude, bench), bench.compiler))


def is_kept(unit: str, bench: Bench) -> bool:
    """Whether :func:`measure` would compile nothing."""
    return bench.compiler.store.find(_key(_job(unit, bench), bench)) is not None


def measure(unit: str, bench: Bench) -> Outcome:
    """The outcome of one unit; compiled only if it is not kept.

    Raises:
        ToolMissing, ToolStopped, CacheError: nothing was learnt about the unit.
        RESOURCE_REMARK_MALFORMED, ASSEMBLY_MALFORMED, KERNELS_UNMATCHED: the output is not what clang 22
            writes.
    """
    job = _job(unit, bench)
    key = _key(job, bench)
    kept = bench.compiler.store.find(key)
    if kept is not None:
        outcome = outcome_from_json(json.loads((kept / _FILE).read_text("utf-8")))
        if not (bench.again and isinstance(outcome, Failure)):
            return outcome
    try:
        outcome = _look_at(
            compile_unit(with_prelude(job, bench.prelude), bench.compiler, timeout_s=_TIMEOUT_S), bench
        )
    except (CompileFailed, CompilerCrashed, ToolCrashed, ToolTimeout) as error:
        outcome = Failure(code=error.code, message=error.message)
    _keep(key, outcome, kept, bench)
    return outcome


def _job(unit: str, bench: Bench) -> Job:
    return Job(
        tree=bench.tree,
        unit=unit,
        arch=bench.limits.arch,
        which="device",
        rocwmma=bench.rocwmma,
        flags=_FLAGS,
    )


def _key(job: Job, bench: Bench) -> str:
    return key_of(
        {
            "tune": _FORMAT,
            "compiler": bench.compiler.identity,
            "argv": bench.compiler.portable(compiler_argv(bench.compiler.toolchain, job)),
            "sources": job.tree.digest(job.unit),
            "kernel": bench.kernel,
            "mca": bench.mca is not None,
        }
    )


def _keep(key: str, outcome: Outcome, kept: Path | None, bench: Bench) -> None:
    text = json.dumps(outcome_to_json(outcome), indent=1) + "\n"
    if kept is not None:  # tried again: what is there is replaced in one step
        write_whole(kept / _FILE, text, "keeping what a candidate came to")
        return
    with bench.compiler.store.filling(key) as folder:
        (folder / _FILE).write_text(text, "utf-8")


def _look_at(compiled: CompiledUnit, bench: Bench) -> Outcome:
    own = _own(compiled.kernels, bench.kernel)
    if len(own) != 1 or own[0].is_trap:
        what = "can only trap" if own else "was not instantiated"
        return Failure(code="TUNE_NO_KERNEL", message=f"{bench.kernel} {what} in {compiled.unit}")
    kernel = own[0]
    assembly = compiled.output.read_text("utf-8", "replace")
    figures = kernel.figures
    latency = None
    if bench.mca is not None:
        lines = loop_lines(assembly, kernel.name)
        latency = turn_latency(bench.mca, lines, bench.limits.arch, bench.compiler.reporter)
    return Figures(
        vgprs=figures.vgprs,
        spills=figures.vgpr_spills,
        sgpr_spills=figures.sgpr_spills,
        scratch_bytes=figures.scratch_bytes,
        lds_bytes=figures.lds_bytes,
        waves=figures.waves,
        resident=resident_waves(figures.vgprs, figures.lds_bytes, kernel.threads, bench.limits),
        threads=kernel.threads,
        loop=mix_of(assembly, kernel.name),
        latency=latency,
        seconds=compiled.seconds,
    )


def _own(kernels: Sequence[CompiledKernel], name: str) -> list[CompiledKernel]:
    """The kernels of that function: a mangled name has the plain one behind its length."""
    return [kernel for kernel in kernels if f"{len(name)}{name}" in kernel.name]
