"""A run of ``verify`` as plain text for a terminal: what was not proven first, then gate by gate."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.text import one_line
from patchkit.base.verdict import MARKS
from patchkit.prove.gates.blocks import Table
from patchkit.prove.gates.record import GateReport, Problem
from patchkit.prove.report.model import Run

_ROWS = 40
_CELL = 60  # characters; kernels' names have up to 55


def terminal_report(run: Run) -> str:
    """The whole run as text, without colours and without the long tables."""
    # A text of the evidence must not go on with a line that reads like a verdict of ours.
    return "\n".join(one_line(line) for line in _lines(run)) + "\n"


def _lines(run: Run) -> Iterator[str]:
    yield f"{run.branch}  {run.tip[:12]}  tree {run.tree[:12]}, against {run.base[:12]}"
    yield from (f"with {told}" for told in run.proven_with)
    yield run.headline
    if run.nothing:
        yield run.nothing
    yield ""
    yield "not proven:"
    yield from (f"  {gate}: {told}" for gate, told in run.open)
    for gate in run.gates:
        if gate.verdict != "not run" or gate.lines or gate.problems:
            yield from _gate(gate)
    for table in run.sweep:
        yield ""
        yield from _table(table)
        if table.note:
            yield f"  {table.note}"
    yield ""
    yield f"evidence: {run.folder}"


def _gate(gate: GateReport) -> Iterator[str]:
    yield ""
    yield f"{MARKS[gate.verdict]:<7}{gate.name}: {gate.summary} ({gate.seconds:.1f} s)"
    for problem in gate.problems:
        yield from _problem(problem)
    for table in gate.tables:
        if not table.is_detail:
            yield ""
            yield from _table(table)


def _problem(problem: Problem) -> Iterator[str]:
    yield f"  {problem.code}: {problem.message}"
    for place in problem.places:
        yield f"    --> {place}{f': {place.label}' if place.label else ''}"
    for name, text in (("why", problem.why), ("hint", problem.hint)):
        if text:
            yield from (f"    {name}: {line}" for line in text.splitlines())


def _table(table: Table) -> Iterator[str]:
    yield f"  {table.caption}"
    numeric = [column.numeric for column in table.columns]
    head = tuple(column.title for column in table.columns)
    shown = [
        tuple(_cell(cell) for cell in cells) for cells in (head, *(row.cells for row in table.rows[:_ROWS]))
    ]
    widths = [max(len(cells[at]) for cells in shown) for at in range(len(head))]
    for cells in shown:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        yield f"  {'  '.join(parts)}".rstrip()
    if len(table.rows) > _ROWS:
        yield f"  {len(table.rows) - _ROWS} more rows: --format html shows them"


def _cell(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL else f"{line[: _CELL - 3]}..."
