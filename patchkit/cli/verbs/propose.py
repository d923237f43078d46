"""``patchkit propose``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from patchkit.base.text import counted
from patchkit.base.upstreams import build_name
from patchkit.cli.completing import gpus, patches
from patchkit.cli.request import CandidateChoice, base_options, choose_archs
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb
from patchkit.prove.propose.run import Proposal, ProposeRequest, run_propose

_ALL = 8  # GPUs that are listed by name


@verb(
    "propose",
    example=(
        "patchkit propose mmq-batch-limits my-pull-request --arch gfx1151",
        "patchkit propose fattn-mask-scan my-fix --arch gfx1151 --likely",
        "patchkit propose rope-block-size pr --arch gfx1151 --gpu gfx1100 --onto master --repo ../llama.cpp",
    ),
)
@click.argument("name", metavar="ID", type=TEXT, shell_complete=patches)
@click.argument("directory", type=FOLDER, metavar="DIR")
@base_options
@click.option(
    "--gpu",
    "others",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="Also compile for this GPU. May be repeated. Default: the GPUs of the family, if the change is for "
    "a family.",
)
@click.option(
    "--likely",
    is_flag=True,
    help="Compile only the source files most likely affected, as in try. May miss kernels.",
)
def command(
    settings: Settings,
    name: str,
    directory: Path,
    base: CandidateChoice,
    others: tuple[str, ...],
    *,
    likely: bool,
) -> None:
    """Prepare a pull request to llama.cpp: write what a person needs for it into DIR.

    DIR gets the patch as a commit in upstream's form (for git am), a commit with test cases, the blank form
    of a description, a list of affected GPUs, registers and spills before and after, measurements, and
    scripts that measure and check. DIR must be new or empty.

    llama.cpp forbids descriptions and commit messages written by a program. So these are blank, and nothing
    is sent. ID may also be a patch of the folder proposals/, which has fixes that are only meant for
    upstream.
    """
    workspace = settings.workspace()
    archs = choose_archs(workspace, base.archs)
    request = ProposeRequest(
        patch=name,
        arch=archs[0],
        others=(*archs[1:], *others),
        upstream=base.upstream,
        onto=base.onto,
        directory=directory,
        likely=likely,
    )
    done = run_propose(workspace, request, os.environ)
    for path in done.rules_changed:
        workspace.reporter.warn(f"upstream changed {path} since patchkit's text about it was written")
    settings.show(done, list(_lines(done)))


def _lines(done: Proposal) -> Iterator[str]:
    where = build_name(done.build) if done.build else done.base[:12]
    yield f"{done.directory}: {done.patch} for llama.cpp {where}"
    yield from (f"  {name}" for name in done.files)
    shown = ", ".join(done.gpus) if len(done.gpus) <= _ALL else "all of the CUDA backend"
    yield f"GPUs: {shown}"
    worse = sum(row.state in ("worse", "mixed") for row in done.kernels)
    yield (
        f"compiled {counted(done.units, 'source file')} for {', '.join(done.compiled_for)}: "
        f"{counted(len(done.kernels), 'kernel')} changed, {worse} with more spills or fewer waves"
    )
    if done.skipped:
        yield f"not compiled: {counted(done.skipped, 'source file')} (omit --likely to include them)"
    if not done.cases:
        yield "there are no test cases for it: upstream wants a test that fails before a fix"
    yield ""
    yield f"Next: read {shlex.quote(str(done.directory / 'README.md'))}. Messages and description are yours."
