"""Several runs of llama-bench side by side: what is compared with what, and what is not.

Vocabulary: a *label* names a build; its *series* is all that was measured of it. A *line* is one test of one
model under equal conditions, with a *cell* per label; rows of one label that are equal in everything are
*runs* of one test. *Across* names conditions that may differ within a line. Nothing is joined that differs
elsewhere: it gets lines of its own, and :mod:`patchkit.bench.table_notes` says in what it differs.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from patchkit.bench.rows import BenchModel, BenchRow
from patchkit.bench.statistics import Interval, bootstrap_change, bootstrap_mean
from patchkit.errors import Location, UsageError

CONDITIONS = ("cache", "flash", "batch", "threads", "layers", "load", "backend", "device", "other")
"""The names of :attr:`BenchRow.conditions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What was measured of one build; ``source`` is the file, for messages."""

    label: str
    source: str
    rows: tuple[BenchRow, ...]

    @property
    def builds(self) -> str:
        """As reports name it: ``build 6900 (c22473b58)``."""
        return ", ".join(f"build {number} ({commit})" for number, commit in sorted(self._builds))

    @property
    def _builds(self) -> set[tuple[int, str]]:
        return {(row.build, row.commit) for row in self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Tokens per second of one test, one tuple per run; ``conditions`` are those of the label."""

    runs: tuple[tuple[float, ...], ...]
    conditions: tuple[tuple[str, str], ...]

    @property
    def speed(self) -> float:
        """The mean over all repetitions, which is llama-bench's own figure."""
        return statistics.fmean(speed for run in self.runs for speed in run)

    @property
    def units(self) -> tuple[float, ...]:
        """What an interval rests on: the means of several runs, else the repetitions of the only one."""
        return tuple(statistics.fmean(run) for run in self.runs) if len(self.runs) > 1 else self.runs[0]

    @property
    def interval(self) -> Interval | None:
        """Of the speed, in tokens per second; None for a single repetition."""
        return bootstrap_mean(self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """``prompt``, ``generated`` and ``depth`` in tokens; one cell per label, None where it has none."""

    model: BenchModel
    prompt: int
    generated: int
    depth: int
    shared: tuple[tuple[str, str], ...]
    cells: tuple[Cell | None, ...]

    @property
    def kind(self) -> str:
        """The test without its depth: ``pp512``, ``tg128``, ``pp512+tg128``."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        return "+".join([*parts, f"tg{self.generated}"] if self.generated else parts)

    @property
    def unusual(self) -> str:
        """What sets the test apart from one with an f16 cache and flash attention; empty for most."""
        shared = dict(self.shared)
        words = [shared["cache"]] if shared.get("cache", "f16") != "f16" else []
        return " ".join([*words, f"fa-{shared['flash']}"] if shared.get("flash", "on") != "on" else words)

    @property
    def test(self) -> str:
        """As llama-bench writes it: ``pp512 @ d4096``."""
        text = f"{self.kind} @ d{self.depth}" if self.depth else self.kind
        return f"{text} {self.unusual}".rstrip()

    def change(self, base: int, other: int) -> float | None:
        """How much faster ``other`` is, as a fraction; None when one of them was not measured."""
        before, after = self.cells[base], self.cells[other]
        return None if before is None or after is None else after.speed / before.speed - 1

    def change_interval(self, base: int, other: int) -> Interval | None:
        """Its interval; None when a side has a single repetition, or none."""
        before, after = self.cells[base], self.cells[other]
        return None if before is None or after is None else bootstrap_change(before.units, after.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lines in the order to show them; ``base`` is the index of the label that others are held against."""

    labels: tuple[str, ...]
    base: int
    lines: tuple[Line, ...]
    series: tuple[Series, ...]
    across: tuple[str, ...] = field(default=())

    @property
    def others(self) -> tuple[int, ...]:
        """The indexes of every label but the base."""
        return tuple(index for index in range(len(self.labels)) if index != self.base)

    @property
    def models(self) -> tuple[BenchModel, ...]:
        """Each once, in order."""
        return tuple(dict.fromkeys(line.model for line in self.lines))

    @property
    def has_intervals(self) -> bool:
        """Whether any change has one."""
        repeated = [[cell is not None and len(cell.units) > 1 for cell in line.cells] for line in self.lines]
        return any(each[self.base] and each[other] for each in repeated for other in self.others)


def compare_series(series: Sequence[Series], *, base: int = 0, across: Collection[str] = ()) -> Table:
    """Put equal tests side by side.

    Args:
        series: one per label, in the order of the columns.
        base: the index of the label that the others are held against.
        across: conditions that may differ within a line, of :data:`CONDITIONS`.

    Raises:
        BENCH_NOTHING_SHARED: there are several labels, and no line has two cells.
        BENCH_AMBIGUOUS: a label has two results for one cell.
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
            Line(model=model, prompt=prompt, generated=generated, depth=depth, shared=shared, cells=cells)
        )
    table = Table(
        labels=tuple(one.label for one in series),
        base=base,
        lines=tuple(lines),
        series=tuple(series),
        across=tuple(name for name in CONDITIONS if name in across),
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
        if differing:
            raise UsageError(
                f"'{series.label}' has two results for {first.test.name} of {first.model.kind}",
                code="BENCH_AMBIGUOUS",
                where=Location(path=series.source),
                why=f"they differ in {', '.join(differing)}",
                hint="one file per build, and one --across less; or split the file",
            )
    return Cell(
        runs=tuple(row.tokens_per_second for row in rows),
        conditions=tuple((name, first.conditions[name]) for name in CONDITIONS),
    )


def _nothing_shared(series: Sequence[Series]) -> UsageError:
    """With what the first rows differ in, so that the next command can be named."""
    first = series[0].rows[0]
    other = series[1].rows[0]
    differing = [name for name in CONDITIONS if first.conditions[name] != other.conditions[name]]
    reasons = [f"{name}: {first.conditions[name]} and {other.conditions[name]}" for name in differing]
    if first.model != other.model:
        models = (first.model, other.model)
        reasons = ["model: " + " and ".join(f"{one.kind}, {one.size_bytes} bytes" for one in models)]
    return UsageError(
        f"{' and '.join(one.label for one in series)} have no test in common",
        code="BENCH_NOTHING_SHARED",
        where=[Location(path=one.source) for one in series],
        why="; ".join(reasons) or "they measured other lengths or depths",
        hint=" ".join(f"--across {name}" for name in differing)
        if differing and first.model == other.model
        else "measure the same model and tests with both builds",
    )
