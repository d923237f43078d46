"""A GPU without a GPU, from Python: open one, run a program on it, read what it did.

::

    from patchkit.gpu.api import open_gpu

    gpu = open_gpu("gfx1151")
    ran = gpu.run(["./saxpy", "1024"])
    print(ran.status, ran.report.instructions)
    for finding in gpu.sanitize(["./saxpy"]).findings:
        print(finding.kind, finding.at.place, finding.title)
    for kernel in gpu.time(["./saxpy"]).kernels:
        print(kernel.head.kernel, kernel.launches, kernel.us)

You can run any program that is linked against the HIP runtime and contains code for the GPU. Host code runs
on the CPU, device code is executed instruction by instruction. Times are modelled, not measured. This package
depends only on :mod:`patchkit.toolchain` and :mod:`patchkit.base`, not on patches.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.arch import ARCHITECTURES, GpuProfile, architecture_of, load_gpu
from patchkit.base.errors import ConfigError, Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import temporary_folder
from patchkit.base.process import run_in_terminal, signal_name
from patchkit.base.reporter import NullReporter, Reporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import default_cache_root
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.device import EmulatedDevice, device_of
from patchkit.gpu.emulated.emulator import (
    EmulatedGpu,
    EmulationOptions,
    EmulationReport,
    build_look,
    emulated_gpu,
    find_disassembler,
    this_level,
)
from patchkit.gpu.emulated.findings import (
    Finding,
    SourceLines,
    distinct,
    load_unreported_findings,
    stopped_lines,
)
from patchkit.gpu.emulated.hazards import CodeLook, look_at_file, look_at_objects
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.report_pipe import merge_reports, report_pipe
from patchkit.gpu.modelled.machine import Machine, Played, load_machine, play, timing_variables
from patchkit.gpu.modelled.operation import TimedKernel, kind_of
from patchkit.gpu.modelled.recording import TraceHead, recording_variables, traces_in
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain

_SIGNALLED = 128  # shell convention: the status of a program ended by a signal is 128 plus the signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is ready to run: its environment ``variables``, and the ``tree`` it was built from."""

    path: str
    variables: Mapping[str, str]
    tree: Path | None = None


Prepares = Callable[[EmulatedGpu, EmulationOptions], AbstractContextManager[Program]]
"""Builds a program for a GPU; what the program needs exists until the context ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedRun:
    """A finished program. ``tree`` is the source tree, if patchkit built the program.

    ``status`` is the exit status as in a shell. ``report`` is None if the program did not use the GPU or left
    no valid report; in the latter case ``broken`` is the error.
    """

    status: int
    gpu: EmulatedGpu
    report: EmulationReport | None
    broken: PatchkitError | None
    tree: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """The distinct findings of the checks. ``cut_short``: some process ended without a report.

    ``code`` has hazards found by static analysis of the kernels that ran.
    """

    ran: EmulatedRun
    findings: Sequence[Finding]
    cut_short: bool
    code: CodeLook


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKernel:
    """All launches of one kernel with the same grid, block and LDS: their number, and total microseconds.

    Their work may differ, as it depends on the arguments: ``longest`` is the slowest of them as modelled.
    """

    json_keys: ClassVar = (
        "kernel=head.kernel grid=head.grid block=head.block lds=head.lds launches us longest"
    )

    head: TraceHead
    launches: int
    us: float
    longest: TimedKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTime:
    """The modelled time of a program's launches, in the order of the first launches.

    Only a sample of each launch's blocks ran, so the program's results, and a ``status`` that depends on
    them, are meaningless. ``cut_short``: a signal ended the program, so launches may be missing.
    """

    json_keys: ClassVar = "arch modelled status cut_short us kernels"

    arch: str
    status: int
    kernels: tuple[ProgramKernel, ...]

    @property
    def us(self) -> float:
        """Microseconds of all launches, one after the other."""
        return sum(kernel.us for kernel in self.kernels)

    @property
    def cut_short(self) -> bool:
        """Whether a signal ended the program, so that launches may be missing."""
        return self.status > _SIGNALLED

    modelled: ClassVar = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU emulated on this machine; :func:`open_gpu` returns one.

    ``profile`` describes the GPU, ``compiler`` builds the emulator, ``profiles`` is the folder of its timing
    file.
    """

    profile: GpuProfile
    compiler: Compiler
    profiles: Path

    @property
    def arch(self) -> str:
        """Its name, such as gfx1151."""
        return self.profile.arch

    @property
    def device(self) -> EmulatedDevice:
        """The device as the HIP runtime reports it."""
        return device_of(self.profile, guess_units=True)

    def build(self) -> EmulatedGpu:
        """Build the emulator. The first time this takes about a minute; later it comes from the cache.

        Raises:
            NOT_BUILT, DISASSEMBLER_MISSING, EMULATOR_CPU_UNKNOWN: as documented.
            CacheError: the cache cannot be written.
        """
        return emulated_gpu(self.device, self.compiler)

    def run(
        self,
        argv: Sequence[str],
        how: EmulationOptions | None = None,
        *,
        prepares: Prepares | None = None,
        quiet: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> EmulatedRun:
        """Run a program to its end.

        Args:
            argv: the program, as a path or a name on PATH, and its arguments.
            how: schedule, checks and limits.
            prepares: builds the program first.
            quiet: send its output to stderr.
            variables: additional environment variables.

        Raises:
            PROGRAM_MISSING, TOOL_NOT_STARTED: the program cannot be run.
            The errors of building it, and of :meth:`build`.
        """
        how = how or EmulationOptions()
        path = argv[0] if prepares is not None else find_program(argv[0])
        gpu = self.build()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("emulate"))
            pipe = stack.enter_context(report_pipe(folder))
            objects = how.objects or stack.enter_context(temporary_folder("objects"))
            how = replace(how, report=pipe.place, objects=objects)
            if prepares is None:
                own = {**gpu.environment(folder, how), **self._timing_variables(folder)}
                ready = Program(path=path, variables=own)
            else:
                ready = stack.enter_context(prepares(gpu, how))
            environment = {**ready.variables, **(variables or {})}
            for name in ("LD_LIBRARY_PATH", "PYTHONPATH"):
                inherited = os.environ.get(name)
                if inherited and name in environment:
                    environment[name] += f":{inherited}"
            ended = run_in_terminal([ready.path, *argv[1:]], env=environment, is_quiet=quiet)
            if ended < 0:
                self.compiler.reporter.warn(f"the program was ended by {signal_name(-ended)}")
            report, broken = None, None
            try:
                report = merge_reports(pipe.reports())
            except PatchkitError as error:
                broken = error
            if report is not None:
                report = self._with_lines(report, SourceLines(objects, ready.tree))
        status = ended if ended >= 0 else _SIGNALLED - ended
        return EmulatedRun(status=status, gpu=gpu, report=report, broken=broken, tree=ready.tree)

    def _timing_variables(self, folder: Path) -> dict[str, str]:
        """What a program needs to model the time of its own launches, as Triton's autotuner does."""
        try:
            machine = load_machine(self.profiles, self.device)
        except ConfigError as error:
            if error.code != "TIMING_UNKNOWN":
                raise
            return {}
        return timing_variables(machine, folder, self.compiler)

    def _with_lines(self, report: EmulationReport, lines: SourceLines) -> EmulationReport:
        """Add the source lines at which a kernel was stopped to the report, and print them."""
        places = stopped_lines(report.stopped, lines)
        if report.stopped is None or not places:
            return report
        places = [f"kernel {read_name(report.stopped.kernel)} was stopped", *places]
        self.compiler.reporter.warn("\n  ".join(places))
        return report.model_copy(update={"fault": "\n".join([report.fault or "", *places])})

    def sanitize(
        self,
        argv: Sequence[str],
        how: EmulationOptions | None = None,
        *,
        prepares: Prepares | None = None,
        quiet: bool = False,
    ) -> Sanitized:
        """Run a program and check its kernels for faults, by default with all usual checks.

        Raises as :meth:`run`.
        """
        how = how or EmulationOptions()
        with temporary_folder("sanitize") as folder:
            how = replace(how, checks=how.checks or usual_checks(), objects=folder)
            ran = self.run(argv, how, prepares=prepares, quiet=quiet)
            notes, processes = load_unreported_findings(folder)
            found = [*(() if ran.report is None else ran.report.findings), *notes]
            findings = distinct(found, SourceLines(folder, ran.tree))
            code = self._code_of(ran, folder)
        cut_short = processes > 0 or ran.broken is not None
        return Sanitized(ran=ran, findings=findings, cut_short=cut_short, code=code)

    def _code_of(self, ran: EmulatedRun, folder: Path) -> CodeLook:
        """Analyse the code of the kernels that ran. Errors become a warning, so that the run still counts."""
        kernels = () if ran.report is None else ran.report.kernels
        names = {kernel.name for kernel in kernels if kernel.launches}
        objects = sorted(path for path in folder.iterdir() if path.suffix != ".findings")
        if not names or not objects:
            return CodeLook()
        try:
            return look_at_objects(
                objects,
                names,
                arch=self.arch,
                program=build_look(self.compiler, this_level()),
                disassembler=ran.gpu.disassembler,
                reporter=self.compiler.reporter,
            )
        except PatchkitError as error:
            self.compiler.reporter.warn(f"the kernels' code was not analysed for hazards: {error.message}")
            return CodeLook()

    def look(self, path: Path) -> CodeLook:
        """Analyse the code in a file for hazards, without running it.

        Raises:
            CODE_UNREADABLE: the file cannot be read, or has no code for AMD GPUs.
            NOT_BUILT, DISASSEMBLER_MISSING, EMULATOR_CPU_UNKNOWN: as documented.
        """
        return look_at_file(
            path,
            arch=self.arch,
            program=build_look(self.compiler, this_level()),
            disassembler=find_disassembler(self.compiler.toolchain),
            reporter=self.compiler.reporter,
        )

    def time(self, argv: Sequence[str], *, quiet: bool = False) -> ProgramTime:
        """The modelled time of each kernel that a program launches; weights and inputs are read from DRAM.

        A sample of each launch's blocks runs and is recorded in a temporary folder, up to some MB per launch.

        Raises:
            TIMING_UNKNOWN: there are no timing data for this GPU.
            NOTHING_LAUNCHED: the program launched no kernel.
            PROGRAM_PROCESSES: several processes used the GPU, so their launches cannot be told apart.
            TRACE_UNREADABLE, NOT_BUILT: the recording cannot be simulated.
            As :meth:`run`.
        """
        machine = load_machine(self.profiles, self.device)
        with temporary_folder("model") as folder:
            ran = self.run(argv, quiet=quiet, variables=recording_variables(folder))
            if ran.report is not None and ran.report.processes > 1:
                raise UsageError(
                    f"{argv[0]} used the GPU in {ran.report.processes} processes",
                    code="PROGRAM_PROCESSES",
                    why="launches are numbered per process, so the recordings of several processes mix",
                    hint=f"run that program directly: patchkit model --arch {self.arch} -- ./program",
                )
            launched = traces_in(folder)
            if not launched:
                raise ToolchainError(
                    f"{argv[0]} launched no kernel, so there is nothing to model",
                    code="NOTHING_LAUNCHED",
                    why=_why_nothing(ran),
                    hint=f"'patchkit emulate --arch {self.arch} -- {argv[0]}' shows what it does",
                )
            kernels = tuple(_timed(machine, launched, self.compiler))
        return ProgramTime(arch=self.arch, status=ran.status, kernels=kernels)


def _why_nothing(ran: EmulatedRun) -> str:
    """The most likely reason why a program launched nothing."""
    refused = () if ran.report is None else ran.report.refused
    if refused:
        return f"its launches were rejected: {'; '.join(map(str, refused))}"
    return f"it exited with status {ran.status}, or contains no code for this GPU"


def _timed(
    machine: Machine, launched: Sequence[tuple[TraceHead, Path]], compiler: Compiler
) -> Iterator[ProgramKernel]:
    """Simulate identical launches once, and group launches by kernel and launch size."""
    played = play(machine, [Played(trace=trace, cold=1.0) for _, trace in launched], compiler)
    by_head: dict[TraceHead, list[TimedKernel]] = {}
    for (head, _), time in zip(launched, played, strict=True):
        timed = TimedKernel(played=time, kind=kind_of(head.kernel), launch_us=machine.launch_us)
        by_head.setdefault(head, []).append(timed)
    for head, times in by_head.items():
        yield ProgramKernel(
            head=head,
            launches=len(times),
            us=sum(time.us for time in times),
            longest=max(times, key=lambda time: time.us),
        )


def open_gpu(
    arch: str,
    *,
    profiles: Path | None = None,
    cache_root: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    reporter: Reporter | None = None,
) -> Gpu:
    """Open a GPU by name.

    Args:
        arch: a GPU with a profile, of an emulated architecture.
        profiles: the folder of profiles, patchkit's own by default.
        cache_root: the cache folder, the user's by default.
        environ: environment in which a compiler is searched.
        reporter: receives progress.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC, ARCH_NOT_EMULATED: the GPU is unknown or cannot be emulated.
        ToolchainMissing: no compiler was found; 'patchkit sdk install' installs one.
    """
    profiles = profiles or find_series_dir(None).profiles
    cache_root, reporter = cache_root or default_cache_root(environ), reporter or NullReporter()
    profile = emulated_profile(profiles, arch)
    compiler = open_compiler(find_toolchain(cache_root, environ, reporter), cache_root, reporter)
    return Gpu(profile=profile, compiler=compiler, profiles=profiles)


def emulated_profile(profiles: Path, arch: str) -> GpuProfile:
    """The profile of a GPU that can be emulated. Raises ARCH_NOT_EMULATED, and errors of reading profiles."""
    profile = load_gpu(profiles, arch)
    if not architecture_of(arch).is_emulated:
        emulated = ", ".join(each.title for each in ARCHITECTURES if each.is_emulated)
        raise UsageError(
            f"{arch} is not emulated",
            code="ARCH_NOT_EMULATED",
            why=f"the emulator supports {emulated}",
        )
    return profile


def find_program(program: str) -> str:
    """The path of a program that the user named. Raises PROGRAM_MISSING."""
    found = shutil.which(program)
    if found is None:
        exists = Path(program).exists()
        raise UsageError(
            f"'{program}' cannot be executed" if exists else f"program '{program}' not found",
            code="PROGRAM_MISSING",
            where=Location(path=program),
            why="it is not executable, or not on PATH (write ./NAME for a local file)" if exists else None,
            hint="give its path after --, for example: -- ./program arguments",
        )
    return found
