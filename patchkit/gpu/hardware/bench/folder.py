"""The folder of a sweep: outputs of runs that ended well or badly, locked by the process that measures."""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from patchkit.base.errors import Location, UsageError
from patchkit.base.evidence import MeasuredMachine
from patchkit.base.files import disk_errors, write_whole
from patchkit.base.process import Completed
from patchkit.gpu.hardware.bench.rows import BenchRow, parse_rows
from patchkit.gpu.hardware.machine_facts import MACHINE_FILE

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
        """What the names of its files begin with."""
        return f"{self.repetition:03d}-d{self.depth}-{self.label}"


def plan_runs(labels: Sequence[str], depths: Sequence[int], repetitions: int) -> tuple[Run, ...]:
    """Every run, in the order in which they are made.

    The labels take turns at each depth, and another one begins in every repetition: what changes with time,
    such as heat, meets all of them.
    """
    runs = []
    for repetition in range(repetitions):
        turn = repetition % len(labels)
        order = [*labels[turn:], *labels[:turn]]
        runs += [Run(repetition=repetition, depth=depth, label=label) for depth in depths for label in order]
    return tuple(runs)


class RunNote(BaseModel):
    """How a run was made, if that is known; ``conditions`` are the machine's."""

    argv: tuple[str, ...] = ()
    seconds: float | None = None
    conditions: Mapping[str, str] = {}


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
        note = RunNote(argv=done.argv, seconds=round(done.seconds, 2), conditions=conditions)
        _write(self._file(run, "log"), done.stderr)
        _write(self._file(run, "json"), note.model_dump_json(indent=1).encode())
        _write(self._file(run, "jsonl"), done.stdout)  # last: with it the run is kept
        self.failed(run).unlink(missing_ok=True)

    def failed(self, run: Run) -> Path:
        """Where the output of a run lies that counts for nothing."""
        return self._file(run, "failed")

    def rows(self, run: Run) -> tuple[BenchRow, ...]:
        """Of a kept run; raises what reading them raises, should somebody have changed the file."""
        path = self._file(run, "jsonl")
        with disk_errors(path, "reading a measurement", _ELSEWHERE):
            text = path.read_text("utf-8", "replace")
        return parse_rows(text, str(path), hint=f"remove it and run the command again: rm {path}")

    def note(self, run: Run) -> RunNote:
        """How a kept run was made; an empty one when its note cannot be read."""
        try:
            return RunNote.model_validate_json(self._file(run, "json").read_bytes())
        except (OSError, ValueError):
            return RunNote()

    def keep_machine(self, machine: MeasuredMachine) -> None:
        """Say once on which machine the runs here are made. Raises CacheError."""
        path = self.root / _RUNS / MACHINE_FILE
        if not path.is_file():
            _write(path, machine.model_dump_json(indent=1).encode())

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
def alone_in(folder: Path, lock: str, *, code: str, doing: str, elsewhere: str) -> Iterator[None]:
    """A folder of measurements, which is made, for this process alone; ``lock`` is the name of a file in it.

    Raises a UsageError of that ``code`` while another process has it, and CacheError.
    """
    with disk_errors(folder, doing, elsewhere):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / lock).open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                "another patchkit measures into this folder",
                code=code,
                where=Location(path=str(folder)),
                why="two measurements at once would also disturb each other",
                hint="wait for it, or end it",
            ) from error
        yield


@contextmanager
def open_sweep(root: Path, setup: Mapping[str, object], *, fresh: bool) -> Iterator[SweepFolder]:
    """Begin a sweep in a folder, or go on with the one of equal setup that lies there.

    ``fresh`` throws away what was measured there. Raises BENCH_FOLDER_BUSY, BENCH_FOLDER_OTHER, CacheError.
    """
    refuse_other_folder(root)
    doing = "preparing a measurement"
    with alone_in(root, _LOCK, code="BENCH_FOLDER_BUSY", doing=doing, elsewhere=_ELSEWHERE):
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
