"""A run of ``verify`` as Markdown, for the summary of a step of GitHub Actions.

What evidence says never becomes markup: every text is escaped, problems stand in fences that are longer
than any run of backticks in them. GitHub takes one megabyte per step (its documentation, "Adding a job
summary"), so tables are cut, which is said.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from patchkit.base.text import one_line
from patchkit.prove.gates.blocks import Table
from patchkit.prove.gates.record import GateReport, Problem
from patchkit.prove.report.model import Run

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


def markdown_report(run: Run) -> str:
    """The run in Markdown of GitHub's kind."""
    text = "\n".join(_lines(run)) + "\n"
    if len(text.encode("utf-8", "replace")) > _ALL:
        cut = text.encode("utf-8", "replace")[:_ALL].decode("utf-8", "ignore")
        # Whatever was open is closed, so that what others write below reads as theirs.
        return f"{cut}\n\n````````\n\n</details>\n\nThe rest was cut: the HTML report has all of it.\n"
    return text


def _lines(run: Run) -> Iterator[str]:
    yield f"## {escaped(run.branch)}: {escaped(run.headline)}"
    yield ""
    tip, tree, base = map(_hash, (run.tip, run.tree, run.base))
    yield f"Candidate `{tip}`, tree `{tree}`, against `{base}`."
    if run.nothing:
        yield ""
        yield escaped(run.nothing)
    yield ""
    yield "| gate | verdict | seconds | what it found |"
    yield "|---|---|--:|---|"
    for gate in run.gates:
        cells = (gate.name, _MARKS[gate.verdict], f"{gate.seconds:.1f}", gate.summary)
        yield f"| {' | '.join(cell(each) for each in cells)} |"
    yield ""
    yield "### Not proven"
    yield ""
    still_open = list(run.open)
    yield from (f"- **{escaped(gate)}**: {cell(told)}" for gate, told in still_open[:_OPEN])
    if len(still_open) > _OPEN:
        yield f"- and {len(still_open) - _OPEN} more"
    yield from _problems(run)
    for gate in run.gates:
        for table in gate.tables:
            if not table.is_detail:
                yield from _folded(f"{gate.name}: {table.caption}", table)
    for table in run.sweep:
        yield from _folded(table.caption, table)
    yield ""
    yield "<details><summary>Provenance</summary>"
    yield ""
    yield "| what | which |"
    yield "|---|---|"
    yield from (f"| {cell(name)} | {cell(value)} |" for name, value in run.provenance)
    yield ""
    yield "</details>"


def _hash(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "?", text[:12])


def _problems(run: Run) -> Iterator[str]:
    problems = list(run.problems)
    if not problems:
        return
    yield ""
    yield "### Problems"
    for gate, problem in problems[:_PROBLEMS]:
        yield ""
        yield from _fenced(gate, problem)
    if len(problems) > _PROBLEMS:
        yield ""
        yield f"{len(problems) - _PROBLEMS} more problems are in the evidence."


def _fenced(gate: GateReport, problem: Problem) -> Iterator[str]:
    body = "\n".join(problem.lines())
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    yield f"**{escaped(gate.name)}**"
    yield ""
    yield f"{fence}text\n{body}\n{fence}"


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
