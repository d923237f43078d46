"""``patchkit emulate``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import PatchkitError, UsageError
from patchkit.base.files import check_output, remove_output, write_output
from patchkit.base.text import counted
from patchkit.cli.completing import files
from patchkit.cli.emulated import (
    SideChoice,
    arch_option,
    built_side,
    open_gpu,
    prepare,
    profile_lines,
    program_options,
    refuse_given,
    sampled,
)
from patchkit.cli.settings import FOLDER, Settings, verb
from patchkit.gpu.api import EmulatedRun, find_program
from patchkit.gpu.emulated.coverage import coverage_document, coverage_lines, instruction_states
from patchkit.gpu.emulated.emulator import (
    EmulationOptions,
    EmulationReport,
    KernelCount,
    build_alone,
    build_coverage,
    find_disassembler,
    this_level,
)
from patchkit.gpu.emulated.vectors import load_vectors, run_vectors
from patchkit.toolchain.compiler import Compiler

_SHOWN_INSTRUCTIONS = 12

# Options about running a program, which cannot be combined with --vectors and --coverage.
_OF_PROGRAMS = (
    *("counts", "every_launch", "schedule", "threads", "limit", "blocks", "profile"),
    *("side", "upstream", "onto", "repo", "report"),
)


@verb(
    "emulate",
    example=(
        "patchkit emulate --arch gfx1151 -- ./saxpy",
        "patchkit emulate --arch gfx1151 --count -- ./saxpy 1024",
        "patchkit emulate --arch gfx1151 --schedule shuffle:7 -- ./my-kernel-test",
        "patchkit emulate --arch gfx1151 --side candidate -- test-backend-ops test -o SOFT_MAX",
        "patchkit emulate --arch gfx1151 --side baseline --onto HEAD -- test-backend-ops test -o SOFT_MAX",
        "patchkit emulate --arch gfx1151 --profile --blocks 16 -- ./long-program",
        "patchkit emulate --arch gfx1151 --vectors vectors.jsonl",
        "patchkit emulate --arch gfx1201 --coverage",
    ),
)
@arch_option
@click.option("--count", "counts", is_flag=True, help="Show how often each instruction of each kernel ran.")
@click.option(
    "--every-launch",
    is_flag=True,
    help="Execute every launch. By default, a launch that repeats an earlier one (same code, arguments and "
    "memory) reuses its result, and the report counts such launches.",
)
@program_options
@click.option("--report", type=FOLDER, metavar="FILE", help="Write a JSON report of the kernels that ran.")
@click.option(
    "--vectors",
    type=FOLDER,
    metavar="FILE",
    help="Instead of a program, run a file of instruction tests with known results.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Instead of running a program, list which of the GPU's instructions are emulated.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def command(
    settings: Settings,
    arch: str,
    vectors: Path | None,
    program: tuple[str, ...],
    report: Path | None,
    side: SideChoice | None,
    *,
    coverage: bool,
    every_launch: bool,
    profile: bool,
    **options: Any,
) -> None:
    """Run a HIP program on an emulated AMD GPU. Works with any program linked against the HIP runtime.

    Executes the GPU machine code in the program on the CPU, instruction by instruction. An access that would
    fault on the GPU, or an instruction that is not emulated, stops the program; the message names the kernel
    and the instruction. The exit status is the program's. With --json, the program's output goes to stderr
    and the report to stdout.

    --side builds and runs a program of llama.cpp, from a build of the lock file or, with --onto, from a
    commit of your own clone. The baseline of --onto is that commit unchanged.
    """
    if (vectors is not None) + coverage + bool(program) != 1:
        raise UsageError(
            "emulate needs exactly one of: a program, --vectors FILE, --coverage",
            code="USAGE_SYNTAX",
            hint="patchkit emulate --arch gfx1151 -- ./program arguments",
        )
    if vectors is not None:
        _check_alone()
        _run_vectors(settings, arch, vectors, prepare(settings, arch)[1])
        return
    if coverage:
        _check_alone()
        _show_coverage(settings, arch, prepare(settings, arch)[1])
        return
    if side is None:
        find_program(program[0])  # fail before building, and before removing an earlier report
    if report is not None:
        check_output(report, "preparing the report")
        remove_output(report, "removing the report of an earlier run")
    gpu = open_gpu(settings, arch)
    built = built_side(settings, gpu, program[0], side)
    how = EmulationOptions(repeats=not every_launch, **options)
    ran = gpu.run(program, how, prepares=built, quiet=settings.json)
    done = _take_report(settings, ran, report)
    _show(settings, done, ran, with_counts=options["counts"], with_profile=profile)
    if ran.status:
        raise click.exceptions.Exit(ran.status)


def _check_alone() -> None:
    """Raise USAGE_SYNTAX if an option about running a program was given."""
    refuse_given(
        _OF_PROGRAMS,
        "cannot be combined with --vectors and --coverage, which run no program",
        "patchkit emulate --arch gfx1151 --vectors FILE",
    )


def _take_report(settings: Settings, ran: EmulatedRun, wanted: Path | None) -> EmulationReport | None:
    """What the program did, written to the file that was ``wanted``.

    If the program itself failed, an error with the report is only a warning: the program's status has
    priority.
    """
    reporter = settings.reporter()
    try:
        if ran.broken is not None:
            raise ran.broken
        if ran.report is not None and wanted is not None:
            write_output(wanted, ran.report.model_dump_json().encode("utf-8") + b"\n", "writing the report")
    except PatchkitError as error:
        if not ran.status:
            raise
        reporter.warn(f"{error.message}; the program exited with status {ran.status}")
        return None
    if ran.report is None:
        missing = "" if wanted is None else f"; no report was written to {wanted}"
        reporter.warn(f"the program did not use the GPU, or did not exit normally{missing}")
    return ran.report


def _show(
    settings: Settings,
    report: EmulationReport | None,
    ran: EmulatedRun,
    *,
    with_counts: bool,
    with_profile: bool,
) -> None:
    if settings.json:
        document = None if report is None else report.model_dump(mode="json")
        settings.terminal.document({"status": ran.status, "emulator": ran.gpu.identity, "report": document})
        return
    if report is None:
        return
    reporter = settings.reporter()
    for line in _lines(report, with_counts=with_counts):
        reporter.info(line)
    if with_profile:
        for line in profile_lines(report):
            reporter.info(line)


def _lines(report: EmulationReport, *, with_counts: bool) -> Iterator[str]:
    launched = [kernel for kernel in report.kernels if kernel.launches]
    launches = counted(sum(kernel.launches for kernel in launched), "launch", "launches")
    processes = "" if report.processes == 1 else f" in {report.processes} processes"
    yield (
        f"emulated {report.arch}: {launches} of {counted(len(launched), 'kernel')}{processes}, "
        f"{report.instructions} wave instructions"
    )
    if report.repeats:
        yield (
            f"{counted(report.repeats, 'launch', 'launches')} of these repeated an earlier one and reused "
            "its result (--every-launch executes them)"
        )
    if (sample := sampled(report)) is not None:
        yield sample
    if report.refused:
        times = sum(one.times for one in report.refused)
        yield f"{counted(times, 'launch', 'launches')} rejected: {'; '.join(map(str, report.refused))}"
    if report.on_cpu:
        calls = ", ".join(sorted({one.call for one in report.on_cpu}))
        yield f"computed on the CPU instead of by kernels: {calls}"
    if not with_counts:
        return
    is_open = report.with_tolerance
    yield (
        f"{report.instructions - is_open} of them have exactly defined results; {is_open} "
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
    wanted = load_vectors(path)
    outcomes = run_vectors(
        wanted,
        program=build_alone(compiler, this_level()),
        disassembler=find_disassembler(compiler.toolchain),
        arch=arch,
        reporter=compiler.reporter,
    )
    differ = [outcome for outcome in outcomes if not outcome.holds]
    lines = [f"{len(outcomes) - len(differ)} of {len(outcomes)} vectors have the expected results"]
    lines += [f"{outcome.name}: {difference}" for outcome in differ for difference in outcome.differences]
    document = {
        "vectors": len(outcomes),
        "hold": sum(outcome.holds for outcome in outcomes),
        "differ": [outcome for outcome in outcomes if not outcome.holds],
    }
    settings.show(document, lines)
    if differ:
        raise click.exceptions.Exit(1)


def _show_coverage(settings: Settings, arch: str, compiler: Compiler) -> None:
    states = instruction_states(
        arch=arch,
        program=build_coverage(compiler, this_level()),
        disassembler=find_disassembler(compiler.toolchain),
        reporter=compiler.reporter,
    )
    settings.show(coverage_document(states, arch), list(coverage_lines(states, arch)))
    if any(one.state == "no" for one in states):
        raise click.exceptions.Exit(1)
