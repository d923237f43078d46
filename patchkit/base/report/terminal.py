"""A report as plain text for a terminal: what was not proven first, then section by section."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.report.blocks import Finding, Report, Section, Table
from patchkit.base.text import one_line
from patchkit.base.verdict import MARKS

_ROWS = 40
_CELL = 60  # characters; kernels' names have up to 55


def terminal_report(report: Report) -> str:
    """The whole report as text, without colours and without the long tables."""
    # A text of the evidence must not go on with a line that reads like a verdict of ours.
    return "\n".join(one_line(line) for line in _lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.title}  {', '.join(f'{name} {value}' for name, value in report.facts)}"
    yield report.headline
    yield from report.notes
    if report.open is not None:
        yield ""
        yield "not proven:"
        yield from (f"  {gate}: {text}" for gate, text in report.open)
    for section in report.sections:
        if section.verdict != "not run" or section.lines or section.findings:
            yield from _section(section)
    yield ""
    yield from (f"{name}: {value}" for name, value in report.provenance)
    if report.folder:
        yield f"evidence: {report.folder}"


def _section(section: Section) -> Iterator[str]:
    if section.verdict is not None:
        yield ""
        yield f"{MARKS[section.verdict]:<7}{section.title}: {section.summary} ({section.seconds:.1f} s)"
    for finding in section.findings:
        yield from (f"  {line}" for line in finding_lines(finding))
    for table in section.tables:
        if not table.is_detail:
            yield ""
            yield from _table(table)


def finding_lines(finding: Finding, arrow: str = "--> ") -> Iterator[str]:
    """A finding in lines: its places after an ``arrow``, the reason, and the next command."""
    note = "note, " if finding.level == "note" else ""
    yield f"{note}{finding.code}: {finding.message}"
    yield from (f"  {arrow}{place.with_label}" for place in finding.places)
    for name, text in (("why", finding.why), ("hint", finding.hint)):
        if text:
            yield from (f"  {name}: {line}" for line in text.splitlines())


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
    if table.note:
        yield f"  {table.note}"


def _cell(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL else f"{line[: _CELL - 3]}..."
