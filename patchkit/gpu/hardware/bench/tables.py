"""Tables that compare results of llama-bench: changes, their certainty, and output formats."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from patchkit.base.errors import Location, UsageError
from patchkit.gpu.hardware.bench.rows import BenchModel, BenchRow
from patchkit.gpu.hardware.bench.statistics import CONFIDENCE, Interval, is_enough, of_separate_runs

_MOST_UNITS = 100  # values that an interval is based on; all pairs of two sides are compared
CONDITIONS = ("cache", "flash", "batch", "threads", "layers", "load", "backend", "device", "other")
"""The names of :attr:`BenchRow.conditions`."""
_IN_TEST = ("cache", "flash")  # :attr:`Line.test` names these if they are unusual


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The results of one build; ``source`` is their file, for messages."""

    label: str
    source: str
    rows: tuple[BenchRow, ...]

    @property
    def builds(self) -> str:
        """The builds in the form of reports: ``build 6900 (c22473b58)``."""
        return ", ".join(f"build {number} ({commit})" for number, commit in sorted(self._builds))

    @property
    def tests(self) -> tuple[str, ...]:
        """The distinct names of its tests."""
        return tuple(dict.fromkeys(row.test.name for row in self.rows))

    def is_same_build(self, other: Series) -> bool:
        """Whether all rows of both have the same, known commit."""
        found = self._builds | other._builds
        return len(found) == 1 and "unknown" not in {commit for _, commit in found}

    @property
    def _builds(self) -> set[tuple[int, str]]:
        return {(row.build, row.commit) for row in self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Tokens per second of one test, one tuple per run; ``conditions`` are those of the build's results."""

    runs: tuple[tuple[float, ...], ...]
    conditions: Mapping[str, str]

    @property
    def speed(self) -> float:
        """The mean over all repetitions, which is the figure that llama-bench prints."""
        return statistics.fmean(speed for run in self.runs for speed in run)

    @property
    def units(self) -> tuple[float, ...]:
        """The values that an interval is based on: means of several runs, or repetitions of the only run.

        If there are more than a hundred, means of adjacent values.
        """
        units = [statistics.fmean(run) for run in self.runs] if len(self.runs) > 1 else self.runs[0]
        size = -(-len(units) // _MOST_UNITS)
        return tuple(statistics.fmean(units[at : at + size]) for at in range(0, len(units), size))

    @property
    def range(self) -> tuple[float, float] | None:
        """Lowest and highest of :attr:`units`, in tokens per second; None for a single repetition."""
        return (min(self.units), max(self.units)) if len(self.units) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One test; lengths in tokens; one cell per label, None if the label has no result."""

    model: BenchModel
    prompt: int
    generated: int
    depth: int
    shared: Mapping[str, str]
    cells: tuple[Cell | None, ...]

    @property
    def kind(self) -> str:
        """The test without its depth, such as ``pp512``, ``tg128`` or ``pp512+tg128``."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        return "+".join([*parts, f"tg{self.generated}"] if self.generated else parts)

    @property
    def unusual(self) -> str:
        """Differences from an f16 cache with flash attention, as text; empty for most tests."""
        cache, flash = self.shared.get("cache", "f16"), self.shared.get("flash", "on")
        words = [cache] if cache != "f16" else []
        return " ".join([*words, f"fa-{flash}"] if flash != "on" else words)

    @property
    def test(self) -> str:
        """The test's name as in llama-bench, such as ``pp512 @ d4096``."""
        text = f"{self.kind} @ d{self.depth}" if self.depth else self.kind
        return f"{text} {self.unusual}".rstrip()

    def change(self, base: int, other: int) -> float | None:
        """The speedup of ``other`` minus 1; None if one of them was not measured."""
        before, after = self.cells[base], self.cells[other]
        return None if before is None or after is None else after.speed / before.speed - 1

    def values(self, base: int, other: int) -> tuple[int, int] | None:
        """Number of values per side that the change's interval is based on; None if there is no interval."""
        before, after = self.cells[base], self.cells[other]
        if before is None or after is None or min(len(before.units), len(after.units)) == 1:
            return None
        return len(before.units), len(after.units)

    def change_interval(self, base: int, other: int) -> Interval | None:
        """The interval of the change; None if a side has at most one repetition.

        The change compares means. If stalled repetitions move it out of the interval (a single one never
        does), the interval is extended to include it.
        """
        before, after, change = self.cells[base], self.cells[other], self.change(base, other)
        if before is None or after is None or change is None or self.values(base, other) is None:
            return None
        found = of_separate_runs(before.units, after.units).interval()
        return Interval(low=min(found.low - 1, change), middle=change, high=max(found.high - 1, change))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A comparison. ``base`` is the index of the label that others are compared with.

    ``distinct``: the labels are known to be different programs, even if they report the same build.
    """

    labels: tuple[str, ...]
    base: int
    lines: tuple[Line, ...]
    series: tuple[Series, ...]
    across: tuple[str, ...] = field(default=())
    distinct: bool = False

    @property
    def varying(self) -> tuple[str, ...]:
        """The conditions (of :data:`CONDITIONS`) that differ between lines and are not in the test's name."""
        return tuple(
            name
            for name in CONDITIONS
            if name not in (*self.across, *_IN_TEST) and len({line.shared[name] for line in self.lines}) > 1
        )

    @property
    def others(self) -> tuple[int, ...]:
        """The indexes of all labels except the base."""
        return tuple(index for index in range(len(self.labels)) if index != self.base)

    @property
    def models(self) -> tuple[BenchModel, ...]:
        """The distinct models, in the order of the lines."""
        return tuple(dict.fromkeys(line.model for line in self.lines))

    @property
    def fewest(self) -> tuple[int, int] | None:
        """Number of values per side of the least certain interval; None if no change has an interval."""
        found = [line.values(self.base, other) for line in self.lines for other in self.others]
        pairs = [pair for pair in found if pair is not None]
        return min(pairs, key=lambda pair: math.comb(sum(pair), pair[0]), default=None)


def compare_series(
    series: Sequence[Series], *, base: int = 0, across: Collection[str] = (), distinct: bool = False
) -> Table:
    """Compare equal tests of several builds.

    Args:
        series: one per label, in the order of the columns.
        base: the index of the label that others are compared with.
        across: conditions (of :data:`CONDITIONS`) that may differ within a line.
        distinct: they are known to be different programs, even if they report the same build.

    Raises:
        BENCH_FILES_INCOMPARABLE: there are several labels, but no line has two cells.
        BENCH_FILES_INCOMPARABLE: a label has two results for one cell.
    """
    found: dict[_Key, dict[int, list[BenchRow]]] = {}
    for index, one in enumerate(series):
        for row in one.rows:
            found.setdefault(_key(row, across), {}).setdefault(index, []).append(row)
    lines = []
    for key in sorted(found, key=lambda key: (key[0], key[1] == 0, key[1:])):  # prefill before decode
        model, prompt, generated, depth, shared = key
        cells = tuple(_cell(found[key].get(index), one) for index, one in enumerate(series))
        lines.append(
            Line(
                model=model, prompt=prompt, generated=generated, depth=depth, shared=dict(shared), cells=cells
            )
        )
    table = Table(
        labels=tuple(one.label for one in series),
        base=base,
        lines=tuple(lines),
        series=tuple(series),
        across=tuple(name for name in CONDITIONS if name in across),
        distinct=distinct,
    )
    if len(series) > 1 and not any(sum(cell is not None for cell in line.cells) > 1 for line in lines):
        raise _nothing_shared(series)
    return table


_Key = tuple[BenchModel, int, int, int, tuple[tuple[str, str], ...]]


def _key(row: BenchRow, across: Collection[str]) -> _Key:
    test = row.test
    shared = tuple((name, row.conditions[name]) for name in CONDITIONS if name not in across)
    return row.model, test.prompt, test.generated, test.depth, shared


def _cell(rows: list[BenchRow] | None, series: Series) -> Cell | None:
    if rows is None:
        return None
    first = rows[0]
    for row in rows[1:]:
        differing = [name for name in CONDITIONS if row.conditions[name] != first.conditions[name]]
        differing += ["build"] if (row.build, row.commit) != (first.build, first.commit) else []
        differing += ["devices (-dev)"] if row.device != first.device else []
        if differing:
            raise UsageError(
                f"'{series.label}' has conflicting results for {first.test.name} of {first.model.kind}",
                code="BENCH_FILES_INCOMPARABLE",
                where=Location(path=series.source),
                why=f"they differ in {', '.join(differing)}",
                hint="use one file per build; remove an --across option, or split the file",
            )
    return Cell(runs=tuple(row.tokens_per_second for row in rows), conditions=first.conditions)


def _nothing_shared(series: Sequence[Series]) -> UsageError:
    """The error, with the differences of the first rows, so that the hint can name the options."""
    first = series[0].rows[0]
    other = series[1].rows[0]
    differing = [name for name in CONDITIONS if first.conditions[name] != other.conditions[name]]
    reasons = [f"{name}: {first.conditions[name]} and {other.conditions[name]}" for name in differing]
    if first.model != other.model:
        models = (first.model, other.model)
        reasons = ["model: " + " and ".join(f"{one.kind}, {one.size_bytes} bytes" for one in models)]
    return UsageError(
        f"{' and '.join(one.label for one in series)} have no test in common",
        code="BENCH_FILES_INCOMPARABLE",
        where=[Location(path=one.source) for one in series],
        why="; ".join(reasons or [f"{one.label} measured {_listed(one.tests)}" for one in series]),
        hint=" ".join(f"--across {name}" for name in differing)
        if differing and first.model == other.model
        else "measure the same model and tests with both builds",
    )


NO_INTERVAL = "no interval"
SURE = f"{100 * CONFIDENCE:.0f} % interval"
"""Title of intervals with that confidence; others ignore variation between runs, or are just the range."""
_NAMED = 4  # tests that a note names; the rest is only counted
_LOOKED_AT = 100  # lines to search for the same test; no measurement by hand has more


def table_notes(table: Table) -> tuple[str, ...]:
    """Notes: the builds, what is not compared and why, differing conditions, and the certainty of figures."""
    return (
        *(f"{one.label}: {one.builds}" for one in table.series),
        *_same_builds(table),
        *_differences(table),
        *_apart(table),
        *_certainty(table),
    )


def interval_title(table: Table) -> str:
    """Title of the column of intervals; it includes the confidence only if there are enough values."""
    if table.fewest is None or not is_enough(*table.fewest):
        return "interval"
    of_one_run = any(len(cell.runs) == 1 for cell in _cells(table) if len(cell.units) > 1)
    return f"{100 * CONFIDENCE:.0f} % within one run" if of_one_run else SURE


def _cells(table: Table) -> list[Cell]:
    return [cell for line in table.lines for cell in line.cells if cell is not None]


def _same_builds(table: Table) -> list[str]:
    """Labels that report the base's build, which uncommitted code and compiler options do not change."""
    base = table.series[table.base]
    return [
        f"warning: {other.label} and {base.label} report the same {base.builds}; "
        "if they are the same program, any difference is noise"
        for other in (table.series[index] for index in table.others)
        if not table.distinct and base.is_same_build(other)
    ]


def _differences(table: Table) -> list[str]:
    """Conditions that differ, as permitted by ``across``."""
    notes = []
    for name in table.across:
        seen = [
            dict.fromkeys(cell.conditions[name] for line in table.lines if (cell := line.cells[index]))
            for index in range(len(table.labels))
        ]
        if len({tuple(values) for values in seen}) > 1:
            by_label = ", ".join(
                f"{label} {' and '.join(values)}" for label, values in zip(table.labels, seen, strict=True)
            )
            notes.append(f"compared although {name} differs: {by_label}")
    return notes


def _apart(table: Table) -> list[str]:
    """Lines without a cell, with the differences of the nearest similar line; equal reasons are merged."""
    alike: dict[tuple[int, int, int, int], list[Line]] = {}
    for line in table.lines:
        for index, cell in enumerate(line.cells):
            if cell is not None:
                alike.setdefault((index, line.prompt, line.generated, line.depth), []).append(line)
    reasons: dict[str, list[str]] = {}
    for line in table.lines:
        for index, cell in enumerate(line.cells):
            if cell is None:
                near = alike.get((index, line.prompt, line.generated, line.depth), ())
                reason = f"not in {table.labels[index]}{_why(line, near)}"
                reasons.setdefault(reason, []).append(f"{line.test} of {line.model.kind}")
    return [f"{reason}: {_listed(tests)}" for reason, tests in reasons.items()]


def _why(line: Line, near: Sequence[Line]) -> str:
    """How the same test differs where it was measured; empty if it was not, or for another model type."""
    for other in near[:_LOOKED_AT]:
        if other.model == line.model:
            differences = [
                f"{name} {theirs} instead of {line.shared[name]}"
                for name, theirs in other.shared.items()
                if theirs != line.shared[name]
            ]
            return f" (it has {', '.join(differences)})"
    for other in near[:_LOOKED_AT]:
        if other.model.kind == line.model.kind:
            size, params = other.model.size_bytes, other.model.params
            return f" (its {other.model.kind} has {size} bytes and {params} parameters)"
    return ""


def _certainty(table: Table) -> list[str]:
    """The number of repetitions that intervals are based on, and their limits."""
    cells = _cells(table)
    single = [cell for cell in cells if len(cell.units) == 1]
    notes = []
    if single:
        which = "every test was" if len(single) == len(cells) else "some tests were"
        notes.append(f"{NO_INTERVAL}: {which} run once (-r 1), so the variation is unknown")
    if table.fewest is not None:
        notes.append(f"{interval_title(table)}: {_rests(cells)}")
        before, after = table.fewest
        if not is_enough(before, after):
            chance = f"one time in {math.comb(before + after, after) // 2}"
            notes.append(
                f"too few values for a {SURE}: even for equal builds, all {before} values of one are beyond "
                f"all {after} values of the other {chance}"
            )
    return notes


def _rests(cells: Sequence[Cell]) -> str:
    between = [len(cell.runs) for cell in cells if len(cell.runs) > 1]
    within = [len(cell.runs[0]) for cell in cells if len(cell.runs) == 1 and len(cell.units) > 1]
    texts = [f"over {_range(between)} runs"] if between else []
    if within:
        texts.append(f"over {_range(within)} repetitions of one run, without the variation between runs")
    return "; ".join(texts)


def _range(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else str(values[0])


def _listed(tests: Sequence[str]) -> str:
    more = len(tests) - _NAMED
    return ", ".join(tests[:_NAMED]) + (f" and {more} more" if more > 0 else "")


MISSING = "-"
# By whether a test has prompt tokens, and generated tokens.
_KINDS = {
    (True, False): "Prefill (pp)",
    (False, True): "Decode (tg)",
    (True, True): "Prefill and decode (pp+tg)",
}
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the table. ``aligned`` is per column ``left``, ``right`` (for text) or ``figure``."""

    model: BenchModel
    title: str
    titles: tuple[str, ...]
    aligned: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(table: Table) -> tuple[Section, ...]:
    """The sections with lines, model by model."""
    titles = _titles(table)
    texts = ("left", *["right"] * (2 + len(table.varying)), "left")
    aligned = (*texts, *["figure"] * (len(titles) - len(texts)))
    kinds: dict[tuple[BenchModel, tuple[bool, bool]], list[tuple[str, ...]]] = {}
    with_intervals = table.fewest is not None
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
    """Sections with headings, ready for posting, and the notes as a list."""
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
    """One line per test with unrounded figures, empty if missing; without the notes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    titles = ["model", "size_bytes", "params", "test", "prompt", "generated", "depth", *table.varying]
    for label in table.labels:
        titles += [f"{label} {what}" for what in ("t/s", "low", "high", "repetitions")]
    for index in table.others:
        titles += [f"{table.labels[index]} {what}" for what in ("change_percent", "low", "high")]
    writer.writerow(map(_no_formula, titles))
    for line in table.lines:
        row: list[object] = [*asdict(line.model).values(), line.test, line.prompt, line.generated, line.depth]
        row += [line.shared[name] for name in table.varying]
        for cell in line.cells:
            low, high = ("", "") if cell is None or cell.range is None else cell.range
            row += ["", "", "", ""] if cell is None else [cell.speed, low, high, sum(map(len, cell.runs))]
        for index in table.others:
            change = line.change(table.base, index)
            interval = line.change_interval(table.base, index)
            ends = ("", "") if interval is None else (100 * interval.low, 100 * interval.high)
            row += ["" if change is None else 100 * change, *ends]
        writer.writerow(map(_no_formula, row))
    return out.getvalue()


def _no_formula(cell: object) -> object:
    """Escape text that a spreadsheet would run as a formula: model names come from untrusted files."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip()[:1] in {"=", "+", "-", "@"} else cell


def json_table(table: Table) -> dict[str, object]:
    """The table for ``--json``; changes are fractions; ranges and intervals may be null."""
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
        "conditions": line.shared,
        "cells": {
            label: None
            if cell is None
            else {
                "tokens_per_second": cell.speed,
                "range": cell.range,
                "runs": [list(run) for run in cell.runs],
            }
            for label, cell in zip(table.labels, line.cells, strict=True)
        },
        "changes": {
            table.labels[index]: {
                "change": line.change(table.base, index),
                "interval": None if interval is None else [interval.low, interval.high],
            }
            for index in table.others
            for interval in (line.change_interval(table.base, index),)
        },
    }


def _titles(table: Table) -> tuple[str, ...]:
    titles = ["model", "size", "params", *table.varying, "test", *table.labels]
    for index in table.others:
        # With two labels there is one change, so its column needs no label.
        prefix = f"{table.labels[index]} " if len(table.others) > 1 else ""
        titles.append(f"{prefix}Δ%")
        titles += [f"{prefix}{interval_title(table)}"] if table.fewest is not None else []
    return tuple(titles)


def _row(table: Table, line: Line, *, with_intervals: bool) -> tuple[str, ...]:
    row = [line.model.kind, f"{line.model.size_bytes / 2**20:.2f} MiB", _params(line.model)]
    row += [*(line.shared[name] for name in table.varying), line.test]
    row += [MISSING if cell is None else _speed(cell.speed) for cell in line.cells]
    for index in table.others:
        change = line.change(table.base, index)
        row.append(MISSING if change is None else _percent(change))
        if with_intervals:
            row.append(MISSING if change is None else _ends_text(line.change_interval(table.base, index)))
    return tuple(row)


def _markdown(section: Section) -> str:
    cells = [tuple(map(_escaped, row)) for row in (section.titles, *section.rows)]
    # Two more than the title, as in other tables of these benchmarks.
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
    """At most two digits, without trailing zeros: 182.6."""
    return f"{speed:.2f}".rstrip("0").rstrip(".")


def _percent(fraction: float) -> str:
    text = f"{100 * fraction:.2f}%"
    return text.removeprefix("-") if text == "-0.00%" else text


def _ends_text(interval: Interval | None) -> str:
    return NO_INTERVAL if interval is None else f"{_percent(interval.low)} to {_percent(interval.high)}"


def _params(model: BenchModel) -> str:
    if model.params < _BILLION:
        return f"{model.params / 1e6:.2f} M"
    return f"{model.params / 1e9:.2f} B"
