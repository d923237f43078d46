"""llama-bench on the emulated GPU: whether it finishes and which kernels it launches, never its speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import GateError, ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.report.blocks import Row, Table, columns
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.emulated.emulator import EmulationOptions, EmulationReport, KernelCount, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.hardware.bench.options import BenchPlan, bench_arguments, parse_help
from patchkit.gpu.hardware.bench.program import check_rows, read_rows
from patchkit.gpu.hardware.program import RunContext, run_program
from patchkit.prove.build import Machine, Sides, check_device, runs_folder
from patchkit.prove.gates.base import Count, Many, Record
from patchkit.prove.gates.sides import blame_candidate
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide

NO_SPEED = "speed: not measured; needs the GPU"
_PROGRAM = llama_cpp().programs.bench
_TIMEOUT_S = 1800.0
_HELP_S = 60.0


class BenchBroken(GateError):
    """llama-bench fails on the candidate but finishes on the baseline."""

    code = "BENCH_BROKEN"


class Launched(Record):
    """One kernel: how often it was launched, and how many instructions its waves executed."""

    kernel: str
    launches: Count
    instructions: Count


class Completed(Record):
    """A run of llama-bench that finished: its tests and all kernels that it launched.

    ``on_cpu`` are calls of hipBLAS or rocBLAS, which the CPU computed instead of a GPU kernel. ``is_kept``:
    the result of an earlier run was reused.
    """

    side: str
    command: str
    tests: Many[str]
    kernels: Many[Launched]
    on_cpu: Many[str] = ()
    is_kept: bool = False

    @property
    def line(self) -> str:
        """The run in one line."""
        launches = sum(one.launches for one in self.kernels)
        executed = sum(one.instructions for one in self.kernels)
        again = "; reused, because no code that it executes has changed" if self.is_kept else ""
        on_cpu = f"; computed on the CPU: {', '.join(self.on_cpu)}" if self.on_cpu else ""
        return (
            f"{self.side}: {len(self.tests)} tests, {launches} launches of {len(self.kernels)} kernels, "
            f"{executed} instructions executed by waves{on_cpu}{again}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSides:
    """The runs of both sides."""

    before: Completed
    after: Completed

    @property
    def lines(self) -> tuple[str, ...]:
        """A line per side, and a line for each kernel that only one side launched."""
        return (self.before.line, self.after.line, *self._differences())

    def _differences(self) -> Iterator[str]:
        pairs = ((self.before, self.after), (self.after, self.before))
        for one, other in pairs:
            there = {kernel.kernel for kernel in other.kernels}
            yield from (
                f"launched by the {one.side} only: {kernel.kernel}, {kernel.launches} times"
                for kernel in one.kernels
                if kernel.kernel not in there
            )


def complete_bench(
    subject: Subject, sides: Sides, machine: Machine, plan: BenchPlan, model: Path
) -> CompletedSides:
    """Run llama-bench once on each side.

    Raises:
        BenchBroken: it does not finish on the candidate.
        BENCH_DEVICE_WRONG: it ran on another device.
        PROGRAM_FAILED and the others of :mod:`patchkit.gpu.hardware.program`, BENCH_FAILED,
            EMULATION_UNREPORTED, DEVICE_MISSING: on the baseline.
        CacheError: the disk is full or not writable.
    """
    place = RunContext(folder=runs_folder(subject, "bench", machine), reporter=subject.reporter)
    before = _complete(subject, sides.before, "baseline", machine, plan, model, place)
    try:
        after = _complete(subject, sides.after, "candidate", machine, plan, model, place)
    except ToolchainError as error:
        raise blame_candidate(error, BenchBroken) from error
    return CompletedSides(before=before, after=after)


def _complete(
    subject: Subject,
    side: BuiltSide,
    name: str,
    machine: Machine,
    plan: BenchPlan,
    model: Path,
    place: RunContext,
) -> Completed:
    subject.reporter.step(f"{_PROGRAM} of the {name} on {machine.label}")
    program = str(side.program(_PROGRAM))
    usage = run_program(
        f"{name}-help", [program, "--help"], place=place, env=side.environment, timeout_s=_HELP_S
    )
    arguments = bench_arguments(parse_help(usage.text()), plan, str(model))
    report = place.folder / f"{name}.emulated.json"
    with disk_errors(report, "removing the report of an earlier run"):
        report.unlink(missing_ok=True)
    ran = run_program(
        name,
        [program, *arguments],
        place=place,
        env={**side.environment, **EmulationOptions(report=report).variables()},
        timeout_s=_TIMEOUT_S,
        kept=side.kept,
    )
    check_device(machine, ran.talk(), subject.archs, ran.stderr)
    rows = read_rows(ran.text(), ran.stdout)
    check_rows(rows, plan.device)
    if len(rows) != len(plan.lengths):
        raise ToolchainError(
            f"{_PROGRAM} printed {len(rows)} of {len(plan.lengths)} tests",
            code="BENCH_FAILED",
            why=f"its output is in {ran.stdout}",
        )
    emulation = load_report(report)
    return Completed(
        side=name,
        command=ran.command,
        tests=tuple(row.test.name for row in rows),
        kernels=tuple(_launched(emulation)),
        on_cpu=tuple(sorted({one.call for one in emulation.on_cpu})),
        is_kept=ran.is_kept,
    )


def _launched(report: EmulationReport) -> Iterator[Launched]:
    """The kernels by readable name, which several mangled names may share."""
    found: dict[str, list[KernelCount]] = {}
    for one in report.kernels:
        if one.launches:
            found.setdefault(str(read_name(one.name)), []).append(one)
    for name in sorted(found):
        yield Launched(
            kernel=name,
            launches=sum(one.launches for one in found[name]),
            instructions=sum(one.instructions for one in found[name]),
        )


def launches_table(sides: Sequence[Completed], on: str) -> Table:
    """Every kernel that llama-bench launched, with its launches on each side."""
    counts = {one.side: {kernel.kernel: kernel.launches for kernel in one.kernels} for one in sides}
    names = sorted({kernel.kernel for one in sides for kernel in one.kernels})
    return Table(
        name="bench-launches",
        caption=f"Kernels that llama-bench launched on {on}",
        columns=columns("kernel", *(f"{one.side} #" for one in sides)),
        rows=tuple(
            Row(cells=(name, *(str(counts[one.side].get(name, 0)) for one in sides))) for name in names
        ),
        note="An emulated GPU has no speed, so the times that llama-bench printed are not shown.",
    )
