"""``patchkit verify``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from patchkit.base.errors import ErrorGroup, ExitCode, UsageError
from patchkit.cli.complaint import complain
from patchkit.cli.gate_options import (
    HardwareOptions,
    ReportOptions,
    check_hardware,
    hardware_options,
    make_hardware,
    report_options,
    report_writer,
)
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import TEXT, Settings, verb

if TYPE_CHECKING:
    from patchkit.cli.request import CandidateChoice
    from patchkit.publish.run import Published, PublishRequest


class PublishOptions(TypedDict):
    """The values as click hands them over."""

    publish: bool
    accept_not_run: bool
    push: str | None
    force_push: bool
    sign: bool | None


def publish_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options."""
    for option in (
        click.option(
            "--sign/--no-sign", default=None, help="Sign a tag (default: if your git has user.signingkey)."
        ),
        click.option("--force-push", is_flag=True, help="Replace what the remote has, exactly as listed."),
        click.option("--push", type=TEXT, metavar="REMOTE", help="Push what was published there."),
        click.option(
            "--accept-not-run",
            is_flag=True,
            help="Publish although required gates did not run: as 'unproven', naming them.",
        ),
        click.option("--publish", is_flag=True, help="Publish the branch if the required gates passed."),
    ):
        function = option(function)
    return function


def publish_request(options: PublishOptions, choice: CandidateChoice) -> PublishRequest | None:
    """What to publish; None for nothing. Raises PUBLISH_OPTION_ALONE, PushRemoteBad, before any work."""
    if not options["publish"]:
        names = {"accept_not_run": "--accept-not-run", "push": "--push", "force_push": "--force-push"}
        given = [text for name, text in names.items() if options[name]]  # type: ignore[literal-required]
        if options["sign"] is not None:
            given.append("--sign" if options["sign"] else "--no-sign")
        if given:
            raise UsageError(
                f"{', '.join(given)}: nothing is published without --publish",
                code="PUBLISH_OPTION_ALONE",
                hint="add --publish",
            )
        return None
    if choice.onto is not None:
        raise UsageError(
            "a candidate on a commit of your clone is not published",
            code="PUBLISH_OPTION_ALONE",
            why="its branch is in your repository already, and the push is yours",
            hint="leave out --publish, and push the branch that apply --onto made",
        )
    from patchkit.publish.run import PublishRequest, check_request

    request = PublishRequest(
        accept_not_run=options["accept_not_run"],
        push=options["push"],
        force_push=options["force_push"],
        sign=options["sign"],
        upstream=choice.upstream,
    )
    check_request(request)
    return request


def published_lines(published: Published) -> list[str]:
    """What a person reads."""
    state = "already published" if published.unchanged else "published"
    lines = [f"{state}: {published.branch}  {published.tip[:12]}, on candidate {published.candidate[:12]}"]
    if published.before is not None and not published.unchanged:
        lines.append(f"  it was at {published.before[:12]}")
    if not published.decision.proven:
        lines.append(f"  UNPROVEN: {', '.join(published.decision.missing)} did not run")
    lines.append(f"  evidence: {published.evidence_ref}")
    if published.tag is not None:
        lines.append(f"  signed tag: {published.tag}")
    if published.pushed_to is not None:
        lines.append(f"  pushed to {published.pushed_to}")
        lines += [f"  replaced there: {one}" for one in published.replaced]
    elif published.handover is not None:
        first, *more = published.handover.lines()
        lines += [f"  get it with: {first}", *(f"{'':15}{line}" for line in more)]
        if published.handover.kind == "am":
            lines.append(f"{'':15}without the last commit of the branch, which changes no file")
    return lines


if TYPE_CHECKING:
    from patchkit.gates.verify import Report, Timed

_MARKS = {"passed": "ok", "failed": "FAILED", "not run": "-"}


class _Options(PublishOptions, HardwareOptions, ReportOptions):
    """What the groups of options give."""


@verb(
    "verify",
    example=(
        "patchkit verify --no-gpu --arch gfx1151",
        "patchkit verify --no-gpu --arch gfx1151 --gate isolation --json",
        "patchkit verify --no-gpu --html report.html --junit report.xml --sarif report.sarif",
        "patchkit verify --arch gfx1151 --backend cpu --gate backend-ops --gate logits",
        "patchkit verify --no-gpu --arch gfx1151 --publish --accept-not-run",
    ),
)
@candidate_options
@publish_options
@hardware_options
@report_options
@click.option("--gate", "gates", multiple=True, metavar="NAME", help="Only this gate; again for more.")
@click.option(
    "--full", is_flag=True, help="Also build the whole library, and compare more device code. Slow."
)
def command(
    settings: Settings,
    choice: CandidateChoice,
    gates: tuple[str, ...],
    *,
    full: bool,
    **options: Unpack[_Options],
) -> int:
    """Prove what can be proven of the candidate, and say what was not.

    Gates that need the GPU run when this machine has it. With --backend cpu they run on the CPU backend,
    under names of their own, which shows that they work and proves nothing of the GPU.

    Exit code 1 when a gate fails. A candidate without a patch is upstream's own tree: no gate runs, exit code
    10, and nothing can be published. The evidence is kept in the cache folder, one JSON file per gate. With
    --publish the candidate becomes a branch under the name that people pull, if the gates that the series
    requires have passed; its last commit names every gate and the evidence.

    --html, --junit, --sarif and --summary are written also when a gate fails, or could not be run.
    """
    from patchkit.gates.verify import failures, run_verify

    check_hardware(options)
    request = publish_request(options, choice)
    workspace = settings.workspace()
    write_reports = report_writer(settings, workspace, options)
    chosen = choice.choose(workspace)
    report = run_verify(
        workspace,
        archs=chosen.archs,
        hardware=make_hardware(workspace, chosen.archs, options),
        upstream=chosen.upstream,
        only=gates,
        full=full,
        environ=os.environ,
        then=write_reports,
    )
    terminal = settings.terminal
    if not settings.json:
        terminal.data("\n".join(_lines(report)))
    published = None
    if request is not None and not report.failed:
        from patchkit.publish.run import run_publish

        published = run_publish(workspace, report, request, environ=os.environ)
    if settings.json:
        told = {"published": published.as_json()} if published is not None else {}
        terminal.document({**report.as_json(), **told})
    else:
        if published is not None:
            terminal.data("\n".join(published_lines(published)))
        problems = failures(report)
        if problems:
            terminal.talk(complain(ErrorGroup("the candidate does not hold", problems), terminal.paint))
    if report.nothing is not None:
        return ExitCode.NOTHING
    return ExitCode.GATE_FAILED if report.failed else ExitCode.OK


def _lines(report: Report) -> list[str]:
    from patchkit.gates.hardware import proven_where

    lines = [f"{report.branch}  {report.tip[:12]}  tree {report.tree[:12]}, against {report.base[:12]}"]
    lines += [f"with {told}" for told in report.proven_with]
    width = max(len(gate.result.gate) for gate in report.gates) + 1
    for gate in report.gates:
        lines += _gate(gate, width)
    lines += ["", f"evidence: {report.folder}"]
    ran = [gate.result.gate for gate in report.gates if gate.result.verdict == "passed"]
    if report.nothing is not None:
        lines.append(f"NOTHING TO PROVE: the candidate has no patch. {report.nothing.sentence}")
    elif report.failed:
        lines.append("FAILED: this candidate must not be published.")
    else:
        lines.append(f"{proven_where(ran)} What is not listed as ok is not proven.")
    return lines


def _gate(gate: Timed, width: int) -> list[str]:
    result = gate.result
    head = f"{_MARKS[result.verdict]:<7}{result.gate:<{width}}"
    if result.verdict == "not run":
        # It may have measured something all the same, and not have come to an end.
        found = [f"{'':7}{line}" for line in (*result.lines, *(f"open: {why}" for why in result.not_run))]
        return [f"{head}not run: {result.summary}", *found]
    lines = ["", f"{head}{result.summary} ({gate.seconds:.1f} s)"]
    lines += [f"{'':7}{line}" for line in result.lines]
    return lines + [f"{'':7}not proven: {line}" for line in result.not_run]
