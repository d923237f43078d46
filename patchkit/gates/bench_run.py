"""Running llama-bench in rounds, keeping every output, going on where an interrupted run stopped.

Vocabulary: a *session* is one measurement; its folder holds ``session.json`` (what is measured, and a name of
its own) and one output per arm and round. A session of the same setup that was interrupted is gone on with;
a finished one is left alone, and the next measurement begins a new one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from patchkit.bench.options import BenchPlan, bench_arguments, parse_help
from patchkit.bench.rounds import ARMS, Arm, Rounds, round_order
from patchkit.bench.rows import BenchRow, parse_rows
from patchkit.errors import GateError, ToolchainError
from patchkit.gates.bench_conditions import Conditions, read_conditions
from patchkit.gates.bench_errors import (
    BenchOutputUnreadable,
    bench_failure,
    read_output,
)
from patchkit.proc import Completed, ToolTimeout
from patchkit.report import Reporter
from patchkit.runner.base import Job, Runner
from patchkit.vcs.disk import disk_errors, write_whole

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
            BenchFailed, BenchCrashed, BENCH_HUNG, BenchOutOfMemory, BenchGpuLost: a program did not end well;
                its output is kept, and counts for nothing.
            BenchOutputUnreadable, BENCH_DEVICE_WRONG: its output is not a result.
            BenchGarbage, BenchTruncated, BenchFieldMissing: what an interrupted run left was damaged since.
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
        except BenchOutputUnreadable:
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
