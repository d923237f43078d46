"""What llama-bench measured, beside the bound.

Vocabulary: the *base* of a test is the same test at the smallest depth that was measured: all that a deeper
one takes longer is attention, since nothing else depends on depth. So attention's share at a depth is at
least 1 - base time / time, and no patch to attention alone makes the test faster than its base, but for the
little attention that the base has itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from patchkit.bench.rows import BenchRow
from patchkit.errors import Location, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One test; rates in tokens per second, the median of ``samples`` repetitions."""

    prompt: int
    generated: int
    depth: int
    rate: float
    samples: int
    base_rate: float
    base_depth: int

    @property
    def share(self) -> float:
        """Attention's share of the time, at least: 0 to 1, 0 at the base itself."""
        return max(0.0, 1 - self.rate / self.base_rate)

    @property
    def gain(self) -> float:
        """By which factor it would be faster if depth cost nothing."""
        return max(1.0, self.base_rate / self.rate)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "tokens_per_second": self.rate,
            "samples": self.samples,
            "base_depth": self.base_depth,
            "attention_share_at_least": self.share,
            "largest_attention_gain": self.gain,
        }


def measured_of(rows: Iterable[BenchRow], kv: str, source: str) -> dict[tuple[int, int, int], Measured]:
    """By prompt, generated tokens and depth; only rows with ``kv`` as the type of K and V.

    Raises:
        BENCH_FILE_MIXED: they differ in more than that.
    """
    rows = [row for row in rows if (row.test.type_k, row.test.type_v) == (kv, kv)]
    runs = {(row.test.setting, row.test.flash, row.build) for row in rows}
    if len(runs) > 1:
        told = "; ".join(
            f"build {build}, flash attention {flash}, {setting}" for setting, flash, build in sorted(runs)
        )
        raise UsageError(
            f"{source} holds {len(runs)} runs",
            code="BENCH_FILE_MIXED",
            where=Location(path=source),
            why=told[:400],
            hint="keep the rows of one build and one setting in a file of their own",
        )
    rates: dict[tuple[int, int, int], list[float]] = {}
    for row in rows:
        test = row.test
        key = (test.prompt, test.generated, test.depth)
        rates.setdefault(key, []).extend(test.tokens * 1e9 / each for each in row.samples_ns)
    medians = {key: statistics.median(each) for key, each in rates.items()}
    found = {}
    for (prompt, generated, depth), rate in medians.items():
        base = min(at for p, g, at in medians if (p, g) == (prompt, generated))
        found[prompt, generated, depth] = Measured(
            prompt=prompt,
            generated=generated,
            depth=depth,
            rate=rate,
            samples=len(rates[prompt, generated, depth]),
            base_rate=medians[prompt, generated, base],
            base_depth=base,
        )
    return found
