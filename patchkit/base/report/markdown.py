"""A report as Markdown, for the summary of a step of GitHub Actions.

No text of a report becomes markup: every text is escaped, findings are in fences that are longer than any
run of backticks in them. GitHub takes one megabyte per step (its documentation, "Adding a job summary"), so
tables are cut, and the report states that.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from patchkit.base.report.blocks import Finding, Report, Section, Table
from patchkit.base.report.terminal import finding_lines
from patchkit.base.text import one_line

_MARKS = {
    "passed": "✅ passed",
    "passed (emulated)": "☑️ passed (emulated)",
    "passed (modelled)": "☑️ passed (modelled)",
    "failed": "❌ failed",
    "not run": "⚪ not run",
}
_ROWS = 50
_CELL = 300
_OPEN = 200
_PROBLEMS = 100
_ALL = 900_000  # characters; most of ours are one byte each
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")  # what starts a line is never evidence's
_NOBODY = "@<!-- -->"
_TICKS = re.compile(r"`+")


def markdown_report(report: Report) -> str:
    """The report in Markdown of GitHub's kind."""
    text = "\n".join(_lines(report)) + "\n"
    if len(text.encode("utf-8", "replace")) > _ALL:
        cut = text.encode("utf-8", "replace")[:_ALL].decode("utf-8", "ignore")
        # Whatever was open is closed, so that what others write below reads as theirs.
        return f"{cut}\n\n````````\n\n</details>\n\nThe rest was cut: the HTML report has all of it.\n"
    return text


def _lines(report: Report) -> Iterator[str]:
    yield f"## {escaped(report.title)}: {escaped(report.headline)}"
    for text in (", ".join(f"{name} {value}" for name, value in report.facts), *report.notes):
        yield ""
        yield escaped(text)
    if report.gates:
        yield ""
        yield "| gate | verdict | seconds | what it found |"
        yield "|---|---|--:|---|"
        yield from map(_gate_row, report.gates)
    if report.open is not None:
        yield from _open(report.open)
    yield from _findings(report)
    for section in report.sections:
        name = f"{section.title}: " if section.verdict is not None else ""
        for table in section.tables:
            if not table.is_detail:
                yield from _folded(f"{name}{table.caption}", table)
    if report.provenance:
        yield ""
        yield "<details><summary>Provenance</summary>"
        yield ""
        yield "| what | which |"
        yield "|---|---|"
        yield from (f"| {cell(name)} | {cell(value)} |" for name, value in report.provenance)
        yield ""
        yield "</details>"


def _gate_row(gate: Section) -> str:
    verdict = _MARKS[gate.verdict] if gate.verdict is not None else ""
    return f"| {' | '.join(map(cell, (gate.title, verdict, f'{gate.seconds:.1f}', gate.summary)))} |"


def _open(open_: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield ""
    yield "### Not proven"
    yield ""
    yield from (f"- **{escaped(gate)}**: {cell(text)}" for gate, text in open_[:_OPEN])
    if len(open_) > _OPEN:
        yield f"- and {len(open_) - _OPEN} more"


def _findings(report: Report) -> Iterator[str]:
    findings = list(report.findings)
    if not findings:
        return
    yield ""
    yield "### Problems"
    for section, finding in findings[:_PROBLEMS]:
        yield ""
        yield f"**{escaped(section.title)}**"
        yield ""
        yield _fenced(finding)
    if len(findings) > _PROBLEMS:
        yield ""
        yield f"{len(findings) - _PROBLEMS} more problems are in the evidence."


def _fenced(finding: Finding) -> str:
    body = "\n".join(finding_lines(finding))
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    return f"{fence}text\n{body}\n{fence}"


def _folded(summary: str, table: Table) -> Iterator[str]:
    yield ""
    title = html.escape(one_line(summary)).replace("@", _NOBODY)  # HTML, where no backslash escapes
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from markdown_table(table)
    yield ""
    yield "</details>"


def markdown_table(table: Table) -> Iterator[str]:
    """A table and its note; raises nothing."""
    yield f"| {' | '.join(cell(column.title) for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.numeric else '---' for column in table.columns)}|"
    yield from (f"| {' | '.join(cell(each) for each in row.cells)} |" for row in table.rows[:_ROWS])
    if len(table.rows) > _ROWS:
        yield ""
        yield f"{len(table.rows) - _ROWS} more rows are in the HTML report."
    if table.note:
        yield ""
        yield f"Note: {escaped(table.note)}"


def cell(text: str) -> str:
    """One line that cannot end its cell, shortened."""
    line = " ".join(text.split())
    return escaped(line if len(line) <= _CELL else f"{line[:_CELL]}...")


def escaped(text: str) -> str:
    """Text that stays text: no markup, no HTML, nobody mentioned."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace("@", _NOBODY)
