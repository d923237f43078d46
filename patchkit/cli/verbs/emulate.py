"""``patchkit emulate``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from patchkit.base.errors import Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import check_output, remove_output, write_output
from patchkit.base.process import signal_name
from patchkit.cli.settings import FOLDER, Settings, verb

if TYPE_CHECKING:
    from patchkit.build.compiler import Compiler
    from patchkit.gpu.emulator import EmulatedGpu, EmulationOptions, EmulationReport, KernelCount, Schedule
    from patchkit.gpu.report_pipe import ReportPipe
    from patchkit.series.profile import ArchProfile

_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal
_SHOWN_INSTRUCTIONS = 12
_MOST_SEED = 2**63
_SEED_DIGITS = len(str(_MOST_SEED))
_PR_SET_PDEATHSIG = 1  # prctl(2)

# Options that say nothing about vectors: those are run by a program of our own, each by itself.
_OF_PROGRAMS = ("counts", "schedule", "threads", "limit", "side", "upstream", "report")


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


@verb(
    "emulate",
    example=(
        "patchkit emulate --arch gfx1151 -- ./saxpy",
        "patchkit emulate --arch gfx1151 --count -- ./saxpy 1024",
        "patchkit emulate --arch gfx1151 --schedule shuffle:7 -- ./my-kernel-test",
        "patchkit emulate --arch gfx1151 --side candidate -- test-backend-ops test -o SOFT_MAX",
        "patchkit emulate --arch gfx1151 --vectors vectors.jsonl",
    ),
)
@click.option("--arch", required=True, metavar="GFX", help="The GPU to be: one that has a profile.")
@click.option("--count", "counts", is_flag=True, help="Say how often each instruction of each kernel ran.")
@click.option(
    "--schedule",
    callback=_schedule,
    default="in-order",
    show_default=True,
    metavar="in-order|late|shuffle:SEED",
    help="When asynchronous work runs: at once, as late as HIP allows, in any order that HIP allows.",
)
@click.option(
    "--threads", type=click.IntRange(min=1, max=4096), help="Of the emulator (default: one per core)."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=_MOST_SEED - 1),
    metavar="N",
    help="Stop a kernel of which one wave executed so many instructions. Looked at whenever a wave jumped "
    "backwards 65536 times: a kernel that ends sooner is never stopped.",
)
@click.option(
    "--side",
    type=click.Choice(["baseline", "candidate"]),
    help="PROGRAM is upstream's (test-backend-ops, llama-bench, ...): build and run this side's.",
)
@click.option("--upstream", metavar="BUILD", help="The side's pin (default: the lock's).")
@click.option("--report", type=FOLDER, metavar="FILE", help="Write what ran as JSON.")
@click.option("--vectors", type=FOLDER, metavar="FILE", help="Run programs with known results instead.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    settings: Settings,
    arch: str,
    vectors: Path | None,
    program: tuple[str, ...],
    report: Path | None,
    side: str | None,
    upstream: str | None,
    **options: Any,
) -> None:
    """Run a HIP program on an emulated GPU: any program linked against the HIP runtime.

    The machine code in the program is executed on the CPU, instruction by instruction. What the GPU would
    not survive, and what is not emulated, ends the program with the kernel and the instruction. The exit
    status is the program's. With --json its output goes to stderr, and the report to stdout.
    """
    from patchkit.gpu.emulator import EmulationOptions, emulated_gpu

    if (vectors is None) == (not program):
        raise UsageError(
            "emulate needs a program, or --vectors FILE, and not both",
            code="USAGE_SYNTAX",
            hint="patchkit emulate --arch gfx1151 -- ./program arguments",
        )
    if vectors is not None:
        _check_alone()
        _run_vectors(settings, arch, vectors, _prepared(settings, arch)[1])
        return
    if side is None and upstream is not None:
        raise UsageError(
            "--upstream says of which pin a side is, and no --side was asked for",
            code="USAGE_SYNTAX",
            hint="patchkit emulate --arch gfx1151 --side candidate --upstream BUILD -- test-backend-ops",
        )
    if report is not None:
        check_output(report, "preparing the report")
    profile, compiler = _prepared(settings, arch)
    from patchkit.gpu.device import device_of
    from patchkit.gpu.report_pipe import report_pipe

    found = _find(program[0]) if side is None else program[0]
    if report is not None:
        remove_output(report, "removing the report of an earlier run")
    gpu = emulated_gpu(device_of(profile, guess_units=True), compiler)
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="patchkit-emulate-"))
        pipe = stack.enter_context(report_pipe(Path(name)))
        how = EmulationOptions(report=pipe.place, **options)
        if side is None:
            variables = gpu.environment(Path(name), how)
        else:
            found, variables = stack.enter_context(
                _upstreams(settings, gpu, how, side, upstream, found, compiler)
            )
        ended = _run([found, *program[1:]], variables, is_quiet=settings.json)
        status = ended if ended >= 0 else _SIGNALLED - ended
        if ended < 0:
            settings.reporter().warn(f"{signal_name(-ended)} ended the program")
        told = _take_report(settings, pipe, report, status)
        _show(settings, told, gpu, status, with_counts=options["counts"])
    if status:
        raise click.exceptions.Exit(status)


def _check_alone() -> None:
    """Whether nothing else was asked for that means nothing to vectors. Raises USAGE_SYNTAX."""
    context = click.get_current_context()
    for parameter in context.command.params:
        is_default = context.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT
        if parameter.name in _OF_PROGRAMS and not is_default:
            raise UsageError(
                f"{parameter.opts[0]} says how a program runs, and --vectors runs none",
                code="USAGE_SYNTAX",
                hint="patchkit emulate --arch gfx1151 --vectors FILE",
            )


def _prepared(settings: Settings, arch: str) -> tuple[ArchProfile, Compiler]:
    from patchkit.build.compiler import open_compiler
    from patchkit.build.toolchain import find_toolchain
    from patchkit.series.folder import find_series_dir
    from patchkit.series.profile import load_profile

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
) -> Iterator[tuple[str, dict[str, str]]]:
    """A program of upstream's, built from one side of a candidate, and the variables to run it with."""
    from patchkit.build.units import SourceTree
    from patchkit.candidate.build import build_tree, check_programs, prepare_subject
    from patchkit.candidate.record import Wish
    from patchkit.gpu.emulated_sides import emulated_side

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
    with emulated_side(built, SourceTree(root), gpu, compiler, options) as ready:
        yield str(ready.built.folder / program), dict(ready.built.environment)


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        exists = Path(program).exists()
        raise UsageError(
            f"'{program}' cannot be run" if exists else f"there is no program '{program}'",
            code="PROGRAM_MISSING",
            where=Location(path=program),
            why="it is not executable" if exists else None,
            hint="patchkit emulate --arch gfx1151 -- ./program arguments",
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


def _take_report(
    settings: Settings, pipe: ReportPipe, wanted: Path | None, status: int
) -> EmulationReport | None:
    """What the program did, written to the file that was ``wanted``.

    What is wrong with it is an error of the command's only if the program has none: its status comes first.
    """
    from patchkit.gpu.report_pipe import together

    reporter = settings.reporter()
    told = None
    try:
        told = together(pipe.reports())
        if told is not None and wanted is not None:
            write_output(wanted, told.model_dump_json().encode("utf-8") + b"\n", "writing the report")
    except PatchkitError as error:
        if not status:
            raise
        reporter.warn(f"{error.message}, and the program ended with status {status}")
    else:
        if told is None:
            missing = "" if wanted is None else f"; no report was written to {wanted}"
            reporter.warn(f"the program used no GPU, or ended without the usual cleaning up{missing}")
    return told


def _show(
    settings: Settings, report: EmulationReport | None, gpu: EmulatedGpu, status: int, *, with_counts: bool
) -> None:
    if settings.json:
        document = None if report is None else report.model_dump(mode="json")
        settings.terminal.document({"status": status, "emulator": gpu.identity, "report": document})
        return
    if report is None:
        return
    reporter = settings.reporter()
    for line in _lines(report, with_counts=with_counts):
        reporter.info(line)


def _lines(report: EmulationReport, *, with_counts: bool) -> Iterator[str]:
    launched = [kernel for kernel in report.kernels if kernel.launches]
    processes = "" if report.processes == 1 else f" in {report.processes} processes"
    yield (
        f"emulated {report.arch}: {sum(kernel.launches for kernel in launched)} launches of {len(launched)} "
        f"kernels{processes}, {report.instructions} instructions executed by waves; none unknown"
    )
    if report.on_cpu:
        yield f"computed on the CPU, not by kernels: {', '.join(sorted({one.call for one in report.on_cpu}))}"
    if not with_counts:
        return
    is_open = report.with_tolerance
    yield (
        f"{report.instructions - is_open} of them are exact by definition; {is_open} "
        f"({is_open / max(report.instructions, 1):.2%}) have a tolerance (exp, rcp, the order of sums in dot "
        "products and WMMA)"
    )
    for kernel in sorted(report.kernels, key=lambda one: -one.instructions):
        ran = f"{kernel.launches} launches, {kernel.waves} waves, {kernel.instructions} instructions"
        yield f"{kernel.name}: {ran}"
        yield from _most_frequent(kernel)


def _most_frequent(kernel: KernelCount) -> Iterator[str]:
    by_name: dict[str, int] = {}
    for text, executed, _ in kernel.by_instruction:
        name = text.split()[0]
        by_name[name] = by_name.get(name, 0) + executed
    rows = sorted(by_name.items(), key=lambda row: (-row[1], row[0]))
    for name, executed in rows[:_SHOWN_INSTRUCTIONS]:
        yield f"  {executed:>14} {name}"
    if rest := rows[_SHOWN_INSTRUCTIONS:]:
        yield f"  {sum(executed for _, executed in rest):>14} of {len(rest)} others"


def _run_vectors(settings: Settings, arch: str, path: Path, compiler: Compiler) -> None:
    from patchkit.gpu.emulator import build_alone, find_disassembler, this_level
    from patchkit.gpu.vectors import as_json, load_vectors, run_vectors

    wanted = load_vectors(path)
    outcomes = run_vectors(
        wanted,
        program=build_alone(compiler, this_level()),
        disassembler=find_disassembler(compiler.toolchain),
        arch=arch,
        reporter=compiler.reporter,
    )
    differ = [outcome for outcome in outcomes if not outcome.holds]
    lines = [f"{len(outcomes) - len(differ)} of {len(outcomes)} hold"]
    lines += [f"{outcome.name}: {difference}" for outcome in differ for difference in outcome.differences]
    settings.show(as_json(outcomes), lines)
    if differ:
        raise click.exceptions.Exit(1)
