"""Running a program on the emulated GPU from the command line: what its commands have in common."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

import click

from patchkit.base.errors import Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import temporary_folder
from patchkit.base.process import signal_name
from patchkit.cli.settings import Settings, options

if TYPE_CHECKING:
    from patchkit.carry.series.profile import ArchProfile
    from patchkit.gpu.emulated.emulator import EmulatedGpu, EmulationOptions, EmulationReport, Schedule
    from patchkit.toolchain.compiler import Compiler

_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal
_MOST_SEED = 2**63
_SEED_DIGITS = len(str(_MOST_SEED))
_PR_SET_PDEATHSIG = 1  # prctl(2)


def _schedule(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[Schedule, int]:
    """The schedule and the seed of a shuffle."""
    name, _, seed = text.partition(":")
    if text in {"in-order", "late"}:
        return cast("Schedule", text), 0
    if name == "shuffle" and _is_seed(seed):
        return "shuffle", int(seed)
    raise click.BadParameter("it is none of in-order, late, shuffle:SEED (a whole number above 0)")


def _is_seed(text: str) -> bool:
    # Python refuses to convert thousands of digits.
    is_number = text.isascii() and text.isdigit() and len(text) <= _SEED_DIGITS
    return is_number and 0 < int(text) < _MOST_SEED


arch_option = click.option(
    "--arch", required=True, metavar="GFX", help="The GPU to be: one that has a profile."
)
program_options = options(
    click.option(
        "--schedule",
        callback=_schedule,
        default="in-order",
        show_default=True,
        metavar="in-order|late|shuffle:SEED",
        help="When asynchronous work runs: at once, as late as HIP allows, in any order that HIP allows.",
    ),
    click.option(
        "--threads", type=click.IntRange(min=1, max=4096), help="Of the emulator (default: one per core)."
    ),
    click.option(
        "--limit",
        type=click.IntRange(min=1, max=_MOST_SEED - 1),
        metavar="N",
        help="Stop a kernel of which one wave executed so many instructions. Looked at whenever a wave "
        "jumped backwards 65536 times: a kernel that ends sooner is never stopped.",
    ),
    click.option(
        "--side",
        type=click.Choice(["baseline", "candidate"]),
        help="PROGRAM is upstream's (test-backend-ops, llama-bench, ...): build and run this side's.",
    ),
    click.option("--upstream", metavar="BUILD", help="The side's pin (default: the lock's)."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that ended. ``tree`` is what it was built from, when that is a side.

    ``status`` is the program's, as a shell tells it. ``report`` is None when it used no GPU or left none;
    then ``broken`` may say what is wrong with the one it left.
    """

    status: int
    gpu: EmulatedGpu
    report: EmulationReport | None
    broken: PatchkitError | None
    tree: Path | None


def check_side(command: str, side: str | None, upstream: str | None) -> None:
    """Refuse a pin for no side. Raises USAGE_SYNTAX."""
    if side is None and upstream is not None:
        raise UsageError(
            "--upstream says of which pin a side is, and no --side was asked for",
            code="USAGE_SYNTAX",
            hint=f"patchkit {command} --arch gfx1151 --side candidate --upstream BUILD -- test-backend-ops",
        )


def run_program(
    settings: Settings,
    arch: str,
    program: tuple[str, ...],
    how: EmulationOptions,
    *,
    side: str | None,
    upstream: str | None,
) -> Ran:
    """Run it to its end; with --json its output goes to stderr.

    Raises:
        PROGRAM_MISSING, TOOL_NOT_STARTED: it cannot be run.
        The errors of building it, the runtime and the emulator.
    """
    from patchkit.gpu.emulated.device import device_of
    from patchkit.gpu.emulated.emulator import emulated_gpu
    from patchkit.gpu.emulated.report_pipe import report_pipe, together

    profile, compiler = prepare(settings, arch)
    found = find_program(program[0]) if side is None else program[0]
    gpu = emulated_gpu(device_of(profile, guess_units=True), compiler)
    tree = None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("emulate"))
        pipe = stack.enter_context(report_pipe(folder))
        how = replace(how, report=pipe.place)
        if side is None:
            variables = gpu.environment(folder, how)
        else:
            ready = stack.enter_context(_upstreams(settings, gpu, how, side, upstream, found, compiler))
            found, variables, tree = ready
        ended = _run([found, *program[1:]], variables, is_quiet=settings.json)
        if ended < 0:
            settings.reporter().warn(f"{signal_name(-ended)} ended the program")
        report, broken = None, None
        try:
            report = together(pipe.reports())
        except PatchkitError as error:
            broken = error
    status = ended if ended >= 0 else _SIGNALLED - ended
    return Ran(status=status, gpu=gpu, report=report, broken=broken, tree=tree)


def prepare(settings: Settings, arch: str) -> tuple[ArchProfile, Compiler]:
    """The profile of a GPU that is emulated, and a compiler for it. Raises ARCH_NOT_EMULATED."""
    from patchkit.base.series_folder import find_series_dir
    from patchkit.carry.series.profile import load_profile
    from patchkit.toolchain.compiler import open_compiler
    from patchkit.toolchain.hip import find_toolchain

    profile = load_profile(find_series_dir(settings.series_dir).profiles, arch)
    if not arch.startswith(("gfx11", "gfx12")):
        raise UsageError(
            f"{arch} is not emulated",
            code="ARCH_NOT_EMULATED",
            why="the emulator executes RDNA3, RDNA3.5 and RDNA4: gfx11 and gfx12, waves of 32 lanes",
        )
    cache_root, reporter = settings.cache_root(), settings.reporter()
    return profile, open_compiler(find_toolchain(cache_root, os.environ, reporter), cache_root, reporter)


@contextlib.contextmanager
def _upstreams(
    settings: Settings,
    gpu: EmulatedGpu,
    options: EmulationOptions,
    side: str,
    upstream: str | None,
    program: str,
    compiler: Compiler,
) -> Iterator[tuple[str, dict[str, str], Path]]:
    """A program of upstream's, built from one side, the variables to run it with, and the side's tree."""
    from patchkit.carry.candidate.record import Wish
    from patchkit.gpu.emulated.emulated_sides import emulated_side
    from patchkit.prove.build import build_tree, check_programs, prepare_subject
    from patchkit.toolchain.units import SourceTree

    check_programs([program])
    subject, _ = prepare_subject(
        settings.workspace(), (gpu.device.arch,), upstream, "hip", os.environ, Wish()
    )
    root, tree = (
        (subject.baseline, subject.baseline_tree)
        if side == "baseline"
        else (subject.candidate, subject.candidate_tree)
    )
    subject.reporter.step(f"building {program} of the {side}")
    built = build_tree(subject, root, tree, "cpu", (program,))
    rocwmma = not subject.is_without_rocwmma
    with emulated_side(built, SourceTree(root), gpu, compiler, options, rocwmma=rocwmma) as ready:
        yield str(ready.built.folder / program), dict(ready.built.environment), root


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
