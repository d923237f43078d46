"""The meter of ``pick``: answers from the journal if it can, else measures or checks and adds to the journal.

Every run makes the decision again from the first line of the journal, and so asks the same questions. With
more time it asks further ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from patchkit.gpu.hardware.bench.journal import Journal, Question, journal_error
from patchkit.prove.bench.visits import Checked, JournalEntry, Visited, listed
from patchkit.prove.pick.decide import Visit, VisitTimes
from patchkit.prove.pick.factorial import Arm

PICKED = "picked.toml"
RESULT = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What a machine measured in a visit: all samples in nanoseconds by test, and its conditions."""

    samples_ns: Mapping[str, tuple[int, ...]]
    seconds: float
    conditions: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """A machine that measures: the user's, or a simulated one."""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Build these arms."""
        ...

    def sample(self, visit: Visit) -> Sampled:
        """Run a visit. An error ends the run, and nothing of the visit counts."""
        ...

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """Describe what an arm computes wrong; None if its results are right.

        ``is_search`` as for :meth:`patchkit.prove.pick.decide.Meter.fault_of`.
        """
        ...

    def tree_of(self, arm: Arm) -> str:
        """The hash of an arm's tree."""
        ...

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        ...


@dataclass(slots=True, kw_only=True)
class KeptMeter:
    """Answers from the journal while it has entries, then from the machine; new entries are kept immediately.

    ``clock`` gives seconds and is only used to measure durations.
    """

    journal: Journal[JournalEntry]
    source: Source
    clock: Callable[[], float] = time.monotonic

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Build arms that are about to be measured; kept results need no build."""
        if not self.journal.kept:
            self.source.prepare(arms)

    def measure(self, visit: Visit) -> VisitTimes:
        """The fastest repetition of each test of a visit.

        Disturbances make a program slower, never faster, and the first repetitions record graphs. On four
        H100, of three repetitions of ``tg64`` the first was off by 13 to 28 % from call to call, the median
        by 3 to 11 %, the fastest by 1 to 5 % (six runs, 2026-11-27, docs/records/pick.md).
        """
        entry = self._kept((visit.stage, visit.round, visit.model, visit.arm, visit.is_again))
        if not isinstance(entry, Visited):
            sampled = self.source.sample(visit)
            entry = Visited(
                number=len(self.journal.entries),
                stage=visit.stage,
                round=visit.round,
                again=visit.is_again,
                arm=visit.arm,
                tree=self.source.tree_of(visit.arm),
                model=visit.model,
                model_hash=self.source.hash_of(visit.model),
                samples_ns=dict(sampled.samples_ns),
                seconds=round(sampled.seconds, 3),
                conditions=dict(sampled.conditions),
            )
            self.journal.add(entry)
        times = {test: min(samples) for test, samples in entry.samples_ns.items()}
        return VisitTimes(times=times, seconds=entry.seconds)

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong, from the journal or by checking it."""
        entry = self._kept((arm,))
        if not isinstance(entry, Checked):
            start = self.clock()
            fault = self.source.check(arm, is_search=is_search)
            entry = Checked(
                number=len(self.journal.entries),
                arm=arm,
                tree=self.source.tree_of(arm),
                fault=fault,
                seconds=round(self.clock() - start, 3),
            )
            self.journal.add(entry)
        return entry.fault

    def _kept(self, question: Question) -> JournalEntry | None:
        entry = self.journal.take(question)
        if entry is not None and entry.tree != (tree := self.source.tree_of(entry.arm)):
            change = f"the tree of {listed(entry.arm)} was {entry.tree}, is now {tree}"
            raise journal_error(self.journal.path, entry.line, change)
        return entry
