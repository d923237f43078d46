"""Where the lines of a drawing go: from figures to pixels, as plain data that a template draws.

Vocabulary: a *mark* is one measured value with the ends of its interval, in pixels from the left and from the
top. Drawings have a fixed size that the narrowest window has room for, so that their text is as large as the
page's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from patchkit.reports.section_bench import Curve, Point, Strip
from patchkit.reports.tables import figure, percent

_WIDTH = 352  # a window of 390 pixels has room for 356
_LABEL = 112  # room for the names of tests
_ROW = 34
_TOP = 30
_LEAST = 0.05  # the scale of changes reaches at least 5 % to both sides, so that noise looks like noise
_HEIGHT = 240
_LEFT = 64
_APART = 7  # pixels between the two sides at one depth

_Height = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A line of the scale and what stands at it."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StripLine:
    """One test: the bar of noise, the interval, the point."""

    label: str
    y: float
    low: float
    middle: float
    high: float
    noise_low: float
    noise_high: float
    text: str
    judgement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StripChart:
    """All tests below each other, with one scale of changes."""

    width: int
    height: int
    top: int
    zero: float
    ticks: tuple[Tick, ...]
    lines: tuple[StripLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One value; ``low`` and ``high`` are None without an interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveLine:
    """One side; ``path`` is that of an SVG."""

    arm: str
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """Tokens per second against depth, both sides."""

    title: str
    setting: str
    width: int
    height: int
    left: int
    bottom: float
    rows: tuple[Tick, ...]
    depths: tuple[Tick, ...]
    lines: tuple[CurveLine, ...]


def strip_chart(strips: Sequence[Strip]) -> StripChart | None:
    """The changes of all tests; None without any."""
    if not strips:
        return None
    ends = [abs(end) for one in strips for end in (one.low, one.high, one.change, *one.noise)]
    step = _step(max(_LEAST, *ends) / 2)
    reach = math.ceil(max(_LEAST, *ends) / step) * step
    scale = (_WIDTH - _LABEL - 28) / (2 * reach)
    zero = _LABEL + reach * scale

    def at(fraction: float) -> float:
        return round(zero + fraction * scale, 1)

    count = round(reach / step)
    return StripChart(
        width=_WIDTH,
        height=_TOP + _ROW * len(strips) + 30,
        top=_TOP - 8,
        zero=at(0),
        ticks=tuple(
            Tick(at=at(n * step), label=percent(n * step, 0) if n else "0") for n in range(-count, count + 1)
        ),
        lines=tuple(
            StripLine(
                label=one.test,
                y=_TOP + _ROW * number + _ROW / 2,
                low=at(one.low),
                middle=at(one.change),
                high=at(one.high),
                noise_low=at(one.noise[0]),
                noise_high=at(one.noise[1]),
                text=_told(one),
                judgement=one.judgement,
            )
            for number, one in enumerate(strips)
        ),
    )


def _told(one: Strip) -> str:
    return f"{one.test}: {percent(one.change)}, {percent(one.low)} to {percent(one.high)}, {one.verdict}"


def curve_charts(curves: Sequence[Curve]) -> Iterator[CurveChart]:
    """One chart per kind of test and setting."""
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.title, curve.setting), []).append(curve)
    for (title, setting), group in groups.items():
        yield _chart(title, setting, group)


def _chart(title: str, setting: str, curves: Sequence[Curve]) -> CurveChart:
    depths = sorted({point.depth for curve in curves for point in curve.points})
    most = max((point.high or point.speed for curve in curves for point in curve.points), default=1.0)
    step = _step(max(most, 1e-9) / 5)
    top = math.ceil(max(most, 1e-9) / step) * step
    bottom = _HEIGHT - 40
    room = (_WIDTH - _LEFT - 20) / max(1, len(depths))
    places = {depth: _LEFT + room * (number + 0.5) for number, depth in enumerate(depths)}

    def height(speed: float) -> float:
        return round(bottom - speed / top * (bottom - 16), 1)

    return CurveChart(
        title=title,
        setting=setting,
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        bottom=bottom,
        rows=tuple(Tick(at=height(n * step), label=f"{n * step:g}") for n in range(round(top / step) + 1)),
        depths=tuple(Tick(at=round(places[depth], 1), label=str(depth)) for depth in depths),
        lines=tuple(_line(curve, places, height) for curve in curves),
    )


def _line(curve: Curve, places: dict[int, float], height: _Height) -> CurveLine:
    aside = -_APART if curve.arm == "baseline" else _APART
    marks = tuple(_mark(point, places[point.depth] + aside, height, curve.arm) for point in curve.points)
    path = " ".join(f"{'L' if number else 'M'}{mark.x} {mark.y}" for number, mark in enumerate(marks))
    return CurveLine(arm=curve.arm, path=path, marks=marks)


def _mark(point: Point, x: float, height: _Height, arm: str) -> Mark:
    told = "no interval"
    if point.low is not None and point.high is not None:
        told = f"{figure(point.low)} to {figure(point.high)}"
    return Mark(
        x=round(x, 1),
        y=height(point.speed),
        low=None if point.low is None else height(point.low),
        high=None if point.high is None else height(point.high),
        text=f"{arm} at depth {point.depth}: {figure(point.speed)} tokens per second, {told}",
    )


def _step(about: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``about``, which is positive."""
    power = 10.0 ** math.floor(math.log10(about))
    return min(factor * power for factor in (1, 2, 5, 10) if factor * power >= about * (1 - 1e-9))
