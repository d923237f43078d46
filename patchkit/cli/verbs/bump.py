"""``patchkit bump``."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

import click

from patchkit.base.errors import ErrorGroup, ExitCode, UsageError
from patchkit.base.plain import fields_of
from patchkit.base.workspace import Workspace
from patchkit.carry.bump.proof import Proof
from patchkit.carry.bump.report import Bump, format_bump, format_ending, keep_report
from patchkit.carry.bump.request import BumpRequest
from patchkit.carry.bump.run import run_bump
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.resolving.run import Regenerated, regenerate_all
from patchkit.carry.series.lock import Pin
from patchkit.carry.upstream.sources import AUTO, source_words
from patchkit.cli.complaint import error_as_json
from patchkit.cli.completing import gpus, patches, targets
from patchkit.cli.request import TRUST
from patchkit.cli.resolved import regenerated_lines
from patchkit.cli.settings import TEXT, Settings, verb
from patchkit.prove.verify.policy import load_proven_series
from patchkit.prove.verify.run import run_verify


@verb(
    "bump",
    example=(
        "patchkit bump --to b11549",
        "patchkit bump --to v0.5.0",
        "patchkit bump --to latest --upstream-url ~/llama.cpp --commit",
        "patchkit bump --to b9093 --without wmma-tile-params",
    ),
)
@click.option(
    "--to",
    type=TEXT,
    default="latest",
    show_default=True,
    metavar="PIN",
    shell_complete=targets,
    help="A build (b11549), a release (v0.5.0), a commit, latest or latest-release.",
)
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="One candidate's GPUs (default: all in the lock, with each set of opt-in patches that it has).",
)
@click.option(
    "--with",
    "with_",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Add a patch that is opt-in; then this candidate only, and no other set of the lock.",
)
@TRUST
@click.option(
    "--without",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Leave a patch out, and accept that it is lost.",
)
@click.option(
    "--drop-conflicts",
    is_flag=True,
    help="Leave out what cannot be carried, in the lock too, and go on; exit code 9 when anything is lost.",
)
@click.option(
    "--source",
    type=click.Choice(source_words()),
    default=AUTO,
    show_default=True,
    help="Where the new pin comes from.",
)
@click.option("--upstream-url", type=TEXT, metavar="URL", help="A mirror or local clone to ask for builds.")
@click.option("--no-verify", is_flag=True, help="Leave the gates out; refused when edited functions changed.")
@click.option("--keep-default", is_flag=True, help="Add the pin; the default pin stays.")
@click.option(
    "--accept-fault",
    "accept_faults",
    multiple=True,
    metavar="ID",
    help="Go there although this known fault of the build computes wrong results.",
)
@click.option(
    "--no-fetch", is_flag=True, help="Do not ask for pull requests of patches and for watched forks."
)
@click.option(
    "--resolve",
    is_flag=True,
    help="First write new edits of plain patches in conflict, where git's merge takes them (see resolve).",
)
@click.option("--commit", is_flag=True, help="Put the lock on a branch of this repository, not in place.")
def command(settings: Settings, *, resolve: bool, **options: Any) -> int:
    """Follow upstream: place every patch anew, say what became of each, prove the result, move the lock.

    All or nothing: when a patch needs a person (exit code 3), a gate fails or the build is known to compute
    wrong results (1), or a candidate would have fewer patches than before (9), lock and branches stay as they
    are. A patch is not missed when it is proven
    that upstream has it, has what replaces it, or took away what it rests on. The report is kept in the
    cache folder; it also says what became of the pull requests that patches come from, and what is new in
    the forks of [[watch]].
    """
    workspace = settings.workspace()
    request = BumpRequest(**options)
    if not request.no_verify:
        _check_policy(workspace)  # told before the work, not after it
    regenerated = _regenerate(request, workspace) if resolve else None
    written = tuple(dict.fromkeys(each.patch for each in regenerated.done)) if regenerated is not None else ()
    if written:
        workspace.reporter.step(f"new edits of {', '.join(written)} are written, and stay")
    bump = run_bump(request, workspace, dt.datetime.now(tz=dt.UTC), _prove)
    kept = keep_report(bump, workspace.cache_root)
    document = fields_of(bump) | {"report": str(kept)}
    if regenerated is not None:
        document |= {"resolve": regenerated}
    first = regenerated_lines(regenerated) if regenerated is not None else ()
    if bump.drifted is not None:
        document |= error_as_json(bump.drifted)
    settings.show(document, [*first, *format_bump(bump), *format_ending(bump, written), f"report: {kept}"])
    if bump.drifted is not None:
        settings.terminal.complain(bump.drifted)
    reports = [each.report for each in bump.successors if each.report is not None]
    problems = [problem for report in reports for gate in report.gates for problem in gate.problems]
    if problems and not settings.json:
        settings.terminal.complain(ErrorGroup("the candidate does not hold", problems))
    return _exit_code(bump)


def _regenerate(request: BumpRequest, workspace: Workspace) -> Regenerated:
    if request.commit:
        raise UsageError(
            "--resolve writes patches, and --commit takes the series as it is committed",
            code="USAGE_VALUE",
            hint="patchkit bump --resolve first, commit the patches, then patchkit bump --commit",
        )
    return regenerate_all(request, workspace)


def _check_policy(workspace: Workspace) -> None:
    """Read [gates] of series.toml, which proving would read after the placing."""
    load_proven_series(workspace.series.patches)


def _prove(workspace: Workspace, candidate: Candidate, pin: Pin) -> Proof:
    return run_verify(
        workspace,
        archs=candidate.archs,
        upstream=pin.name,
        only=(),
        full=False,
        environ=os.environ,
        candidate=candidate,
    )


def _exit_code(bump: Bump) -> ExitCode:
    if bump.state == "done":
        return ExitCode.FEWER_PATCHES if any(made.dropped for made in bump.successors) else ExitCode.OK
    codes = {
        "blocked": ExitCode.ANCHOR,
        "fewer": ExitCode.FEWER_PATCHES,
        "unverified": ExitCode.USAGE,
    }
    return codes.get(bump.state, ExitCode.GATE_FAILED)
