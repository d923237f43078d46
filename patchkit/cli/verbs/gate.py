"""``patchkit gate``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import click

from patchkit.base.errors import ErrorGroup
from patchkit.base.files import check_output
from patchkit.cli.gate_options import HardwareChoice, check_beside_document, hardware_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb, version_of
from patchkit.prove.pulls.first_look import GateRequest, look_first
from patchkit.prove.pulls.outputs import write_outputs
from patchkit.prove.pulls.run import run_gate
from patchkit.prove.pulls.text import gate_lines
from patchkit.prove.report.write import check_apart


@verb(
    "gate",
    example=(
        "patchkit gate --base origin/main --head HEAD --no-gpu",
        "patchkit gate --base origin/main --head pr --explain --json",
        "patchkit gate --repo ~/llama.cpp --base master --head patchkit/gfx1151/b6900 --own '.github/*'",
    ),
)
@click.option("--base", type=TEXT, required=True, metavar="REF", help="Branch that the pull request targets.")
@click.option("--head", type=TEXT, required=True, metavar="REF", help="Head of the pull request.")
@click.option(
    "--repo",
    "repository",
    type=FOLDER,
    default=".",
    show_default=True,
    metavar="DIR",
    help="Clone of this project, or of a llama.cpp fork with our branch.",
)
@click.option("--explain", is_flag=True, help="Only list the gates that would run, and why. Takes seconds.")
@click.option(
    "--own-tests",
    type=click.Choice(["passed"]),
    help="Confirm that patchkit's own tests passed on the head. This command does not run the head's code.",
)
@click.option(
    "--own",
    "own_files",
    multiple=True,
    metavar="PATTERN",
    help="In a fork: ignore these files of its own. May be repeated.",
)
@click.option("--full", is_flag=True, help="Also build the whole library, as in verify --full. Slow.")
@click.option(
    "--summary",
    type=FOLDER,
    metavar="FILE",
    help="Append a Markdown summary to FILE, for example $GITHUB_STEP_SUMMARY.",
)
@click.option(
    "--sarif", type=FOLDER, metavar="FILE", help="Write the findings as SARIF, by line of the patch."
)
@click.option(
    "--reports",
    type=FOLDER,
    metavar="DIR",
    help="Write the verdict, the findings and each candidate's reports to DIR.",
)
@hardware_options
def command(
    settings: Settings,
    hardware: HardwareChoice,
    summary: Path | None,
    sarif: Path | None,
    reports: Path | None,
    own_tests: str | None,
    **options: Any,
) -> int:
    """Check a pull request to a patch series: find out what it affects, and run those gates.

    Reads the head from git objects. Nothing is checked out and none of the head's code is run: the installed
    patchkit does the checking, which in CI is the one of the base branch.

    Only gates whose result can change are run. The exit code is that of the first finding: 2 for invalid
    data, 3 for a patch that does not apply, 4 for a template, 1 for a failed gate. It is also 1 if the pull
    request changes patchkit itself and --own-tests does not confirm that its tests passed.
    """
    hardware.check()
    check_beside_document(settings, summary, sarif)
    _check_outputs(summary, sarif, reports)
    workspace = settings.workspace()
    request = GateRequest(own_tests_passed=own_tests is not None, **options)
    look = look_first(request, workspace.reporter)
    if look.needs_more:
        verdict = run_gate(
            look, workspace, environ=os.environ, hardware=functools.partial(hardware.choose, workspace)
        )
    else:
        verdict = look.verdict()
    write_outputs(
        verdict,
        workspace,
        summary=summary,
        sarif=sarif,
        reports=reports,
        environ=os.environ,
        version=version_of("patchkit"),
    )
    settings.show(verdict, gate_lines(verdict))
    if verdict.findings and not settings.json:
        problems = [finding.problem for finding in verdict.findings]
        settings.terminal.write_error(ErrorGroup(f"the pull request is {verdict.word}", problems))
    return verdict.exit_code


def _check_outputs(summary: Path | None, sarif: Path | None, reports: Path | None) -> None:
    """Check that the outputs can be written, before an hour of work; missing folders are created later."""
    if summary is not None and sarif is not None:
        check_apart(sarif, [summary])
    if summary is not None:
        check_output(summary, "preparing the summary", appends=True)
    for path in (sarif, reports / "verdict.json" if reports is not None else None):
        if path is not None and path.parent.exists():
            check_output(path, "preparing a report")
