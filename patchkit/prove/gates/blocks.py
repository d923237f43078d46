"""What every format of report can show: tables of plain texts, changes with intervals, curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that is ``numeric`` is aligned to the right; one of ``prose`` may be broken into lines."""

    title: str
    numeric: bool = False
    prose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One text per column; a reader can filter rows by their ``state``."""

    cells: tuple[str, ...]
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order of a table's rows: ``label`` says what comes first, ``rows`` has the index of each."""

    label: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts; ``name`` is unique in a report and fit for an address, ``note`` a sentence below.

    ``is_detail``: a reader asks for it; the short formats leave it out.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    orders: tuple[Order, ...] = ()
    is_detail: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """Every state, in order of appearance."""
        return tuple(dict.fromkeys(row.state for row in self.rows if row.state))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How much one test changed, as a fraction, with its interval and that of the baseline against itself."""

    test: str
    change: float
    low: float
    high: float
    noise: tuple[float, float]
    verdict: str
    judgement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Tokens per second at a depth; ``low`` and ``high`` of all rounds, None where there was one."""

    depth: int
    speed: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Speed by depth of one side, ``arm``; ``setting`` is what else the tests of ``title`` have in common."""

    title: str
    arm: str
    setting: str
    points: tuple[Point, ...]


Block = Table | Change | Curve


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns by title; one that ends with ``#`` is numeric, with ``~`` prose."""
    return tuple(
        Column(title=title.rstrip("#~ "), numeric=title.endswith("#"), prose=title.endswith("~"))
        for title in titles
    )


def was_is(before: object, after: object) -> str:
    """``245 -> 187``, or one value when nothing changed."""
    return str(before) if before == after else f"{before} -> {after}"


def percent(fraction: float, digits: int = 1) -> str:
    """``+12.3 %``; the sign is always there."""
    return f"{fraction * 100:+.{digits}f} %"


def figure(value: float) -> str:
    """A measured value with the digits that a table wants: three significant ones below 100."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - as said
        return f"{value:.1f}"
    return f"{value:.3g}"


def group(items: Sequence[str], most: int = 8) -> str:
    """Texts in one cell, the rest counted."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
