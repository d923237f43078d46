"""Measures several builds with llama-bench in interleaved rounds, resuming from finished calls."""

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
from patchkit.gpu.hardware.bench.program import LlamaBench
from patchkit.gpu.hardware.bench.remaining_time import format_duration, seconds_left
from patchkit.gpu.hardware.bench.rounds import Rounds, draw_order
from patchkit.gpu.hardware.bench.rows import BenchRow, parse_rows
from patchkit.gpu.hardware.runner import LocalRunner, Runner

_FORMAT = 2
_GROW = ("depths", "repetitions")  # settings of a plan that can be extended later


class Called(Line):
    """A finished call: ``rows`` is llama-bench's stdout, ``talk`` its stderr."""

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
        """Round, build and depths."""
        return self.round, self.label, self.depths

    @property
    def text(self) -> str:
        """The call's description in errors."""
        return f"{self.label} at depth {_listed(self.depths)}, round {self.round}"


CALLS = TypeAdapter(Called)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A build: ``folder`` has llama-bench and its libraries; ``tree`` and ``build`` identify it.

    ``what`` describes it in words. ``env``: variables with which it is run, for example to turn patches off.
    """

    label: str
    folder: Path
    tree: str
    build: str = ""
    what: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What to measure, and where. ``model`` is a local path. ``more``: further parts of the identity."""

    arms: tuple[Arm, ...]
    model: Path
    plan: BenchPlan
    runner: Runner
    more: Mapping[str, object] = field(default_factory=dict)

    def identity(self) -> dict[str, object]:
        """What all calls of a journal have in common; depths and repetitions may be extended later."""
        return {
            "format": _FORMAT,
            "arms": {
                arm.label: {
                    "what": arm.what,
                    "tree": arm.tree,
                    "build": arm.build,
                    **({"env": dict(arm.env)} if arm.env else {}),
                }
                for arm in self.arms
            },
            "model": [self.model.name, self.model.stat().st_size],
            **{name: value for name, value in asdict(self.plan).items() if name not in _GROW},
            "runner": self.runner.name,
            **self.more,
        }

    @property
    def key(self) -> str:
        """A digest of everything that must be equal for two measurements to be comparable."""
        grown = {name: getattr(self.plan, name) for name in _GROW}
        return key_of({**self.identity(), **grown})[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call to make: a build in a round (counted from 0), at some depths."""

    round: int
    arm: Arm
    depths: tuple[int, ...]

    @property
    def question(self) -> Question:
        """As :attr:`Called.question`."""
        return self.round, self.arm.label, self.depths

    @property
    def name(self) -> str:
        """Name for files and tags."""
        return "-".join([f"{self.round:03d}", *(f"d{depth}" for depth in self.depths), self.arm.label])

    @property
    def text(self) -> str:
        """Description for progress messages."""
        return f"{self.arm.label} at depth {_listed(self.depths)}"


@dataclass(slots=True, kw_only=True)
class Bench:
    """A measurement in progress. ``depths``: those of each call in a round; ``kept``: calls resumed from."""

    setup: Setup
    journal: Journal[Called]
    program: LlamaBench
    reporter: Reporter
    depths: tuple[tuple[int, ...], ...]
    kept: int
    measured: int = 0

    def measure(self, rounds: int) -> None:
        """Measure up to ``rounds`` rounds in total; calls in the journal are not repeated.

        Raises:
            The errors of :meth:`LlamaBench.call`; earlier calls are kept.
            BENCH_FAILED: another llama-bench would disturb the measurement.
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
                    remaining = "" if left is None else f"; about {format_duration(left)} left"
                    which = f"run {before + number + 1} of {len(wanted)}"
                    self.reporter.info(f"{which}: {one.text}, repetition {one.round + 1}{remaining}")
                    entry = self._call(one)
                    took.setdefault(max(entry.depths), []).append(entry.seconds)
                advance(len(wanted), len(wanted))
        except KeyboardInterrupt as stop:
            stop.add_note(f"the run in progress is lost; all earlier runs are kept in {self.journal.folder}")
            raise

    def entries(self, rounds: int) -> tuple[Called, ...]:
        """The calls of the first rounds, ordered by round, depth and build."""
        found = (
            self.journal.take((number, arm.label, depths))
            for number in range(rounds)
            for depths in self.depths
            for arm in self.setup.arms
        )
        return tuple(one for one in found if one is not None)

    def rows(self, entry: Called) -> tuple[BenchRow, ...]:
        """The parsed rows of a call."""
        return parse_rows(entry.rows, str(self.journal.path))

    def rounds(self, count: int) -> Rounds:
        """The samples of the first rounds. Raises BENCH_FAILED."""
        rows: list[dict[str, list[BenchRow]]] = [{} for _ in range(count)]
        for entry in self.entries(count):
            rows[entry.round].setdefault(entry.label, []).extend(self.rows(entry))
        collected = Rounds()
        for one in rows:
            collected.add(one)
        return collected

    def gather(self, label: str, rounds: int) -> Path:
        """Write all rows of a build to one file. Raises CacheError."""
        path = self.journal.folder / f"{label}.jsonl"
        text = "".join(entry.rows for entry in self.entries(rounds) if entry.label == label)
        write_whole(path, text, "writing the results", ELSEWHERE)
        return path

    @property
    def conditions(self) -> tuple[dict[str, str], ...]:
        """The machine's conditions, in the order in which they were sampled."""
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
        # A remote runner returns the earlier result for an equal tag, so retries of a failed call get
        # another.
        again = f"-{failed.stat().st_mtime_ns}" if failed.exists() else ""
        plan, tag = replace(self.setup.plan, depths=one.depths), f"{self.journal.name}-{one.name}{again}"
        if not any(entry.label == one.arm.label for entry in self.journal.entries):
            argv = self.program.argv(build, model, plan, tag=tag)
            self.reporter.info(f"{one.arm.label}: {shlex.join(argv)}")
        what = f"llama-bench of {one.text}"
        call = self.program.call(build, model, plan, tag=tag, what=what, failed=failed, env=one.arm.env)
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
    """Start a measurement in a folder, or resume the interrupted one of equal setup that is there.

    ``is_apart``: one call per depth, so that an interruption loses less and depths can be added. For the
    other arguments and errors see :class:`LlamaBench` and :func:`open_journal`.
    """
    depths = setup.plan.depths
    derived = [f"{arm.label}.jsonl" for arm in setup.arms]
    with open_journal(folder, setup.identity(), CALLS, derived=derived, fresh=fresh) as journal:
        if journal.entries:
            reporter.info(f"resuming a measurement with {len(journal.entries)} finished runs in {folder}")
        yield Bench(
            setup=setup,
            journal=journal,
            program=LlamaBench(runner=setup.runner, timeout_s=timeout_s, check_talk=check_talk),
            reporter=reporter,
            depths=tuple((depth,) for depth in depths) if is_apart else (depths,),
            kept=len(journal.entries),
        )
