"""Compiles one pass of one unit for one GPU, and keeps what came out by the content it was made from."""

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
from patchkit.toolchain.units import SourceTree, include_folders, kv_definitions

_KERNEL = re.compile(r"^\s*\.amdhsa_kernel (\S+)$", re.MULTILINE)
_END = re.compile(r"^\s*s_endpgm\b", re.MULTILINE)
_BODY_END = re.compile(r"^\s*\.section\s", re.MULTILINE)
_NAME = re.compile(r"^    \.name:\s+(\S+)$", re.MULTILINE)
_THREADS = re.compile(r"^    \.max_flat_workgroup_size:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel: the compiler's figures, most ``threads`` per block, and whether it can only trap."""

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
    """Every kernel of a device pass, in the order of the remarks; ``unit`` and ``arch`` are for messages.

    Raises:
        ASSEMBLY_MALFORMED: a kernel has no body, or no metadata.
        KERNELS_UNMATCHED: the remarks are about other kernels.
    """
    threads = _metadata(assembly)
    names = set(_KERNEL.findall(assembly))
    if lacking := sorted(names - threads.keys()):
        raise _malformed(lacking[0], "its metadata has no .max_flat_workgroup_size")
    # Device functions that are no kernels have remarks too when they are not inlined.
    own = [remark for remark in remarks if remark.name in names]
    if len(own) != len(names):
        raise ToolchainError(
            f"{unit} for {arch}: remarks for {len(own)} kernels, code for {len(names)}",
            code="KERNELS_UNMATCHED",
            where=Location(path=unit),
            hint="patchkit doctor shows the compiler",
        )
    return tuple(
        CompiledKernel(figures=remark, threads=threads[remark.name], is_trap=_is_trap(assembly, remark.name))
        for remark in own
    )


def kernel_code(assembly: str, name: str) -> str:
    """The lines of one kernel, by its mangled name, from its label on.

    Functions that it calls, because the compiler did not inline them, are not among them.

    Raises:
        ASSEMBLY_MALFORMED: there is no such kernel.
    """
    start = assembly.find(f"\n{name}:")
    end = _BODY_END.search(assembly, start + 1)
    if start < 0 or end is None:
        raise _malformed(name, "there is no label of its name, or no section behind it")
    return assembly[start + 1 : end.start()]


def _is_trap(assembly: str, name: str) -> bool:
    """Whether a kernel never ends: what upstream's NO_DEVICE_CODE compiles to."""
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
        f"the assembly of kernel {name} does not read as expected",
        code="ASSEMBLY_MALFORMED",
        why=why,
        hint="patchkit doctor shows the compiler",
    )


_FORMAT = 4  # of an entry; a change makes every old entry unknown
_TIMEOUT_S = 1800.0  # fifty times the slowest unit measured (35 s, fattn-wmma-f16.cu at build 6900)
_SHOWN_ERRORS = 8
_WARNINGS = ("-Wall", "-Wextra")  # compared with the baseline's, which has some

# What ggml/CMakeLists.txt and ggml-hip/CMakeLists.txt of build 6900 define with default options.
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
    """A unit does not compile; ``diagnostics`` are the compiler's errors, ``where`` their places."""

    code = "COMPILE_FAILED"
    diagnostics: tuple[Diagnostic, ...] = ()


class CompilerCrashed(ToolchainError):
    """The compiler reported a bug of its own, or a signal ended it."""

    code = "COMPILER_CRASHED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pass of one unit.

    ``rocwmma``: with GGML_HIP_ROCWMMA_FATTN. ``form``: assembly text, or an object file. ``flags`` come
    last on the command line. ``shares_head``: behind the precompiled header of its head, if it has one. The
    IR then names another source file, so who compares the IR of two sides has both alike.
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
    """The device pass of a unit as all have it who look at kernels, so that each finds it done."""
    return Job(tree=tree, unit=unit, arch=arch, which="device", rocwmma=rocwmma, flags=LINE_TABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledUnit:
    """What a job gave. ``kernels`` is empty for a host pass; ``seconds`` is what it took when compiled."""

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
    """What the store keeps beside the output."""

    argv: tuple[str, ...]
    seconds: float
    kernels: tuple[CompiledKernel, ...]
    diagnostics: tuple[Diagnostic, ...]


_FACTS = TypeAdapter(_Facts)
_FACTS_FILE, _IR_FILE = "facts.json", "unit.bc"
_OF_OUTPUT = frozenset({"-S", "-c", REMARK_FLAG})  # what the front end does not see
_DEVICE = "amdgcn-amd-amdhsa"
LINE_TABLES = ("-gline-tables-only", "-fdebug-compilation-dir=.")
"""For code whose places are to be known: the lines of each instruction. The code is the same without."""


ROCWMMA_DEFINITION = "-DGGML_HIP_ROCWMMA_FATTN"


def hip_definitions(*, rocwmma: bool) -> tuple[str, ...]:
    """The ``-D`` options upstream's CMake gives a HIP unit with default options."""
    names = tuple(f"-D{name}" for name in _DEFINITIONS)
    return (*names, ROCWMMA_DEFINITION) if rocwmma else names


def without_unread(flags: Sequence[str], tree: SourceTree, unit: str) -> tuple[str, ...]:
    """The flags without the definition for rocWMMA where no file of the unit has its name in it.

    Most units read it at no build, and since build 11549 none does: with it and without they are one unit.
    """
    name = ROCWMMA_DEFINITION.removeprefix("-D").encode()
    if ROCWMMA_DEFINITION not in flags or tree.mentions(unit, name):
        return tuple(flags)
    return tuple(flag for flag in flags if flag != ROCWMMA_DEFINITION)


def compiler_argv(toolchain: Toolchain, job: Job) -> list[str]:
    """The command of a job without its output."""
    return [
        str(toolchain.clang),
        *hip_flags(toolchain, job.arch, which=job.which),
        *_WARNINGS,
        *without_unread(hip_definitions(rocwmma=job.rocwmma), job.tree, job.unit),
        *kv_definitions(job.tree.root),
        *(f"-I{folder}" for folder in include_folders(job.tree.root)),
        *([REMARK_FLAG] if job.which == "device" and job.form == "assembly" else []),
        "-S" if job.form == "assembly" else "-c",
        *job.flags,
        job.unit,
    ]


def compile_unit(job: Job, compiler: Compiler, *, timeout_s: float = _TIMEOUT_S) -> CompiledUnit:
    """Compile, or take what the store has for these bytes, flags and this compiler.

    The front end runs when a file that it opens has changed, the code generator when what the front end
    leaves is new (:mod:`patchkit.toolchain.steps`). A device object is assembled from the assembly. Neither
    step takes longer than ``timeout_s``, or it is stopped.

    Raises:
        CompileFailed: the unit has errors; the whole text is kept in the store's ``failed`` folder.
        CompilerCrashed, ToolTimeout, ToolMissing: the compiler did not get that far.
        DRIVER_NOT_UNDERSTOOD: clang does not say how it compiles.
        CacheError: the disk refused.
        RESOURCE_REMARK_MALFORMED, ASSEMBLY_MALFORMED, KERNELS_UNMATCHED: its output is not what clang 22
            writes.
    """
    if job.which == "device" and job.form == "object":
        compiled = compile_unit(replace(job, form="assembly"), compiler, timeout_s=timeout_s)
        return _assembled(job, compiled, compiler, timeout_s)
    work = _Work(job=job, compiler=compiler, timeout_s=timeout_s)
    ir, read, was_read = work.front()
    return work.compiled(read, work.back(ir), was_read=was_read)


def compile_all(
    jobs: Sequence[Job], compiler: Compiler, *, what: str, unit: str = "units"
) -> list[CompiledUnit | CompileFailed]:
    """Compile many, here or by the workers of the compiler's scheduler; one with errors is a result, too.

    Raises as :func:`compile_unit` for all else, and as :func:`patchkit.base.jobs.open_pool`.
    """
    return run_parallel(
        jobs,
        partial(_compiled_or_failed, compiler),
        reporter=compiler.reporter,
        what=what,
        unit=unit,
        stop=compiler.stop,
        scheduler=compiler.scheduler,
    )


def _compiled_or_failed(compiler: Compiler, job: Job) -> CompiledUnit | CompileFailed:
    try:
        return compile_unit(job, compiler)
    except CompileFailed as error:
        return error


# Bytes of IR. A smaller unit takes a second or two as a whole (softmax.cu of build 11549: 170 kB, 0.8 s).
_WORTH_PARTS = 250_000
_OBJECT = re.compile(r"^\s*\.type\s+(\S+),@object", re.MULTILINE)
_CALL = re.compile(r"^\s*s_swappc_b64\b", re.MULTILINE)
_NO_DATA = "__hip_cuid_"  # of every unit; nobody reads or writes it
_CONSTANT = ".rodata"


def unit_key(job: Job, compiler: Compiler, *, timeout_s: float = _TIMEOUT_S) -> str:
    """The key of a unit's assembly, for which only its front end runs. Raises as :func:`compile_unit`."""
    work = _Work(job=replace(job, form="assembly"), compiler=compiler, timeout_s=timeout_s)
    return work.code_key(work.front()[0])


def compile_kernel(
    job: Job, kernel: str, compiler: Compiler, *, timeout_s: float = _TIMEOUT_S
) -> CompiledUnit | None:
    """The code object of one kernel, by its mangled name, without the code of the others in its unit.

    It takes 0.3 to 2 s where the unit takes 4 to 36 (build 11549: mul_mat_q, attention). Both come of one IR,
    and kernels share nothing but functions, which are inlined. So the code is the one that the kernel has in
    its unit, or as good: of 205 kernels of 28 units 203 were the same to the instruction, and two of mmvq.cu
    had a shift and a mask the other way around. Where the very code is to be proven, compile the unit.

    None where the unit is to be compiled whole: it is there already, or small; the toolchain has no ``opt``;
    the unit has no such kernel; the kernel has data that others may change; or it calls a function, of which
    LLVM makes another one where there are fewer callers.

    Raises as :func:`compile_unit`.
    """
    opt = compiler.toolchain.opt
    if opt is None:
        return None
    work = _Work(job=replace(job, form="assembly"), compiler=compiler, timeout_s=timeout_s)
    ir, read, was_read = work.front()
    if ir.stat().st_size < _WORTH_PARTS or compiler.store.find(work.code_key(ir)) is not None:
        return None
    compiled = work.compiled(read, work.alone(ir, kernel, opt), was_read=was_read)
    return _assembled(job, compiled, compiler, timeout_s) if compiled.kernels else None


def _is_alone(assembly: str) -> bool:
    """Whether nothing in it is called, or can be written and so be found by another kernel."""
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


def ir_digest(job: Job, compiler: Compiler, *, timeout_s: float = _TIMEOUT_S) -> str:
    """sha256 of the IR that the front end leaves: units of equal IR have equal code.

    Raises as :func:`compile_unit`.
    """
    ir, _, _ = _Work(job=job, compiler=compiler, timeout_s=timeout_s).front()
    return sha256(ir.read_bytes())


_Made = tuple[str, Path, _Facts, bool]  # the key and the folder of code, what was said, whether it was there


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One job on its way."""

    job: Job
    compiler: Compiler
    timeout_s: float

    @property
    def _argv(self) -> list[str]:
        """The driver's command, without the unit."""
        return compiler_argv(self.compiler.toolchain, self.job)[:-1]

    def front(self) -> tuple[Path, _Facts, bool]:
        """The file of the IR, what the front end said, and whether it was there."""
        job, compiler = self.job, self.compiler
        argv = self._argv
        # A unit has one precompiled header: whoever brings his own gets no other.
        head = None if "-include-pch" in argv else head_of(job.tree, job.unit)
        told: dict[str, object] = {
            "format": _FORMAT,
            "what": "front end",
            "compiler": compiler.identity,
            "argv": compiler.portable(_read_by_front_end(argv)),
        }
        if head is not None and not job.shares_head:
            head = None
            told["head"] = "not shared"

        def make(folder: Path, opened: Path) -> None:
            steps = two_steps(argv, job.unit, self.run)
            facts = None if head is None else self._behind(head, steps, folder / _IR_FILE, opened)
            if facts is None:
                front = steps.front_argv(job.unit, folder / _IR_FILE, opened)
                facts = _facts(self.run(front, "compile"), ())
            _keep(folder, facts)

        folder, was_there = obtain_by_opened(compiler.store, told, job.tree, job.unit, make)
        return folder / _IR_FILE, _kept(folder), was_there

    def _behind(self, head: Head, steps: Steps, output: Path, opened: Path) -> _Facts | None:
        """The IR of a unit behind its head; None where there are errors: the unit itself tells them."""
        job, compiler = self.job, self.compiler

        def parse(path: Path) -> bytes:
            return self.run(steps.head_argv(path), "compile", stdin=head.text).stderr

        key = key_of({"steps": steps.head, "tree": str(job.tree.root), "of": job.tree.digest(head.path)})
        try:
            with heads_of(compiler.cache_root).parsed(key, parse) as (path, said):
                argv = steps.rest_argv(job.unit, path, job.tree.root, output, opened)
                told = self.run(argv, "compile", stdin=head.rest_of(job.unit))
        except CompileFailed:
            return None
        # What was parsed before has the whole path of its file.
        said += told.stderr.replace(os.fsencode(f"{job.tree.root}/"), b"")
        return _facts(replace(told, stderr=said), ())

    @property
    def _steps(self) -> Steps:
        return two_steps(self._argv, self.job.unit, self.run)

    def code_key(self, ir: Path, kernel: str | None = None) -> str:
        """The key of the code of this IR, or of one kernel of it."""
        told = {
            "format": _FORMAT,
            "what": "code",
            "compiler": self.compiler.identity,
            "argv": self.compiler.portable(self._steps.back),
            "ir": sha256(ir.read_bytes()),
        }
        return key_of(told if kernel is None else {**told, "kernel": kernel})

    def compiled(self, read: _Facts, code: _Made, *, was_read: bool) -> CompiledUnit:
        """What the two steps gave."""
        key, folder, made, was_made = code
        return CompiledUnit(
            unit=self.job.unit,
            arch=self.job.arch,
            which=self.job.which,
            key=key,
            output=folder / "output",
            kernels=made.kernels,
            diagnostics=tuple(dict.fromkeys((*read.diagnostics, *made.diagnostics))),
            seconds=round(read.seconds + made.seconds, 3),
            cached=was_read and was_made,
        )

    def back(self, ir: Path) -> _Made:
        """The code of all kernels."""

        def fill(folder: Path) -> None:
            _keep(folder, self._generated(ir, folder / "output"))

        return self._obtained(self.code_key(ir), fill)

    def alone(self, ir: Path, kernel: str, opt: Path) -> _Made:
        """The code of one kernel; what is kept has none where it cannot be had alone."""
        nothing = _Facts(argv=(), seconds=0.0, kernels=(), diagnostics=())

        def fill(folder: Path) -> None:
            part, output = folder / _IR_FILE, folder / "output"
            argv = alone_argv(opt, kernel, ir, part)
            done = run_clang(argv, self.compiler, cwd=folder, timeout_s=self.timeout_s, work="generate")
            facts = nothing
            if done.returncode == 0:
                facts = self._generated(part, output)
                is_it = [each.name for each in facts.kernels] == [kernel]
                if not is_it or not _is_alone(output.read_text("utf-8", "replace")):
                    facts = nothing
            part.unlink(missing_ok=True)
            _keep(folder, facts)

        return self._obtained(self.code_key(ir, kernel), fill)

    def _generated(self, ir: Path, output: Path) -> _Facts:
        told = self.run(self._steps.back_argv(ir, output), "generate")
        kernels: tuple[CompiledKernel, ...] = ()
        if self.job.which == "device":
            assembly = output.read_text("utf-8", "replace")
            remarks = parse_remarks(told.stderr.decode("utf-8", "replace"))
            kernels = parse_kernels(assembly, remarks, unit=self.job.unit, arch=self.job.arch)
        return _facts(told, kernels)

    def _obtained(self, key: str, fill: Callable[[Path], None]) -> _Made:
        store = self.compiler.store
        was_there = store.find(key) is not None
        folder = store.obtain(key, fill, of=self.job.tree.root)
        return key, folder, _kept(folder), was_there

    def run(self, argv: Sequence[str], work: ToolWork = "other", *, stdin: bytes | None = None) -> Completed:
        """Run clang in the tree; raises what :func:`compile_unit` raises."""
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


def _assembled(job: Job, compiled: CompiledUnit, compiler: Compiler, timeout_s: float) -> CompiledUnit:
    """The code object of a unit's assembly: what clang makes of the unit with ``-c``."""
    key = key_of({"format": _FORMAT, "what": "object", "compiler": compiler.identity, "of": compiled.key})
    target = (f"--target={_DEVICE}", f"-mcpu={job.arch}", "-nogpulib", "-x", "assembler")

    def fill(folder: Path) -> None:
        argv = [str(compiler.toolchain.clang), *target, str(compiled.output), "-o", str(folder / "output")]
        _Work(job=job, compiler=compiler, timeout_s=timeout_s).run(argv, "link")

    was_there = compiler.store.find(key) is not None
    output = compiler.store.obtain(key, fill, of=job.tree.root) / "output"
    return replace(compiled, key=key, output=output, cached=compiled.cached and was_there)


def _keep(folder: Path, facts: _Facts) -> None:
    (folder / _FACTS_FILE).write_bytes(_FACTS.dump_json(facts, indent=1))


def _kept(folder: Path) -> _Facts:
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
            hint=f"what it said is in {kept}; SIGKILL and 'out of memory' are a machine that has too little",
        )
    errors = tuple(found for found in parse_diagnostics(stderr) if found.kind == "error")
    if not errors:
        return tool_failure(completed)
    failed = CompileFailed(
        f"{job.unit} does not compile for {job.arch} ({job.which} pass): {errors[0].text}",
        where=[found.where for found in errors[:_SHOWN_ERRORS]],
        why="\n".join(f"{found.where}: {found.text}" for found in errors[:_SHOWN_ERRORS]),
        hint=f"what the compiler said is in {kept}",
    )
    failed.diagnostics = errors
    return failed


def _disk_refused(job: Job, completed: Completed, stderr: str, kept: Path) -> CacheError | None:
    doing = f"compiling {job.unit}"
    # A limit on the size of files ends clang by a signal, of which a wrapper makes a status.
    if completed.returncode in {-signal.SIGXFSZ, 128 + signal.SIGXFSZ}:
        return disk_error(OSError(errno.EFBIG, os.strerror(errno.EFBIG)), kept.parent, doing)
    return disk_error_from_text(stderr, kept.parent, doing)
