"""Samples in rounds: what was measured, by whom, and when.

Vocabulary: an *arm* is one of the builds that take turns: baseline, candidate, and the baseline *again*,
which measures the noise. In a *round* every arm runs once, in an order that moves on from round to round, so
that a machine that warms up or slows down does it to all of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from patchkit.bench.fields import BenchGarbage
from patchkit.bench.rows import BenchRow, BenchTest
from patchkit.errors import GateError, Location

Arm = Literal["baseline", "candidate", "again"]
ARMS: tuple[Arm, ...] = get_args(Arm)
_FORMAT = 1


def round_order(number: int) -> tuple[Arm, ...]:
    """Who runs first, second and third in the round of that number, counted from 0.

    Rotated, and mirrored in every other group of three: each arm follows each other one equally often.
    """
    turn = number % len(ARMS)
    order = ARMS[turn:] + ARMS[:turn]
    return order if number // len(ARMS) % 2 == 0 else order[::-1]


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Samples in nanoseconds by test and arm, one tuple per round. Only whole rounds are in it."""

    samples: dict[BenchTest, dict[Arm, list[tuple[int, ...]]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Whole rounds so far."""
        return min((len(arms["baseline"]) for arms in self.samples.values()), default=0)

    @property
    def tests(self) -> tuple[BenchTest, ...]:
        """What was measured, sorted."""
        return tuple(sorted(self.samples))

    def add(self, arms: Mapping[Arm, Sequence[BenchRow]]) -> None:
        """Add one whole round.

        Raises:
            BENCH_TESTS_DIFFER: the arms, or the rounds before, measured other tests.
        """
        found = {arm: {row.test: row.samples_ns for row in rows} for arm, rows in arms.items()}
        expected = set(self.samples) or set(found["baseline"])
        for arm in ARMS:
            if set(found[arm]) != expected or len(found[arm]) != len(arms[arm]) or not expected:
                raise _differ(arm, expected, set(found[arm]))
        for test in expected:
            into = self.samples.setdefault(test, {arm: [] for arm in ARMS})
            for arm in ARMS:
                into[arm].append(found[arm][test])

    def medians(self, test: BenchTest, arm: Arm) -> list[float]:
        """The median time of each round, in nanoseconds."""
        return [statistics.median(samples) for samples in self.samples[test][arm]]

    def tokens_per_second(self, test: BenchTest, arm: Arm) -> float:
        """The median over the rounds."""
        return test.tokens * 1e9 / statistics.median(self.medians(test, arm))

    def as_json(self) -> dict[str, object]:
        """Plain data that :func:`parse_rounds` reads."""
        return {
            "format": _FORMAT,
            "tests": [{**asdict(test), "samples_ns": self.samples[test]} for test in self.tests],
        }


def parse_rounds(text: str, source: str) -> Rounds:
    """What :meth:`Rounds.as_json` gave, as JSON text. Raises BenchGarbage."""
    try:
        return _rounds(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchGarbage(
            "these are no samples that patchkit wrote",
            where=Location(path=source),
            why=f"{type(error).__name__}: {error}",
            hint="measure again, or name another file",
        ) from error


def _rounds(document: dict[str, Any]) -> Rounds:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']!r}")
    rounds = Rounds()
    for entry in document["tests"]:
        arms = entry.pop("samples_ns")
        rounds.samples[BenchTest(**entry)] = {
            arm: [tuple(int(value) for value in each) for each in arms[arm]] for arm in ARMS
        }
    columns = [each for arms in rounds.samples.values() for each in arms.values()]
    times = (value for each in columns for samples in each for value in (samples or (0,)))
    if len({len(each) for each in columns}) > 1 or any(value <= 0 for value in times):
        raise ValueError("its rounds are not whole")
    return rounds


def _differ(arm: Arm, expected: set[BenchTest], found: set[BenchTest]) -> GateError:
    lacking = ", ".join(_told(test) for test in sorted(expected - found))
    extra = ", ".join(_told(test) for test in sorted(found - expected))
    reasons = [f"{what}: {names}" for what, names in (("missing", lacking), ("extra", extra)) if names]
    return GateError(
        f"the {arm} run measured {len(found)} tests where {len(expected)} are compared",
        code="BENCH_TESTS_DIFFER",
        why="; ".join(reasons) or "a test came twice, or none at all",
        hint="two builds are compared by equal tests only: same model, batch sizes, threads and devices",
    )


def _told(test: BenchTest) -> str:
    return f"{test.name} ({test.setting})"
