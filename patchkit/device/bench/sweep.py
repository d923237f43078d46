"""The calls of a sweep: what is missing is measured, one call of llama-bench after the other."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError, ToolchainError, UsageError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.process import Completed, ToolTimeout
from patchkit.base.reporter import Reporter
from patchkit.build.machine import Source, build_side
from patchkit.build.parts import BackendName
from patchkit.build.sides import BuiltSide, Workshop
from patchkit.build.toolchain import rocwmma_for
from patchkit.candidate.build import Machine, build_sides, check_device
from patchkit.candidate.subject import Subject
from patchkit.device.bench.conditions import Conditions, read_conditions, summarise
from patchkit.device.bench.options import BenchOptions, BenchPlan, bench_arguments, parse_help
from patchkit.device.bench.rows import BenchRow, parse_rows
from patchkit.device.bench.run import bench_failure, check_rows, read_output
from patchkit.device.bench.tables import Series, Table, compare_series
from patchkit.device.runner import Job, LocalRunner, Runner
from patchkit.edits.tree import OPTIONS_FILE, declares_option

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


_PROGRAMS = ("llama-bench",)
_ROCWMMA_OPTION = "GGML_HIP_ROCWMMA_FATTN"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchArm:
    """``side`` is ready to run; ``what`` says in words what was built."""

    label: str
    what: str
    side: BuiltSide

    def as_json(self) -> dict[str, str]:
        """What makes two measurements of the label comparable."""
        return {"what": self.what, "tree": self.side.tree, "build": self.side.identity}


def build_arms(subject: Subject, backend: BackendName) -> tuple[BenchArm, ...]:
    """Build what is missing of every arm.

    Raises:
        ROCWMMA_MISSING: upstream has a kernel on rocWMMA, and there is no rocWMMA to measure it with.
        CandidateBuildFailed: the candidate does not build, the baseline does.
        The errors of :func:`patchkit.build.machine.build_side`.
    """
    two_baselines = backend == "hip" and _offers_rocwmma(subject)
    if two_baselines:
        _check_rocwmma(subject)
    sides = build_sides(subject, backend, _PROGRAMS)
    upstream = f"build {subject.build}"
    candidate = BenchArm(label="candidate", what=f"{upstream} with the patches", side=sides.after)
    if not two_baselines:
        label = "HIP" if backend == "hip" else "baseline"
        return BenchArm(label=label, what=upstream, side=sides.before), candidate
    subject.reporter.step("building the baseline without rocWMMA")
    plain = build_side(
        Source(
            root=subject.baseline,
            tree=subject.baseline_tree,
            build=subject.build,
            commit=subject.base[:9] or subject.baseline_tree[:9],
        ),
        backend,
        archs=subject.archs,
        toolchain=subject.toolchain,
        programs=_PROGRAMS,
        workshop=Workshop(cache_root=subject.cache_root, reporter=subject.reporter),
        with_rocwmma=False,
    )
    return (
        BenchArm(label="HIP", what=f"{upstream} without rocWMMA", side=plain),
        BenchArm(label="rocWMMA", what=f"{upstream} with rocWMMA", side=sides.before),
        candidate,
    )


def _offers_rocwmma(subject: Subject) -> bool:
    """Whether the baseline can be built with rocWMMA: upstream dropped the option after build 10068."""
    path = subject.baseline / OPTIONS_FILE
    return path.is_file() and declares_option(_ROCWMMA_OPTION, path.read_bytes())


def _check_rocwmma(subject: Subject) -> None:
    toolchain = subject.toolchain
    if toolchain is None:
        return  # building says what is missing
    lacking = [arch for arch in subject.archs if not _is_real(subject, arch)]
    if lacking:
        raise ToolchainError(
            f"there is no rocWMMA for {' and '.join(lacking)} to measure with",
            code="ROCWMMA_MISSING",
            where=Location(path=str(toolchain.root)),
            why="patchkit's stand-in header is for compiling and counting, not for speed",
            hint="install rocWMMA of your ROCm (package rocwmma-dev or rocwmma-devel)",
        )


def _is_real(subject: Subject, arch: str) -> bool:
    found = rocwmma_for(subject.toolchain, arch) if subject.toolchain is not None else None
    return found is not None and found.kind != "stand-in"


_PROCESSES = Path("/proc")
_LOOK_S = 1.0
_PATIENCE_S = 3600.0  # as long as a single call may take


def wait_for_orphans(
    programs: Sequence[Path], reporter: Reporter, patience_s: float = _PATIENCE_S, look_s: float = _LOOK_S
) -> None:
    """Return when none of the programs runs. Raises BENCH_STILL_RUNNING after ``patience_s`` seconds."""
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
            reporter.info(f"waiting for llama-bench of an interrupted measurement (process {ids})")
            told = True
        time.sleep(look_s)


def processes_of(programs: Sequence[Path], processes: Path = _PROCESSES) -> list[int]:
    """The ids of the processes that run one of the programs, sorted; another user's are not seen."""
    wanted = {os.path.realpath(program) for program in programs}
    found = []
    for path in processes.glob("[0-9]*/exe"):
        try:
            if os.readlink(path) in wanted:  # noqa: PTH115  # a string, which may end with " (deleted)"
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is another user's
            continue
    return sorted(found)


_NOTE = "session.json"
_LOCK = "lock"
_RUNS = "runs"
_NAME = "name"
_ELSEWHERE = "name another folder with --out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``repetition`` counts from 0, ``depth`` is in tokens."""

    repetition: int
    depth: int
    label: str

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.repetition:03d}-d{self.depth}-{self.label}"


def plan_runs(labels: Sequence[str], depths: Sequence[int], repetitions: int) -> tuple[Run, ...]:
    """Every run in the order to do them.

    The labels take turns at each depth, and another one begins in every repetition: what changes with time,
    such as heat, meets all of them.
    """
    runs = []
    for repetition in range(repetitions):
        turn = repetition % len(labels)
        order = [*labels[turn:], *labels[:turn]]
        runs += [Run(repetition=repetition, depth=depth, label=label) for depth in depths for label in order]
    return tuple(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """An opened folder, this process's alone. ``name`` tells this sweep from others of the same setup."""

    root: Path
    name: str

    def is_kept(self, run: Run) -> bool:
        """Whether it was measured."""
        return self._file(run, "jsonl").is_file()

    def tag(self, run: Run) -> str:
        """What tells a call from every other one, and from the one of the same run that failed before."""
        failed = self.failed(run)
        again = f"-{failed.stat().st_mtime_ns}" if failed.exists() else ""
        return f"{self.name}-{run.name}{again}"

    def keep(self, run: Run, done: Completed, conditions: Mapping[str, str]) -> None:
        """Take the output of a run that ended well and whose rows are sound. Raises CacheError."""
        note = {"argv": list(done.argv), "seconds": round(done.seconds, 2), "conditions": dict(conditions)}
        _write(self._file(run, "log"), done.stderr)
        _write(self._file(run, "json"), json.dumps(note, indent=1).encode())
        _write(self._file(run, "jsonl"), done.stdout)  # last: with it the run is kept
        self.failed(run).unlink(missing_ok=True)

    def refuse(self, run: Run, output: bytes) -> Path:
        """Lay the output of a run that counts for nothing beside the others. Raises CacheError."""
        path = self.failed(run)
        _write(path, output)
        return path

    def failed(self, run: Run) -> Path:
        """Where :meth:`refuse` puts it."""
        return self._file(run, "failed")

    def rows(self, run: Run) -> tuple[BenchRow, ...]:
        """Of a kept run; raises what reading them raises, should somebody have changed the file."""
        path = self._file(run, "jsonl")
        with disk_errors(path, "reading a measurement", _ELSEWHERE):
            text = path.read_text("utf-8", "replace")
        return parse_rows(text, str(path), hint=f"remove it and run the command again: rm {path}")

    def seconds(self, run: Run) -> float | None:
        """How long a kept run took; None when its note cannot be read."""
        try:
            return float(json.loads(self._file(run, "json").read_text("utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def conditions(self, run: Run) -> dict[str, str]:
        """The machine's state after a kept run; empty when its note cannot be read."""
        try:
            found = json.loads(self._file(run, "json").read_text("utf-8"))["conditions"]
            return {str(name): str(value) for name, value in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def gather(self, label: str, runs: Sequence[Run]) -> Path:
        """Write one file with every row of a label, in the order of the runs. Raises CacheError."""
        path = self.root / f"{label}.jsonl"
        kept = [self._file(run, "jsonl") for run in runs if run.label == label and self.is_kept(run)]
        with disk_errors(path, "writing the results", _ELSEWHERE):
            content = b"".join(each.read_bytes() for each in kept)
        _write(path, content)
        return path

    def _file(self, run: Run, ending: str) -> Path:
        return self.root / _RUNS / f"{run.name}.{ending}"


def refuse_other_folder(root: Path) -> None:
    """A folder with content must be one of a sweep. Raises BENCH_FOLDER_OTHER, CacheError."""
    with disk_errors(root, "preparing a measurement", _ELSEWHERE):
        if root.is_dir() and not (root / _NOTE).exists() and {path.name for path in root.iterdir()} - {_LOCK}:
            raise UsageError(
                "the folder holds no measurement of patchkit, and is not empty",
                code="BENCH_FOLDER_OTHER",
                where=Location(path=str(root)),
                hint="name an empty or a new folder with --out",
            )


@contextmanager
def open_sweep(root: Path, setup: Mapping[str, object], *, fresh: bool) -> Iterator[SweepFolder]:
    """Begin a sweep in a folder, or go on with the one of equal setup that lies there.

    ``fresh`` throws away what was measured there. Raises BENCH_FOLDER_BUSY, BENCH_FOLDER_OTHER, CacheError.
    """
    refuse_other_folder(root)
    with disk_errors(root, "preparing a measurement", _ELSEWHERE):
        root.mkdir(parents=True, exist_ok=True)
        file = (root / _LOCK).open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                "another patchkit measures into this folder",
                code="BENCH_FOLDER_BUSY",
                where=Location(path=str(root)),
                why="two measurements at once would also disturb each other",
                hint="wait for it, or end it",
            ) from error
        with disk_errors(root, "preparing a measurement", _ELSEWHERE):
            if fresh:
                shutil.rmtree(root / _RUNS, ignore_errors=True)
            elif (root / _NOTE).exists():
                _check(root / _NOTE, setup)
            (root / _RUNS).mkdir(exist_ok=True)
            name = _name(root / _RUNS / _NAME)
        _write(root / _NOTE, json.dumps(setup, indent=1, sort_keys=True).encode() + b"\n")
        yield SweepFolder(root=root, name=name)


def _name(path: Path) -> str:
    """The name of the sweep whose runs lie there; a new one when there are none yet."""
    if not path.exists():
        _write(path, secrets.token_hex(4).encode())
    return path.read_text("ascii", "replace")


def _check(note: Path, setup: Mapping[str, object]) -> None:
    """The note of an earlier sweep says the same as the setup of this one. Raises BENCH_FOLDER_OTHER."""
    try:
        earlier = json.loads(note.read_text("utf-8"))
    except ValueError:
        earlier = None
    if not isinstance(earlier, dict):
        why = "its note cannot be read"
    else:
        now = json.loads(json.dumps(setup))
        differing = sorted(name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name))
        if not differing:
            return
        why = "; ".join(f"{name} was {earlier.get(name)!r}, is {now.get(name)!r}"[:300] for name in differing)
    raise UsageError(
        "the folder holds a measurement of something else",
        code="BENCH_FOLDER_OTHER",
        where=Location(path=str(note)),
        why=why,
        hint="name another folder with --out, or throw that measurement away with --fresh",
    )


def _write(path: Path, data: bytes) -> None:
    write_whole(path, data, "keeping the output of llama-bench", _ELSEWHERE)


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
