"""``patchkit resolve``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from patchkit.base.errors import ExitCode, ToolchainError, UsageError
from patchkit.base.plain import fields_of
from patchkit.base.process import run_in_terminal
from patchkit.base.upstreams import build_name
from patchkit.carry.bump.request import BumpRequest
from patchkit.carry.resolving.case import Resolved
from patchkit.carry.resolving.run import (
    Conflicted,
    ResolveRequest,
    abort_resolve,
    continue_resolve,
    run_resolve,
)
from patchkit.carry.resolving.session import FOLDER as CONFLICTS
from patchkit.carry.resolving.session import (
    abort_session,
    continue_session,
    run_session,
    session_command,
)
from patchkit.cli.completing import gpus, patches
from patchkit.cli.request import SOURCE
from patchkit.cli.resolved import conflict_lines, continued_lines, next_line, resolved_lines, session_lines
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb


@verb(
    "resolve",
    example=(
        "patchkit resolve my-patch --to b11549",
        "patchkit resolve my-patch --to b11549 --edit",
        "patchkit resolve my-patch --continue",
        "patchkit resolve --all --to b11549",
    ),
)
@click.argument("patch", type=TEXT, metavar="[PATCH]", required=False, shell_complete=patches)
@click.option("--all", "every", is_flag=True, help="Resolve all patches without a guard that conflict there.")
@click.option(
    "--to",
    type=TEXT,
    metavar="PIN",
    help="New llama.cpp build, as for bump: b11549, a release, a commit, latest (default: latest).",
)
@click.option(
    "--continue", "continues", is_flag=True, help="Create the patch's new edits from the files you edited."
)
@click.option("--abort", is_flag=True, help="Remove the conflict folder; the patch stays unchanged.")
@click.option(
    "--into",
    type=FOLDER,
    metavar="DIR",
    help="Folder for the conflicting files (default: PATCH.conflict; with --all: conflicts).",
)
@click.option(
    "--before",
    "order",
    flag_value="before",
    help="If upstream inserts lines at the same place, put those of the patch before them.",
)
@click.option("--after", "order", flag_value="after", help="As --before, but put them after.")
@click.option("--edit", is_flag=True, help="Open the files in $VISUAL or $EDITOR, then continue.")
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="GPUs of the candidate that has the patch (default: the first in the lock). May be repeated.",
)
@click.option(
    "--with",
    "with_",
    multiple=True,
    metavar="ID",
    shell_complete=patches,
    help="Optional (opt-in) patches of that candidate. May be repeated.",
)
@SOURCE
def command(
    settings: Settings,
    *,
    every: bool,
    continues: bool,
    abort: bool,
    edit: bool,
    **options: Any,
) -> int:
    """Merge a patch that conflicts with a newer llama.cpp build, and re-create its edits.

    Merges the patch, as it was last placed, with the new build, as git would. Without a conflict, and if
    every change stays in its function, the new edits are written; older builds keep the old ones. Otherwise a
    folder gets the functions in question with the three sides of each conflict. Edit them, then run
    --continue. In both cases the edits are first placed on both builds and the results compared.

    For a patch with a GPU guard you get the files to look at, and write its edits by hand.

    Patches can be resolved in any order, unless one requires another one that is in conflict too. With --all,
    the folder conflicts gets a folder for each patch that you have to look at; with --after or --before, not
    for those that only insert lines at the same place as upstream.
    """
    _refuse_mixed({"--continue": continues, "--abort": abort, "--to": bool(options["to"])})
    order = options["order"]
    _refuse_mixed({"--continue": continues, "--abort": abort, f"--{order}": order is not None})
    if every:
        _refuse_mixed({"--all": True, "PATCH": options["patch"] is not None})
        return _all(settings, options, edit=edit, continues=continues, abort=abort)
    if options["patch"] is None:
        raise click.MissingParameter(param_hint="'PATCH' or '--all'", param_type="argument")
    request = ResolveRequest(**(options | {"to": options["to"] or "latest"}))
    if abort:
        left, build = abort_resolve(request)
        document = {"patch": request.patch, "state": "aborted", "left": list(left)}
        again = f"next:  {request.command('--to', build_name(build))}  # to start again"
        settings.show(document, [f"{request.patch}: unchanged", *_left_lines(request, left), again])
        return ExitCode.OK
    workspace = settings.workspace()
    if not continues:
        found = run_resolve(request, workspace)
        if isinstance(found, Resolved):
            settings.show(found, [*resolved_lines(found), next_line(found, request)])
            return ExitCode.OK
        if not edit or not found.is_plain:
            settings.show(found, _conflict_lines(found, request))
            return ExitCode.ANCHOR
        _open([found], request.command("--continue"))
    done, left = continue_resolve(request, workspace)
    lines = [*resolved_lines(done), *_left_lines(request, left), next_line(done, request)]
    settings.show(fields_of(done) | {"left": list(left)}, lines)
    return ExitCode.OK


def _refuse_mixed(given: dict[str, bool]) -> None:
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} cannot be combined", code="USAGE_VALUE")


def _all(settings: Settings, options: Mapping[str, Any], *, edit: bool, continues: bool, abort: bool) -> int:
    """All conflicts of a build."""
    folder = options["into"] or CONFLICTS
    workspace = settings.workspace()
    if abort:
        kept, build = abort_session(folder, workspace)
        again = session_command(folder, "--to", build_name(build))
        settings.show(
            {
                "folder": str(folder),
                "state": "aborted",
                "left": {name: list(each) for name, each in kept.items()},
            },
            [f"removed the conflicts in {folder}", f"next:  {again}  # to start again"],
        )
        return ExitCode.OK
    if not continues:
        given = {key: value for key, value in options.items() if key not in {"patch", "into", "order"}}
        bump = BumpRequest(**(given | {"to": given["to"] or "latest"}))
        found = run_session(bump, folder, workspace, options["order"])
        if not edit or not found.conflicts:
            settings.show(found, session_lines(found, bump.command(to=build_name(found.build))))
            is_open = found.conflicts or found.unfinished or found.waiting
            return ExitCode.ANCHOR if is_open else ExitCode.OK
        _open(found.conflicts, session_command(folder, "--continue"))
    done = continue_session(folder, workspace)
    settings.show(done, continued_lines(done))
    return ExitCode.ANCHOR if done.errors else ExitCode.OK


def _open(found: Sequence[Conflicted], command: str) -> None:
    """Open the editor and wait for it, as git does. Raises RESOLVE_EDITOR."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    words = [*shlex.split(named), *(str(one.folder / each.name) for one in found for each in one.files)]
    try:
        status = run_in_terminal(words, is_quiet=True)
    except ToolchainError as error:
        status, why = 1, error.message
    else:
        why = f"it exited with status {status}"
    if status:
        raise UsageError(
            f"the editor '{named}' failed",
            code="RESOLVE_EDITOR",
            why=why,
            hint=f"edit the files in {', '.join(str(one.folder) for one in found)}, then run: {command}",
        )


def _conflict_lines(found: Conflicted, request: ResolveRequest) -> Iterator[str]:
    ends = f"from {build_name(found.old)} to {build_name(found.build)}"
    yield f"{found.patch}: conflict {ends}, to be merged by hand"
    yield from conflict_lines(found)
    if not found.is_plain:
        yield (
            "The patch has a GPU guard, so write its edits by hand (docs/guide/patch.md). The "
            "files show where."
        )
        yield f"next:  {request.command('--abort')}  # removes the files"
        return
    yield f"next:  edit the text between the ==== lines, then: {request.command('--continue')}"
    yield f"       or give up: {request.command('--abort')}"


def _left_lines(request: ResolveRequest, left: tuple[str, ...]) -> Iterator[str]:
    if left:
        yield f"kept {request.folder}, because it has files that patchkit did not write: {', '.join(left)}"
