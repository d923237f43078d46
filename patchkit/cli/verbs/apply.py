"""``patchkit apply``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.cli.request import (
    RequestOptions,
    make_request,
    request_options,
    requested_onto,
    unlocked_option,
)
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb

if TYPE_CHECKING:
    from patchkit.bump.onto.pin import Onto
    from patchkit.candidate.apply import Applied


@verb(
    "apply",
    example=(
        "patchkit apply --arch gfx1151",
        "patchkit apply --arch gfx1151 --onto HEAD --repo ~/llama.cpp",
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
@click.option(
    "--branch", type=TEXT, metavar="NAME", help="With --onto: the branch to make (default: patchkit/GFX)."
)
@click.option(
    "--replace", "replaces", is_flag=True, help="With --onto: move a branch that patchkit made before."
)
def command(
    settings: Settings,
    checkout: Path | None,
    branch: str | None,
    *,
    replaces: bool,
    **options: Unpack[RequestOptions],
) -> int:
    """Make the candidate branch: one commit per patch on llama.cpp.

    With --onto, on a commit of your own clone, with whatever you changed there: each patch is placed by the
    structure of the code and classed as clean, moved, needless or in conflict. One branch is made in your
    repository, patchkit/gfx1151 by default, with your commit below it. Nothing else of it is changed.

    Without --onto, on a pin of the lock, in patchkit's own repository in the cache folder; no file of yours
    is touched. The same inputs give the same commits. A candidate is placed and parsed, not yet proven on a
    GPU.
    """
    onto = requested_onto(options)
    if onto is not None:
        if checkout is not None:
            raise UsageError(
                "--checkout cannot go with --onto",
                code="OPTIONS_CONTRADICT",
                hint="git worktree add in your clone",
            )
        return _apply_onto(settings, onto, branch, options, replaces=replaces)
    if branch is not None or replaces:
        raise UsageError(
            f"{'--branch' if branch is not None else '--replace'} goes with --onto",
            code="OPTIONS_CONTRADICT",
            why="it is about a branch of your own clone",
            hint="add --onto REV",
        )
    from patchkit.candidate.apply import run_apply

    workspace = settings.workspace()
    applied = run_apply(make_request(workspace, options), workspace, checkout=checkout)
    if settings.json:
        settings.terminal.document(applied.as_json())
    else:
        settings.terminal.data(
            _text(applied, workspace.cache_root / "upstream.git", verbose=settings.verbose)
        )
    return ExitCode.OK


def _apply_onto(
    settings: Settings, onto: Onto, branch: str | None, options: RequestOptions, *, replaces: bool
) -> int:
    from patchkit.bump.onto.apply import run_onto
    from patchkit.cli.onto_text import onto_lines

    workspace = settings.workspace()
    request = make_request(workspace, options)
    applied = run_onto(
        request,
        onto,
        workspace,
        branch=branch or f"patchkit/{'+'.join(sorted(set(request.archs)))}",
        replace_branch=replaces,
        drop_conflicts=options["drop_conflicts"],
    )
    if settings.json:
        settings.terminal.document(applied.as_json())
    else:
        settings.terminal.data("\n".join(onto_lines(applied, verbose=settings.verbose)))
    return ExitCode.OK if applied.branch is not None else ExitCode.NOTHING


def _text(applied: Applied, repository: Path, *, verbose: bool) -> str:
    candidate, skipped = applied.candidate, applied.skipped
    archs = " ".join(f"--arch {arch}" for arch in candidate.archs)
    left_out = [f"  left out {patch}: {reason}" for patch, reason in skipped.items()] if verbose else []
    if applied.available is not None:
        head = f"No patch is for {' '.join(candidate.archs)} on {candidate.pin}"
        there = f"{candidate.branch} is upstream's own tree. {applied.available.sentence}"
        return "\n".join([f"{head}: {there}", *left_out])
    count = len(candidate.commits)
    state = "as it was" if applied.unchanged else "made"
    names = ", ".join(candidate.ids)
    others = f"; {len(skipped)} left out (-v says why)" if skipped and not verbose else ""
    lines = [
        f"{candidate.branch}: {state}, {count} patch{'es'[: 2 * (count != 1)]} on {candidate.base[:12]}",
        f"patches:   {names}{others}",
    ]
    if verbose:
        lines += [f"  {made.commit[:12]}  {made.subject}" for made in candidate.commits]
        lines += [*left_out, f"tree {applied.tree} ({applied.lock_state})", f"in   {repository}"]
    if applied.opt_in:
        lines.append(
            f"opt-in:    {', '.join(applied.opt_in)}: see patchkit show ID for what was measured, and where"
        )
    if applied.checkout is not None:
        lines.append(f"files:     {applied.checkout}")
    elif applied.handover is not None:
        first, *more = applied.handover.lines()
        lines += [f"fetch it:  {first}", *(f"{'':11}{line}" for line in more if verbose)]
    verify = f"patchkit verify --no-gpu {archs} --upstream {candidate.pin}"
    lines += [
        f"build it:  {shlex.join(applied.cmake)}",
        f"next:      {verify}; placed and parsed, not run on a GPU",
    ]
    return "\n".join(lines)
