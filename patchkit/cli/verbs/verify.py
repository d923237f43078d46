"""``patchkit verify``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import NamedTuple

import click

from patchkit.base.errors import ErrorGroup, ExitCode, UsageError
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import PLAIN
from patchkit.cli.gate_options import (
    HardwareChoice,
    ReportFiles,
    hardware_options,
    report_options,
)
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import TEXT, Settings, packed, verb
from patchkit.prove.gates.registry import gate_names
from patchkit.prove.publish.run import Published, PublishRequest, check_request, run_publish
from patchkit.prove.report.write import summarize
from patchkit.prove.verify.run import failures, run_verify
from patchkit.prove.verify.timings import timings_table


class PublishChoice(NamedTuple):
    """The options about publishing."""

    publish: bool
    accept_not_run: bool
    push: str | None
    force_push: bool
    sign: bool | None

    def request(self, choice: CandidateChoice) -> PublishRequest | None:
        """Return the request, or None without --publish. Raises OPTIONS_CONTRADICT, PushRemoteBad."""
        if not self.publish:
            given = [
                f"--{name.replace('_', '-')}"
                for name in ("accept_not_run", "push", "force_push")
                if getattr(self, name)
            ]
            if self.sign is not None:
                given.append("--sign" if self.sign else "--no-sign")
            if given:
                raise UsageError(
                    f"{', '.join(given)} requires --publish",
                    code="OPTIONS_CONTRADICT",
                )
            return None
        if choice.onto is not None:
            raise UsageError(
                "--publish cannot be combined with --onto",
                code="OPTIONS_CONTRADICT",
                why="the branch is already in your own repository",
                hint="omit --publish, and push the branch that apply --onto created",
            )
        request = PublishRequest(
            accept_not_run=self.accept_not_run,
            push=self.push,
            force_push=self.force_push,
            sign=self.sign,
            upstream=choice.upstream,
        )
        check_request(request)
        return request


publish_options = packed(
    "publishing",
    PublishChoice,
    click.option("--publish", is_flag=True, help="Publish the branch if all required gates passed."),
    click.option(
        "--accept-not-run",
        is_flag=True,
        help="Publish even if required gates did not run; the name then contains 'unproven' and "
        "they are listed.",
    ),
    click.option("--push", type=TEXT, metavar="REMOTE", help="Push the published branch to this remote."),
    click.option("--force-push", is_flag=True, help="Replace the branches on the remote; each is listed."),
    click.option(
        "--sign/--no-sign",
        default=None,
        help="Create a signed tag (default: if user.signingkey is set in your git configuration).",
    ),
)


@verb(
    "verify",
    example=(
        "patchkit verify --no-gpu --arch gfx1151",
        "patchkit verify --no-gpu --arch gfx1151 --gate isolation --json",
        "patchkit verify --no-gpu --junit report.xml --sarif report.sarif",
        "patchkit verify --arch gfx1151 --backend cpu --gate backend-ops --gate logits",
        "patchkit verify --no-gpu --arch gfx1151 --publish --accept-not-run",
        "patchkit verify --arch plain",
    ),
)
@candidate_options
@publish_options
@hardware_options
@report_options
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="NAME",
    help=f"Run only this gate: {', '.join(gate_names())}. May be repeated.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Also build the whole HIP backend, compare more device code, and run all cases on the emulated GPU "
    "instead of a sample. Slow.",
)
@click.option("--timings", is_flag=True, help="Show how long each gate and each kind of work took.")
def command(
    settings: Settings,
    choice: CandidateChoice,
    publishing: PublishChoice,
    hardware: HardwareChoice,
    reports: ReportFiles,
    gates: tuple[str, ...],
    full: bool,
    timings: bool,
) -> int:
    """Check the candidate, the branch that apply created: run all gates that are possible on this machine.

    A gate is one check, for example that the code compiles, or that operations give correct results.
    Gates that could not run are listed.

    Gates that need a GPU run on it if this machine has it. Otherwise they run on the emulated GPU, which
    executes the GPU code on the CPU; the result is then "passed (emulated)" and includes no speed. With
    --backend cpu they run on the CPU backend instead, as backend-ops@cpu and so on; that tests no GPU code.

    Patches that are not for certain GPUs (--arch plain) are built for the CPU, and upstream's tests of the
    changed files run.

    The exit code is 1 if a gate fails, and 10 if the branch has no patches, so that no gate runs. The result
    of each gate is kept in the cache folder as JSON. With --publish, a candidate that passed the gates
    required by the series becomes a branch under its public name; its last commit lists every gate.

    Reports (--summary, and one option per format) are written even if a gate fails or cannot run.
    """
    hardware.check()
    request = publishing.request(choice)
    workspace = settings.workspace()
    write_reports = reports.writer(settings, workspace)
    chosen = choice.choose(workspace)
    report = run_verify(
        workspace,
        archs=chosen.archs,
        hardware=hardware.choose(workspace, chosen.archs, full=full, only=gates),
        upstream=chosen.upstream,
        only=gates,
        full=full,
        environ=os.environ,
        then=write_reports,
    )
    terminal = settings.terminal
    if not settings.json:
        # Before publishing, which may end with an error.
        terminal.data(summarize(workspace, report, shutil.get_terminal_size((100, 24)).columns).rstrip("\n"))
        if timings:
            terminal.data("\n".join(["", "seconds (tools):", *timings_table(report.timings)]))
    published = None
    if request is not None and not report.failed:
        published = run_publish(workspace, report, request, environ=os.environ)
    if settings.json:
        extra = {"published": published} if published is not None else {}
        terminal.document({**fields_of(report), **extra})
    else:
        if published is not None:
            terminal.data("\n".join(published_lines(published)))
        problems = failures(report)
        if problems:
            terminal.write_error(ErrorGroup("the candidate failed verification", problems))
    if report.nothing is not None:
        return ExitCode.NOTHING
    return ExitCode.GATE_FAILED if report.failed else ExitCode.OK


def published_lines(published: Published) -> Iterator[str]:
    """What a person reads."""
    state = "already published" if published.unchanged else "published"
    yield f"{state}: {published.branch}  {published.tip[:12]}, on candidate {published.candidate[:12]}"
    if published.before is not None and not published.unchanged:
        yield f"  it was at {published.before[:12]}"
    decision = published.decision
    if not decision.proven:
        where = (
            "" if published.branch.startswith(f"patchkit/{PLAIN}/") else ", or not on the required hardware"
        )
        yield f"  UNPROVEN: {', '.join(decision.missing)} did not run{where}"
    if decision.emulated:
        names = ", ".join(name for name, _ in decision.emulated)
        yield f"  EMULATED: {names} passed on an emulated GPU, not on hardware"
    yield f"  evidence: {published.evidence_ref}"
    if published.tag is not None:
        yield f"  signed tag: {published.tag}"
    if published.pushed_to is not None:
        yield f"  pushed to {published.pushed_to}"
        yield from (f"  replaced there: {one}" for one in published.replaced)
    elif published.handover is not None:
        first, *more = published.handover.lines()
        yield f"  get it with: {first}"
        yield from (f"{'':15}{line}" for line in more)
        if published.handover.kind == "am":
            yield f"{'':15}without the last commit of the branch, which changes no file"
