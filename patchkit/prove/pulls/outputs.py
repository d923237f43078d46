"""The verdict as files that CI systems show: Markdown, SARIF, and the reports of each candidate's evidence.

SARIF has the findings, each at the line of the *patch* that it comes from, which is the line that a reviewer
of the pull request sees. Measurements of the gates are in the reports of the evidence
(:mod:`patchkit.prove.report`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchkit.base.errors import Location, PatchkitError
from patchkit.base.files import OTHER_FILE, disk_errors, write_output
from patchkit.base.plain import fields_of
from patchkit.base.report import blocks
from patchkit.base.report.blocks import Report, Section
from patchkit.base.report.sarif import sarif_report
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.prove.pulls.text import CLOSING, gate_markdown
from patchkit.prove.pulls.verdict import Finding, PullVerdict
from patchkit.prove.report.registry import FORMATS
from patchkit.prove.report.write import append_report, write_reports

_OF_HEAD = re.compile(r"(patches|templates|arch_profiles|patchkit|docs|tests|ci)/|[^/]+$")


def write_outputs(
    verdict: PullVerdict,
    workspace: Workspace,
    *,
    summary: Path | None,
    sarif: Path | None,
    reports: Path | None,
    environ: Mapping[str, str],
    version: str,
) -> None:
    """Write the requested files.

    Args:
        verdict: the verdict.
        workspace: its cache has the evidence.
        summary: a file to append the Markdown to, which several CI steps share.
        sarif: a file for the findings.
        reports: a folder for verdict.json, verdict.md, findings.sarif, and every report of each candidate's
            evidence.
        environ: identifies paths that belong to this machine.
        version: of patchkit.

    Raises:
        CacheError: the disk is full or not writable.
        UsageError: evidence cannot be read.
    """
    if summary is not None:
        append_report(summary, gate_markdown(verdict))
    if sarif is not None:
        _write(sarif, gate_sarif(verdict, version))
    if reports is None:
        return
    _write(reports / "verdict.json", json.dumps(fields_of(verdict), indent=1) + "\n")
    _write(reports / "verdict.md", gate_markdown(verdict))
    _write(reports / "findings.sarif", gate_sarif(verdict, version))
    for one in verdict.judged:
        if one.evidence is not None:
            stem = f"{'+'.join(one.archs)}-{build_name(one.build)}-{(one.tree or '')[:12]}"
            files = {form.name: reports / f"{stem}.{form.ending}" for form in FORMATS if form.ending}
            write_reports(workspace, one.evidence, environ, files=files, version=version)


def _write(path: Path, text: str) -> None:
    with disk_errors(path, "writing a report", OTHER_FILE):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, text.encode("utf-8"), "writing a report")


def gate_sarif(verdict: PullVerdict, version: str) -> str:
    """SARIF 2.1.0 of the findings."""
    pull = verdict.pull
    report = Report(
        command="patchkit gate",
        title=f"{pull.fork_point[:12]}..{pull.head[:12]}",
        headline=CLOSING[verdict.word],
        sections=(Section(title="pull request", blocks=tuple(map(_finding, verdict.findings))),),
        rules={finding.problem.code: _about(finding.problem) for finding in verdict.findings},
        version=version,
    )
    return sarif_report(report)


def _about(problem: PatchkitError) -> str:
    return (type(problem).__doc__ or problem.code).strip().splitlines()[0]


def _finding(finding: Finding) -> blocks.Finding:
    problem = finding.problem
    reasons = [f"It leaks into {', '.join(finding.leaks)}."] if finding.leaks else []
    reasons += [problem.why] if problem.why else []
    here = dict.fromkeys(_in_head(finding))
    return blocks.Finding(
        code=problem.code,
        message=problem.message,
        places=tuple(
            blocks.Place(
                path=place.path,
                line=place.line,
                column=place.column,
                label=place.label or str(place),
                is_file=bool(here),
            )
            for place in dict.fromkeys((*here, *problem.where))
        ),
        why="\n".join(reasons),
        hint=f"Next: {problem.hint}" if problem.hint else None,
    )


def _in_head(finding: Finding) -> Iterator[Location]:
    """Places in the pull request, not in upstream's tree."""
    yield from finding.patch_places
    for place in finding.problem.where:
        if _OF_HEAD.match(place.path):
            yield place
