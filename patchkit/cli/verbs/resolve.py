"""``patchkit resolve``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

import click

from patchkit.base.errors import ExitCode, ToolchainError, UsageError
from patchkit.base.plain import fields_of
from patchkit.base.process import run_in_terminal
from patchkit.base.upstreams import build_name
from patchkit.carry.resolving.case import Resolved
from patchkit.carry.resolving.run import (
    Conflicted,
    ResolveRequest,
    abort_resolve,
    continue_resolve,
    run_resolve,
)
from patchkit.carry.upstream.sources import AUTO, source_words
from patchkit.cli.completing import gpus, patches
from patchkit.cli.resolved import next_line, resolved_lines
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb


@verb(
    "resolve",
    example=(
        "patchkit resolve my-patch --to b11549",
        "patchkit resolve my-patch --to b11549 --edit",
        "patchkit resolve my-patch --continue",
    ),
)
@click.argument("patch", type=TEXT, metavar="PATCH", shell_complete=patches)
@click.option(
    "--to",
    type=TEXT,
    metavar="PIN",
    help="The new upstream, as for bump: a build (b11549), a release, a commit, latest (default: latest).",
)
@click.option("--continue", "goes_on", is_flag=True, help="Take what you made of the files into the patch.")
@click.option("--abort", is_flag=True, help="Remove the folder again; the patch is as it was.")
@click.option(
    "--into", type=FOLDER, metavar="DIR", help="The folder for a conflict (default: PATCH.conflict)."
)
@click.option("--edit", is_flag=True, help="Open the files in $VISUAL or $EDITOR, and go on when it ends.")
@click.option("--editor", type=TEXT, metavar="COMMAND", help="Open them in this editor.")
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="The GPUs of the candidate that the patch is in (default: the first of the lock that has it).",
)
@click.option(
    "--with", "with_", multiple=True, metavar="ID", shell_complete=patches, help="Its opt-in patches."
)
@click.option(
    "--source",
    type=click.Choice(source_words()),
    default=AUTO,
    show_default=True,
    help="Where the new pin comes from.",
)
@click.option("--upstream-url", type=TEXT, metavar="URL", help="A mirror or local clone to ask for builds.")
def command(
    settings: Settings, *, goes_on: bool, abort: bool, edit: bool, editor: str | None, **options: Any
) -> int:
    """Merge a patch that a new upstream does not take, and make its edits anew.

    The patch as it was placed last is merged with the new upstream, as git merges. Where that has no conflict
    and every change is in the function that it was in, the new edits are written; for older builds the
    old ones stay. Else a folder has the functions in question with the three sides of each conflict, to be
    edited: --continue makes the edits of the result. Either way they are placed on both builds first,
    and compared. A patch with a guard gets the files to look at; its edits are written by hand.
    """
    _refuse_mixed({"--continue": goes_on, "--abort": abort, "--to": bool(options["to"])})
    request = ResolveRequest(**(options | {"to": options["to"] or "latest"}))
    if abort:
        left, build = abort_resolve(request)
        document = {"patch": request.patch, "state": "aborted", "left": list(left)}
        again = f"next:  {request.command('--to', build_name(build))}  # begins again"
        settings.show(document, [f"{request.patch}: as it was", *_left_lines(request, left), again])
        return ExitCode.OK
    workspace = settings.workspace()
    if not goes_on:
        found = run_resolve(request, workspace)
        if isinstance(found, Resolved):
            settings.show(found, [*resolved_lines(found), next_line(found, request)])
            return ExitCode.OK
        if not (edit or editor) or not found.is_plain:
            settings.show(found, _conflict_lines(found, request))
            return ExitCode.ANCHOR
        _open(found, editor)
    done, left = continue_resolve(request, workspace)
    lines = [*resolved_lines(done), *_left_lines(request, left), next_line(done, request)]
    settings.show(fields_of(done) | {"left": list(left)}, lines)
    return ExitCode.OK


def _refuse_mixed(given: dict[str, bool]) -> None:
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(
            f"{' and '.join(named)} contradict each other", code="USAGE_VALUE", hint="give one of them"
        )


def _open(found: Conflicted, editor: str | None) -> None:
    """Wait for the editor, as git does; raises RESOLVE_EDITOR."""
    named = editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    words = [*shlex.split(named), *(str(found.folder / each.name) for each in found.files)]
    try:
        status = run_in_terminal(words, is_quiet=True)
    except ToolchainError as error:
        status, why = 1, error.message
    else:
        why = f"it ended with status {status}"
    if status:
        raise UsageError(
            f"the editor '{named}' did not end well",
            code="RESOLVE_EDITOR",
            why=why,
            hint=f"edit the files in {found.folder}; then: patchkit resolve {found.patch} --continue",
        )


def _conflict_lines(found: Conflicted, request: ResolveRequest) -> Iterator[str]:
    ends = f"from {build_name(found.old)} to {build_name(found.build)}"
    yield f"{found.patch}: a person has to look at it, {ends}"
    for each in found.files:
        inside = f" ({', '.join(dict.fromkeys(each.inside))})" if each.inside else ""
        yield f"  {found.folder / each.name}: {each.why or 'to look at'}{inside}"
    for problem in found.problems:
        yield f"  {problem.code}: {problem.message}"
    if not found.is_plain:
        yield "it has a guard: write its edits by hand (docs/guide/patch.md); the files show where"
        yield f"next:  {request.command('--abort')}  # when you have looked"
        return
    yield f"next:  edit what is between the ==== lines, then: {request.command('--continue')}"
    yield f"       or {request.command('--abort')}"


def _left_lines(request: ResolveRequest, left: tuple[str, ...]) -> Iterator[str]:
    if left:
        yield f"{request.folder} stays: it has files of others: {', '.join(left)}"
