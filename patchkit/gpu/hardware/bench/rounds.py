"""Samples of interleaved rounds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from patchkit.base.errors import GateError
from patchkit.gpu.hardware.bench.rows import BenchRow, BenchTest

T = TypeVar("T")
BASELINE, CANDIDATE, AGAIN = ARMS = ("baseline", "candidate", "again")
"""Arms of a comparison: the baseline runs twice, to measure the noise between equal builds."""


def draw_order(runs: Sequence[T], number: int, seed: str) -> list[T]:
    """The order of the builds in the round of that number, counted from 0.

    Random, and in every second round the reverse of the round before: so drift, such as heat, affects all
    builds equally.
    """
    order = list(runs)
    random.Random(f"{seed} {number // 2}").shuffle(order)  # noqa: S311  # not for secrets
    return order[::-1] if number % 2 else order


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Samples in nanoseconds by test and arm, one tuple per round. Contains only complete rounds."""

    samples: dict[BenchTest, dict[str, list[tuple[int, ...]]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of complete rounds."""
        return min((len(rounds) for arms in self.samples.values() for rounds in arms.values()), default=0)

    @property
    def tests(self) -> tuple[BenchTest, ...]:
        """The measured tests, sorted."""
        return tuple(sorted(self.samples))

    def add(self, arms: Mapping[str, Sequence[BenchRow]]) -> None:
        """Add one complete round.

        Raises:
            BENCH_FAILED: the tests differ between arms, or from earlier rounds.
        """
        found = {arm: {row.test: row.samples_ns for row in rows} for arm, rows in arms.items()}
        expected = set(self.samples) or set(next(iter(found.values())))
        for arm in arms:
            if set(found[arm]) != expected or len(found[arm]) != len(arms[arm]) or not expected:
                raise _differ(arm, expected, set(found[arm]))
        for test in expected:
            into = self.samples.setdefault(test, {arm: [] for arm in arms})
            for arm in arms:
                into[arm].append(found[arm][test])

    def medians(self, test: BenchTest, arm: str) -> list[float]:
        """The median time per round, in nanoseconds."""
        return [statistics.median(samples) for samples in self.samples[test][arm]]

    def tokens_per_second(self, test: BenchTest, arm: str) -> float:
        """The median speed over all rounds."""
        return test.tokens * 1e9 / statistics.median(self.medians(test, arm))


def _differ(arm: str, expected: set[BenchTest], found: set[BenchTest]) -> GateError:
    lacking = ", ".join(_label(test) for test in sorted(expected - found))
    extra = ", ".join(_label(test) for test in sorted(found - expected))
    reasons = [f"{what}: {names}" for what, names in (("missing", lacking), ("extra", extra)) if names]
    return GateError(
        f"the {arm} run measured {len(found)} tests, expected {len(expected)}",
        code="BENCH_FAILED",
        why="; ".join(reasons) or "a test occurred twice, or there were none",
        hint="both builds must run the same tests, with equal model, batch sizes, threads and devices",
    )


def _label(test: BenchTest) -> str:
    return f"{test.name} ({test.setting})"
