"""The table as rows of text, as Markdown, CSV and plain data.

Vocabulary: a *section* is the lines of one model and one kind of work: prefill (``pp``), decode (``tg``) or
both in one test. Its *grid* is what every way of writing starts from: titles, and a row of texts per line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from patchkit.bench.rows import BenchModel
from patchkit.bench.statistics import Interval
from patchkit.bench.table_notes import NO_INTERVAL, interval_title, table_notes
from patchkit.bench.tables import Line, Table

MISSING = "-"
_TEXTS = 4  # columns before the first figure: model, size, params, test
# Whether a test has prompt tokens, and whether it has generated ones.
_KINDS = {
    (True, False): "Prefill (pp)",
    (False, True): "Decode (tg)",
    (True, True): "Prefill and decode (pp+tg)",
}
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """``aligned`` says per column ``left``, ``right`` for a text, or ``figure``."""

    model: BenchModel
    title: str
    titles: tuple[str, ...]
    aligned: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(table: Table) -> tuple[Section, ...]:
    """Every section that has lines, model by model."""
    titles = _titles(table)
    aligned = ("left", "right", "right", "left", *["figure"] * (len(titles) - _TEXTS))
    kinds: dict[tuple[BenchModel, tuple[bool, bool]], list[tuple[str, ...]]] = {}
    with_intervals = table.has_intervals
    for line in table.lines:
        kind = (line.prompt > 0, line.generated > 0)
        row = _row(table, line, with_intervals=with_intervals)
        kinds.setdefault((line.model, kind), []).append(row)
    return tuple(
        Section(model=model, title=title, titles=titles, aligned=aligned, rows=tuple(kinds[model, kind]))
        for model in table.models
        for kind, title in _KINDS.items()
        if (model, kind) in kinds
    )


def markdown_table(table: Table) -> str:
    """Sections with a heading each, as people post them, and the notes as a list."""
    blocks = []
    several = len(table.models) > 1
    before = None
    for section in sections(table):
        if several and section.model != before:
            blocks.append(f"### {_escaped(section.model.kind)}")
        before = section.model
        blocks += [section.title, _markdown(section)]
    blocks.append("\n".join(f"- {_escaped(note)}" for note in table_notes(table)))
    return "\n\n".join(blocks) + "\n"


def csv_table(table: Table) -> str:
    """One line per test with unrounded figures; empty where there is none. The notes are not in it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    titles = ["model", "size_bytes", "params", "test", "prompt", "generated", "depth"]
    for label in table.labels:
        titles += [f"{label} {what}" for what in ("t/s", "low", "high", "repetitions")]
    for index in table.others:
        titles += [f"{table.labels[index]} {what}" for what in ("change_percent", "low", "high")]
    writer.writerow(titles)
    for line in table.lines:
        row: list[object] = [*asdict(line.model).values(), line.test, line.prompt, line.generated, line.depth]
        for cell in line.cells:
            low, high = _ends(cell.interval if cell is not None else None)
            row += ["", "", "", ""] if cell is None else [cell.speed, low, high, sum(map(len, cell.runs))]
        for index in table.others:
            change = line.change(table.base, index)
            low, high = _ends(line.change_interval(table.base, index), 100)
            row += ["" if change is None else 100 * change, low, high]
        writer.writerow(row)
    return out.getvalue()


def json_table(table: Table) -> dict[str, object]:
    """Plain data: speeds in tokens per second, changes as fractions, intervals as pairs or null."""
    return {
        "labels": list(table.labels),
        "base": table.labels[table.base],
        "across": list(table.across),
        "builds": {one.label: one.builds for one in table.series},
        "files": {one.label: one.source for one in table.series},
        "lines": [_line(table, line) for line in table.lines],
        "notes": list(table_notes(table)),
    }


def _line(table: Table, line: Line) -> dict[str, object]:
    return {
        "model": asdict(line.model),
        "test": line.test,
        "prompt": line.prompt,
        "generated": line.generated,
        "depth": line.depth,
        "conditions": dict(line.shared),
        "cells": {
            label: None
            if cell is None
            else {
                "tokens_per_second": cell.speed,
                "interval": _pair(cell.interval),
                "runs": [list(run) for run in cell.runs],
            }
            for label, cell in zip(table.labels, line.cells, strict=True)
        },
        "changes": {
            table.labels[index]: {
                "change": line.change(table.base, index),
                "interval": _pair(line.change_interval(table.base, index)),
            }
            for index in table.others
        },
    }


def _titles(table: Table) -> tuple[str, ...]:
    titles = ["model", "size", "params", "test", *table.labels]
    for index in table.others:
        # Between two labels there is one change, and its column needs no name.
        prefix = f"{table.labels[index]} " if len(table.others) > 1 else ""
        titles.append(f"{prefix}Δ%")
        titles += [f"{prefix}{interval_title(table)}"] if table.has_intervals else []
    return tuple(titles)


def _row(table: Table, line: Line, *, with_intervals: bool) -> tuple[str, ...]:
    row = [line.model.kind, _size(line.model), _params(line.model), line.test]
    row += [MISSING if cell is None else _speed(cell.speed) for cell in line.cells]
    for index in table.others:
        change = line.change(table.base, index)
        row.append(MISSING if change is None else _percent(change))
        if with_intervals:
            row.append(MISSING if change is None else _ends_text(line.change_interval(table.base, index)))
    return tuple(row)


def _markdown(section: Section) -> str:
    cells = [tuple(map(_escaped, row)) for row in (section.titles, *section.rows)]
    # Two more than a title, as the tables have them that people know from these benchmarks.
    widths = [
        max(len(title) + 2, *(len(row[column]) for row in cells[1:])) for column, title in enumerate(cells[0])
    ]
    dashes = [
        f"{'-' * (width + 1)}:" if how == "figure" else "-" * (width + 2)
        for width, how in zip(widths, section.aligned, strict=True)
    ]
    lines = [_padded(row, widths, section.aligned) for row in cells]
    lines.insert(1, f"|{'|'.join(dashes)}|")
    return "\n".join(lines)


def _padded(row: Sequence[str], widths: Sequence[int], aligned: Sequence[str]) -> str:
    cells = [
        text.ljust(width) if how == "left" else text.rjust(width)
        for text, width, how in zip(row, widths, aligned, strict=True)
    ]
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _speed(speed: float) -> str:
    """Two digits at most, without closing zeros: 182.6."""
    return f"{speed:.2f}".rstrip("0").rstrip(".")


def _percent(fraction: float) -> str:
    text = f"{100 * fraction:.2f}%"
    return text.removeprefix("-") if text == "-0.00%" else text


def _ends_text(interval: Interval | None) -> str:
    return NO_INTERVAL if interval is None else f"{_percent(interval.low)} to {_percent(interval.high)}"


def _size(model: BenchModel) -> str:
    return f"{model.size_bytes / 2**20:.2f} MiB"


def _params(model: BenchModel) -> str:
    if model.params < _BILLION:
        return f"{model.params / 1e6:.2f} M"
    return f"{model.params / 1e9:.2f} B"


def _ends(interval: Interval | None, scale: float = 1) -> tuple[float | str, float | str]:
    return ("", "") if interval is None else (interval.low * scale, interval.high * scale)


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
