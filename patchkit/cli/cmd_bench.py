"""``patchkit bench``: its two commands, ``compare`` and ``run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, Unpack

import click

from patchkit.cli.bench_output import TableFormat, show_table
from patchkit.cli.commands import COMMANDS, Verb
from patchkit.cli.settings import FOLDER, TEXT, Settings, example_epilog, shared_options

__all__ = ["command"]

# The names of patchkit.bench.tables.CONDITIONS, written out so that --help need not import it; a test
# compares the two.
ACROSS = ("cache", "flash", "batch", "threads", "layers", "load", "backend", "device", "other")


class _Group(Verb, click.Group):
    """Two commands under one name."""


@click.command(
    name="bench",
    cls=_Group,
    short_help=COMMANDS["bench"],
    epilog=example_epilog(
        "patchkit bench compare HIP.jsonl tuned.jsonl",
        "patchkit bench run --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf",
    ),
)
@shared_options
def command() -> None:
    """Compare results of llama-bench, or measure baselines and candidate in one go.

    The gate of patchkit verify is another one: it decides, with noise measured in the same rounds. These two
    show what was measured.
    """


def _part(
    name: str, short: str, *, example: tuple[str, ...]
) -> Callable[[Callable[..., Any]], click.Command]:
    def decorate(function: Callable[..., Any]) -> click.Command:
        make = command.command(name=name, cls=Verb, short_help=short, epilog=example_epilog(*example))
        made: click.Command = make(shared_options(click.pass_obj(function)))
        return made

    return decorate


def _format_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--format",
        "form",
        type=click.Choice(["terminal", "markdown", "csv"]),
        default="terminal",
        show_default=True,
        help="How to write the table.",
    )(function)


class _CompareOptions(TypedDict):
    labels: tuple[str, ...]
    baseline: str | None
    across: tuple[str, ...]
    plot: Path | None


@_part(
    "compare",
    "Show results of llama-bench side by side.",
    example=(
        "patchkit bench compare HIP.jsonl rocWMMA.jsonl tuned.jsonl",
        "patchkit bench compare a.jsonl b.jsonl --label HIP --label tuned --format markdown",
        "patchkit bench compare old.jsonl new.jsonl --across load --plot speed.svg",
    ),
)
@click.argument("files", nargs=-1, required=True, type=FOLDER, metavar="FILE...")
@click.option(
    "--label",
    "labels",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="What a file is called, once per file in their order (default: its name).",
)
@click.option(
    "--baseline", type=TEXT, metavar="NAME", help="The label to hold others against (default: the first)."
)
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(ACROSS),
    help="Compare tests although they differ in this; again for more. The table says so.",
)
@click.option(
    "--plot",
    type=FOLDER,
    metavar="FILE",
    help="Also draw speed against depth: .svg or .png.",
)
@_format_option
def _compare(
    settings: Settings, files: tuple[Path, ...], form: TableFormat, **options: Unpack[_CompareOptions]
) -> None:
    """Show results of llama-bench (-o jsonl) side by side, with the change in per cent.

    Read are builds 6628 to 11549. Only equal tests of one model under equal conditions share a line;
    everything else is shown by itself and named below the table. Nothing is known of the scatter of a test
    that was run once: then there is no interval.
    """
    from patchkit.bench.table_text import json_table
    from patchkit.flow.bench_compare import CompareRequest, run_bench_compare

    table = run_bench_compare(CompareRequest(files=files, **options))
    if settings.json:
        drawn = {} if options["plot"] is None else {"plot": str(options["plot"])}
        settings.terminal.document({"ok": True, **json_table(table), **drawn})
        return
    show_table(settings, table, form)
    if options["plot"] is not None:
        settings.reporter().info(f"drawn: {options['plot']}")
