"""The verdict as files that CI systems show: markdown, SARIF, and the reports of each candidate's evidence.

The SARIF is of the findings, each at the line of the *patch* that it comes from: that is the line a reviewer
of the pull request sees. What the gates measured is in the reports of the evidence (:mod:`patchkit.report`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.base.errors import Location
from patchkit.base.files import OTHER_FILE, disk_errors, write_output
from patchkit.base.text import one_line
from patchkit.candidate.workspace import Workspace
from patchkit.pull.verdict import Finding, GateRow, Judged, Verdict
from patchkit.report.registry import FORMATS
from patchkit.report.sarif import Result, location, sarif_text
from patchkit.report.write import ReportPlan

_MARKS = {"passed": "ok", "failed": "FAILED", "not run": "-", "not needed": "=", "would run": "?"}
CLOSING = {
    "passed": "What is listed as ok is proven; what is listed as not run or not proven is not.",
    "blocked": "This pull request must not be merged as it is.",
    "not proven": "Nothing speaks against it, and this gate cannot prove it.",
    "nothing to prove": "No gate looks at what this pull request changes.",
    "explained": "Nothing was run. This is what would run, if the lock of the head is right.",
}
_MOST = 12  # leaks and paths in one line of text; the JSON has all of them
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~&])")


def gate_lines(verdict: Verdict) -> list[str]:
    """For a terminal."""
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


def _count(verdict: Verdict) -> str:
    count = len(verdict.pull.changes)
    return f"{count} changed file{'s'[: count != 1]}"


def _candidate(one: Judged) -> Iterator[str]:
    told = _tree(one)
    yield f"{one.name}: {told}"
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


def _tree(one: Judged) -> str:
    if one.nothing_to_prove:
        return "nothing to prove"
    if one.tree is None:
        return "no candidate" if one.no_gates is None else "not judged"
    if one.tree_before is None:
        return f"tree {one.tree[:12]}, new"
    same = one.tree == one.tree_before
    return f"tree {one.tree[:12]}, {'as it was' if same else f'it was {one.tree_before[:12]}'}"


def _row(row: GateRow) -> str:
    if row.state in ("passed", "failed"):
        return f"{row.summary} ({row.seconds:.1f} s)"
    return f"{row.state}: {row.why}"


def _parts(verdict: Verdict) -> str:
    names = list(verdict.parts.values())
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _places(finding: Finding) -> Iterator[str]:
    for place in finding.patch_places:
        yield f"{place}: {place.label}" if place.label else str(place)


def _some(texts: tuple[str, ...]) -> str:
    more = len(texts) - _MOST
    return ", ".join(texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


def gate_markdown(verdict: Verdict) -> str:
    """For a pull request or a step summary; text of the pull request cannot become markup."""
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
        lines += ["", f"### {_safe(one.name)}", "", f"{_safe(_tree(one))}. Because of {_codes(one.reasons)}."]
        if one.no_gates is not None:
            lines += ["", _safe(one.no_gates)]
            continue
        lines += ["", "| gate | state | what it says |", "|---|---|---|"]
        lines += [f"| {row.gate} | {row.state} | {_safe(_cell(row))} |" for row in one.rows]
    open_ones = list(_not_proven(verdict))
    if open_ones:
        lines += ["", "### Not proven", "", *(f"- {_safe(text)}" for text in open_ones)]
    if verdict.attention:
        lines += ["", "### To be seen by a person", "", *(f"- {_safe(text)}" for text in verdict.attention)]
    return "\n".join(lines) + "\n"


def _cell(row: GateRow) -> str:
    return row.summary if row.state in ("passed", "failed") else row.why


def _findings(verdict: Verdict) -> Iterator[str]:
    for finding in verdict.findings:
        problem = finding.problem
        yield f"- **{problem.code}**: {_safe(problem.message)}"
        for place in problem.where:
            label = f": {_safe(place.label)}" if place.label else ""
            yield f"  - at {_code(str(place))}{label}"
        for text in _places(finding):
            yield f"  - comes from {_code(text)}"
        if finding.leaks:
            yield f"  - leaks into {_codes(finding.leaks)}"
        if problem.why:
            yield f"  - why: {_safe(problem.why)}"
        if problem.hint:
            yield f"  - next: {_code(problem.hint)}"


def _not_proven(verdict: Verdict) -> Iterator[str]:
    for one in verdict.judged:
        for row in one.rows:
            if row.state == "not run":
                yield f"{one.name}, {row.gate}: {row.why}"
            yield from (f"{one.name}, {row.gate}: {text}" for text in row.not_proven)


def _codes(texts: tuple[str, ...]) -> str:
    more = len(texts) - _MOST
    return ", ".join(_code(text) for text in texts[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _code(text: str) -> str:
    """A code span; backticks inside would end it."""
    return "`" + one_line(text).replace("`", "'") + "`"


def _safe(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))


_OF_HEAD = re.compile(r"(patches|templates|arch_profiles|patchkit|docs|tests|ci)/|[^/]+$")


def append_summary(verdict: Verdict, path: Path) -> None:
    """Add the markdown to the end of a file, which several steps share.

    Raises:
        CacheError: the disk refused.
    """
    with disk_errors(path, "writing the summary", OTHER_FILE), path.open("a", encoding="utf-8") as stream:
        stream.write(gate_markdown(verdict))


def write_text(path: Path, text: str) -> None:
    """Write a file whole, or not at all.

    Raises:
        CacheError: the disk refused.
    """
    with disk_errors(path, "writing a report", OTHER_FILE):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, text.encode("utf-8"), "writing a report")


def write_reports(
    verdict: Verdict,
    folder: Path,
    *,
    workspace: Workspace,
    environ: Mapping[str, str],
    version: str,
) -> tuple[Path, ...]:
    """Write verdict.json, verdict.md, findings.sarif, and every report of each candidate's evidence.

    Raises:
        CacheError: the disk refused.
        UsageError: evidence cannot be read.
    """
    texts = {
        "verdict.json": json.dumps(verdict.as_json(), indent=1) + "\n",
        "verdict.md": gate_markdown(verdict),
        "findings.sarif": gate_sarif(verdict, version),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    written = [folder / name for name in texts]
    for one in verdict.judged:
        if one.evidence is None:
            continue
        stem = f"{'+'.join(one.archs)}-b{one.build}-{(one.tree or '')[:12]}"
        files = {form.name: folder / f"{stem}.{form.ending}" for form in FORMATS if form.ending}
        ReportPlan(files=files).write(workspace, one.evidence, environ, version)
        written += files.values()
    return tuple(written)


def gate_sarif(verdict: Verdict, version: str) -> str:
    """SARIF 2.1.0 of the findings."""
    problems = {finding.problem.code: finding.problem for finding in verdict.findings}
    rules = [
        {"id": code, "shortDescription": {"text": _summary(type(problem).__doc__, code)}}
        for code, problem in problems.items()
    ]
    return sarif_text("patchkit gate", version, rules, [_result(finding) for finding in verdict.findings])


def _summary(text: str | None, code: str) -> str:
    return (text or code).strip().splitlines()[0]


def _result(finding: Finding) -> Result:
    problem = finding.problem
    told = [problem.message]
    told += [f"It leaks into {', '.join(finding.leaks)}."] if finding.leaks else []
    told += [problem.why] if problem.why else []
    told += [f"Next: {problem.hint}"] if problem.hint else []
    here = list(dict.fromkeys(_in_head(finding)))
    others = [place for place in dict.fromkeys((*here, *problem.where)) if place not in here[:1]]
    return Result(
        code=problem.code,
        message="\n".join(told),
        place=location(here[0].path, here[0].line, here[0].column) if here else None,
        others=[
            location(place.path, place.line, place.column, label=place.label or str(place))
            for place in others
        ],
    )


def _in_head(finding: Finding) -> Iterator[Location]:
    """Places in the pull request, not in upstream's tree."""
    yield from finding.patch_places
    for place in finding.problem.where:
        if _OF_HEAD.match(place.path):
            yield place
