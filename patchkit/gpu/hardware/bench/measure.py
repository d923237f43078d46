"""llama-bench of several builds by turns: a call is kept when it has ended, and none is made twice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from patchkit.base.digests import key_of
from patchkit.base.files import write_whole
from patchkit.base.reporter import Reporter
from patchkit.base.upstreams import llama_cpp
from patchkit.gpu.hardware.bench.journal import (
    ELSEWHERE,
    Journal,
    Line,
    Question,
    open_journal,
)
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.orphans import wait_for_orphans
from patchkit.gpu.hardware.bench.pace import seconds_left, told_duration
from patchkit.gpu.hardware.bench.program import LlamaBench
from patchkit.gpu.hardware.bench.rounds import Rounds, draw_order
from patchkit.gpu.hardware.bench.rows import BenchRow, parse_rows
from patchkit.gpu.hardware.runner import LocalRunner, Runner

_FORMAT = 2
_GROW = ("depths", "repetitions")  # of a plan: more of them may be measured later


class Called(Line):
    """A finished call: ``rows`` as llama-bench printed them, ``talk`` what it wrote to stderr."""

    kind: Literal["call"] = "call"
    round: Annotated[int, Field(ge=0)]
    label: str
    depths: Annotated[tuple[int, ...], Field(strict=False)]
    argv: Annotated[tuple[str, ...], Field(strict=False)]
    rows: str
    talk: str
    seconds: float
    conditions: dict[str, str]

    @property
    def question(self) -> Question:
        """Which round, build and depths."""
        return self.round, self.label, self.depths

    @property
    def told(self) -> str:
        """As errors name it."""
        return f"{self.label} at depth {_listed(self.depths)}, round {self.round}"


CALLS = TypeAdapter(Called)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A build: ``folder`` holds llama-bench and its libraries, ``tree`` and ``build`` tell it from others.

    ``what`` says in words what was built.
    """

    label: str
    folder: Path
    tree: str
    build: str = ""
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is measured where. ``model`` lies here. ``more``: what else makes two measurements one."""

    arms: tuple[Arm, ...]
    model: Path
    plan: BenchPlan
    runner: Runner
    more: Mapping[str, object] = field(default_factory=dict)

    def identity(self) -> dict[str, object]:
        """What all calls of a journal have in common; depths and repetitions may be added to later."""
        return {
            "format": _FORMAT,
            "arms": {
                arm.label: {"what": arm.what, "tree": arm.tree, "build": arm.build} for arm in self.arms
            },
            "model": [self.model.name, self.model.stat().st_size],
            **{name: value for name, value in asdict(self.plan).items() if name not in _GROW},
            "runner": self.runner.name,
            **self.more,
        }

    @property
    def key(self) -> str:
        """A digest of everything that makes two measurements comparable."""
        grown = {name: getattr(self.plan, name) for name in _GROW}
        return key_of({**self.identity(), **grown})[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call to make: an arm in a round, counted from 0, at some depths."""

    round: int
    arm: Arm
    depths: tuple[int, ...]

    @property
    def question(self) -> Question:
        """As :attr:`Called.question`."""
        return self.round, self.arm.label, self.depths

    @property
    def name(self) -> str:
        """Of files and tags."""
        return "-".join([f"{self.round:03d}", *(f"d{depth}" for depth in self.depths), self.arm.label])

    @property
    def told(self) -> str:
        """For a person."""
        return f"{self.arm.label} at depth {_listed(self.depths)}"


@dataclass(slots=True, kw_only=True)
class Bench:
    """One measurement in progress. ``depths`` of each call of a round; ``kept`` calls were made before."""

    setup: Setup
    journal: Journal[Called]
    program: LlamaBench
    reporter: Reporter
    depths: tuple[tuple[int, ...], ...]
    kept: int
    measured: int = 0

    def measure(self, rounds: int) -> None:
        """Have so many rounds in all; what an interrupted measurement left is not measured again.

        Raises:
            What :meth:`LlamaBench.call` raises; all calls before are kept.
            BENCH_STILL_RUNNING: another llama-bench would disturb it.
        """
        wanted = list(self._wanted(rounds))
        missing = [one for one in wanted if not self.journal.has(one.question)]
        before = len(wanted) - len(missing)
        if missing and isinstance(self.setup.runner, LocalRunner):
            wait_for_orphans(
                [arm.folder / llama_cpp().programs.bench for arm in self.setup.arms], self.reporter
            )
        took: dict[int, list[float]] = {}
        for entry in self.journal.entries:
            took.setdefault(max(entry.depths), []).append(entry.seconds)
        try:
            with self.reporter.progress("measuring", "runs") as advance:
                for number, one in enumerate(missing):
                    advance(before + number, len(wanted))
                    left = seconds_left(took, [max(each.depths) for each in missing[number:]])
                    told = "" if left is None else f"; about {told_duration(left)} left"
                    which = f"run {before + number + 1} of {len(wanted)}"
                    self.reporter.info(f"{which}: {one.told}, repetition {one.round + 1}{told}")
                    entry = self._call(one)
                    took.setdefault(max(entry.depths), []).append(entry.seconds)
                advance(len(wanted), len(wanted))
        except KeyboardInterrupt as stop:
            stop.add_note(f"the run in progress is lost, all before it are kept in {self.journal.folder}")
            raise

    def entries(self, rounds: int) -> tuple[Called, ...]:
        """The calls of the first rounds, in the order of rounds, depths and arms."""
        found = (
            self.journal.take((number, arm.label, depths))
            for number in range(rounds)
            for depths in self.depths
            for arm in self.setup.arms
        )
        return tuple(one for one in found if one is not None)

    def rows(self, entry: Called) -> tuple[BenchRow, ...]:
        """What a call measured."""
        return parse_rows(entry.rows, str(self.journal.path))

    def rounds(self, count: int) -> Rounds:
        """The samples of the first rounds. Raises BENCH_TESTS_DIFFER."""
        rows: list[dict[str, list[BenchRow]]] = [{} for _ in range(count)]
        for entry in self.entries(count):
            rows[entry.round].setdefault(entry.label, []).extend(self.rows(entry))
        made = Rounds()
        for one in rows:
            made.add(one)
        return made

    def gather(self, label: str, rounds: int) -> Path:
        """Write one file with every row of an arm. Raises CacheError."""
        path = self.journal.folder / f"{label}.jsonl"
        text = "".join(entry.rows for entry in self.entries(rounds) if entry.label == label)
        write_whole(path, text, "writing the results", ELSEWHERE)
        return path

    @property
    def conditions(self) -> tuple[dict[str, str], ...]:
        """In what state the machine was, in the order in which it was looked at."""
        return tuple(entry.conditions for entry in self.journal.entries if entry.conditions)

    def _wanted(self, rounds: int) -> Iterator[Wanted]:
        arms = {arm.label: arm for arm in self.setup.arms}
        seed = key_of(self.setup.identity())
        for number in range(rounds):
            for depths in self.depths:
                for label in draw_order(list(arms), number, f"{seed} {depths}"):
                    yield Wanted(round=number, arm=arms[label], depths=depths)

    def _call(self, one: Wanted) -> Called:
        build, model = one.arm.folder, self.setup.model
        failed = self.journal.folder / f"{one.name}.failed"
        # On another machine a call of equal tag is not run again: one that failed has another tag then.
        again = f"-{failed.stat().st_mtime_ns}" if failed.exists() else ""
        plan, tag = replace(self.setup.plan, depths=one.depths), f"{self.journal.name}-{one.name}{again}"
        if not any(entry.label == one.arm.label for entry in self.journal.entries):
            argv = self.program.argv(build, model, plan, tag=tag)
            self.reporter.info(f"{one.arm.label}: {shlex.join(argv)}")
        what = f"llama-bench of {one.told}"
        call = self.program.call(build, model, plan, tag=tag, what=what, failed=failed)
        entry = Called(
            number=len(self.journal.entries),
            round=one.round,
            label=one.arm.label,
            depths=one.depths,
            argv=call.argv,
            rows=call.text,
            talk=call.talk,
            seconds=round(call.seconds, 3),
            conditions=dict(call.conditions),
        )
        self.journal.add(entry)
        self.measured += 1
        failed.unlink(missing_ok=True)
        return entry


def _listed(depths: Sequence[int]) -> str:
    return ", ".join(map(str, depths))


@contextmanager
def open_bench(
    folder: Path,
    setup: Setup,
    *,
    reporter: Reporter,
    timeout_s: float,
    is_apart: bool = False,
    check_talk: Callable[[str, Path], None] | None = None,
    fresh: bool = False,
) -> Iterator[Bench]:
    """Begin a measurement in a folder, or go on with the one of equal setup that was interrupted there.

    ``is_apart``: each depth is a call of its own, so that an interruption loses less and depths can be added.
    The others as for :class:`LlamaBench` and :func:`open_journal`, which says what is raised.
    """
    depths = setup.plan.depths
    made = [f"{arm.label}.jsonl" for arm in setup.arms]
    with open_journal(folder, setup.identity(), CALLS, made=made, fresh=fresh) as journal:
        if journal.entries:
            reporter.info(f"going on with a measurement of {len(journal.entries)} runs in {folder}")
        yield Bench(
            setup=setup,
            journal=journal,
            program=LlamaBench(runner=setup.runner, timeout_s=timeout_s, check_talk=check_talk),
            reporter=reporter,
            depths=tuple((depth,) for depth in depths) if is_apart else (depths,),
            kept=len(journal.entries),
        )
