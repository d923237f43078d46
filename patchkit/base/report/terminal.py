"""A report as plain text: first the answers, then what is unproven, the gates, and on request the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from patchkit.base.report.blocks import Finding, Report, Section, Table
from patchkit.base.text import align_columns, one_line

WIDTH = 100
_LEAST_WIDTH = 60
_ROWS = 40
_SHOWN_S = 0.05  # what rounds to 0.0 s is not worth showing
_CELL = 84  # characters; short names of kernels have up to 80
_MARKS = {"failed": "FAILED"}  # the other states are shown as they are


def terminal_report(report: Report) -> str:
    """The report with all findings and the short tables, without colours."""
    return _text((*_summary(report, WIDTH, details=True), *_details(report)))


def terminal_summary(report: Report, width: int = WIDTH) -> str:
    """The report without tables and findings, wrapped at ``width``."""
    return _text(_summary(report, max(width, _LEAST_WIDTH), details=False))


def _text(lines: Sequence[str] | Iterator[str]) -> str:
    # A line break in evidence must not begin a line that looks like one of patchkit's verdicts.
    return "\n".join(one_line(line).rstrip() for line in lines) + "\n"


def _summary(report: Report, width: int, *, details: bool) -> Iterator[str]:
    yield f"{report.title}  {', '.join(f'{name} {value}' for name, value in report.facts)}"
    if not report.answers or not report.is_complete:
        yield from _wrapped(report.headline, width)
    yield from _answers(report, width)
    if report.answers and report.notes:
        yield ""
    for note in report.notes:
        # A note without answers above it has the command to type, which must stay on one line.
        yield from _wrapped(note, width) if report.answers else (note,)
    if details and report.patches:
        yield from ("", "patches:")
        for patch in report.patches:
            yield from _wrapped(f"{patch.name}: {patch.title} ({patch.gain})", width, first="  ", indent=6)
    yield from _unproven(report, width, details=details)
    if report.gates and report.answers:
        yield from ("", f"gates: {report.headline[:1].lower()}{report.headline[1:]}")
        yield from _gates(report.gates, width)
    yield from _next(report)
    if report.folder and not details:
        yield from ("", f"evidence: {report.folder}")


def _answers(report: Report, width: int) -> Iterator[str]:
    if report.answers:
        yield ""
    column = max((len(answer.question) for answer in report.answers), default=0) + 2
    for answer in report.answers:
        yield from _wrapped(answer.text, width, first=f"{answer.question:<{column}}", indent=column)


def _next(report: Report) -> Iterator[str]:
    """The steps whose commands are not above already."""
    above = {each.command for each in report.unproven}
    steps = [step for step in report.steps if step.command not in above]
    if steps:
        yield from ("", "next:")
        column = max(len(step.what) for step in steps) + 2
        yield from (f"  {step.what:<{column}}{step.command}" for step in steps)


def _unproven(report: Report, width: int, *, details: bool) -> Iterator[str]:
    if report.open:
        yield from ("", "not proven:")
    if not report.unproven:
        yield from (f"  {gate}: {text}" for gate, text in report.open or ())
    for each in report.unproven:
        yield from _wrapped(each.what, width, first="  - ", indent=4)
        if each.command:
            yield f"      {each.command}"
        if details:
            yield from (f"      {gate}: {text}" for gate, text in each.listed)


def _gates(gates: Sequence[Section], width: int) -> Iterator[str]:
    states = [_MARKS.get(gate.state, gate.state) for gate in gates]
    wide, name = max(map(len, states)) + 2, max(len(gate.title) for gate in gates) + 2
    for gate, state in zip(gates, states, strict=True):
        seconds = f" ({gate.seconds:.1f} s)" if gate.seconds >= _SHOWN_S else ""
        first = f"  {state:<{wide}}{gate.title:<{name}}"
        yield from _wrapped(f"{gate.summary}{seconds}", width, first=first, indent=len(first))


def _wrapped(text: str, width: int, *, first: str = "", indent: int = 2) -> Iterator[str]:
    yield from textwrap.wrap(
        one_line(text),
        width,
        initial_indent=one_line(first),
        subsequent_indent=" " * min(indent, width // 2),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _details(report: Report) -> Iterator[str]:
    for section in report.sections:
        if section.verdict != "not run" or section.lines or section.findings:
            yield from _section(section)
    yield ""
    yield from (f"{name}: {value}" for name, value in report.provenance)
    if report.folder:
        yield f"evidence: {report.folder}"


def _section(section: Section) -> Iterator[str]:
    tables = section.tables
    if section.verdict is not None and (tables or section.findings):
        yield ""
        yield f"{_MARKS.get(section.state, section.state)} {section.title}: {section.summary}"
    for finding in section.findings:
        yield from (f"  {line}" for line in finding_lines(finding))
    for table in tables:
        yield ""
        yield from _table(table)


def finding_lines(finding: Finding, arrow: str = "--> ") -> Iterator[str]:
    """A finding as lines: code and message, its places after an ``arrow``, the reason, the next command."""
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
    yield from (f"  {line}".rstrip() for line in align_columns(shown, numeric))
    if len(table.rows) > _ROWS:
        yield f"  {len(table.rows) - _ROWS} more rows: in the evidence"
    if table.note:
        yield f"  {table.note}"


def _cell(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL else f"{line[: _CELL - 3]}..."
