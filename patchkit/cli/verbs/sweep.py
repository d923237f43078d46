"""``patchkit sweep``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.base.plain import fields_of
from patchkit.carry.series.lock import load_lock
from patchkit.carry.sweep.bisect import sweep_remote
from patchkit.carry.sweep.run import markdown_matrix, run_sweep, text_matrix
from patchkit.cli.completing import pins, targets
from patchkit.cli.request import ARCHS, WITH, choose_archs
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb
from patchkit.prove.sweep import Proof, prove_rows


@verb(
    "sweep",
    example=(
        "patchkit sweep --arch gfx1151",
        "patchkit sweep --arch gfx1151 --corpus pins.toml --markdown",
        "patchkit sweep --arch gfx1151 --from b6900 --to b9538 --upstream-url ~/llama.cpp",
    ),
)
@ARCHS
@WITH
@click.option(
    "--corpus", type=FOLDER, metavar="FILE", help="File with the builds to try, in the format of a lock."
)
@click.option(
    "--from",
    "first",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="First build or release to try, from a git remote.",
)
@click.option(
    "--to",
    "last",
    type=TEXT,
    metavar="PIN",
    shell_complete=targets,
    help="Last build or release, latest or latest-release.",
)
@click.option(
    "--upstream-url",
    type=TEXT,
    metavar="URL",
    help="Git remote for --from and --to: a mirror or a local clone.",
)
@click.option(
    "--gates",
    is_flag=True,
    help="Also run the isolation, compile, resources and launch gates on patches that apply. Slow.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes (default: one per core).",
)
@click.option("--markdown", is_flag=True, help="Print the matrix as a Markdown table.")
def command(
    settings: Settings,
    *,
    archs: tuple[str, ...],
    with_: tuple[str, ...],
    corpus: Path | None,
    first: str | None,
    last: str | None,
    upstream_url: str | None,
    gates: bool,
    jobs: int | None,
    markdown: bool,
) -> int:
    """Show on which llama.cpp builds each patch fits: a matrix of patches and builds.

    Changes nothing, except for downloading missing builds into the cache. The builds are those of --corpus,
    by default patches/upstreams.toml. With --from and --to they are tags of a git remote: both ends, and the
    builds tried by a binary search for the first one where each patch breaks.

    Exit code 3 if a patch conflicts; with --gates, 1 if a gate fails, and 10 if no build has any patch, so
    there was nothing to check.
    """
    workspace = settings.workspace()
    archs = choose_archs(workspace, archs)
    remote = first or last or upstream_url
    if remote and corpus is not None:
        raise UsageError(
            "--corpus cannot be combined with --from, --to or --upstream-url",
            code="OPTIONS_CONTRADICT",
        )
    if remote:
        result = sweep_remote(workspace, archs=archs, with_=with_, url=upstream_url, first=first, last=last)
    else:
        pins = load_lock(corpus or workspace.series.catalogue).pins
        result = run_sweep(workspace, pins, archs=archs, with_=with_, jobs=jobs)
    proven: list[Proof] = []
    if gates:
        for proof in prove_rows(workspace, result, with_=with_, environ=os.environ):
            proven.append(proof)
            for line in proof.lines():
                workspace.reporter.info(line)  # print each at once; the next may take hours
    gate_results = {"gates": proven} if gates else {}
    lines = markdown_matrix(result) if markdown else text_matrix(result)
    settings.show(
        fields_of(result) | gate_results, [*lines, *(line for each in proven for line in each.lines())]
    )
    if result.count("conflict"):
        return ExitCode.ANCHOR
    if proven and all(each.nothing for each in proven):
        return ExitCode.NOTHING
    return ExitCode.GATE_FAILED if any(each.failed for each in proven) else ExitCode.OK
