"""A GPU without a GPU, from Python: open one, run a program on it, read what it did.

::

    from patchkit.gpu.api import open_gpu

    gpu = open_gpu("gfx1151")
    ran = gpu.run(["./saxpy", "1024"])
    print(ran.status, ran.report.instructions)
    for finding in gpu.sanitize(["./saxpy"]).findings:
        print(finding.kind, finding.at.place, finding.title)
    for kernel in gpu.time(["./saxpy"]).kernels:
        print(kernel.head.kernel, kernel.launches, kernel.time.us)

A program is any that is linked against the HIP runtime and has code for the GPU. It runs on the CPU, and what
the GPU would do is executed instruction by instruction; times are modelled, never measured. Nothing here
knows of patches: with :mod:`patchkit.toolchain` and :mod:`patchkit.base` this package stands alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from patchkit.base.arch import GpuProfile, load_gpu
from patchkit.base.errors import Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import temporary_folder
from patchkit.base.process import signal_name
from patchkit.base.reporter import NullReporter, Reporter
from patchkit.base.series_folder import find_series_dir
from patchkit.base.workspace import default_cache_root
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulator import (
    EmulatedGpu,
    EmulationOptions,
    EmulationReport,
    emulated_gpu,
)
from patchkit.gpu.emulated.findings import Finding, SourceLines, distinct, left_behind
from patchkit.gpu.emulated.report_pipe import report_pipe, together
from patchkit.gpu.modelled.machine import Machine, Played, load_machine, play
from patchkit.gpu.modelled.operation import TimedKernel, kind_of
from patchkit.gpu.modelled.recording import TraceHead, recording_variables, traces_in
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import find_toolchain

_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal
_PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that is ready to run: the ``variables`` it needs, and the ``tree`` that it was built of."""

    path: str
    variables: Mapping[str, str]
    tree: Path | None = None


Prepares = Callable[[EmulatedGpu, EmulationOptions], AbstractContextManager[Program]]
"""Builds a program for a GPU and keeps what it needs until the context ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that ended. ``tree`` is what it was built from, when patchkit built it.

    ``status`` is the program's, as a shell tells it. ``report`` is None when it used no GPU or left none;
    then ``broken`` may say what is wrong with the one it left.
    """

    status: int
    gpu: EmulatedGpu
    report: EmulationReport | None
    broken: PatchkitError | None
    tree: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """What the checks found, each once. ``cut_short``: processes ended without telling what they ran."""

    ran: Ran
    findings: Sequence[Finding]
    cut_short: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramKernel:
    """All launches of one kernel with one grid: how many, and the modelled time of the first."""

    head: TraceHead
    launches: int
    time: TimedKernel

    @property
    def us(self) -> float:
        """Microseconds of all of them, one after the other."""
        return self.launches * self.time.us


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTime:
    """The modelled time of what a program launched, in the order of the first launches.

    Only some blocks of each launch ran: what the program computed says nothing, nor does its ``status``.
    """

    arch: str
    status: int
    kernels: tuple[ProgramKernel, ...]

    @property
    def us(self) -> float:
        """Microseconds of all launches, one after the other."""
        return sum(kernel.us for kernel in self.kernels)

    def as_json(self) -> dict[str, object]:
        """As ``model -- PROGRAM`` shows it."""
        return {
            "arch": self.arch,
            "modelled": True,
            "status": self.status,
            "us": self.us,
            "kernels": [
                {
                    "kernel": kernel.head.kernel,
                    "grid": list(kernel.head.grid),
                    "launches": kernel.launches,
                    "us": kernel.time.us,
                    "limit": kernel.time.limit,
                    "shares": kernel.time.shares,
                    "played": kernel.time.played.model_dump(mode="json"),
                }
                for kernel in self.kernels
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that is played on this machine; :func:`open_gpu` makes one.

    ``profile`` says what it is, ``compiler`` builds what plays it, ``profiles`` has its timing file.
    """

    profile: GpuProfile
    compiler: Compiler
    profiles: Path
    emulated: EmulatedGpu

    @property
    def arch(self) -> str:
        """Its name: gfx1151."""
        return self.profile.arch

    def run(
        self,
        argv: Sequence[str],
        how: EmulationOptions | None = None,
        *,
        prepares: Prepares | None = None,
        quiet: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a program to its end.

        Args:
            argv: the program, as a path or a name on PATH, and its arguments.
            how: its schedule, checks, limits.
            prepares: what builds the program, if it is not there yet.
            quiet: its output goes to stderr.
            variables: more of its environment.

        Raises:
            PROGRAM_MISSING, TOOL_NOT_STARTED: it cannot be run.
            The errors of building it.
        """
        how = how or EmulationOptions()
        path = argv[0] if prepares is not None else find_program(argv[0])
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("emulate"))
            pipe = stack.enter_context(report_pipe(folder))
            how = replace(how, report=pipe.place)
            if prepares is None:
                ready = Program(path=path, variables=self.emulated.environment(folder, how))
            else:
                ready = stack.enter_context(prepares(self.emulated, how))
            environment = {**ready.variables, **(variables or {})}
            ended = _run([ready.path, *argv[1:]], environment, is_quiet=quiet)
            if ended < 0:
                self.compiler.reporter.warn(f"{signal_name(-ended)} ended the program")
            report, broken = None, None
            try:
                report = together(pipe.reports())
            except PatchkitError as error:
                broken = error
        status = ended if ended >= 0 else _SIGNALLED - ended
        return Ran(status=status, gpu=self.emulated, report=report, broken=broken, tree=ready.tree)

    def sanitize(
        self,
        argv: Sequence[str],
        how: EmulationOptions | None = None,
        *,
        prepares: Prepares | None = None,
        quiet: bool = False,
    ) -> Sanitized:
        """Run a program to its end and look for faults in its kernels; by default with every usual check.

        Raises as :meth:`run`.
        """
        how = how or EmulationOptions()
        with temporary_folder("sanitize") as folder:
            how = replace(how, checks=how.checks or usual_checks(), objects=folder)
            ran = self.run(argv, how, prepares=prepares, quiet=quiet)
            notes, processes = left_behind(folder)
            found = [*(() if ran.report is None else ran.report.findings), *notes]
            findings = distinct(found, SourceLines(folder, ran.tree))
        return Sanitized(ran=ran, findings=findings, cut_short=processes > 0 or ran.broken is not None)

    def time(self, argv: Sequence[str], *, quiet: bool = False) -> ProgramTime:
        """The modelled time of each kernel that a program launches; weights and inputs come from DRAM.

        Some blocks of each launch run and are recorded in a temporary folder: some megabytes for each.

        Raises:
            TIMING_UNKNOWN: nothing is known of how fast this GPU is.
            NOTHING_LAUNCHED: the program launched no kernel.
            TRACE_UNREADABLE, TIMING_NOT_BUILT: what was recorded cannot be played.
            As :meth:`run`.
        """
        machine = load_machine(self.profiles, self.emulated.device)
        with temporary_folder("model") as folder:
            ran = self.run(argv, quiet=quiet, variables=recording_variables(folder))
            launched = traces_in(folder)
            if not launched:
                raise ToolchainError(
                    f"{argv[0]} launched no kernel: there is nothing to model",
                    code="NOTHING_LAUNCHED",
                    why=f"it ended with status {ran.status}, or has no code for this GPU",
                    hint=f"patchkit emulate --arch {self.arch} -- {argv[0]} shows what it does",
                )
            kernels = tuple(_timed(machine, launched, self.compiler))
        return ProgramTime(arch=self.arch, status=ran.status, kernels=kernels)


def _timed(
    machine: Machine, launched: Iterable[tuple[TraceHead, Path]], compiler: Compiler
) -> Iterable[ProgramKernel]:
    first: dict[TraceHead, Path] = {}
    counts: dict[TraceHead, int] = {}
    for head, trace in launched:
        first.setdefault(head, trace)
        counts[head] = counts.get(head, 0) + 1
    played = play(machine, [Played(trace=trace, cold=1.0) for trace in first.values()], compiler)
    for head, time in zip(first, played, strict=True):
        timed = TimedKernel(played=time, kind=kind_of(head.kernel), launch_us=machine.launch_us)
        yield ProgramKernel(head=head, launches=counts[head], time=timed)


def open_gpu(
    arch: str,
    *,
    profiles: Path | None = None,
    cache_root: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    reporter: Reporter | None = None,
) -> Gpu:
    """A GPU by its name; the first time the emulator is built, in about a minute.

    Args:
        arch: one that has a profile, of gfx11 or gfx12.
        profiles: the folder of profiles; patchkit's own unless another one is named.
        cache_root: where what was built is kept; by default the user's cache folder.
        environ: where a compiler is looked for.
        reporter: hears the progress.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC, ARCH_NOT_EMULATED: there is no such GPU here.
        ToolchainMissing: no compiler; patchkit sdk install brings one.
        EMULATOR_NOT_BUILT, RECORDER_NOT_BUILT, DISASSEMBLER_MISSING, EMULATOR_CPU_UNKNOWN: as they say.
    """
    profiles = profiles or find_series_dir(None).profiles
    cache_root, reporter = cache_root or default_cache_root(environ), reporter or NullReporter()
    profile = emulated_profile(profiles, arch)
    compiler = open_compiler(find_toolchain(cache_root, environ, reporter), cache_root, reporter)
    return Gpu(
        profile=profile,
        compiler=compiler,
        profiles=profiles,
        emulated=emulated_gpu(device_of(profile, guess_units=True), compiler),
    )


def emulated_profile(profiles: Path, arch: str) -> GpuProfile:
    """The profile of a GPU that can be emulated. Raises ARCH_NOT_EMULATED and as reading profiles does."""
    profile = load_gpu(profiles, arch)
    if not arch.startswith(("gfx11", "gfx12")):
        raise UsageError(
            f"{arch} is not emulated",
            code="ARCH_NOT_EMULATED",
            why="the emulator executes RDNA3, RDNA3.5 and RDNA4: gfx11 and gfx12, waves of 32 lanes",
        )
    return profile


def find_program(program: str) -> str:
    """Where a program lies that a user named. Raises PROGRAM_MISSING."""
    found = shutil.which(program)
    if found is None:
        exists = Path(program).exists()
        raise UsageError(
            f"'{program}' cannot be run" if exists else f"there is no program '{program}'",
            code="PROGRAM_MISSING",
            where=Location(path=program),
            why="it is no executable file, or it is not on PATH: then say ./NAME" if exists else None,
            hint="name it as a path behind --, as in: -- ./program arguments",
        )
    return found


def _run(argv: list[str], variables: dict[str, str], *, is_quiet: bool) -> int:
    """How the program ended: its status, or negative the signal. It does not outlive patchkit."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    if inherited:
        variables["LD_LIBRARY_PATH"] += f":{inherited}"
    # What comes while it is being started waits: Python loses exceptions that a handler raises around a fork.
    early: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, lambda number, _: early.append(number))
    process = None
    try:
        process = _start(argv, {**os.environ, **variables}, is_quiet=is_quiet)
        for number, handler in handled.items():
            signal.signal(number, _interrupted if number == signal.SIGINT else handler)
        for sent in early:
            signal.raise_signal(sent)
        return process.wait()
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for number, handler in handled.items():
            signal.signal(number, handler)


def _start(argv: list[str], environment: dict[str, str], *, is_quiet: bool) -> subprocess.Popen[bytes]:
    prctl, patchkit = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != patchkit:  # it was killed before it could be asked for
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        return subprocess.Popen(  # noqa: S603  # the user's own program
            argv,
            env=environment,
            stdout=2 if is_quiet else None,
            preexec_fn=prepare,  # noqa: PLW1509  # other threads wait for the program, and hold no lock
        )
    except OSError as error:
        raise ToolchainError(
            f"{argv[0]} could not be started",
            code="TOOL_NOT_STARTED",
            where=Location(path=argv[0]),
            why=error.strerror,
        ) from error


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C in a terminal is the program's own to handle; else SIGINT ends patchkit, and that with it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:  # there is none
        raise KeyboardInterrupt from None
    try:
        is_in_front = os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
    if not is_in_front:
        raise KeyboardInterrupt
