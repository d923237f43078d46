"""Compiles a candidate and reads its figures; results, including failures, are cached by content.

Compiler errors, crashes and timeouts are results, too: they are cached, and retried only on request. Errors
that are not about the candidate (no compiler, a full disk, Ctrl-C) are raised and not cached.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.digests import key_of
from patchkit.base.files import write_whole
from patchkit.base.occupancy import HardwareLimits, resident_waves
from patchkit.base.process import ToolCrashed, ToolFailed, ToolTimeout, run_tool, tool_failure
from patchkit.base.reporter import Reporter
from patchkit.base.upstreams import llama_cpp
from patchkit.toolchain.compile import (
    CompiledKernel,
    CompiledUnit,
    CompileFailed,
    CompilerCrashed,
    Job,
    compile_unit,
    compiler_argv,
)
from patchkit.toolchain.compiler import Compiler, run_clang
from patchkit.toolchain.hip import Toolchain, llvm_tool
from patchkit.toolchain.units import SourceTree
from patchkit.tune.isa import loop_lines, mix_of
from patchkit.tune.outcome import OUTCOME, Failure, Figures, Outcome

_CYCLES = re.compile(rb"^Total Cycles:\s+(\d+)", re.MULTILINE)
_TIMEOUT_S = 60.0  # two hundred times the time for the largest loop (0.3 s)


def find_mca(toolchain: Toolchain, reporter: Reporter) -> Path | None:
    """The llvm-mca of the compiler's LLVM; None if it is missing: estimates then have no latency."""
    return llvm_tool(toolchain, "llvm-mca", reporter)


def turn_latency(mca: Path, lines: list[str], arch: str, reporter: Reporter) -> int | None:
    """Cycles of one wave for one iteration of these lines; None if llvm-mca cannot parse them.

    Raises:
        ToolTimeout, ToolCrashed: llvm-mca timed out or crashed.
    """
    done = run_tool(
        [str(mca), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-iterations=1", "-instruction-info=0"],
        stdin="\n".join([*lines, ""]).encode(),
        timeout_s=_TIMEOUT_S,
        check=False,
        reporter=reporter,
    )
    if done.returncode < 0:
        raise tool_failure(done)
    found = _CYCLES.search(done.stdout)
    return int(found[1]) if done.returncode == 0 and found is not None else None


_FILE = "prelude.pch"
_PRELUDE_TIMEOUT_S = 300.0
# Validate files by content if their mtimes differ, because trees may be exported again.
_BY_CONTENT = ("-Xclang", "-fvalidate-ast-input-files-content")


def precompile(job: Job, compiler: Compiler) -> Path | None:
    """Precompile the header ``job.unit``; None if this compiler cannot do that.

    Raises:
        ToolMissing, ToolStopped, ToolTimeout, CacheError: as for any other run of the compiler.
    """
    making = replace(job, flags=(*job.flags, *_BY_CONTENT, "-Xclang", "-emit-pch"))
    argv = compiler_argv(compiler.toolchain, making)
    key = key_of(
        {
            "compiler": compiler.identity,
            "argv": compiler.portable(argv),
            "sources": job.tree.digest(job.unit),
            "root": str(job.tree.root),  # a precompiled header contains the paths of its sources
        }
    )

    def fill(folder: Path) -> None:
        done = run_clang(
            [*argv, "-o", str(folder / _FILE)], compiler, cwd=job.tree.root, timeout_s=_PRELUDE_TIMEOUT_S
        )
        if done.returncode != 0:
            compiler.store.keep_failure(key, done.stderr)
            raise tool_failure(done)

    try:
        return compiler.store.obtain(key, fill) / _FILE
    except (ToolFailed, ToolCrashed):
        return None


def with_prelude(job: Job, prelude: Path | None) -> Job:
    """The job, reading the precompiled form first."""
    if prelude is None:
        return job
    flags = (*job.flags, *_BY_CONTENT, "-Xclang", "-include-pch", "-Xclang", str(prelude))
    return replace(job, flags=flags)


_FORMAT = 1  # of a kept outcome; a change makes every old one unknown
_MEASURE_TIMEOUT_S = 300.0  # sixty times what the slowest candidate of build 6900 takes (5 s alone on a core)
_FLAGS = (f"-I{llama_cpp().gpu_folder}",)  # units lie in a folder of their own below it
_MEASURE_FILE = "outcome.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is needed to measure a unit: a compiler, the tree with the units, the GPU, and llvm-mca if any.

    ``kernel`` is the unmangled name of the function; a unit may contain others. ``prelude`` is a precompiled
    header with the includes of all units; it saves time and does not change the figures.
    """

    compiler: Compiler
    tree: SourceTree
    limits: HardwareLimits
    kernel: str
    mca: Path | None
    again: bool = False
    prelude: Path | None = None


def prepare(bench: Bench, prelude: str) -> Bench:
    """The bench with the header ``prelude`` of its tree precompiled, if the compiler supports that.

    Raises:
        ToolMissing, ToolStopped, ToolTimeout, CacheError: the compiler did not run to completion.
    """
    return replace(bench, prelude=precompile(_job(prelude, bench), bench.compiler))


def is_kept(unit: str, bench: Bench) -> bool:
    """Whether the outcome of a unit is cached, so that :func:`measure` does not compile."""
    return bench.compiler.store.find(_key(_job(unit, bench), bench)) is not None


def measure(unit: str, bench: Bench) -> Outcome:
    """The outcome of one unit; compiled unless it is cached.

    Raises:
        ToolMissing, ToolStopped, CacheError: the unit could not be measured.
        COMPILER_OUTPUT_UNREADABLE: the output differs from clang 22's.
    """
    job = _job(unit, bench)
    key = _key(job, bench)
    kept = bench.compiler.store.find(key)
    if kept is not None:
        outcome = OUTCOME.validate_json((kept / _MEASURE_FILE).read_bytes())
        if not (bench.again and isinstance(outcome, Failure)):
            return outcome
    try:
        outcome = _outcome_of(
            compile_unit(with_prelude(job, bench.prelude), bench.compiler, timeout_s=_MEASURE_TIMEOUT_S),
            bench,
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
        rocwmma=False,
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
    text = OUTCOME.dump_json(outcome, indent=1)

    def fill(folder: Path) -> None:
        (folder / _MEASURE_FILE).write_bytes(text)

    if kept is not None:  # a retried failure: replace it atomically
        write_whole(kept / _MEASURE_FILE, text, "caching the outcome of a candidate")
    else:
        bench.compiler.store.obtain(key, fill)


def _outcome_of(compiled: CompiledUnit, bench: Bench) -> Outcome:
    own = _own(compiled.kernels, bench.kernel)
    if len(own) != 1 or own[0].is_trap:
        what = "can only trap" if own else "was not instantiated"
        return Failure(code="TUNE_KERNEL_UNTUNABLE", message=f"{bench.kernel} {what} in {compiled.unit}")
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
    """The kernels of a function: a mangled name contains the length of the plain name, followed by it."""
    return [kernel for kernel in kernels if f"{len(name)}{name}" in kernel.name]
