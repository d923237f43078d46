"""The meter of ``pick``: it answers from the journal what was measured or checked, and has the rest measured.

The decision is made anew from the first line of the journal each time, and asks the same again; with more
time it asks for more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from patchkit.gpu.hardware.bench.journal import Journal, Question, journal_error
from patchkit.prove.bench.visits import Checked, Entry, Visited, listed
from patchkit.prove.pick.crossing import Arm
from patchkit.prove.pick.decide import Measured, Visit

PICKED = "picked.toml"
RESULT = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What a machine gives for a visit: all samples in nanoseconds by test, and how it was."""

    samples_ns: Mapping[str, tuple[int, ...]]
    seconds: float
    conditions: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """A machine that measures: the one of the user, or a played one."""

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Have these arms ready."""
        ...

    def sample(self, visit: Visit) -> Sampled:
        """Run a visit. What it raises ends the run, and nothing of the visit counts."""
        ...

    def check(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong, in words; None when it computes right.

        ``is_search`` as for :meth:`patchkit.prove.pick.decide.Meter.fault_of`.
        """
        ...

    def tree_of(self, arm: Arm) -> str:
        """The hash of the tree of an arm."""
        ...

    def hash_of(self, model: str) -> str:
        """The hash of a model's file."""
        ...


@dataclass(slots=True, kw_only=True)
class KeptMeter:
    """Answers from the journal as long as it has something, and then from the machine, which is kept at once.

    ``clock`` gives seconds; how long something took is all that is asked of it.
    """

    journal: Journal[Entry]
    source: Source
    clock: Callable[[], float] = time.monotonic

    def prepare(self, arms: Sequence[Arm]) -> None:
        """Have arms ready, if they are to be measured now: what is kept needs no build."""
        if not self.journal.kept:
            self.source.prepare(arms)

    def measure(self, visit: Visit) -> Measured:
        """The fastest repetition of each test of a visit.

        What disturbs a program makes it slower, never faster, and the first repetitions record graphs: on
        four H100, of three repetitions of ``tg64`` the first was off by 13 to 28 % from call to call, their
        median by 3 to 11 %, the fastest by 1 to 5 % (six runs, 2026-11-27, docs/records/pick.md).
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
        return Measured(times=times, seconds=entry.seconds)

    def fault_of(self, arm: Arm, *, is_search: bool = False) -> str | None:
        """What an arm computes wrong."""
        entry = self._kept((arm,))
        if not isinstance(entry, Checked):
            began = self.clock()
            fault = self.source.check(arm, is_search=is_search)
            entry = Checked(
                number=len(self.journal.entries),
                arm=arm,
                tree=self.source.tree_of(arm),
                fault=fault,
                seconds=round(self.clock() - began, 3),
            )
            self.journal.add(entry)
        return entry.fault

    def _kept(self, question: Question) -> Entry | None:
        entry = self.journal.take(question)
        if entry is not None and entry.tree != (tree := self.source.tree_of(entry.arm)):
            told = f"the tree of {listed(entry.arm)} was {entry.tree}, is {tree}"
            raise journal_error(self.journal.path, entry.line, told)
        return entry
