"""Layout of the bar charts of the HTML page: speed by operation, registers and LDS by kernel.

All lengths are pixels. The charts are narrow enough for a phone; a wide window shows them next to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchkit.base.report.blocks import KernelUsage, SpeedBar, percent
from patchkit.base.text import counted

WIDTH = 322  # of 360 on a small phone: two margins of 16, borders, a scroll bar's worth of air
_ROW = 42
_TOP = 8
_BOTTOM = 30
_SIDE = 28
_START = 8
_VALUE = 92  # room for the figures at the end of a bar
_LABEL = 43  # characters of 13 px text in the width of the chart
_MOST_SPEEDS = 24
_MOST_KERNELS = 12
_LEAST = 0.05  # the scale of changes reaches at least 5 % to both sides
_MOST_CHANGE = 4.0  # a bar beyond +400 % is cut: the others would be invisible

MOST_VGPRS = 256  # that a wave can address
MOST_LDS = 65536  # bytes of a block


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTick:
    """A line of the scale and its text."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """One bar from ``left`` over ``width``; ``low`` and ``high`` are the ends of its error, if known."""

    y: float
    label: str
    left: float
    width: float
    low: float | None
    high: float | None
    is_modelled: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChart:
    """Bars of all operations; ``omitted`` counts those that are only in the table."""

    width: int
    height: int
    zero: float
    ticks: tuple[AxisTick, ...]
    rows: tuple[SpeedRow, ...]
    omitted: int
    has_modelled: bool
    has_measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One kernel: width of the bar before and after, None on the side where it does not exist."""

    y: float
    label: str
    before: float | None
    after: float | None
    figures: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageChart:
    """One resource of all kernels that changed."""

    name: str
    title: str
    width: int
    height: int
    left: int
    ticks: tuple[AxisTick, ...]
    rows: tuple[UsageRow, ...]
    omitted: int


def change_tick(change: float, at: Callable[[float], float]) -> AxisTick:
    """The tick of a relative change, such as 0.05 for +5 %; ``at`` is its position in pixels."""
    return AxisTick(at=at(change), label=percent(change, 0) if change else "0")


def speed_chart(bars: Sequence[SpeedBar]) -> SpeedChart | None:
    """Lay out the bars, measured ones first, then by change; None without any."""
    if not bars:
        return None
    ordered = sorted(bars, key=lambda bar: (bar.is_modelled, -bar.change))
    shown = ordered[:_MOST_SPEEDS]
    ends = [end for bar in shown for end in (bar.change, bar.low, bar.high) if end is not None]
    highest = min(_MOST_CHANGE, max(_LEAST, *ends))
    lowest = max(-_MOST_CHANGE, min(-_LEAST, *ends))
    step = axis_step((highest - lowest) / 4)
    top, bottom = math.ceil(highest / step), math.floor(lowest / step)
    scale = (WIDTH - 2 * _SIDE) / ((top - bottom) * step)

    def at(change: float) -> float:
        inside = min(max(change, bottom * step), top * step)
        return round(_SIDE + (inside - bottom * step) * scale, 1)

    return SpeedChart(
        width=WIDTH,
        height=_TOP + _ROW * len(shown) + _BOTTOM,
        zero=at(0),
        ticks=tuple(
            change_tick(n * step, at)
            for n in range(bottom, top + 1)
            if n % 2 == 0 or top - bottom <= 5  # noqa: PLR2004 - labels are 50 pixels wide
        ),
        rows=tuple(_speed_row(number, bar, at) for number, bar in enumerate(shown)),
        omitted=len(ordered) - len(shown),
        has_modelled=any(bar.is_modelled for bar in shown),
        has_measured=not all(bar.is_modelled for bar in shown),
    )


def _speed_row(number: int, bar: SpeedBar, at: Callable[[float], float]) -> SpeedRow:
    ends = sorted((at(0), at(bar.change)))
    error = ""
    if bar.low is not None and bar.high is not None:
        error = f", {percent(bar.low)} to {percent(bar.high)}"
    return SpeedRow(
        y=_TOP + _ROW * number,
        label=_short(f"{percent(bar.change)}  {bar.label}"),
        left=ends[0],
        width=round(max(ends[1] - ends[0], 1), 1),
        low=None if bar.low is None else at(bar.low),
        high=None if bar.high is None else at(bar.high),
        is_modelled=bar.is_modelled,
        text=f"{bar.label}: {percent(bar.change)}{error}, {bar.source}",
    )


def usage_charts(usages: Sequence[KernelUsage]) -> tuple[UsageChart, ...]:
    """VGPRs and LDS of the kernels that changed most; nothing without any."""
    if not usages:
        return ()
    registers = [(one, one.vgprs) for one in usages]
    lds = [(one, one.lds_bytes) for one in usages]
    return (
        _usage_chart("vgprs", "VGPRs per lane", registers, MOST_VGPRS, str),
        _usage_chart("lds", "LDS in KiB per block", lds, MOST_LDS, lambda size: f"{size / 1024:g}"),
    )


def _usage_chart(
    name: str,
    title: str,
    usages: Sequence[tuple[KernelUsage, tuple[int | None, int | None]]],
    most: int,
    text: Callable[[int], str],
) -> UsageChart:
    shown = usages[:_MOST_KERNELS]
    room = WIDTH - 2 * _START - _VALUE
    highest = max(most, *(each or 0 for _, sides in shown for each in sides))

    def width(value: int | None) -> float | None:
        return None if value is None else round(max(value / highest * room, 1), 1)

    def figures(sides: tuple[int | None, int | None]) -> str:
        values = ["none" if each is None else text(each) for each in sides]
        return values[0] if values[0] == values[1] else " → ".join(values)

    return UsageChart(
        name=name,
        title=title,
        width=WIDTH,
        height=_TOP + _ROW * len(shown) + _BOTTOM,
        left=_START,
        ticks=tuple(
            AxisTick(at=round(_START + part / 4 * room, 1), label=text(highest * part // 4))
            for part in range(0, 5, 2)
        ),
        rows=tuple(
            UsageRow(
                y=_TOP + _ROW * number,
                label=_short(one.variant),
                before=width(sides[0]),
                after=width(sides[1]),
                figures=figures(sides),
                text=f"{one.variant}: {figures(sides)} {title}; "
                f"{counted(one.variants, 'variant')} of {one.kernel} changed",
            )
            for number, (one, sides) in enumerate(shown)
        ),
        omitted=len(usages) - len(shown),
    )


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def axis_step(about: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least ``about``, which is positive."""
    power = 10.0 ** math.floor(math.log10(about))
    return min(factor * power for factor in (1, 2, 5, 10) if factor * power >= about * (1 - 1e-9))
