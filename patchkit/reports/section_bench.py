"""The bench gate: its tests as a table, and what is drawn of them.

Vocabulary: a *strip* is one test's change with its interval, the noise of the baseline against itself, and
the margin; all are fractions. A *curve* is tokens per second of one arm against depth for one kind of test;
each point has the interval of its median over the rounds (bootstrap, :mod:`patchkit.bench.statistics`), or
none where there was one round: a single run has no interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.bench.statistics import bootstrap_median
from patchkit.reports.document import Node
from patchkit.reports.tables import Row, Table, columns, figure, percent

_ARMS = ("baseline", "candidate")
_MOST_TESTS = 50  # far above any plan of ours, which has six tests and at most 20 rounds; the intervals
_MOST_ROUNDS = 100  # of fifty tests of a hundred rounds take some seconds
_KINDS = {"pp": "prompt processing", "tg": "text generation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One test; ``judgement`` is the gate's word for it."""

    test: str
    change: float
    low: float
    high: float
    noise: tuple[float, float]
    margin: float
    verdict: str
    judgement: str
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Tokens per second at a depth; ``low`` and ``high`` are None without an interval."""

    depth: int
    speed: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``kind`` is ``pp512``; ``setting`` is what else the tests have in common."""

    kind: str
    title: str
    arm: str
    setting: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is drawn."""

    strips: tuple[Strip, ...]
    curves: tuple[Curve, ...]


def bench_of(evidence: Node) -> Bench:
    """Strips and curves; raises EvidenceMalformed."""
    return Bench(
        strips=tuple(_strip(one) for one in evidence.get("tests").items()),
        curves=tuple(_curves(evidence.get("samples"))),
    )


def bench_tables(evidence: Node) -> Iterator[Table]:
    """Every test with its interval and what was said of it."""
    rows = []
    for one in evidence.get("tests").items():
        strip = _strip(one)
        speeds = [figure(one.get(f"{arm}_tokens_per_second").number()) for arm in _ARMS]
        state = f"{strip.judgement}: {strip.verdict}" + (", control" if one.get("control").flag() else "")
        rows.append(
            Row(
                cells=(
                    state,
                    strip.test,
                    *speeds,
                    percent(strip.change),
                    f"{percent(strip.low)} to {percent(strip.high)}",
                    f"{percent(strip.noise[0])} to {percent(strip.noise[1])}",
                    f"-{one.get('smallest_loss_seen').number() * 100:.1f} %",
                    str(strip.rounds),
                    one.get("why").text(),
                ),
                state=strip.judgement,
            )
        )
    titles = ("result", "test", "baseline t/s #", "candidate t/s #", "change #", "99 % interval #")
    yield Table(
        name="bench",
        caption=f"llama-bench with {evidence.get('model').text()} on {evidence.get('runner').text()}",
        columns=columns(*titles, "baseline against itself #", "would see #", "rounds #", "why ~"),
        rows=tuple(rows),
        note="Intervals are of the median over rounds in which both sides took turns; open is no pass.",
    )


def _strip(one: Node) -> Strip:
    low, high = (end.number() for end in one.get("interval").pair())
    quiet, loud = (end.number() for end in one.get("baseline_against_itself").pair())
    return Strip(
        test=one.get("test").text(),
        change=one.get("change").number(),
        low=low,
        high=high,
        noise=(quiet, loud),
        margin=one.get("margin").number(),
        verdict=one.get("verdict").word("faster", "same", "slower", "undecided"),
        judgement=one.get("judgement").word("ok", "lost", "short", "open"),
        rounds=one.get("rounds").integer(),
    )


def _curves(samples: Node) -> Iterator[Curve]:
    found: dict[tuple[str, str, str], list[Point]] = {}
    titles: dict[str, str] = {}
    for test in samples.get("tests").items(most=_MOST_TESTS):
        prompt, generated = (test.get(name).integer() for name in ("prompt", "generated"))
        if bool(prompt) == bool(generated):
            continue  # both at once are neither kind
        kind = f"pp{prompt}" if prompt else f"tg{generated}"
        titles[kind] = f"{_KINDS[kind[:2]]}, {prompt or generated} tokens"
        setting = ", ".join(test.get(name).text() for name in ("setting", "type_k", "type_v", "flash"))
        for arm in _ARMS:
            point = _point(test.get("depth").integer(), prompt or generated, test.get("samples_ns").get(arm))
            found.setdefault((kind, setting, arm), []).append(point)
    for (kind, setting, arm), points in found.items():
        points.sort(key=lambda point: point.depth)
        yield Curve(kind=kind, title=titles[kind], arm=arm, setting=setting, points=tuple(points))


def _point(depth: int, tokens: int, rounds: Node) -> Point:
    times = [
        statistics.median(one.integer(least=1) for one in each.items(least=1))
        for each in rounds.items(most=_MOST_ROUNDS)
    ]
    speeds = [tokens * 1e9 / time for time in times]
    if len(speeds) < 2:  # noqa: PLR2004 - one value has no spread
        return Point(depth=depth, speed=speeds[0] if speeds else 0.0, low=None, high=None)
    interval = bootstrap_median(speeds)
    return Point(depth=depth, speed=interval.middle, low=interval.low, high=interval.high)
