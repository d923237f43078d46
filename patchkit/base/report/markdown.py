"""A report as Markdown, for pull requests and the step summary of GitHub Actions.

No text of a report becomes markup: every text is escaped, and findings are in fences longer than any run of
backticks in them. GitHub accepts 1 MiB per step (its documentation, "Adding a job summary"), so tables are
cut and the number of missing rows is given.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from patchkit.base.report.blocks import Finding, Report, Row, Section, Table, columns
from patchkit.base.report.terminal import finding_lines
from patchkit.base.text import one_line

_ANSWERS = {"yes": "✅", "partly": "☑️", "no": "❌", "unknown": "⚪"}
_MARKS = {
    "passed": "✅ passed",
    "passed (emulated)": "☑️ passed (emulated)",
    "passed (modelled)": "☑️ passed (modelled)",
    "failed": "❌ failed",
    "not run": "⚪ not run",
    "skipped": "⚪ skipped",
}
_ROWS = 50
_CELL = 300
_MOST_OPEN = 200
_PROBLEMS = 100
_ALL = 900_000  # characters; most of ours are one byte each
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")  # marks at line starts need no escape: no text begins one
_NO_MENTION = "@<!-- -->"
_TICKS = re.compile(r"`+")


def markdown_report(report: Report) -> str:
    """The report in GitHub's Markdown."""
    text = "\n".join(_lines(report)) + "\n"
    if len(text.encode("utf-8", "replace")) > _ALL:
        cut = text.encode("utf-8", "replace")[:_ALL].decode("utf-8", "ignore")
        # Close fence and details, so that what other steps append is not part of them.
        return f"{cut}\n\n````````\n\n</details>\n\nThe rest was cut: the evidence has all of it.\n"
    return text


def _lines(report: Report) -> Iterator[str]:
    yield f"## {escaped(report.title)}: {escaped(report.headline)}"
    if report.answers:
        yield ""
        yield from (
            f"- {_ANSWERS[each.state]} **{escaped(each.question)}** {escaped(each.text)}"
            for each in report.answers
        )
    for text in (", ".join(f"{name} {value}" for name, value in report.facts), *report.notes):
        yield ""
        yield escaped(text)
    yield from _findings(report)
    if report.open is not None:
        yield from _unproven(report)
    yield from _gates_and_steps(report)
    if report.patches:
        yield from _folded(f"Patches ({len(report.patches)})", _patches(report))
    for section in report.sections:
        name = f"{section.title}: " if section.verdict is not None else ""
        for table in section.tables:
            if not table.is_detail:
                yield from _folded(f"{name}{table.caption}", table)
    if report.provenance:
        yield ""
        yield "<details><summary>Provenance</summary>"
        yield ""
        yield "| name | value |"
        yield "|---|---|"
        yield from (f"| {cell(name)} | {cell(value)} |" for name, value in report.provenance)
        yield ""
        yield "</details>"


def _gates_and_steps(report: Report) -> Iterator[str]:
    if report.gates:
        yield ""
        yield "### Gates"
        yield ""
        yield "| gate | result | seconds | details |"
        yield "|---|---|--:|---|"
        yield from map(_gate_row, report.gates)
    if report.steps:
        yield ""
        yield "### What to do now"
        yield ""
        yield from (f"- {escaped(step.what)}: {code_span(step.command)}" for step in report.steps)


def _gate_row(gate: Section) -> str:
    result = _MARKS.get(gate.state, gate.state)
    return f"| {' | '.join(map(cell, (gate.title, result, f'{gate.seconds:.1f}', gate.summary)))} |"


def _unproven(report: Report) -> Iterator[str]:
    yield ""
    yield "### Not proven"
    yield ""
    for group in report.unproven[:_MOST_OPEN]:
        yield f"- {cell(group.what)}{f': {code_span(group.command)}' if group.command else ''}"
    points = report.open or ()
    listed = [f"- **{escaped(gate)}**: {cell(text)}" for gate, text in points[:_MOST_OPEN]]
    if len(points) > _MOST_OPEN:
        listed.append(f"- and {len(points) - _MOST_OPEN} more")
    if report.unproven:
        yield ""
        yield f"<details><summary>All {len(points)} points</summary>"
        yield ""
        yield from listed
        yield ""
        yield "</details>"
    else:
        yield from listed


def code_span(text: str) -> str:
    """Text as code, or as escaped text if it has backticks or line breaks of a hostile name."""
    plain = " ".join(text.split())
    return f"`{plain}`" if plain == text and "`" not in text else escaped(text)


def _patches(report: Report) -> Table:
    return Table(
        name="patches",
        caption="Patches",
        columns=columns("patch", "title", "gain"),
        rows=tuple(Row(cells=(each.name, each.title, each.gain)) for each in report.patches),
    )


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
    title = html.escape(one_line(summary)).replace("@", _NO_MENTION)  # HTML, where no backslash escapes
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield from markdown_table(table)
    yield ""
    yield "</details>"


def markdown_table(table: Table) -> Iterator[str]:
    """The lines of a table and its note."""
    yield f"| {' | '.join(cell(column.title) for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.numeric else '---' for column in table.columns)}|"
    yield from (f"| {' | '.join(cell(each) for each in row.cells)} |" for row in table.rows[:_ROWS])
    if len(table.rows) > _ROWS:
        yield ""
        yield f"{len(table.rows) - _ROWS} more rows are in the evidence."
    if table.note:
        yield ""
        yield f"Note: {escaped(table.note)}"


def cell(text: str) -> str:
    """One shortened line that cannot end a table cell."""
    line = " ".join(text.split())
    return escaped(line if len(line) <= _CELL else f"{line[:_CELL]}...")


def escaped(text: str) -> str:
    """Text that stays text: no markup, no HTML, no mentions of users."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace("@", _NO_MENTION)
