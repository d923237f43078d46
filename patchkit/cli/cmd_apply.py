"""``patchkit apply``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from patchkit.cli.request import RequestOptions, make_request, request_options, unlocked_option
from patchkit.cli.settings import FOLDER, Settings, verb

if TYPE_CHECKING:
    from patchkit.flow.apply import Applied

__all__ = ["command"]


@verb(
    "apply",
    example=(
        "patchkit apply --arch gfx1151",
        "patchkit apply --arch gfx1151 --checkout llama.cpp-gfx1151",
        "patchkit apply --arch gfx1151 --arch gfx1100 --source sdist",
    ),
)
@request_options
@unlocked_option
@click.option(
    "--checkout",
    type=FOLDER,
    metavar="DIR",
    help="Also put the files there, as a repository of its own.",
)
def command(settings: Settings, checkout: Path | None, **options: Unpack[RequestOptions]) -> None:
    """Make the candidate branch: the pin, and on it one commit per patch.

    The branch is made in patchkit's own repository in the cache folder; no file of yours is touched. The
    same inputs give the same commits. A candidate is placed and parsed, not yet proven on a GPU.
    """
    from patchkit.flow.apply import run_apply

    workspace = settings.workspace()
    applied = run_apply(make_request(workspace, options), workspace, checkout=checkout)
    if settings.json:
        settings.terminal.document(applied.as_json())
    else:
        settings.terminal.data(_text(applied, workspace.cache_root / "upstream.git"))


def _text(applied: Applied, repository: Path) -> str:
    branch = applied.branch.removeprefix("refs/heads/")
    archs = " ".join(f"--arch {arch}" for arch in applied.archs)
    count = len(applied.commits)
    state = "as it was" if applied.unchanged else "made"
    lines = [f"{branch}: {state}, {count} commit{'' if count == 1 else 's'} on {applied.base[:12]}"]
    lines += [f"  {made.commit[:12]}  {made.subject}" for made in applied.commits]
    lines += [f"  skipped {patch}: {reason}" for patch, reason in applied.skipped]
    lines += [f"tree {applied.tree} ({applied.lock_state})", f"in   {repository}"]
    if applied.checkout is not None:
        lines += ["", f"files:     {applied.checkout}"]
    elif applied.handover is not None:
        first, *more = applied.handover.lines()
        lines += ["", f"fetch it:  {first}", *(f"{'':11}{line}" for line in more)]
    lines += [
        f"build it:  {shlex.join(applied.cmake)}",
        f"see it:    patchkit diff {archs} --upstream {branch.rpartition('/')[2]}",
        "It is a candidate: placed and parsed, not run on a GPU.",
    ]
    return "\n".join(lines)
