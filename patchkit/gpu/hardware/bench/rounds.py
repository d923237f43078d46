"""Samples of interleaved rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from patchkit.base.errors import GateError
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchTest

Arm = Literal["baseline", "candidate", "again"]
ARMS: tuple[Arm, ...] = get_args(Arm)


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
        """The median speed over the rounds."""
        return test.tokens * 1e9 / statistics.median(self.medians(test, arm))


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
