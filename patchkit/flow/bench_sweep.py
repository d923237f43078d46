"""The calls of a sweep: what is missing is measured, one call of llama-bench after the other.

Vocabulary: as in :mod:`patchkit.flow.bench_arms` and :mod:`patchkit.flow.bench_session`. Repetitions are
calls of their own (``-r 1``) in which the labels take turns: intervals then know what differs between runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.bench.options import BenchOptions, BenchPlan, bench_arguments, parse_help
from patchkit.bench.pace import seconds_left, told_duration
from patchkit.bench.rows import BenchRow
from patchkit.bench.tables import Series, Table, compare_series
from patchkit.errors import Location, PatchkitError, ToolchainError
from patchkit.flow.bench_arms import BenchArm
from patchkit.flow.bench_orphans import wait_for_orphans
from patchkit.flow.bench_session import Run, SweepFolder, plan_runs
from patchkit.gates.bench_conditions import Conditions, read_conditions, summarise
from patchkit.gates.bench_errors import bench_failure, read_output
from patchkit.gates.bench_run import check_rows
from patchkit.gates.hardware import Machine, check_device
from patchkit.proc import Completed, ToolTimeout
from patchkit.report import Reporter
from patchkit.runner.base import Job, LocalRunner, Runner

_HELP_S = 60.0


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
        """All that were asked for, in order."""
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
            ]
        )

    def conditions(self) -> tuple[str, ...]:
        """In what state the machine was, over all runs."""
        return summarise([Conditions(values=self.folder.conditions(run)) for run in self.runs])

    def _note_pace(self, run: Run, took: dict[int, list[float]]) -> None:
        seconds = self.folder.seconds(run) if self.folder.is_kept(run) else None
        if seconds is not None:
            took.setdefault(run.depth, []).append(seconds)

    def _measure(self, run: Run) -> None:
        arm = next(arm for arm in self.arms if arm.label == run.label)
        plan = self._plan(run.depth)
        arguments = bench_arguments(self._options(arm), plan, self.runner.place(self.model))
        what = f"llama-bench of {run.label} at depth {run.depth}"
        job = self._job(arm, arguments, tag=self.folder.tag(run))
        try:
            done = self.runner.run(job)
        except ToolTimeout as error:
            self.folder.refuse(run, f"{error.message}\n{error.why}\n".encode())
            hint = f"give it more with --timeout; {error.hint}"
            raise ToolchainError(error.message, code="BENCH_HUNG", why=error.why, hint=hint) from error
        if done.returncode != 0:
            raise bench_failure(done, what, self.folder.refuse(run, done.stdout + done.stderr))
        try:
            self._check(run, plan, done)
        except PatchkitError:
            self.folder.refuse(run, done.stdout + done.stderr)
            raise
        self.folder.keep(run, done, read_conditions(self.runner, self.folder.tag(run)).values)

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
            done = self.runner.run(self._job(arm, ["--help"], tag=f"{self.folder.name}-help-{arm.label}"))
            if done.returncode != 0:
                raise bench_failure(done, f"llama-bench --help of {arm.label}", self.folder.root)
            options = parse_help(done.stdout.decode("utf-8", "replace"))
            self.options[arm.label] = options
            shown = bench_arguments(options, self._plan(self.plan.depths[0]), str(self.model))
            self.reporter.info(f"{arm.label}: {shlex.join([str(arm.side.program('llama-bench')), *shown])}")
        return self.options[arm.label]

    def _plan(self, depth: int) -> BenchPlan:
        device = None if self.machine.is_cpu else self.machine.device
        return replace(self.plan, depths=(depth,), repetitions=1, device=device)

    def _job(self, arm: BenchArm, arguments: Sequence[str], tag: str) -> Job:
        folder = self.runner.place(arm.side.folder)
        return Job(
            argv=(f"{folder}/llama-bench", *arguments),
            tag=tag,
            env={"LD_LIBRARY_PATH": folder},
            timeout_s=_HELP_S if "--help" in arguments else self.timeout_s,
        )


def _outlook(run: Run, number: str, took: Mapping[int, Sequence[float]], missing: Sequence[Run]) -> str:
    left = seconds_left(took, [each.depth for each in missing])
    told = "" if left is None else f"; about {told_duration(left)} left"
    return f"run {number}: {run.label} at depth {run.depth}, repetition {run.repetition + 1}{told}"


def _lengths(row: BenchRow) -> tuple[int, int, int]:
    return row.test.prompt, row.test.generated, row.test.depth
