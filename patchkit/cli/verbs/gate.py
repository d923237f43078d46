"""``patchkit gate``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import click

from patchkit.base.errors import ErrorGroup
from patchkit.cli.complaint import complain
from patchkit.cli.gate_options import (
    HardwareOptions,
    check_beside_document,
    check_hardware,
    hardware_options,
    make_hardware,
)
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb, version_of

if TYPE_CHECKING:
    from patchkit.candidate.workspace import Workspace
    from patchkit.gates.hardware import Hardware
    from patchkit.pull.run import FirstLook
    from patchkit.pull.verdict import Verdict


class _Options(HardwareOptions):
    base: str
    head: str
    repo: Path
    explain: bool
    own_tests: Literal["passed"] | None
    own: tuple[str, ...]
    full: bool
    summary: Path | None
    sarif: Path | None
    reports: Path | None


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
    "--own", multiple=True, metavar="PATTERN", help="In a fork: files that are its own, not looked at."
)
@click.option("--full", is_flag=True, help="As verify --full: also the whole library. Slow.")
@click.option(
    "--summary", type=FOLDER, metavar="FILE", help="Append markdown to it, as $GITHUB_STEP_SUMMARY wants."
)
@click.option("--sarif", type=FOLDER, metavar="FILE", help="Write the findings there, by line of the patch.")
@click.option(
    "--reports",
    type=FOLDER,
    metavar="DIR",
    help="Write verdict, findings and each candidate's reports there.",
)
@hardware_options
def command(settings: Settings, **options: Unpack[_Options]) -> int:
    """Judge a pull request: what it changes, what that can affect, and what those gates say.

    It reads the head from git objects. Nothing of it is checked out, and none of its code is run: the
    patchkit that judges is the one that is installed, which in CI is that of the base.

    Only gates run whose answer can change. The exit code is that of the first finding: 2 for the data of the
    head, 3 for a place, 4 for a template, 1 for a gate; also 1 when patchkit itself is changed and nobody
    says with --own-tests that its tests passed.
    """
    from patchkit.pull.outputs import gate_lines
    from patchkit.pull.run import GateRequest, look_first

    check_hardware(options)
    check_beside_document(settings, options["summary"], options["sarif"])
    _check_outputs(options)
    workspace = settings.workspace()

    look = look_first(
        GateRequest(
            repository=options["repo"],
            base=options["base"],
            head=options["head"],
            explain=options["explain"],
            own_tests_passed=options["own_tests"] is not None,
            full=options["full"],
            own_files=options["own"],
        ),
        workspace.reporter,
    )
    verdict = _judge(look, workspace, options) if look.needs_more else look.verdict()
    terminal = settings.terminal
    _write(verdict, workspace, options)
    if settings.json:
        terminal.document(verdict.as_json())
        return verdict.exit_code
    terminal.data("\n".join(gate_lines(verdict)))
    if verdict.findings:
        problems = [finding.problem for finding in verdict.findings]
        terminal.talk(complain(ErrorGroup(f"the pull request is {verdict.word}", problems), terminal.paint))
    return verdict.exit_code


def _judge(look: FirstLook, workspace: Workspace, options: _Options) -> Verdict:
    from patchkit.pull.run import run_gate

    def hardware(archs: Sequence[str]) -> Hardware:
        return make_hardware(workspace, archs, options)

    return run_gate(look, workspace, environ=os.environ, hardware=hardware)


def _check_outputs(options: _Options) -> None:
    """Tell now what cannot be written after an hour's work; folders that are missing are made then."""
    from patchkit.base.files import check_output
    from patchkit.report.write import check_apart

    summary, sarif, reports = options["summary"], options["sarif"], options["reports"]
    if summary is not None and sarif is not None:
        check_apart(sarif, [summary])
    if summary is not None:
        check_output(summary, "preparing the summary", appends=True)
    for path in (sarif, reports / "verdict.json" if reports is not None else None):
        if path is not None and path.parent.exists():
            check_output(path, "preparing a report")


def _write(verdict: Verdict, workspace: Workspace, options: _Options) -> None:
    """The files that were asked for."""
    if options["summary"] is options["sarif"] is options["reports"] is None:
        return
    from patchkit.pull.outputs import append_summary, gate_sarif, write_reports, write_text

    version = version_of("patchkit")
    if options["summary"] is not None:
        append_summary(verdict, options["summary"])
    if options["sarif"] is not None:
        write_text(options["sarif"], gate_sarif(verdict, version))
    if options["reports"] is not None:
        write_reports(verdict, options["reports"], workspace=workspace, environ=os.environ, version=version)
