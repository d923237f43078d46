"""Running llama-bench in rounds, keeping every output, going on where an interrupted run stopped."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from patchkit.base.errors import ToolchainError
from patchkit.base.files import disk_errors
from patchkit.base.reporter import Reporter
from patchkit.gpu.hardware.bench.conditions import read_conditions
from patchkit.gpu.hardware.bench.options import BenchPlan, bench_arguments
from patchkit.gpu.hardware.bench.program import (
    ask_options,
    check_rows,
    keep_output,
    read_output,
    run_bench_program,
)
from patchkit.gpu.hardware.bench.rounds import ARMS, Arm, Rounds, round_order
from patchkit.gpu.hardware.bench.rows import BenchRow, parse_rows
from patchkit.gpu.hardware.runner import Runner

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
    """One measurement in progress: its ``rounds``, and the state of the machine after each.

    ``resumed`` counts the runs that were taken from an interrupted measurement.
    """

    setup: BenchSetup
    folder: Path
    name: str
    runner: Runner
    reporter: Reporter
    rounds: Rounds = field(default_factory=Rounds)
    conditions: list[dict[str, str]] = field(default_factory=list)
    resumed: int = 0
    _arguments: list[str] = field(default_factory=list)

    def add_round(self) -> None:
        """Measure the next round, or take what an interrupted run left of it.

        Raises:
            BENCH_FAILED, BENCH_CRASHED, BENCH_HUNG, BENCH_OUT_OF_MEMORY, BENCH_GPU_LOST: it did not end well;
                its output is kept, and counts for nothing.
            BENCH_OUTPUT_UNREADABLE, BENCH_DEVICE_WRONG: its output is not a result.
            BenchUnreadable: what an interrupted run left was damaged since.
            CacheError: the disk refused.
        """
        number = self.rounds.count
        rows: dict[Arm, tuple[BenchRow, ...]] = {}
        for arm in round_order(number):
            kept = self.folder / f"{number:03d}-{arm}.jsonl"
            if not kept.is_file():
                self._measure(arm, number, kept)
            else:
                self.resumed += 1
            rows[arm] = parse_rows(kept.read_text("utf-8", "replace"), str(kept))
            check_rows(rows[arm], self.setup.plan.device)
        self.rounds.add({arm: rows[arm] for arm in ARMS})
        self.conditions.append(read_conditions(self.runner, f"{self.name}-{number:03d}"))

    def close(self) -> None:
        """The session is complete: the next measurement begins a new one."""
        with disk_errors(self.folder, "keeping the samples"):
            (self.folder / "session.json").rename(self.folder / "finished.json")

    def _measure(self, arm: Arm, number: int, kept: Path) -> None:
        failed = kept.with_suffix(".failed")
        done = run_bench_program(
            self.runner,
            self.setup.folder_of(arm),
            self._command(),
            tag=f"{self.name}-{number:03d}-{arm}",
            timeout_s=self.setup.timeout_s,
            what=f"llama-bench of the {arm} in round {number + 1}",
            failed=failed,
        )
        if self.setup.check_talk is not None:
            self.setup.check_talk(done.stderr.decode("utf-8", "replace"), self.folder)
        try:
            read_output(done, failed)
        except ToolchainError:
            keep_output(failed, done.stdout)
            raise
        keep_output(kept, done.stdout)  # only what reads as a result gets the name of one

    def _command(self) -> list[str]:
        """What stands behind the program's name, as the baseline's build takes it; asked for once."""
        if not self._arguments:
            options = ask_options(
                self.runner,
                self.setup.baseline,
                tag=f"{self.name}-help",
                label="the baseline",
                kept=self.folder,
            )
            model = self.runner.place(self.setup.model)
            self._arguments = bench_arguments(options, self.setup.plan, model)
        return self._arguments


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
            keep_output(note, json.dumps({"name": name, "plan": asdict(setup.plan)}).encode())
    yield BenchSession(setup=setup, folder=place, name=name, runner=runner, reporter=reporter)


def _interrupted(note: Path) -> str | None:
    """The name of the session that the note is of; None when there is none, or none that can be read."""
    try:
        return str(json.loads(note.read_text("utf-8"))["name"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
