"""What must be said under a table, so that nobody reads more into it than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.bench.statistics import CONFIDENCE
from patchkit.bench.tables import CONDITIONS, Cell, Line, Table

NO_INTERVAL = "no interval"
_ENOUGH = 8
"""Values from which on an interval may be called one of 99 %: the whole range of n independent values misses
the median with probability 2**(1-n), which is below 1 % from eight on."""
_NAMED = 4  # tests that a note names before it counts the rest
_LOOKED_AT = 100  # relatives of a test; a file that has more was not measured by a person


def table_notes(table: Table) -> tuple[str, ...]:
    """One sentence each: the builds, what is not compared and why, what differs, how sure the figures are."""
    return (
        *(f"{one.label}: {one.builds}" for one in table.series),
        *_differences(table),
        *_apart(table),
        *_certainty(table),
    )


def interval_title(table: Table) -> str:
    """What a column of intervals is called: with its confidence only when it rests on enough values."""
    return "interval" if _fewest(_cells(table)) < _ENOUGH else f"{100 * CONFIDENCE:.0f} % interval"


def _cells(table: Table) -> list[Cell]:
    return [cell for line in table.lines for cell in line.cells if cell is not None]


def _fewest(cells: Sequence[Cell]) -> int:
    """Values behind the interval that has the fewest; cells without an interval do not count."""
    return min((len(cell.units) for cell in cells if len(cell.units) > 1), default=0)


def _differences(table: Table) -> list[str]:
    """Conditions that ``across`` let differ, and do."""
    notes = []
    for name in table.across:
        seen = [
            dict.fromkeys(dict(cell.conditions)[name] for line in table.lines if (cell := line.cells[index]))
            for index in range(len(table.labels))
        ]
        if len({tuple(values) for values in seen}) > 1:
            told = ", ".join(
                f"{label} {' and '.join(values)}" for label, values in zip(table.labels, seen, strict=True)
            )
            notes.append(f"compared although {name} differs: {told}")
    return notes


def _apart(table: Table) -> list[str]:
    """Every line that lacks a cell, with what its nearest relative differs in; equal reasons are one note."""
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
    """How the same test differs where it is, if it is; of a model of another type nothing is said."""
    for other in near[:_LOOKED_AT]:
        if other.model == line.model:
            mine, theirs = dict(line.shared), dict(other.shared)
            told = [
                f"{name} {theirs[name]} instead of {mine[name]}"
                for name in CONDITIONS
                if mine.get(name) != theirs.get(name)
            ]
            return f" (it has {', '.join(told)})"
    for other in near[:_LOOKED_AT]:
        if other.model.kind == line.model.kind:
            size, params = other.model.size_bytes, other.model.params
            return f" (its {other.model.kind} has {size} bytes and {params} parameters)"
    return ""


def _certainty(table: Table) -> list[str]:
    """On how many repetitions intervals rest, and what they cannot know."""
    cells = _cells(table)
    single = [cell for cell in cells if len(cell.units) == 1]
    notes = []
    if single:
        which = "every test was" if len(single) == len(cells) else "some tests were"
        notes.append(f"{NO_INTERVAL}: {which} run once (-r 1), so nothing is known of the scatter")
    if len(single) < len(cells):
        notes.append(f"{interval_title(table)}: {_rests(cells)}")
        fewest = _fewest(cells)
        if fewest < _ENOUGH:
            odds = f"lie on one side of the median one time in {2 ** (fewest - 1)}"
            notes.append(f"too few for {100 * CONFIDENCE:.0f} %: all of {fewest} values {odds}")
    return notes


def _rests(cells: Sequence[Cell]) -> str:
    between = [len(cell.runs) for cell in cells if len(cell.runs) > 1]
    within = [len(cell.units) for cell in cells if len(cell.runs) == 1 and len(cell.units) > 1]
    told = [f"over {_range(between)} runs"] if between else []
    if within:
        told.append(f"over {_range(within)} repetitions of one run, blind to what differs between runs")
    return "; ".join(told)


def _range(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else str(values[0])


def _listed(tests: Sequence[str]) -> str:
    more = len(tests) - _NAMED
    return ", ".join(tests[:_NAMED]) + (f" and {more} more" if more > 0 else "")
