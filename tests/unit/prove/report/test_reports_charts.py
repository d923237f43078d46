"""Drawings: all is inside of them, intervals lie around their values, and none where none was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from patchkit.base.report.blocks import Change, Curve, Point
from patchkit.base.report.html import curve_charts, strip_chart
from patchkit.prove.report.model import Run


def _drawn(evidence: Run, kind: type[Change | Curve]) -> list:
    (gate,) = (gate for gate in evidence.gates if gate.name == "bench@cpu")
    return [block for block in gate.blocks if isinstance(block, kind)]


def _strip(change: float, low: float, high: float) -> Change:
    return Change(
        test="pp512@d0",
        change=change,
        low=low,
        high=high,
        noise=(-0.01, 0.01),
        verdict="same",
        judgement="ok",
    )


@pytest.mark.parametrize("reach", [0.0, 0.001, 0.049, 0.05, 0.3, 2.7, 1e15])
def test_strips_stay_inside_and_in_order(reach: float) -> None:
    chart = strip_chart([_strip(0.0, -reach / 2, reach), _strip(reach / 3, 0.0, reach)])
    assert chart is not None
    for line in chart.lines:
        assert 100 < line.low <= line.middle <= line.high <= chart.width
        assert line.noise_low < chart.zero < line.noise_high or reach > 10
        assert 0 < line.y < chart.height
    at = [tick.at for tick in chart.ticks]
    assert at == sorted(at)
    assert 3 <= len(at) <= 5
    assert [tick.label for tick in chart.ticks if tick.at == chart.zero] == ["0"]
    assert strip_chart([]) is None


def _curve(arm: str, *points: Point) -> Curve:
    return Curve(title="prompt processing", arm=arm, setting="m", points=points)


@pytest.mark.parametrize("speed", [0.0, 1e-3, 37.2, 1e15])
def test_curves_stay_inside_and_higher_is_faster(speed: float) -> None:
    slow = Point(depth=4096, speed=speed / 2, low=speed / 3, high=speed / 2)
    fast = Point(depth=0, speed=speed, low=None, high=None)
    (chart,) = curve_charts([_curve("baseline", fast, slow), _curve("candidate", fast)])
    assert [tick.label for tick in chart.depths] == ["0", "4096"]
    assert chart.rows[0].label == "0"
    assert 2 <= len(chart.rows) <= 7
    for mark in (mark for line in chart.lines for mark in line.marks):
        assert chart.left < mark.x < chart.width
        assert 0 < mark.y <= chart.bottom
    first, second = chart.lines[0].marks
    assert first.y < second.y or speed == 0
    assert (first.low, first.high) == (None, None)
    assert "one round" in first.text
    assert second.low is not None
    assert second.high is not None
    assert second.low >= second.y >= second.high


def test_a_single_round_has_no_interval(whole_but: Callable[..., Run]) -> None:
    def one_round(document: dict) -> None:
        for test in document["evidence"]["samples"]["tests"]:
            test["samples_ns"] = {arm: rounds[:1] for arm, rounds in test["samples_ns"].items()}

    run = whole_but("bench@cpu.json", one_round)
    points = [point for curve in _drawn(run, Curve) for point in curve.points]
    assert len(points) == 8
    assert {(point.low, point.high) for point in points} == {(None, None)}


def test_the_recorded_measurement_gives_both_sides_at_each_depth(whole: Run) -> None:
    assert [one.test for one in _drawn(whole, Change)] == ["tg16@d0", "tg16@d128", "pp128@d0", "pp128@d128"]
    curves = _drawn(whole, Curve)
    assert [(curve.title, curve.arm, len(curve.points)) for curve in curves] == [
        ("text generation, 16 tokens", "baseline", 2),
        ("text generation, 16 tokens", "candidate", 2),
        ("prompt processing, 128 tokens", "baseline", 2),
        ("prompt processing, 128 tokens", "candidate", 2),
    ]
    assert all(point.low <= point.speed <= point.high for curve in curves for point in curve.points)
