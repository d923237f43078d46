"""``patchkit sweep``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from patchkit.base.errors import ExitCode, UsageError
from patchkit.cli.request import choose_archs
from patchkit.cli.settings import FOLDER, TEXT, Settings, verb

if TYPE_CHECKING:
    from pathlib import Path

    from patchkit.bump.sweep import Sweep
    from patchkit.bump.sweep_gates import Proof
    from patchkit.candidate.workspace import Workspace


class _Options(TypedDict):
    archs: tuple[str, ...]
    with_: tuple[str, ...]
    corpus: Path | None
    first: str | None
    last: str | None
    upstream_url: str | None
    gates: bool
    jobs: int | None
    scheduler: str | None
    markdown: bool


@verb(
    "sweep",
    example=(
        "patchkit sweep --arch gfx1151",
        "patchkit sweep --arch gfx1151 --corpus pins.toml --markdown",
        "patchkit sweep --arch gfx1151 --from b6900 --to b9538 --upstream-url ~/llama.cpp",
    ),
)
@click.option("--arch", "archs", multiple=True, metavar="GFX", help="A GPU, as gfx1151; again for more.")
@click.option("--with", "with_", multiple=True, metavar="ID", help="Add a patch that is opt-in.")
@click.option("--corpus", type=FOLDER, metavar="FILE", help="Every pin of this file, in the form of a lock.")
@click.option("--from", "first", type=TEXT, metavar="BUILD", help="The first build of a git remote.")
@click.option("--to", "last", type=TEXT, metavar="BUILD", help="The last build of a git remote, or latest.")
@click.option(
    "--upstream-url", type=TEXT, metavar="URL", help="The git remote of --from and --to: a mirror or a clone."
)
@click.option(
    "--gates", is_flag=True, help="Also isolate, compile, measure and launch what is clean or moved. Slow."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one per core).")
@click.option("--scheduler", type=TEXT, metavar="tcp://HOST:PORT", help="Use the workers of a Dask cluster.")
@click.option("--markdown", is_flag=True, help="The matrix as a Markdown table.")
def command(settings: Settings, **options: Unpack[_Options]) -> int:
    """Show what becomes of every patch on many upstreams: a matrix of patches and pins.

    Reads only, but for trees that the cache lacks. Without --from and --to the pins are those of --corpus, by
    default of patches/upstreams.toml. With them they are tags of a git remote: both ends, and
    those that a search for the first break of each patch looks at. Exit code 3 when a patch is in conflict;
    with --gates, 1 when a gate fails, and 10 when no patch is in on any pin: there is nothing to prove.
    """
    from patchkit.bump.sweep import markdown_matrix, text_matrix

    workspace = settings.workspace()
    archs = choose_archs(workspace, options["archs"])
    result = _swept(workspace, archs, options)
    proven: tuple[Proof, ...] = ()
    if options["gates"]:
        from patchkit.bump.sweep_gates import prove_rows

        found: list[Proof] = []
        for proof in prove_rows(workspace, result, with_=options["with_"], environ=os.environ):
            found.append(proof)
            for line in proof.lines():
                workspace.reporter.info(line)  # hours may lie between two of them
        proven = tuple(found)
    terminal = settings.terminal
    if settings.json:
        gates = {"gates": [each.as_json() for each in proven]} if options["gates"] else {}
        terminal.document(result.as_json() | gates)
    else:
        lines = markdown_matrix(result) if options["markdown"] else text_matrix(result)
        lines += [line for each in proven for line in each.lines()]
        terminal.data("\n".join(lines))
    if result.count("conflict"):
        return ExitCode.ANCHOR
    if proven and all(each.nothing for each in proven):
        return ExitCode.NOTHING
    return ExitCode.GATE_FAILED if any(each.failed for each in proven) else ExitCode.OK


def _swept(workspace: Workspace, archs: tuple[str, ...], options: _Options) -> Sweep:
    from patchkit.bump.sweep import run_sweep
    from patchkit.series.lock import load_lock

    remote = options["first"] or options["last"] or options["upstream_url"]
    if remote and options["corpus"] is not None:
        raise UsageError(
            "--corpus and --from, --to or --upstream-url are two kinds of sweep",
            code="SWEEP_OPTIONS_CLASH",
            hint="leave out one of them",
        )
    if remote:
        from patchkit.bump.bisect import sweep_remote

        return sweep_remote(
            workspace,
            archs=archs,
            with_=options["with_"],
            url=options["upstream_url"],
            first=options["first"],
            last=options["last"],
        )
    return run_sweep(
        workspace,
        load_lock(options["corpus"] or workspace.series.patches / "upstreams.toml").pins,
        archs=archs,
        with_=options["with_"],
        jobs=options["jobs"],
        scheduler=options["scheduler"],
    )
