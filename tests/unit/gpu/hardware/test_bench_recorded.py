"""Real measurements of llama-bench of build 6900 on a CPU, 200 rounds: equal builds, a slower one.

Cut into measurements of 10 rounds, and of the 20 that the gate makes where tests are still open.

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

import pytest

from patchkit.base.verdict import SpeedVerdict
from patchkit.gpu.hardware.bench.rounds import ARMS, Rounds
from patchkit.gpu.hardware.bench.rows import BenchTest
from patchkit.prove.bench.judge import Promise, judge

_RECORDED = Path(__file__).parent / "recorded"
_NO_PROMISE = Promise(allowed_loss=0.0, control=(), expected=())


def _measurements(name: str, count: int) -> Iterator[Rounds]:
    whole = Rounds()
    for entry in json.loads((_RECORDED / name).read_text("utf-8"))["tests"]:
        samples = entry.pop("samples_ns")
        whole.samples[BenchTest(**entry)] = {arm: [tuple(one) for one in samples[arm]] for arm in ARMS}
    assert whole.count == 200
    for begin in range(0, 200, count):
        part = Rounds()
        for test, arms in whole.samples.items():
            part.samples[test] = {arm: arms[arm][begin : begin + count] for arm in ARMS}
        yield part


@pytest.mark.parametrize(("count", "least"), [(10, 15), (20, 24)])
def test_equal_builds_are_same_or_unclear(count: int, least: int) -> None:
    counts: collections.Counter[SpeedVerdict] = collections.Counter()
    for rounds in _measurements("b6900-cpu-equal.json", count):
        counts.update(one.comparison.verdict for one in judge(rounds, _NO_PROMISE))
    assert counts["faster"] == counts["slower"] == 0
    assert counts["same"] + counts["unclear"] == 800 // count
    assert counts["same"] >= least, "a method that never decides would pass the rest"


@pytest.mark.parametrize(("count", "least"), [(10, 74), (20, 40)])
def test_a_tenth_slower_is_caught_at_the_stated_power(count: int, least: int) -> None:
    counts: collections.Counter[SpeedVerdict] = collections.Counter()
    for rounds in _measurements("b6900-cpu-tenth-slower.json", count):
        for one in judge(rounds, _NO_PROMISE):
            counts[one.comparison.verdict] += 1
            assert one.comparison.verdict in {"slower", "unclear"}
            if one.comparison.smallest_loss_seen < -math.expm1(one.comparison.effect.middle):
                assert (one.comparison.verdict, one.judgement) == ("slower", "lost")
    assert counts["slower"] >= least, f"of {800 // count}"
