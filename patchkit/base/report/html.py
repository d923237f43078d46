"""A report as one self-contained HTML page: no network, no scripts, no other files.

Evidence may come from strangers. The template environment escapes every text of it, and the page's own
Content-Security-Policy forbids scripts, pictures, forms and connections. Tables are sorted and filtered by
radio buttons and check boxes that the style sheet reads, so this works by keyboard and without scripts;
browsers without ``:has()`` show all rows in the first order.

The page shows what changed, and at most some rows of each table, so that it stays small enough to send; the
evidence has all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
import markupsafe

from patchkit.base.document import printable
from patchkit.base.report.bars import WIDTH, AxisTick, axis_step, change_tick, speed_chart, usage_charts
from patchkit.base.report.blocks import (
    Change,
    Curve,
    KernelUsage,
    Order,
    Point,
    Report,
    Row,
    Section,
    SpeedBar,
    Table,
    Unproven,
    figure,
    percent,
)


def render_page(folder: Path, name: str, context: Mapping[str, object]) -> str:
    """Render the template ``name`` of ``folder``; a name missing from ``context`` is an error.

    Control characters of all texts are escaped, except in what a template macro has rendered already.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    return environment.get_template(name).render(dict(context))


def _printable(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


_WIDTH = WIDTH
_LABEL = 112  # room for the names of tests
_ROW = 34
_TOP = 30
_LEAST = 0.05  # the scale of changes reaches at least 5 % to both sides, so that noise looks like noise
_HEIGHT = 240
_LEFT = 64
_APART = 7  # pixels between the two sides at one depth

_Height = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripLine:
    """One test: the noise of the baseline, the interval and the measured change."""

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
    """All tests in rows, on one scale of changes."""

    width: int
    height: int
    top: int
    zero: float
    ticks: tuple[AxisTick, ...]
    lines: tuple[StripLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One value; ``low`` and ``high`` over all rounds, None with a single round."""

    x: float
    y: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveLine:
    """One build; ``path`` is in SVG's syntax."""

    arm: str
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """Tokens per second by depth, of both builds."""

    title: str
    setting: str
    width: int
    height: int
    left: int
    bottom: float
    rows: tuple[AxisTick, ...]
    depths: tuple[AxisTick, ...]
    lines: tuple[CurveLine, ...]


def strip_chart(strips: Sequence[Change]) -> StripChart | None:
    """Lay out the changes of all tests; None without any."""
    if not strips:
        return None
    ends = [abs(end) for one in strips for end in (one.low, one.high, one.change, *one.noise)]
    step = axis_step(max(_LEAST, *ends) / 2)
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
        ticks=tuple(change_tick(n * step, at) for n in range(-count, count + 1)),
        lines=tuple(
            StripLine(
                label=one.test,
                y=_TOP + _ROW * number + _ROW / 2,
                low=at(one.low),
                middle=at(one.change),
                high=at(one.high),
                noise_low=at(one.noise[0]),
                noise_high=at(one.noise[1]),
                text=_change_text(one),
                judgement=one.judgement,
            )
            for number, one in enumerate(strips)
        ),
    )


def _change_text(one: Change) -> str:
    return f"{one.test}: {percent(one.change)}, {percent(one.low)} to {percent(one.high)}, {one.verdict}"


def curve_charts(curves: Sequence[Curve]) -> Iterator[CurveChart]:
    """Lay out one chart per kind of test and setting."""
    groups: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.title, curve.setting), []).append(curve)
    for (title, setting), group in groups.items():
        yield _chart(title, setting, group)


def _chart(title: str, setting: str, curves: Sequence[Curve]) -> CurveChart:
    depths = sorted({point.depth for curve in curves for point in curve.points})
    most = max((point.high or point.speed for curve in curves for point in curve.points), default=1.0)
    step = axis_step(max(most, 1e-9) / 5)
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
        rows=tuple(
            AxisTick(at=height(n * step), label=f"{n * step:g}") for n in range(round(top / step) + 1)
        ),
        depths=tuple(AxisTick(at=round(places[depth], 1), label=str(depth)) for depth in depths),
        lines=tuple(_line(curve, places, height) for curve in curves),
    )


def _line(curve: Curve, places: dict[int, float], height: _Height) -> CurveLine:
    aside = -_APART if curve.arm == "baseline" else _APART
    marks = tuple(_mark(point, places[point.depth] + aside, height, curve.arm) for point in curve.points)
    path = " ".join(f"{'L' if number else 'M'}{mark.x} {mark.y}" for number, mark in enumerate(marks))
    return CurveLine(arm=curve.arm, path=path, marks=marks)


def _mark(point: Point, x: float, height: _Height, arm: str) -> Mark:
    rounds = "one round"
    if point.low is not None and point.high is not None:
        rounds = f"{figure(point.low)} to {figure(point.high)}"
    return Mark(
        x=round(x, 1),
        y=height(point.speed),
        low=None if point.low is None else height(point.low),
        high=None if point.high is None else height(point.high),
        text=f"{arm} at depth {point.depth}: {figure(point.speed)} tokens per second, {rounds}",
    )


_FOLDER = Path(__file__).parent / "page"
_ROWS = 120  # of one table: some 50 kB of the widest
_DETAIL_ROWS = 40  # of a table that is only looked up
_SORTED_ROWS = 60  # a table is sorted by having its rows once per order
_MOST = 200  # problems, patches, and things that were not proven
_MARKS = {
    "passed": "✓",
    "passed (emulated)": "≈",
    "passed (modelled)": "≈",
    "failed": "✗",
    "not run": "-",
    "skipped": "-",
}
_MOST_STATES = 8  # as page/style.css has rules for


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A table of the page: ``key`` is its id, ``bodies`` are its rows once per order."""

    key: str
    table: Table
    head: int
    states: tuple[str, ...]
    bodies: tuple[tuple[str, tuple[Row, ...]], ...]
    omitted: int

    def state_number(self, row: Row) -> int:
        """The number of the filter that hides the row; ``_MOST_STATES`` if none does."""
        return self.states.index(row.state) if row.state in self.states else _MOST_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A section of the page: ``key`` is its id. Of ``unchanged`` tables only the rows are counted."""

    key: str
    section: Section
    tables: tuple[_Shown, ...]
    unchanged: tuple[Table, ...]
    strips: StripChart | None
    curves: tuple[CurveChart, ...]


def html_report(report: Report) -> str:
    """The page as text."""
    findings = list(report.findings)
    blocks = [block for section in report.sections for block in section.blocks]
    context = {
        "report": report,
        "unproven": _unproven(report),
        "patches": report.patches[:_MOST],
        "speeds": speed_chart([block for block in blocks if isinstance(block, SpeedBar)]),
        "usages": usage_charts([block for block in blocks if isinstance(block, KernelUsage)]),
        "findings": findings[:_MOST],
        "findings_omitted": max(0, len(findings) - _MOST),
        "drawn": [_draw(number, section) for number, section in enumerate(report.sections)],
        "marks": _MARKS,
    }
    return render_page(_FOLDER, "report.html", context)


def _unproven(report: Report) -> list[tuple[Unproven, int]]:
    """The groups with at most ``_MOST`` details each, and how many more there are."""
    groups = report.unproven or tuple(
        Unproven(what=f"{gate}: {text}", command="", details=()) for gate, text in report.open or ()
    )
    return [
        (replace(group, details=group.details[:_MOST]), max(0, len(group.details) - _MOST))
        for group in groups[:_MOST]
    ]


def _draw(number: int, section: Section) -> _Drawn:
    key = f"section-{number}"
    return _Drawn(
        key=key,
        section=section,
        tables=tuple(
            _shown(f"{key}-{at}", table) for at, table in enumerate(section.tables) if not table.is_unchanged
        ),
        unchanged=tuple(table for table in section.tables if table.is_unchanged),
        strips=strip_chart([block for block in section.blocks if isinstance(block, Change)]),
        curves=tuple(curve_charts([block for block in section.blocks if isinstance(block, Curve)])),
    )


def _shown(key: str, table: Table) -> _Shown:
    most = _DETAIL_ROWS if table.is_detail else _ROWS
    given = Order(label="", rows=tuple(range(len(table.rows))))
    orders = table.orders if 0 < len(table.rows) <= _SORTED_ROWS and table.orders else (given,)
    states = table.states if len(table.states) > 1 else ()
    return _Shown(
        key=key,
        table=table,
        head=1 if table.columns[0].title in {"state", "result"} else 0,
        states=states[:_MOST_STATES],
        bodies=tuple((order.label, tuple(table.rows[at] for at in order.rows[:most])) for order in orders),
        omitted=max(0, len(table.rows) - most),
    )
