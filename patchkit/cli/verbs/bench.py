"""``patchkit bench``: its two commands, ``compare`` and ``run``."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from patchkit.base.errors import UsageError
from patchkit.base.series_folder import PLAIN
from patchkit.base.text import visible
from patchkit.cli.commands import COMMANDS, Verb
from patchkit.cli.gate_options import check_beside_document, runner_options
from patchkit.cli.request import DEVICE, CandidateChoice, backend_for, candidate_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, example_epilog, packed, shared_options, verb
from patchkit.cli.terminal import wants_color
from patchkit.gpu.hardware.bench.compare import CompareRequest, run_bench_compare
from patchkit.gpu.hardware.bench.options import BenchPlan
from patchkit.gpu.hardware.bench.tables import (
    SURE,
    Section,
    Table,
    csv_table,
    json_table,
    markdown_table,
    sections,
    table_notes,
)
from patchkit.gpu.hardware.runner import choose_runner
from patchkit.prove.bench.command import BenchRunReport, BenchRunRequest, run_bench

TableFormat = Literal["terminal", "markdown", "csv"]
_WIDE = 10_000  # columns where nobody looks: what goes into a pipe is never folded


def show_table(settings: Settings, table: Table, form: TableFormat) -> None:
    """The result on stdout; for CSV, which has no place for them, the notes on stderr."""
    if form == "markdown":
        settings.terminal.data(markdown_table(table))
    elif form == "csv":
        settings.terminal.data(csv_table(table), as_is=True)
        reporter = settings.reporter()
        for note in table_notes(table):
            reporter.info(note)
    else:
        blocks = [_rendered(settings, section) for section in sections(table)]
        settings.terminal.data("\n".join([*blocks, *map(visible, table_notes(table))]), as_is=True)


def _rendered(settings: Settings, section: Section) -> str:
    on_screen = bool(sys.stdout) and sys.stdout.isatty()
    shown = RichTable(title=visible(section.title), box=box.SIMPLE_HEAD, title_justify="left")
    for title, how in zip(section.titles, section.aligned, strict=True):
        # A number that is folded reads as three others.
        shown.add_column(
            Text(visible(title)),
            justify="left" if how == "left" else "right",
            overflow="fold",
            no_wrap=how != "left",
        )
    for row in section.rows:
        shown.add_row(*(_painted(section.titles, row, column) for column in range(len(row))))
    out = io.StringIO()
    needed = Measurement.get(wide := Console(width=_WIDE), wide.options, shown).minimum
    console = Console(
        file=out,
        # rich leaves out what does not fit; a terminal that is too narrow breaks the lines instead.
        width=max(shutil.get_terminal_size().columns, needed) if on_screen else _WIDE,
        force_terminal=on_screen and wants_color(settings.color),
        color_system="standard" if on_screen and wants_color(settings.color) else None,
    )
    console.print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _painted(titles: Sequence[str], row: Sequence[str], column: int) -> Text:
    """Green and red are for changes whose whole interval of 99 % says so; without one there is no colour."""
    is_sure = column + 1 < len(row) and titles[column + 1].endswith(SURE)
    low, found, high = row[column + 1].partition(" to ") if is_sure else ("", "", "")
    if not found or low.startswith("-") != high.startswith("-"):
        return Text(visible(row[column]))
    return Text(visible(row[column]), style="red" if low.startswith("-") else "green")


# The names of patchkit.gpu.hardware.bench.tables.CONDITIONS, written out so that --help need not import it;
# a test compares the two.
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


_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "markdown", "csv"]),
    default="terminal",
    show_default=True,
    help="How to write the table.",
)


class _Lengths(click.ParamType[tuple[int, ...]]):
    """Numbers of tokens, as ``0,1024,4096``; each once, in order."""

    name = "lengths"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers; llama-bench takes up to nine digits."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):  # noqa: PLR2004
            self.fail(f"'{value}' are no numbers of tokens, as 0,1024,4096", param, ctx)
        return tuple(sorted({int(word) for word in words}))


_LENGTHS = _Lengths()


@verb(
    "compare",
    group=command,
    about="Show results of llama-bench side by side.",
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
def _compare(settings: Settings, form: TableFormat, plot: Path | None, **options: Any) -> None:
    """Show results of llama-bench (-o jsonl or -o json) side by side, with the change in per cent.

    Read are builds 6628 to 11549. Only equal tests of one model under equal conditions share a line;
    everything else is shown by itself and named below the table. Nothing is known of the scatter of a test
    that was run once: then there is no interval.
    """
    check_beside_document(settings, plot)
    table = run_bench_compare(CompareRequest(plot=plot, **options))
    if settings.json:
        drawn = {} if plot is None else {"plot": str(plot)}
        settings.terminal.document({"ok": True, **json_table(table), **drawn})
        return
    show_table(settings, table, form)
    if plot is not None:
        settings.reporter().info(f"drawn: {plot}")


_NUMBER = click.IntRange(min=1)


def _make_plan(**values: Any) -> BenchPlan:
    return BenchPlan(**values)


# The lengths of the published sweeps of gfx1151, and llama-bench's own batches.
_plan_options = packed(
    "plan",
    _make_plan,
    click.option(
        "--depths",
        type=_LENGTHS,
        default="0,1024,4096,16384,65536",
        show_default=True,
        help="Tokens in the cache before.",
    ),
    click.option(
        "--repetitions", type=_NUMBER, default=3, show_default=True, metavar="N", help="Calls of each."
    ),
    click.option("--prompts", type=_LENGTHS, default="512", show_default=True, help="Tokens to read (pp)."),
    click.option(
        "--generated", type=_LENGTHS, default="128", show_default=True, help="Tokens to generate (tg)."
    ),
    click.option("--batch", type=_NUMBER, default=2048, show_default=True, metavar="N", help="-b"),
    click.option("--micro-batch", type=_NUMBER, default=512, show_default=True, metavar="N", help="-ub"),
    click.option(
        "--cache-type", type=TEXT, default="f16", show_default=True, help="The type of the KV cache."
    ),
    click.option("--threads", type=_NUMBER, metavar="N", help="CPU threads (default: llama-bench's)."),
)


@verb(
    "run",
    group=command,
    about="Measure the baselines and the candidate.",
    example=(
        "patchkit bench run --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf",
        "patchkit bench run --arch gfx1151 --model m.gguf --depths 0,4096 --repetitions 5 --out ./sweep",
        "patchkit bench run --arch gfx1151 --backend cpu --depths 0,64 --prompts 16 --generated 4",
    ),
)
@candidate_options
@click.option("--model", type=FOLDER, metavar="GGUF", help="What to run, instead of a small model.")
@click.option("--backend", type=DEVICE, help="On what (default: hip, if the GPU is here).")
@_plan_options
@click.option("--out", type=FOLDER, metavar="DIR", help="Keep the results there (default: in the cache).")
@click.option("--fresh", is_flag=True, help="Throw away what was measured there before.")
@click.option(
    "--timeout",
    type=_NUMBER,
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="For one call.",
)
@runner_options
@_format_option
def _run(
    settings: Settings,
    choice: CandidateChoice,
    plan: BenchPlan,
    timeout: int,
    runner: str | None,
    ssh_config: Path | None,
    form: TableFormat,
    **options: Any,
) -> None:
    """Measure baselines and candidate with llama-bench at several depths, and compare them.

    For HIP the baselines are upstream without rocWMMA (HIP) and with it (rocWMMA). What is missing is built
    first. Every call of llama-bench measures one label at one depth; it is kept when it has ended, so that a
    Ctrl-C loses one call and the same command goes on. More depths or repetitions add to what is there. The
    results are one file per label, in the form that bench compare reads.
    """
    if not any((*plan.prompts, *plan.generated)):
        raise UsageError(
            "--prompts and --generated leave nothing to measure",
            code="USAGE_SYNTAX",
            hint="patchkit bench run --help",
        )
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # told after what is wrong with the other options
    if chosen.archs == (PLAIN,):
        options["backend"] = backend_for(chosen.archs, options["backend"])
    request = BenchRunRequest(
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        plan=plan,
        timeout_s=60.0 * timeout,
        **options,
    )
    where = choose_runner(runner, config=ssh_config, environ=os.environ, reporter=workspace.reporter)
    report = run_bench(workspace, request, where, os.environ)
    if settings.json:
        settings.terminal.document(_run_document(report))
        return
    show_table(settings, report.table, form)
    reporter = settings.reporter()
    for line in _run_lines(report):
        reporter.info(line)


def _run_document(report: BenchRunReport) -> dict[str, object]:
    return {
        "ok": True,
        "folder": str(report.folder),
        "model": report.model,
        "measured": report.measured,
        "kept": report.kept,
        "arms": dict(report.arms),
        "conditions": list(report.conditions),
        "table": json_table(report.table),
    }


def _run_lines(report: BenchRunReport) -> Iterator[str]:
    yield from (f"{label} is {what}" for label, what in report.arms.items())
    yield f"the model is {report.model}"
    yield from report.conditions
    yield f"{report.measured} runs were measured now, {report.kept} before"
    yield from (f"{label}: {path}" for label, path in report.files.items())
