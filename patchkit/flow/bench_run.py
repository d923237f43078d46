"""``bench run``: baselines and candidate measured by one command that can be stopped and run again.

Vocabulary: as in :mod:`patchkit.flow.bench_arms` and :mod:`patchkit.flow.bench_session`. Repetitions are
calls of their own (``-r 1``) in which the labels take turns: intervals then know what differs between runs.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.bench.options import BenchOptions, BenchPlan, bench_arguments, parse_help
from patchkit.bench.pace import seconds_left, told_duration
from patchkit.bench.rows import BenchRow, parse_rows
from patchkit.bench.tables import Series, Table, compare_series
from patchkit.build.parts import BackendName
from patchkit.errors import Location, PatchkitError, ToolchainError
from patchkit.flow.bench_arms import BenchArm, build_arms
from patchkit.flow.bench_orphans import wait_for_orphans
from patchkit.flow.bench_session import Run, SweepFolder, open_sweep, plan_runs
from patchkit.flow.build import prepare_subject
from patchkit.flow.gpus import detect_gpus
from patchkit.flow.workspace import Workspace
from patchkit.gates.base import Subject
from patchkit.gates.bench_conditions import Conditions, read_conditions, summarise
from patchkit.gates.bench_errors import BenchHung, bench_failure
from patchkit.gates.bench_run import check_rows
from patchkit.gates.hardware import DeviceMissing, Machine, check_device, machine_of
from patchkit.gates.logits import ModelMissing
from patchkit.proc import Completed, ToolTimeout
from patchkit.recorder.model_file import SmallModel, model_file
from patchkit.recorder.model_shape import head_size_of
from patchkit.report import Reporter
from patchkit.runner.base import Job, LocalRunner, Runner

__all__ = ["BenchRunReport", "BenchRunRequest", "BenchTestsUnasked", "run_bench"]

_HELP_S = 60.0
_FORMAT = 1  # of the folder; a change makes every old one another measurement
# As the bench gate's own, when the user has no model: see patchkit/gates/bench_device.py.
_SMALL = SmallModel(head_size=64, heads=32, kv_heads=8, layers=4)


class BenchTestsUnasked(ToolchainError):
    """llama-bench ended well and measured other tests than it was asked for."""

    code = "BENCH_TESTS_UNASKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunRequest:
    """``plan`` says what to measure: its ``repetitions`` are calls of llama-bench per label and depth.

    ``backend`` None: HIP, if the GPU is here. ``model`` None: a small one with random weights. ``out`` None:
    a folder in the cache. ``timeout_s`` is per call.
    """

    archs: tuple[str, ...]
    upstream: str | None
    plan: BenchPlan
    backend: BackendName | None = None
    model: Path | None = None
    out: Path | None = None
    fresh: bool = False
    timeout_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRunReport:
    """``files`` by label; ``measured`` and ``kept`` are calls of llama-bench now and before."""

    table: Table
    folder: Path
    files: Mapping[str, Path]
    arms: Mapping[str, str]
    model: str
    measured: int
    kept: int
    conditions: tuple[str, ...]


def run_bench(
    workspace: Workspace, request: BenchRunRequest, runner: Runner, environ: Mapping[str, str]
) -> BenchRunReport:
    """Build, measure what is missing, and compare.

    Raises:
        ModelMissing, ModelUnreadable: there is no such model, or it is none.
        DeviceMissing: this machine has no GPU of the candidate, or llama-bench did not find it.
        CandidateMissing and what building raises: see :func:`patchkit.flow.build.run_build`.
        BenchFolderBusy, BenchFolderOther: the folder is not free for this measurement.
        BenchFailed and its like, BenchTestsUnasked: a call did not end well; what was measured is kept.
        CacheError: the disk refused.
    """
    if request.model is not None:
        if not request.model.is_file():
            raise ModelMissing(
                "there is no such model", where=Location(path=str(request.model)), hint="--model names a GGUF"
            )
        head_size_of(request.model)
    backend = request.backend or _backend_here(request.archs, runner)
    subject, _ = prepare_subject(workspace, request.archs, request.upstream, backend, environ)
    arms = build_arms(subject, backend)
    machine = machine_of(backend)
    small = SmallModel(head_size=64) if machine.is_cpu else _SMALL
    model = request.model or model_file(small, workspace.cache_root, workspace.reporter)
    setup = _setup(request, arms, backend, model, runner)
    root = request.out or workspace.cache_root / "bench" / _key(setup)
    with open_sweep(root, setup, fresh=request.fresh) as folder:
        sweep = _Sweep(
            request=request,
            subject=subject,
            arms=arms,
            machine=machine,
            model=model,
            folder=folder,
            runner=runner,
            reporter=workspace.reporter,
        )
        return sweep.report(*sweep.measure())


@dataclass(slots=True, kw_only=True)
class _Sweep:
    request: BenchRunRequest
    subject: Subject
    arms: tuple[BenchArm, ...]
    machine: Machine
    model: Path
    folder: SweepFolder
    runner: Runner
    reporter: Reporter
    options: dict[str, BenchOptions] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All that were asked for, in order."""
        plan = self.request.plan
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
                    self.reporter.info(
                        _outlook(run, f"{number + kept + 1} of {len(runs)}", took, missing[number:])
                    )
                    self._measure(run)
                    self._note_pace(run, took)
                advance(len(runs), len(runs))
        except KeyboardInterrupt as stop:
            stop.add_note(f"the run in progress is lost, all before it are kept in {self.folder.root}")
            raise
        return len(missing), kept

    def report(self, measured: int, kept: int) -> BenchRunReport:
        """Gather what was measured into a file per label, and compare the files."""
        files = {arm.label: self.folder.gather(arm.label, self.runs) for arm in self.arms}
        series = [
            Series(
                label=label,
                source=str(path),
                rows=tuple(row for run in self.runs if run.label == label for row in self.folder.rows(run)),
            )
            for label, path in files.items()
        ]
        looks = [Conditions(values=self.folder.conditions(run)) for run in self.runs]
        return BenchRunReport(
            table=compare_series(series),
            folder=self.folder.root,
            files=files,
            arms={arm.label: arm.what for arm in self.arms},
            model=self.model.name if self.request.model else "patchkit's small model with random weights",
            measured=measured,
            kept=kept,
            conditions=summarise(looks),
        )

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
            raise BenchHung(error.message, why=error.why, hint=hint) from error
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
        rows = parse_rows(done.stdout.decode("utf-8", "replace"), str(where))
        check_rows(rows, plan.device)
        check_device(self.machine, done.stderr.decode("utf-8", "replace"), self.subject.archs, where)
        asked = {(prompt, 0, run.depth) for prompt in plan.prompts if prompt}
        asked |= {(0, generated, run.depth) for generated in plan.generated if generated}
        found = [_lengths(row) for row in rows]
        if set(found) != asked or len(found) != len(asked):
            raise BenchTestsUnasked(
                f"llama-bench measured {len(found)} tests where {len(asked)} were asked for",
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
            shown = bench_arguments(options, self._plan(self.request.plan.depths[0]), str(self.model))
            self.reporter.info(f"{arm.label}: {shlex.join([str(arm.side.program('llama-bench')), *shown])}")
        return self.options[arm.label]

    def _plan(self, depth: int) -> BenchPlan:
        plan = self.request.plan
        return BenchPlan(
            prompts=plan.prompts,
            generated=plan.generated,
            depths=(depth,),
            batch=plan.batch,
            micro_batch=plan.micro_batch,
            repetitions=1,
            cache_type=plan.cache_type,
            threads=plan.threads,
            device=None if self.machine.is_cpu else self.machine.device,
        )

    def _job(self, arm: BenchArm, arguments: Sequence[str], tag: str) -> Job:
        folder = self.runner.place(arm.side.folder)
        return Job(
            argv=(f"{folder}/llama-bench", *arguments),
            tag=tag,
            env={"LD_LIBRARY_PATH": folder},
            timeout_s=_HELP_S if "--help" in arguments else self.request.timeout_s,
        )


def _outlook(run: Run, number: str, took: Mapping[int, Sequence[float]], missing: Sequence[Run]) -> str:
    left = seconds_left(took, [each.depth for each in missing])
    told = "" if left is None else f"; about {told_duration(left)} left"
    return f"run {number}: {run.label} at depth {run.depth}, repetition {run.repetition + 1}{told}"


def _lengths(row: BenchRow) -> tuple[int, int, int]:
    return row.test.prompt, row.test.generated, row.test.depth


def _backend_here(archs: Sequence[str], runner: Runner) -> BackendName:
    """HIP, where the GPU is; another machine is taken to have it. Raises DeviceMissing."""
    found = detect_gpus()
    if not isinstance(runner, LocalRunner) or set(found) & set(archs):
        return "hip"
    raise DeviceMissing(
        f"this machine has no {' or '.join(archs)} to measure on",
        why=f"the kernel reports {', '.join(found)}" if found else "the kernel reports no AMD GPU",
        hint="patchkit bench run --runner ssh://HOST where the GPU is, or --backend cpu to see how it works",
    )


def _setup(
    request: BenchRunRequest, arms: Sequence[BenchArm], backend: BackendName, model: Path, runner: Runner
) -> dict[str, object]:
    """What every run of a folder has in common; depths and repetitions may be added to later."""
    plan, state = request.plan, model.stat()
    return {
        "format": _FORMAT,
        "arms": {arm.label: arm.as_json() for arm in arms},
        "archs": list(request.archs),
        "backend": backend,
        "model": [model.name, state.st_size, state.st_mtime_ns if request.model else 0],
        "prompts": list(plan.prompts),
        "generated": list(plan.generated),
        "batch": [plan.batch, plan.micro_batch],
        "cache_type": plan.cache_type,
        "threads": plan.threads,
        "runner": runner.name,
    }


def _key(setup: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:16]
