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
from patchkit.carry.resolving.session import Regenerated, regenerate_all
from patchkit.carry.series.lock import Pin
from patchkit.cli.completing import gpus, patches, targets
from patchkit.cli.error_text import error_as_json
from patchkit.cli.request import SOURCE, TRUST
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
    help="New llama.cpp build: b11549, a release (v0.5.0), a commit, latest or latest-release.",
)
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="Move only the candidate of this GPU (default: every result in the lock file). May be repeated for "
    "a candidate of several GPUs.",
)
@click.option(
    "--with",
    "with_",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Add an optional (opt-in) patch; only this candidate is moved, no other set of the lock.",
)
@TRUST
@click.option(
    "--without",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Exclude a patch, and accept that the new build does not have it.",
)
@click.option(
    "--drop-conflicts",
    is_flag=True,
    help="Exclude patches that conflict, record that in the lock, and continue. Exit code 9 if any is lost.",
)
@SOURCE
@click.option(
    "--no-verify",
    is_flag=True,
    help="Skip the gates. Rejected if upstream changed code that a patch edits or uses.",
)
@click.option(
    "--accept-not-run",
    is_flag=True,
    help="Skip the gates even then; the branch names end in -unproven.",
)
@click.option("--keep-default", is_flag=True, help="Add the build to the lock, but keep the default build.")
@click.option(
    "--accept-fault",
    "accept_faults",
    multiple=True,
    metavar="ID",
    help="Continue although the new build has this known fault (it computes wrong results).",
)
@click.option(
    "--accept-missing",
    multiple=True,
    metavar="NAME",
    help="Continue although a patch uses this name, which upstream seems to have removed.",
)
@click.option("--no-fetch", is_flag=True, help="Do not look up pull requests.")
@click.option(
    "--resolve",
    is_flag=True,
    help="First re-create the edits of plain patches that conflict, if git can merge them (see resolve).",
)
@click.option(
    "--commit",
    is_flag=True,
    help="Commit the new lock on a branch of this repository instead of changing the file in place.",
)
def command(settings: Settings, *, resolve: bool, **options: Any) -> int:
    """Move all patches to a newer llama.cpp build: place each again, check the result, update the lock.

    All or nothing: lock and branches stay unchanged if a patch conflicts or uses a name that upstream removed
    (exit code 3), if a gate fails or the build is known to compute wrong results (1), or if a candidate would
    lose a patch (9). A patch does not count as lost if upstream provably has it, has replaced it, or has
    removed the code that it changes.

    The report is kept in the cache folder. It also covers the pull requests that the patches come from.
    """
    workspace = settings.workspace()
    request = BumpRequest(**options)
    if not request.skips_gates:
        _check_policy(workspace)  # fail before the work, not after it
    regenerated = _regenerate(request, workspace) if resolve else None
    written = tuple(dict.fromkeys(each.patch for each in regenerated.done)) if regenerated is not None else ()
    if written:
        workspace.reporter.step(f"wrote new edits of {', '.join(written)}; these stay even if the bump fails")
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
        settings.terminal.write_error(bump.drifted)
    reports = [each.report for each in bump.successors if each.report is not None]
    problems = [problem for report in reports for gate in report.gates for problem in gate.problems]
    if problems and not settings.json:
        settings.terminal.write_error(ErrorGroup("the new candidate failed its checks", problems))
    return _exit_code(bump)


def _regenerate(request: BumpRequest, workspace: Workspace) -> Regenerated:
    if request.commit:
        raise UsageError(
            "--resolve cannot be combined with --commit",
            code="USAGE_VALUE",
            why="--resolve changes patch files, and --commit uses the series as it is committed",
            hint="run patchkit bump --resolve, commit the patches, then run patchkit bump --commit",
        )
    return regenerate_all(request, workspace)


def _check_policy(workspace: Workspace) -> None:
    """Read [gates] of series.toml now, because verify would report its errors only after the placing."""
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
        return ExitCode.FEWER_PATCHES if any(made.dropped_losses for made in bump.successors) else ExitCode.OK
    codes = {
        "blocked": ExitCode.ANCHOR,
        "fewer": ExitCode.FEWER_PATCHES,
        "unverified": ExitCode.USAGE,
    }
    return codes.get(bump.state, ExitCode.GATE_FAILED)
