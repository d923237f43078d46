"""``patchkit gate``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from patchkit.base.errors import ErrorGroup
from patchkit.cli.gate_options import HardwareChoice, check_beside_document, hardware_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, packed, verb, version_of

if TYPE_CHECKING:
    from patchkit.candidate.workspace import Workspace
    from patchkit.pull.verdict import Verdict


class Outputs(NamedTuple):
    """The files to write the verdict to, as the options have them."""

    summary: Path | None
    sarif: Path | None
    reports: Path | None

    def check(self, settings: Settings) -> None:
        """Tell now what cannot be written after an hour's work; folders that are missing are made then.

        Raises STDOUT_TAKEN, REPORT_FILE_TAKEN, CacheError.
        """
        from patchkit.base.files import check_output
        from patchkit.report.write import check_apart

        check_beside_document(settings, self.summary, self.sarif)
        if self.summary is not None:
            if self.sarif is not None:
                check_apart(self.sarif, [self.summary])
            check_output(self.summary, "preparing the summary", appends=True)
        for path in (self.sarif, self.reports and self.reports / "verdict.json"):
            if path is not None and path.parent.exists():
                check_output(path, "preparing a report")

    def write(self, verdict: Verdict, workspace: Workspace) -> None:
        """Write what was asked for; raises CacheError."""
        from patchkit.pull.outputs import append_summary, gate_sarif, write_reports, write_text

        version = version_of("patchkit")
        if self.summary is not None:
            append_summary(verdict, self.summary)
        if self.sarif is not None:
            write_text(self.sarif, gate_sarif(verdict, version))
        if self.reports is not None:
            write_reports(verdict, self.reports, workspace=workspace, environ=os.environ, version=version)


output_options = packed(
    "outputs",
    Outputs,
    click.option(
        "--summary", type=FOLDER, metavar="FILE", help="Append markdown to it, as $GITHUB_STEP_SUMMARY wants."
    ),
    click.option(
        "--sarif", type=FOLDER, metavar="FILE", help="Write the findings there, by line of the patch."
    ),
    click.option(
        "--reports",
        type=FOLDER,
        metavar="DIR",
        help="Write verdict, findings and each candidate's reports there.",
    ),
)


@verb(
    "gate",
    example=(
        "patchkit gate --base origin/main --head HEAD --no-gpu",
        "patchkit gate --base origin/main --head pr --explain --json",
        "patchkit gate --repo ~/llama.cpp --base master --head patchkit/gfx1151/b6900 --own '.github/*'",
    ),
)
@click.option("--base", type=TEXT, required=True, metavar="REF", help="Where it is to be merged.")
@click.option("--head", type=TEXT, required=True, metavar="REF", help="What is to be merged.")
@click.option(
    "--repo",
    "repository",
    type=FOLDER,
    default=".",
    show_default=True,
    metavar="DIR",
    help="A clone of this project, or of llama.cpp with our branch.",
)
@click.option("--explain", is_flag=True, help="Only say which gates would run, and why. Takes seconds.")
@click.option(
    "--own-tests",
    type=click.Choice(["passed"]),
    help="Say that patchkit's own tests passed on the head; this gate does not run its code.",
)
@click.option(
    "--own",
    "own_files",
    multiple=True,
    metavar="PATTERN",
    help="In a fork: files that are its own, not looked at.",
)
@click.option("--full", is_flag=True, help="As verify --full: also the whole library. Slow.")
@output_options
@hardware_options
def command(
    settings: Settings,
    hardware: HardwareChoice,
    outputs: Outputs,
    own_tests: str | None,
    **options: Any,
) -> int:
    """Judge a pull request: what it changes, what that can affect, and what those gates say.

    It reads the head from git objects. Nothing of it is checked out, and none of its code is run: the
    patchkit that judges is the one that is installed, which in CI is that of the base.

    Only gates run whose answer can change. The exit code is that of the first finding: 2 for the data of the
    head, 3 for a place, 4 for a template, 1 for a gate; also 1 when patchkit itself is changed and nobody
    says with --own-tests that its tests passed.
    """
    from patchkit.pull.look import GateRequest, look_first
    from patchkit.pull.text import gate_lines

    hardware.check()
    outputs.check(settings)
    workspace = settings.workspace()
    request = GateRequest(own_tests_passed=own_tests is not None, **options)
    look = look_first(request, workspace.reporter)
    if look.needs_more:
        from patchkit.pull.run import run_gate

        verdict = run_gate(
            look, workspace, environ=os.environ, hardware=functools.partial(hardware.choose, workspace)
        )
    else:
        verdict = look.verdict()
    outputs.write(verdict, workspace)
    settings.show(verdict.as_json(), gate_lines(verdict))
    if verdict.findings and not settings.json:
        problems = [finding.problem for finding in verdict.findings]
        settings.terminal.complain(ErrorGroup(f"the pull request is {verdict.word}", problems))
    return verdict.exit_code
