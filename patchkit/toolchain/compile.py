"""Compiles one pass of a translation unit for one GPU, with a content-addressed cache of the results."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from patchkit.base.digests import key_of, sha256
from patchkit.base.errors import CacheError, Location, ToolchainError
from patchkit.base.files import disk_error, disk_error_from_text
from patchkit.base.jobs import run_parallel
from patchkit.base.process import Completed, tool_failure
from patchkit.base.reporter import Work as ToolWork
from patchkit.toolchain.compiler import Compiler, run_clang
from patchkit.toolchain.heads import Head, head_of, heads_of
from patchkit.toolchain.hip import Toolchain, hip_flags
from patchkit.toolchain.opened import obtain_by_opened
from patchkit.toolchain.remarks import (
    REMARK_FLAG,
    Diagnostic,
    ResourceRemark,
    parse_diagnostics,
    parse_remarks,
)
from patchkit.toolchain.steps import GENERATING_WORDS, Steps, alone_argv, two_steps, without_words
from patchkit.toolchain.units import SourceTree, include_folders, tree_definitions

_KERNEL = re.compile(r"^\s*\.amdhsa_kernel (\S+)$", re.MULTILINE)
_END = re.compile(r"^\s*s_endpgm\b", re.MULTILINE)
_BODY_END = re.compile(r"^\s*\.section\s", re.MULTILINE)
_NAME = re.compile(r"^    \.name:\s+(\S+)$", re.MULTILINE)
_THREADS = re.compile(r"^    \.max_flat_workgroup_size:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel: its resource usage, maximum ``threads`` per block, and whether it can only trap."""

    figures: ResourceRemark
    threads: int
    is_trap: bool

    @property
    def name(self) -> str:
        """The mangled name."""
        return self.figures.name


def parse_kernels(
    assembly: str, remarks: Iterable[ResourceRemark], *, unit: str, arch: str
) -> tuple[CompiledKernel, ...]:
    """All kernels of a device pass, in the order of the remarks; ``unit`` and ``arch`` are for messages.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: a kernel has no body or no metadata.
        COMPILER_OUTPUT_UNREADABLE: the remarks do not match the kernels in the assembly.
    """
    threads = _metadata(assembly)
    names = set(_KERNEL.findall(assembly))
    if lacking := sorted(names - threads.keys()):
        raise _malformed(lacking[0], "its metadata has no .max_flat_workgroup_size")
    # Device functions that were not inlined have remarks, too.
    own = [remark for remark in remarks if remark.name in names]
    if len(own) != len(names):
        raise ToolchainError(
            f"{unit} for {arch}: resource remarks for {len(own)} kernels, but code for {len(names)}",
            code="COMPILER_OUTPUT_UNREADABLE",
            where=Location(path=unit),
            hint="check the compiler version with: patchkit doctor",
        )
    return tuple(
        CompiledKernel(figures=remark, threads=threads[remark.name], is_trap=_is_trap(assembly, remark.name))
        for remark in own
    )


def kernel_code(assembly: str, name: str) -> str:
    """The assembly of one kernel, by its mangled name, starting at its label.

    Functions that it calls because they were not inlined are not included.

    Raises:
        COMPILER_OUTPUT_UNREADABLE: the kernel was not found.
    """
    start = assembly.find(f"\n{name}:")
    end = _BODY_END.search(assembly, start + 1)
    if start < 0 or end is None:
        raise _malformed(name, "its label, or the section after it, is missing")
    return assembly[start + 1 : end.start()]


def _is_trap(assembly: str, name: str) -> bool:
    """Whether a kernel has no s_endpgm, as upstream's NO_DEVICE_CODE compiles to."""
    return _END.search(kernel_code(assembly, name)) is None


def _metadata(assembly: str) -> dict[str, int]:
    start = assembly.find("\namdhsa.kernels:")
    if start < 0:
        return {}
    threads: dict[str, int] = {}
    for entry in assembly[start:].split("\n  - ")[1:]:
        text = "    " + entry
        name, size = _NAME.search(text), _THREADS.search(text)
        if name is not None and size is not None:
            threads[name[1]] = int(size[1])
    return threads


def _malformed(name: str, why: str) -> ToolchainError:
    return ToolchainError(
        f"cannot parse the assembly of kernel {name}",
        code="COMPILER_OUTPUT_UNREADABLE",
        why=why,
        hint="check the compiler version with: patchkit doctor",
    )


_FORMAT = 4  # of cache entries; a new number invalidates all older ones
_TIMEOUT_S = 1800.0  # fifty times the slowest unit measured (35 s, fattn-wmma-f16.cu at build 6900)
_SHOWN_ERRORS = 8
_WARNINGS = ("-Wall", "-Wextra")  # warnings are compared with those of the baseline

# Defined by ggml/CMakeLists.txt and ggml-hip/CMakeLists.txt of build 6900 with default options.
_DEFINITIONS = (
    "GGML_USE_HIP",
    "GGML_HIP_NO_VMM",
    "GGML_BACKEND_BUILD",
    "GGML_BACKEND_SHARED",
    "GGML_SHARED",
    "GGML_SCHED_MAX_COPIES=4",
    "_GNU_SOURCE",
    "_XOPEN_SOURCE=600",
    "NDEBUG",
)


class CompileFailed(ToolchainError):
    """A unit does not compile; ``diagnostics`` are the compiler's errors, ``where`` their locations."""

    code = "COMPILE_FAILED"
    diagnostics: tuple[Diagnostic, ...] = ()


class CompilerCrashed(ToolchainError):
    """The compiler reported an internal error, or a signal ended it."""

    code = "COMPILER_CRASHED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pass of one unit.

    ``rocwmma``: define GGML_HIP_ROCWMMA_FATTN. ``form``: assembly text or an object file. ``flags`` are
    appended to the command line. ``shares_head``: compile with a precompiled header of the unit's first
    include (:mod:`patchkit.toolchain.heads`), if it has one. The IR then names another source file, so jobs
    whose IR is compared must have the same value.
    """

    tree: SourceTree
    unit: str
    arch: str
    which: Literal["host", "device"]
    rocwmma: bool = True
    form: Literal["assembly", "object"] = "assembly"
    flags: tuple[str, ...] = ()
    shares_head: bool = True


def device_job(tree: SourceTree, unit: str, arch: str, *, rocwmma: bool) -> Job:
    """The device pass of a unit with the flags that all analyses of kernels use, so that they share it."""
    return Job(tree=tree, unit=unit, arch=arch, which="device", rocwmma=rocwmma, flags=LINE_TABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledUnit:
    """The result of a job. ``kernels`` is empty for a host pass; ``seconds`` is the original compile time."""

    unit: str
    arch: str
    which: Literal["host", "device"]
    key: str
    output: Path
    kernels: tuple[CompiledKernel, ...]
    diagnostics: tuple[Diagnostic, ...]
    seconds: float
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the cache keeps in addition to the output."""

    argv: tuple[str, ...]
    seconds: float
    kernels: tuple[CompiledKernel, ...]
    diagnostics: tuple[Diagnostic, ...]


_FACTS = TypeAdapter(_Facts)
_FACTS_FILE, _IR_FILE = "facts.json", "unit.bc"
_OF_OUTPUT = frozenset({"-S", "-c", REMARK_FLAG})  # options that do not affect the front end
_DEVICE = "amdgcn-amd-amdhsa"
LINE_TABLES = ("-gline-tables-only", "-fdebug-compilation-dir=.")
"""Options for the source line of each instruction; they do not change the code."""


ROCWMMA_DEFINITION = "-DGGML_HIP_ROCWMMA_FATTN"


def hip_definitions(*, rocwmma: bool) -> tuple[str, ...]:
    """The ``-D`` options that upstream's CMake passes to HIP units with default options."""
    names = tuple(f"-D{name}" for name in _DEFINITIONS)
    return (*names, ROCWMMA_DEFINITION) if rocwmma else names


def without_unread(flags: Sequence[str], tree: SourceTree, unit: str) -> tuple[str, ...]:
    """The flags without GGML_HIP_ROCWMMA_FATTN if no file of the unit mentions it.

    Then the unit is the same with and without it. Most units never mention it, and since build 11549 none
    does.
    """
    name = ROCWMMA_DEFINITION.removeprefix("-D").encode()
    if ROCWMMA_DEFINITION not in flags or tree.mentions(unit, name):
        return tuple(flags)
    return tuple(flag for flag in flags if flag != ROCWMMA_DEFINITION)


def compiler_argv(toolchain: Toolchain, job: Job) -> list[str]:
    """The compiler command of a job, without the output."""
    return [
        str(toolchain.clang),
        *hip_flags(toolchain, job.arch, which=job.which),
        *_WARNINGS,
        *without_unread(hip_definitions(rocwmma=job.rocwmma), job.tree, job.unit),
        *tree_definitions(job.tree.root),
        *(f"-I{folder}" for folder in include_folders(job.tree.root)),
        *([REMARK_FLAG] if job.which == "device" and job.form == "assembly" else []),
        "-S" if job.form == "assembly" else "-c",
        *job.flags,
        job.unit,
    ]


def compile_unit(job: Job, compiler: Compiler, *, timeout_s: float = _TIMEOUT_S) -> CompiledUnit:
    """Compile a unit, or reuse the cached result for the same sources, flags and compiler.

    The front end runs if a file that it opens has changed, the code generator if the IR of the front end
    is new (:mod:`patchkit.toolchain.steps`). A device object is assembled from the assembly. ``timeout_s``
    is the limit for each step.

    Raises:
        CompileFailed: the unit has errors; the full output is kept in the store's ``failed`` folder.
        CompilerCrashed, ToolTimeout, ToolMissing: the compiler crashed, took too long or is missing.
        COMPILER_OUTPUT_UNREADABLE: the output of ``clang -###`` is not as expected.
        CacheError: a disk operation failed.
        COMPILER_OUTPUT_UNREADABLE: the output differs from clang 22's.
    """
    if job.which == "device" and job.form == "object":
        compiled = compile_unit(replace(job, form="assembly"), compiler, timeout_s=timeout_s)
        return _assemble(job, compiled, compiler, timeout_s)
    work = _Work(job=job, compiler=compiler, timeout_s=timeout_s)
    ir, read, was_read = work.front()
    return work.compiled(read, work.back(ir), was_read=was_read)


def compile_all(
    jobs: Sequence[Job], compiler: Compiler, *, what: str, unit: str = "units"
) -> list[CompiledUnit | CompileFailed]:
    """Compile many units; CompileFailed counts as a result.

    Raises the other errors of :func:`compile_unit`.
    """
    return run_parallel(
        jobs,
        partial(_compiled_or_failed, compiler),
        reporter=compiler.reporter,
        what=what,
        unit=unit,
        stop=compiler.stop,
    )


def _compiled_or_failed(compiler: Compiler, job: Job) -> CompiledUnit | CompileFailed:
    try:
        return compile_unit(job, compiler)
    except CompileFailed as error:
        return error


# Bytes of IR. Smaller units take a second or two to compile completely (softmax.cu of build 11549: 170 kB,
# 0.8 s), so single kernels are not worth extracting.
_WORTH_PARTS = 250_000
_OBJECT = re.compile(r"^\s*\.type\s+(\S+),@object", re.MULTILINE)
_CALL = re.compile(r"^\s*s_swappc_b64\b", re.MULTILINE)
_NO_DATA = "__hip_cuid_"  # a symbol in every unit that nothing reads or writes
_CONSTANT = ".rodata"


def unit_key(job: Job, compiler: Compiler) -> str:
    """The cache key of a unit's assembly; runs only the front end. Raises as :func:`compile_unit`."""
    work = _Work(job=replace(job, form="assembly"), compiler=compiler)
    return work.code_key(work.front()[0])


def compile_kernel(job: Job, kernel: str, compiler: Compiler) -> CompiledUnit | None:
    """Compile a single kernel of a unit, by its mangled name, to a code object.

    This takes 0.3 to 2 s, where the whole unit takes 4 to 36 s (build 11549: mul_mat_q, attention). Both are
    generated from the same IR, and kernels share only functions, which are inlined. So the code is that of
    the whole unit or equivalent: of 205 kernels of 28 units, 203 were identical to the instruction, and two
    of mmvq.cu had a shift and a mask in the opposite order. To prove the exact code, compile the whole unit.

    Returns None if the whole unit should be compiled instead: it is cached already or small; the toolchain
    has no ``opt``; the unit has no such kernel; the kernel uses data that others may change; or it calls a
    function, for which LLVM generates other code if there are fewer callers.

    Raises as :func:`compile_unit`.
    """
    opt = compiler.toolchain.opt
    if opt is None:
        return None
    work = _Work(job=replace(job, form="assembly"), compiler=compiler)
    ir, read, was_read = work.front()
    if ir.stat().st_size < _WORTH_PARTS or compiler.store.find(work.code_key(ir)) is not None:
        return None
    compiled = work.compiled(read, work.single_kernel(ir, kernel, opt), was_read=was_read)
    return _assemble(job, compiled, compiler) if compiled.kernels else None


def _is_self_contained(assembly: str) -> bool:
    """Whether the code has no calls, and no writable data that other kernels could share."""
    if _CALL.search(assembly):
        return False
    for name in _OBJECT.findall(assembly):
        if name.startswith(_NO_DATA):
            continue
        place = assembly.find(f"\n{name}:")
        section = assembly.rfind("\t.section\t", 0, max(place, 0))
        if not assembly.startswith(_CONSTANT, section + len("\t.section\t")) or section < 0:
            return False
    return True


def ir_digest(job: Job, compiler: Compiler) -> str:
    """sha256 of the IR that the front end writes: units with equal IR have equal code.

    Raises as :func:`compile_unit`.
    """
    ir, _, _ = _Work(job=job, compiler=compiler).front()
    return sha256(ir.read_bytes())


_CachedCode = tuple[str, Path, _Facts, bool]  # key and folder of the entry, its facts, whether it was cached


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The steps of compiling one job."""

    job: Job
    compiler: Compiler
    timeout_s: float = _TIMEOUT_S

    @property
    def _argv(self) -> list[str]:
        """The command for clang's driver, without the unit."""
        return compiler_argv(self.compiler.toolchain, self.job)[:-1]

    def front(self) -> tuple[Path, _Facts, bool]:
        """Run the front end: the IR file, the facts, and whether the entry was cached."""
        job, compiler = self.job, self.compiler
        argv = self._argv
        # Clang takes only one precompiled header, so a job with its own does not get another.
        head = None if "-include-pch" in argv else head_of(job.tree, job.unit)
        inputs: dict[str, object] = {
            "format": _FORMAT,
            "what": "front end",
            "compiler": compiler.identity,
            "argv": compiler.portable(_read_by_front_end(argv)),
        }
        if head is not None and not job.shares_head:
            head = None
            inputs["head"] = "not shared"

        def make(folder: Path, opened: Path) -> None:
            steps = two_steps(argv, job.unit, self.run)
            facts = None if head is None else self._front_with_head(head, steps, folder / _IR_FILE, opened)
            if facts is None:
                front = steps.front_argv(job.unit, folder / _IR_FILE, opened)
                facts = _facts(self.run(front, "compile"), ())
            _save_facts(folder, facts)

        folder, was_cached = obtain_by_opened(compiler.store, inputs, job.tree, job.unit, make)
        return folder / _IR_FILE, _load_facts(folder), was_cached

    def _front_with_head(self, head: Head, steps: Steps, output: Path, opened: Path) -> _Facts | None:
        """Run the front end with a precompiled head; None on errors, which compiling the unit will report."""
        job, compiler = self.job, self.compiler

        def parse(path: Path) -> bytes:
            return self.run(steps.head_argv(path), "compile", stdin=head.text).stderr

        key = key_of({"steps": steps.head, "tree": str(job.tree.root), "of": job.tree.digest(head.path)})
        try:
            with heads_of(compiler.cache_root).parsed(key, parse) as (path, stderr):
                argv = steps.rest_argv(job.unit, path, job.tree.root, output, opened)
                completed = self.run(argv, "compile", stdin=head.rest_of(job.unit))
        except CompileFailed:
            return None
        # Messages about the precompiled header have absolute paths.
        stderr += completed.stderr.replace(os.fsencode(f"{job.tree.root}/"), b"")
        return _facts(replace(completed, stderr=stderr), ())

    @property
    def _steps(self) -> Steps:
        return two_steps(self._argv, self.job.unit, self.run)

    def code_key(self, ir: Path, kernel: str | None = None) -> str:
        """The cache key of the code generated from this IR, or of one kernel's code."""
        inputs = {
            "format": _FORMAT,
            "what": "code",
            "compiler": self.compiler.identity,
            "argv": self.compiler.portable(self._steps.back),
            "ir": sha256(ir.read_bytes()),
        }
        return key_of(inputs if kernel is None else {**inputs, "kernel": kernel})

    def compiled(self, read: _Facts, code: _CachedCode, *, was_read: bool) -> CompiledUnit:
        """Combine the results of both steps."""
        key, folder, generated, was_generated = code
        return CompiledUnit(
            unit=self.job.unit,
            arch=self.job.arch,
            which=self.job.which,
            key=key,
            output=folder / "output",
            kernels=generated.kernels,
            diagnostics=tuple(dict.fromkeys((*read.diagnostics, *generated.diagnostics))),
            seconds=round(read.seconds + generated.seconds, 3),
            cached=was_read and was_generated,
        )

    def back(self, ir: Path) -> _CachedCode:
        """Generate the code of all kernels."""

        def fill(folder: Path) -> None:
            _save_facts(folder, self._generate(ir, folder / "output"))

        return self._obtain(self.code_key(ir), fill)

    def single_kernel(self, ir: Path, kernel: str, opt: Path) -> _CachedCode:
        """Generate the code of one kernel; the entry has no kernels if that is not possible."""
        nothing = _Facts(argv=(), seconds=0.0, kernels=(), diagnostics=())

        def fill(folder: Path) -> None:
            part, output = folder / _IR_FILE, folder / "output"
            argv = alone_argv(opt, kernel, ir, part)
            done = run_clang(argv, self.compiler, cwd=folder, timeout_s=self.timeout_s, work="generate")
            facts = nothing
            if done.returncode == 0:
                facts = self._generate(part, output)
                is_it = [each.name for each in facts.kernels] == [kernel]
                if not is_it or not _is_self_contained(output.read_text("utf-8", "replace")):
                    facts = nothing
            part.unlink(missing_ok=True)
            _save_facts(folder, facts)

        return self._obtain(self.code_key(ir, kernel), fill)

    def _generate(self, ir: Path, output: Path) -> _Facts:
        completed = self.run(self._steps.back_argv(ir, output), "generate")
        kernels: tuple[CompiledKernel, ...] = ()
        if self.job.which == "device":
            assembly = output.read_text("utf-8", "replace")
            remarks = parse_remarks(completed.stderr.decode("utf-8", "replace"))
            kernels = parse_kernels(assembly, remarks, unit=self.job.unit, arch=self.job.arch)
        return _facts(completed, kernels)

    def _obtain(self, key: str, fill: Callable[[Path], None]) -> _CachedCode:
        store = self.compiler.store
        was_cached = store.find(key) is not None
        folder = store.obtain(key, fill)
        return key, folder, _load_facts(folder), was_cached

    def run(self, argv: Sequence[str], work: ToolWork = "other", *, stdin: bytes | None = None) -> Completed:
        """Run clang in the tree; raises as :func:`compile_unit`."""
        job, compiler = self.job, self.compiler
        completed = run_clang(
            argv, compiler, cwd=job.tree.root, timeout_s=self.timeout_s, work=work, stdin=stdin
        )
        if completed.returncode != 0:
            key = key_of({"argv": list(argv), "sources": job.tree.digest(job.unit)})
            raise _failure(job, completed, compiler.store.keep_failure(key, completed.stderr))
        return completed


def _read_by_front_end(argv: Sequence[str]) -> list[str]:
    return [word for word in without_words(argv, GENERATING_WORDS) if word not in _OF_OUTPUT]


def _assemble(
    job: Job, compiled: CompiledUnit, compiler: Compiler, timeout_s: float = _TIMEOUT_S
) -> CompiledUnit:
    """Assemble a unit's assembly to the code object that ``clang -c`` would give."""
    key = key_of({"format": _FORMAT, "what": "object", "compiler": compiler.identity, "of": compiled.key})
    target = (f"--target={_DEVICE}", f"-mcpu={job.arch}", "-nogpulib", "-x", "assembler")

    def fill(folder: Path) -> None:
        argv = [str(compiler.toolchain.clang), *target, str(compiled.output), "-o", str(folder / "output")]
        _Work(job=job, compiler=compiler, timeout_s=timeout_s).run(argv, "link")

    was_cached = compiler.store.find(key) is not None
    output = compiler.store.obtain(key, fill) / "output"
    return replace(compiled, key=key, output=output, cached=compiled.cached and was_cached)


def _save_facts(folder: Path, facts: _Facts) -> None:
    (folder / _FACTS_FILE).write_bytes(_FACTS.dump_json(facts, indent=1))


def _load_facts(folder: Path) -> _Facts:
    return _FACTS.validate_json((folder / _FACTS_FILE).read_bytes())


def _facts(completed: Completed, kernels: tuple[CompiledKernel, ...]) -> _Facts:
    return _Facts(
        argv=completed.argv,
        seconds=round(completed.seconds, 3),
        kernels=kernels,
        diagnostics=parse_diagnostics(completed.stderr.decode("utf-8", "replace")),
    )


def _failure(job: Job, completed: Completed, kept: Path) -> Exception:
    stderr = completed.stderr.decode("utf-8", "replace")
    refused = _disk_refused(job, completed, stderr, kept)
    if refused is not None:
        return refused
    if completed.returncode < 0 or "PLEASE submit a bug report" in stderr:
        ended = tool_failure(completed).message if completed.returncode < 0 else "clang crashed"
        return CompilerCrashed(
            f"{ended} on {job.unit} ({job.which} pass, {job.arch})",
            where=Location(path=job.unit),
            why="\n".join(stderr.splitlines()[:_SHOWN_ERRORS]) or "it wrote nothing to stderr",
            hint=f"see the compiler's output in {kept}; SIGKILL or 'out of memory' means too little memory",
        )
    errors = tuple(found for found in parse_diagnostics(stderr) if found.kind == "error")
    if not errors:
        return tool_failure(completed)
    failed = CompileFailed(
        f"{job.unit} does not compile for {job.arch} ({job.which} pass): {errors[0].text}",
        where=[found.where for found in errors[:_SHOWN_ERRORS]],
        why="\n".join(f"{found.where}: {found.text}" for found in errors[:_SHOWN_ERRORS]),
        hint=f"see the compiler's output in {kept}",
    )
    failed.diagnostics = errors
    return failed


def _disk_refused(job: Job, completed: Completed, stderr: str, kept: Path) -> CacheError | None:
    doing = f"compiling {job.unit}"
    # The file size limit kills clang with a signal, which a wrapper script turns into a status.
    if completed.returncode in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}:
        return disk_error(OSError(errno.EFBIG, os.strerror(errno.EFBIG)), kept.parent, doing)
    return disk_error_from_text(stderr, kept.parent, doing)
