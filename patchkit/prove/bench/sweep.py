"""The calls of a sweep: what is missing is measured, one call of llama-bench after the other."""

from __future__ import annotations

import os
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError, ToolchainError
from patchkit.base.process import WHICH_GPUS, Completed
from patchkit.base.reporter import Reporter
from patchkit.gpu.hardware.bench.conditions import read_conditions, summarise
from patchkit.gpu.hardware.bench.folder import Run, SweepFolder, plan_runs
from patchkit.gpu.hardware.bench.options import BenchOptions, BenchPlan, bench_arguments
from patchkit.gpu.hardware.bench.program import (
    ask_options,
    check_rows,
    keep_output,
    read_output,
    run_bench_program,
)
from patchkit.gpu.hardware.bench.rows import BenchRow
from patchkit.gpu.hardware.bench.tables import Series, Table, compare_series
from patchkit.gpu.hardware.runner import LocalRunner, Runner
from patchkit.prove.bench.arms import BenchArm
from patchkit.prove.build import Machine, check_device

_MINUTE, _HOUR = 60, 3600


def seconds_left(took: Mapping[int, Sequence[float]], missing: Sequence[int]) -> float | None:
    """Seconds that the missing runs will take; None as long as nothing was measured.

    Args:
        took: seconds of the finished runs, by depth in tokens.
        missing: the depth of each run to come.

    A depth that was measured takes its median again. One that was not takes as long as the nearest below it,
    and more in proportion to the tokens; a depth below all measured ones takes at most what they did.
    """
    known = {depth: statistics.median(seconds) for depth, seconds in took.items() if seconds}
    if not known:
        return None
    return sum(_expected(known, depth) for depth in missing)


def told_duration(seconds: float) -> str:
    """As people say it: ``40 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours, rest = divmod(round(seconds / _MINUTE), _MINUTE)
    return f"{hours} h {rest:02d} min"


def _expected(known: Mapping[int, float], depth: int) -> float:
    below = [each for each in known if each <= depth]
    if not below:
        return known[min(known)]
    nearest = max(below)
    # Filling a cache of twice the tokens takes twice the time at least; with attention it is more.
    return known[nearest] * max(1.0, depth / nearest if nearest else 1.0)


_LOOK_S = 1.0
_PATIENCE_S = 3600.0  # as long as a single call may take


def wait_for_orphans(programs: Sequence[Path], reporter: Reporter, patience_s: float = _PATIENCE_S) -> None:
    """Return when none of the programs runs on our GPUs. Raises BENCH_STILL_RUNNING after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    told = False
    while found := processes_of(programs):
        ids = " ".join(map(str, found))
        if time.monotonic() >= deadline:
            raise ToolchainError(
                "llama-bench is still running, and would disturb the measurement",
                code="BENCH_STILL_RUNNING",
                where=[Location(path=str(program)) for program in programs[:1]],
                why=f"process {ids}",
                hint=f"end it with: kill {ids}",
            )
        if not told:
            reporter.info(f"waiting for another llama-bench on these GPUs to end (process {ids})")
            told = True
        time.sleep(_LOOK_S)


def processes_of(programs: Sequence[Path]) -> list[int]:
    """The ids of the processes that run one of the programs, sorted; another user's are not seen.

    Nor are those that were given other GPUs than we were: runs on four GPUs would wait for each other.
    """
    wanted = {os.path.realpath(program) for program in programs}
    found = []
    for path in Path("/proc").glob("[0-9]*/exe"):
        try:
            # A string, which may end with " (deleted)".
            if os.readlink(path) in wanted and _may_share(path.parent):  # noqa: PTH115
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is another user's
            continue
    return sorted(found)


def _may_share(process: Path) -> bool:
    """Whether it may be on a GPU that we may use, by both environments. Raises OSError."""
    words = (process / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    theirs = dict(word.split("=", 1) for word in words if "=" in word)
    return all(
        theirs[name] == os.environ[name] for name in WHICH_GPUS if name in theirs and name in os.environ
    )


@dataclass(slots=True, kw_only=True)
class Sweep:
    """``model`` lies here; ``timeout_s`` is per call; ``archs`` are the GPUs that it may run on."""

    plan: BenchPlan
    archs: tuple[str, ...]
    arms: tuple[BenchArm, ...]
    machine: Machine
    model: Path
    timeout_s: float
    folder: SweepFolder
    runner: Runner
    reporter: Reporter
    options: dict[str, BenchOptions] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run that was asked for, in the order in which they are made."""
        plan = self.plan
        return plan_runs([arm.label for arm in self.arms], plan.depths, plan.repetitions)

    def measure(self) -> tuple[int, int]:
        """Do what is missing; how many calls that were, and how many had been done before."""
        runs = self.runs
        missing = [run for run in runs if not self.folder.is_kept(run)]
        kept = len(runs) - len(missing)
        if kept:
            self.reporter.info(f"{kept} of {len(runs)} runs were measured before; --fresh begins anew")
        if missing and isinstance(self.runner, LocalRunner):
            wait_for_orphans([arm.side.program("llama-bench") for arm in self.arms], self.reporter)
        self.reporter.step(f"measuring {len(missing)} runs; after an interruption the same command goes on")
        took: dict[int, list[float]] = {}
        for run in runs:
            self._note_pace(run, took)
        try:
            with self.reporter.progress("measuring", "runs") as advance:
                for number, run in enumerate(missing):
                    advance(kept + number, len(runs))
                    which = f"{number + kept + 1} of {len(runs)}"
                    self.reporter.info(_outlook(run, which, took, missing[number:]))
                    self._measure(run)
                    self._note_pace(run, took)
                advance(len(runs), len(runs))
        except KeyboardInterrupt as stop:
            stop.add_note(f"the run in progress is lost, all before it are kept in {self.folder.root}")
            raise
        return len(missing), kept

    def gather(self) -> dict[str, Path]:
        """Write what was measured into a file per label. Raises CacheError."""
        return {arm.label: self.folder.gather(arm.label, self.runs) for arm in self.arms}

    def table(self, files: Mapping[str, Path]) -> Table:
        """Everything that was measured, side by side; ``files`` are those of :meth:`gather`."""
        return compare_series(
            [
                Series(
                    label=label,
                    source=str(path),
                    rows=tuple(
                        row for run in self.runs if run.label == label for row in self.folder.rows(run)
                    ),
                )
                for label, path in files.items()
            ],
            distinct=True,
        )

    def conditions(self) -> tuple[str, ...]:
        """In what state the machine was, over all runs."""
        return summarise([self.folder.note(run).conditions for run in self.runs])

    def _note_pace(self, run: Run, took: dict[int, list[float]]) -> None:
        seconds = self.folder.note(run).seconds if self.folder.is_kept(run) else None
        if seconds is not None:
            took.setdefault(run.depth, []).append(seconds)

    def _measure(self, run: Run) -> None:
        arm = next(arm for arm in self.arms if arm.label == run.label)
        plan, failed = self._plan(run.depth), self.folder.failed(run)
        try:
            done = run_bench_program(
                self.runner,
                arm.side.folder,
                bench_arguments(self._options(arm), plan, self.runner.place(self.model)),
                tag=self.folder.tag(run),
                timeout_s=self.timeout_s,
                what=f"llama-bench of {run.label} at depth {run.depth}",
                failed=failed,
            )
        except ToolchainError as error:
            if error.code == "BENCH_HUNG":
                error.hint = f"give it more with --timeout; {error.hint}"
            raise
        try:
            self._check(run, plan, done)
        except PatchkitError:
            keep_output(failed, done.stdout + done.stderr)
            raise
        self.folder.keep(run, done, read_conditions(self.runner, self.folder.tag(run)))

    def _check(self, run: Run, plan: BenchPlan, done: Completed) -> None:
        where = self.folder.failed(run)
        rows = read_output(done, where)
        check_rows(rows, plan.device)
        check_device(self.machine, done.stderr.decode("utf-8", "replace"), self.archs, where)
        asked = {(prompt, 0, run.depth) for prompt in plan.prompts if prompt}
        asked |= {(0, generated, run.depth) for generated in plan.generated if generated}
        found = [_lengths(row) for row in rows]
        if set(found) != asked or len(found) != len(asked):
            raise ToolchainError(
                f"llama-bench measured {len(found)} tests where {len(asked)} were asked for",
                code="BENCH_TESTS_UNASKED",
                where=Location(path=str(where)),
                why=f"prompt, generated, depth: {sorted(found)} instead of {sorted(asked)}",
                hint="look at the file; the options of this build may mean something else",
            )

    def _options(self, arm: BenchArm) -> BenchOptions:
        """How this build spells its options; its command line is shown once."""
        if arm.label not in self.options:
            options = ask_options(
                self.runner,
                arm.side.folder,
                tag=f"{self.folder.name}-help-{arm.label}",
                label=arm.label,
                kept=self.folder.root,
            )
            self.options[arm.label] = options
            shown = bench_arguments(options, self._plan(self.plan.depths[0]), str(self.model))
            self.reporter.info(f"{arm.label}: {shlex.join([str(arm.side.program('llama-bench')), *shown])}")
        return self.options[arm.label]

    def _plan(self, depth: int) -> BenchPlan:
        device = None if self.machine.is_cpu else self.machine.device
        return replace(self.plan, depths=(depth,), repetitions=1, device=device)


def _outlook(run: Run, number: str, took: Mapping[int, Sequence[float]], missing: Sequence[Run]) -> str:
    left = seconds_left(took, [each.depth for each in missing])
    told = "" if left is None else f"; about {told_duration(left)} left"
    return f"run {number}: {run.label} at depth {run.depth}, repetition {run.repetition + 1}{told}"


def _lengths(row: BenchRow) -> tuple[int, int, int]:
    return row.test.prompt, row.test.generated, row.test.depth
