"""The verdict as text: lines for a terminal, Markdown for a pull request or the summary of a CI step."""

from __future__ import annotations

from collections.abc import Iterator

from patchkit.base.report.blocks import Row, Table, columns
from patchkit.base.report.markdown import code_span, escaped, markdown_table
from patchkit.base.text import counted, one_line
from patchkit.base.verdict import MARKS
from patchkit.prove.pulls.verdict import CandidateVerdict, Finding, GateRow, PullVerdict

_MARKS = {**MARKS, "not needed": "=", "would run": "?"}
CLOSING = {
    "passed": "Gates listed as ok are proven; gates listed as not run or not proven are not.",
    "blocked": "This pull request must not be merged as it is.",
    "not proven": "No problem was found, but this gate cannot prove the change.",
    "nothing to prove": "No gate checks what this pull request changes.",
    "explained": "Nothing was run. This lists what would run if the lock of the head is right.",
}
_MOST = 12  # leaks and paths per line of text; the JSON has all of them


def gate_lines(verdict: PullVerdict) -> list[str]:
    """The verdict for a terminal."""
    pull = verdict.pull
    lines = [
        f"{verdict.word.upper()}: {pull.kind} {pull.fork_point[:12]}..{pull.head[:12]}, {_count(verdict)}"
    ]
    counted = _parts(verdict)
    lines += [f"changes: {counted}"] if counted else []
    for one in verdict.judged:
        lines += ["", *_candidate(one)]
    if verdict.attention:
        lines += ["", *(f"note: {text}" for text in verdict.attention)]
    for finding in verdict.findings:
        lines += [f"{finding.problem.code} comes from {place}" for place in _places(finding)]
        if finding.leaks:
            lines.append(f"{finding.problem.code} leaks into {_some(finding.leaks)}")
    return [*(one_line(line) for line in lines), "", CLOSING[verdict.word]]


def _count(verdict: PullVerdict) -> str:
    return counted(len(verdict.pull.changes), "changed file")


def _candidate(one: CandidateVerdict) -> Iterator[str]:
    yield f"{one.name}: {_tree(one)}"
    yield f"  because of {_some(one.reasons)}"
    if one.no_gates is not None:
        yield f"  {one.no_gates}"
        return
    width = max(len(row.gate) for row in one.rows)
    for row in one.rows:
        yield f"  {_MARKS[row.state]:<7}{row.gate:<{width}}  {_row(row)}"
        yield from (f"  {'':7}{'':{width}}  not proven: {text}" for text in row.not_proven)
    if one.evidence is not None:
        yield f"  evidence: {one.evidence}"


def _tree(one: CandidateVerdict) -> str:
    if one.nothing_to_prove:
        return "nothing to prove"
    if one.tree is None:
        return "no candidate" if one.no_gates is None else "not judged"
    if one.tree_before is None:
        return f"tree {one.tree[:12]}, new"
    same = one.tree == one.tree_before
    return f"tree {one.tree[:12]}, {'unchanged' if same else f'before: {one.tree_before[:12]}'}"


def _row(row: GateRow) -> str:
    if row.has_run:
        return f"{row.summary} ({row.seconds:.1f} s)"
    return f"{row.state}: {row.why}"


def _parts(verdict: PullVerdict) -> str:
    names = list(verdict.parts.values())
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _places(finding: Finding) -> Iterator[str]:
    for place in finding.patch_places:
        yield place.with_label


def _some(texts: tuple[str, ...]) -> str:
    more = len(texts) - _MOST
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


def gate_markdown(verdict: PullVerdict) -> str:
    """The verdict for a pull request or a step summary; text of the pull request cannot become markup."""
    pull = verdict.pull
    lines = [
        f"## patchkit gate: {verdict.word}",
        "",
        f"{CLOSING[verdict.word]} Judged: `{pull.fork_point[:12]}..{pull.head[:12]}`, "
        f"{_count(verdict)}" + (f" ({_parts(verdict)})." if verdict.parts else "."),
    ]
    if verdict.findings:
        lines += ["", "### Findings", "", *_findings(verdict)]
    for one in verdict.judged:
        lines += [
            "",
            f"### {escaped(one.name)}",
            "",
            f"{escaped(_tree(one))}. Because of {_codes(one.reasons)}.",
        ]
        if one.no_gates is not None:
            lines += ["", escaped(one.no_gates)]
            continue
        lines += ["", *markdown_table(_gate_table(one))]
    open_ones = list(_not_proven(verdict))
    if open_ones:
        lines += ["", "### Not proven", "", *(f"- {escaped(text)}" for text in open_ones)]
    if verdict.attention:
        lines += ["", "### For the reviewer", "", *(f"- {escaped(text)}" for text in verdict.attention)]
    return "\n".join(lines) + "\n"


def _gate_table(one: CandidateVerdict) -> Table:
    rows = ((row.gate, row.state, row.summary if row.has_run else row.why) for row in one.rows)
    return Table(
        name="gates",
        caption="Gates",
        columns=columns("gate", "state", "result"),
        rows=tuple(Row(cells=cells) for cells in rows),
    )


def _findings(verdict: PullVerdict) -> Iterator[str]:
    for finding in verdict.findings:
        problem = finding.problem
        yield f"- **{problem.code}**: {escaped(problem.message)}"
        for place in problem.where:
            label = f": {escaped(place.label)}" if place.label else ""
            yield f"  - at {code_span(str(place))}{label}"
        for text in _places(finding):
            yield f"  - comes from {code_span(text)}"
        if finding.leaks:
            yield f"  - leaks into {_codes(finding.leaks)}"
        if problem.why:
            yield f"  - why: {escaped(problem.why)}"
        if problem.hint:
            yield f"  - next: {code_span(problem.hint)}"


def _not_proven(verdict: PullVerdict) -> Iterator[str]:
    for one in verdict.judged:
        for row in one.rows:
            if row.state == "not run":
                yield f"{one.name}, {row.gate}: {row.why}"
            yield from (f"{one.name}, {row.gate}: {text}" for text in row.not_proven)


def _codes(texts: tuple[str, ...]) -> str:
    return _some(tuple(code_span(text) for text in texts))
