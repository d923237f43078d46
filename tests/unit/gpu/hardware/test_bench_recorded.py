"""Real measurements of llama-bench of build 6900 on a CPU, 20 times 10 rounds: equal builds, a slower one.

Recorded at real-time priority on a busy machine of two cores: the medians of seven repetitions, one thread,
a model of 2 MB. The slower build waits a ninth longer in every graph, which is a tenth fewer tokens
per second of the time that graphs take.
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Iterator
from pathlib import Path

from patchkit.gpu.hardware.bench.rounds import ARMS, Rounds
from patchkit.gpu.hardware.bench.rows import BenchTest
from patchkit.gpu.hardware.bench.statistics import Verdict
from patchkit.prove.bench.judge import Promise, judge

_RECORDED = Path(__file__).parent / "recorded"
_NO_PROMISE = Promise(allowed_loss=0.0, control=(), expected=())


def _measurements(name: str) -> Iterator[Rounds]:
    whole = Rounds()
    for entry in json.loads((_RECORDED / name).read_text("utf-8"))["tests"]:
        samples = entry.pop("samples_ns")
        whole.samples[BenchTest(**entry)] = {arm: [tuple(one) for one in samples[arm]] for arm in ARMS}
    assert whole.count == 200
    for begin in range(0, 200, 10):
        part = Rounds()
        for test, arms in whole.samples.items():
            part.samples[test] = {arm: arms[arm][begin : begin + 10] for arm in ARMS}
        yield part


def test_equal_builds_are_same_or_undecided_in_20_of_20() -> None:
    counts: collections.Counter[Verdict] = collections.Counter()
    for rounds in _measurements("b6900-cpu-equal.json"):
        counts.update(one.comparison.verdict for one in judge(rounds, _NO_PROMISE))
    assert counts["faster"] == counts["slower"] == 0
    assert counts["same"] + counts["undecided"] == 80
    assert counts["same"] > 20, "a method that never decides would pass the rest"


def test_a_tenth_slower_is_caught_at_the_stated_power() -> None:
    counts: collections.Counter[Verdict] = collections.Counter()
    for rounds in _measurements("b6900-cpu-tenth-slower.json"):
        for one in judge(rounds, _NO_PROMISE):
            counts[one.comparison.verdict] += 1
            assert one.comparison.verdict in {"slower", "undecided"}
            if one.comparison.smallest_loss_seen < -math.expm1(one.comparison.effect.middle):
                assert (one.comparison.verdict, one.judgement) == ("slower", "lost")
    assert counts["slower"] >= 76, "of 80"
