"""The verdict as files that CI systems show: Markdown, SARIF, and the reports of each candidate's evidence.

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
from patchkit.candidate.workspace import Workspace
from patchkit.pull.text import gate_markdown
from patchkit.pull.verdict import Finding, Verdict
from patchkit.report.registry import FORMATS
from patchkit.report.sarif import Result, location, sarif_text
from patchkit.report.write import ReportPlan

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
