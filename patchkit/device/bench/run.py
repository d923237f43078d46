"""Running llama-bench in rounds, keeping every output, going on where an interrupted run stopped."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from patchkit.base.errors import GateError, Location, ToolchainError
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.process import Completed, ToolTimeout
from patchkit.base.reporter import Reporter
from patchkit.device.bench.conditions import Conditions, read_conditions
from patchkit.device.bench.options import BenchPlan, bench_arguments, parse_help
from patchkit.device.bench.rounds import ARMS, Arm, Rounds, round_order
from patchkit.device.bench.rows import BenchRow, BenchUnreadable, parse_rows
from patchkit.device.program import has_lost_gpu, has_no_memory, signal_name
from patchkit.device.runner import Job, Runner

_TAIL = 15  # lines of stderr in a message
_SIGNALLED = 128  # a shell's status for a program that a signal ended, plus the signal


def read_output(completed: Completed, kept: Path) -> tuple[BenchRow, ...]:
    """The rows that a run wrote; ``kept`` is where its output lies. Raises BENCH_OUTPUT_UNREADABLE."""
    try:
        return parse_rows(completed.stdout.decode("utf-8", "replace"), str(kept))
    except BenchUnreadable as error:
        # Theirs is the exit code of a file that somebody named: this one a program wrote just now.
        raise ToolchainError(
            error.message, code="BENCH_OUTPUT_UNREADABLE", where=error.where, why=error.why, hint=error.hint
        ) from error


def bench_failure(completed: Completed, what: str, kept: Path) -> ToolchainError:
    """The error for a run that did not end with status 0; ``what`` names the arm and round."""
    text = completed.stderr.decode("utf-8", "replace")
    why = "\n".join(text.splitlines()[-_TAIL:]) or "it wrote nothing to stderr"
    again = "what was measured is kept; run the command again to go on from there"

    def failure(message: str, *, code: str, hint: str = again) -> ToolchainError:
        return ToolchainError(message, code=code, where=Location(path=str(kept)), why=why, hint=hint)

    status = completed.returncode
    number = -status if status < 0 else max(0, status - _SIGNALLED)
    if has_no_memory(text):
        hint = "a smaller model, or smaller depths"
        return failure(f"{what} ran out of memory", code="BENCH_OUT_OF_MEMORY", hint=hint)
    if has_lost_gpu(text):
        hint = f"look at the driver with: dmesg | tail; {again}"
        return failure(f"{what} lost the GPU", code="BENCH_GPU_LOST", hint=hint)
    if number == signal.SIGKILL:
        hint = f"the system may have run out of memory: dmesg | grep -i oom; {again}"
        return failure(f"{what} was killed", code="BENCH_OUT_OF_MEMORY", hint=hint)
    if number:
        return failure(f"{what} was ended by {signal_name(number)}", code="BENCH_CRASHED")
    return failure(f"{what} ended with status {status}", code="BENCH_FAILED")


_HELP_S = 60.0
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSetup:
    """What is measured. The two folders hold ``llama-bench`` and its libraries; ``timeout_s`` is per run.

    ``check_talk`` looks at what each run writes to stderr, and raises when it ran where it must not.
    """

    baseline: Path
    candidate: Path
    model: Path
    plan: BenchPlan
    baseline_tree: str
    candidate_tree: str
    timeout_s: float = 3600.0
    check_talk: Callable[[str, Path], None] | None = None

    def folder_of(self, arm: Arm) -> Path:
        """The programs of an arm: the baseline's for both arms of the baseline."""
        return self.candidate if arm == "candidate" else self.baseline

    def key(self, runner: str) -> str:
        """A digest of everything that makes two measurements comparable."""
        text = json.dumps(
            {
                "format": _FORMAT,
                "plan": asdict(self.plan),
                "trees": [self.baseline_tree, self.candidate_tree],
                "model": [self.model.name, self.model.stat().st_size],
                "runner": runner,
            },
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True, kw_only=True)
class BenchSession:
    """One measurement in progress."""

    setup: BenchSetup
    folder: Path
    name: str
    runner: Runner
    reporter: Reporter
    resumed: int = 0

    def arguments(self) -> tuple[str, ...]:
        """The command line behind the program's name, as the baseline's build takes it."""
        program = f"{self.runner.place(self.setup.baseline)}/llama-bench"
        job = Job(
            argv=(program, "--help"), tag=f"{self.name}-help", env=self._env("baseline"), timeout_s=_HELP_S
        )
        done = self.runner.run(job)
        if done.returncode != 0:
            raise bench_failure(done, "llama-bench --help of the baseline", self.folder)
        options = parse_help(done.stdout.decode("utf-8", "replace"))
        return tuple(bench_arguments(options, self.setup.plan, self.runner.place(self.setup.model)))

    def add_round(self, number: int, arguments: tuple[str, ...], into: Rounds) -> Conditions:
        """Measure one round, or take what an interrupted run left of it.

        Raises:
            BENCH_FAILED, BENCH_CRASHED, BENCH_HUNG, BENCH_OUT_OF_MEMORY, BENCH_GPU_LOST: it did not end well;
                its output is kept, and counts for nothing.
            BENCH_OUTPUT_UNREADABLE, BENCH_DEVICE_WRONG: its output is not a result.
            BenchUnreadable: what an interrupted run left was damaged since.
            CacheError: the disk refused.
        """
        rows: dict[Arm, tuple[BenchRow, ...]] = {}
        for arm in round_order(number):
            kept = self.folder / f"{number:03d}-{arm}.jsonl"
            if not kept.is_file():
                self._measure(arm, number, arguments, kept)
            else:
                self.resumed += 1
            rows[arm] = parse_rows(kept.read_text("utf-8", "replace"), str(kept))
            check_rows(rows[arm], self.setup.plan.device)
        into.add({arm: rows[arm] for arm in ARMS})
        return read_conditions(self.runner, f"{self.name}-{number:03d}")

    def close(self) -> None:
        """The session is complete: the next measurement begins a new one."""
        with disk_errors(self.folder, "keeping the samples"):
            (self.folder / "session.json").rename(self.folder / "finished.json")

    def _measure(self, arm: Arm, number: int, arguments: tuple[str, ...], kept: Path) -> None:
        folder = self.runner.place(self.setup.folder_of(arm))
        job = Job(
            argv=(f"{folder}/llama-bench", *arguments),
            tag=f"{self.name}-{number:03d}-{arm}",
            env=self._env(arm),
            timeout_s=self.setup.timeout_s,
        )
        what = f"llama-bench of the {arm} in round {number + 1}"
        failed = kept.with_suffix(".failed")
        try:
            done = self.runner.run(job)
        except ToolTimeout as error:
            raise ToolchainError(error.message, code="BENCH_HUNG", why=error.why, hint=error.hint) from error
        if done.returncode != 0:
            _keep(failed, done.stdout + done.stderr)
            raise bench_failure(done, what, failed)
        if self.setup.check_talk is not None:
            self.setup.check_talk(done.stderr.decode("utf-8", "replace"), self.folder)
        self._accept(done, kept, failed)

    def _accept(self, done: Completed, kept: Path, failed: Path) -> None:
        """Only what reads as a result gets the name of one; anything else is kept beside it."""
        try:
            read_output(done, failed)
        except ToolchainError:
            _keep(failed, done.stdout)
            raise
        _keep(kept, done.stdout)

    def _env(self, arm: Arm) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": self.runner.place(self.setup.folder_of(arm))}


@contextmanager
def open_session(
    setup: BenchSetup, folder: Path, *, runner: Runner, reporter: Reporter
) -> Iterator[BenchSession]:
    """Begin a session below ``folder``, or go on with the one of equal setup that was interrupted there."""
    place = folder / setup.key(runner.name)
    note = place / "session.json"
    with disk_errors(place, "preparing a measurement"):
        name = _interrupted(note)
        if name is not None:
            reporter.info(f"going on with the measurement {name}, which was interrupted")
        else:
            if place.is_dir():
                shutil.rmtree(place)
            place.mkdir(parents=True)
            name = secrets.token_hex(4)
            _keep(note, json.dumps({"name": name, "plan": asdict(setup.plan)}).encode())
    yield BenchSession(setup=setup, folder=place, name=name, runner=runner, reporter=reporter)


def _interrupted(note: Path) -> str | None:
    """The name of the session that the note is of; None when there is none, or none that can be read."""
    try:
        return str(json.loads(note.read_text("utf-8"))["name"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def check_rows(rows: tuple[BenchRow, ...], device: str | None) -> None:
    """Every row was measured on the device that was asked for (None: any). Raises BENCH_DEVICE_WRONG."""
    for row in rows:
        if device is None:
            continue
        backend = device.rstrip("0123456789")
        if row.device != device or not any(backend.lower() in name.lower() for name in row.backends):
            raise GateError(
                f"llama-bench ran on '{row.device}' with {', '.join(row.backends)}, not on {device}",
                code="BENCH_DEVICE_WRONG",
                why="figures of another device prove nothing of this one",
                hint="llama-bench --list-devices shows the names",
            )


def _keep(path: Path, data: bytes) -> None:
    write_whole(path, data, "keeping the output of llama-bench")
