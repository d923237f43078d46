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
@click.option("--corpus", type=FOLDER, metavar="FILE", help="Every pin of this file, in the form of a lock.")
@click.option(
    "--from",
    "first",
    type=TEXT,
    metavar="PIN",
    shell_complete=pins,
    help="The first build or release of a git remote.",
)
@click.option(
    "--to",
    "last",
    type=TEXT,
    metavar="PIN",
    shell_complete=targets,
    help="The last of them, latest or latest-release.",
)
@click.option(
    "--upstream-url", type=TEXT, metavar="URL", help="The git remote of --from and --to: a mirror or a clone."
)
@click.option(
    "--gates", is_flag=True, help="Also isolate, compile, measure and launch what is clean or moved. Slow."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one per core).")
@click.option("--scheduler", type=TEXT, metavar="tcp://HOST:PORT", help="Use the workers of a Dask cluster.")
@click.option("--markdown", is_flag=True, help="The matrix as a Markdown table.")
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
    scheduler: str | None,
    markdown: bool,
) -> int:
    """Show what becomes of every patch on many upstreams: a matrix of patches and pins.

    Reads only, but for trees that the cache lacks. Without --from and --to the pins are those of --corpus, by
    default of patches/upstreams.toml. With them they are tags of a git remote: both ends, and
    those that a search for the first break of each patch looks at. Exit code 3 when a patch is in conflict;
    with --gates, 1 when a gate fails, and 10 when no patch is in on any pin: there is nothing to prove.
    """
    workspace = settings.workspace()
    archs = choose_archs(workspace, archs)
    remote = first or last or upstream_url
    if remote and corpus is not None:
        raise UsageError(
            "--corpus and --from, --to or --upstream-url are two kinds of sweep",
            code="SWEEP_OPTIONS_CLASH",
            hint="leave out one of them",
        )
    if remote:
        result = sweep_remote(workspace, archs=archs, with_=with_, url=upstream_url, first=first, last=last)
    else:
        pins = load_lock(corpus or workspace.series.catalogue).pins
        result = run_sweep(workspace, pins, archs=archs, with_=with_, jobs=jobs, scheduler=scheduler)
    proven: list[Proof] = []
    if gates:
        for proof in prove_rows(workspace, result, with_=with_, environ=os.environ):
            proven.append(proof)
            for line in proof.lines():
                workspace.reporter.info(line)  # hours may lie between two of them
    told = {"gates": proven} if gates else {}
    lines = markdown_matrix(result) if markdown else text_matrix(result)
    settings.show(fields_of(result) | told, [*lines, *(line for each in proven for line in each.lines())])
    if result.count("conflict"):
        return ExitCode.ANCHOR
    if proven and all(each.nothing for each in proven):
        return ExitCode.NOTHING
    return ExitCode.GATE_FAILED if any(each.failed for each in proven) else ExitCode.OK
