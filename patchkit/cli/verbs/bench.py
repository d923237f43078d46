"""``patchkit bench`` and its two commands, ``compare`` and ``run``."""

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
from patchkit.base.text import counted, visible
from patchkit.cli.bench_options import (
    NUMBER,
    backend_option,
    batch_options,
    make_plan,
    threads_option,
    timeout_option,
)
from patchkit.cli.gate_options import runner_options
from patchkit.cli.request import CandidateChoice, backend_for, candidate_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, packed, verb, verb_group
from patchkit.cli.terminal import wants_color
from patchkit.gpu.hardware.bench.compare import CompareRequest, run_bench_compare
from patchkit.gpu.hardware.bench.options import SWEEP_DEPTHS, BenchPlan
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
_WIDE = 10_000  # columns of output into a pipe, which must not be folded


def show_table(settings: Settings, table: Table, form: TableFormat) -> None:
    """Write the table to stdout. Notes follow it; those of CSV go to stderr."""
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
        # Numbers must not be folded: the parts would read as separate numbers.
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
        # rich drops columns that do not fit. Let a narrow terminal wrap the lines instead.
        width=max(shutil.get_terminal_size().columns, needed) if on_screen else _WIDE,
        force_terminal=on_screen and wants_color(settings.color, sys.stdout),
        color_system="standard" if on_screen and wants_color(settings.color, sys.stdout) else None,
    )
    console.print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _painted(titles: Sequence[str], row: Sequence[str], column: int) -> Text:
    """Colour a change green or red if its whole 99 % interval is above or below zero."""
    is_sure = column + 1 < len(row) and titles[column + 1].endswith(SURE)
    low, found, high = row[column + 1].partition(" to ") if is_sure else ("", "", "")
    if not found or low.startswith("-") != high.startswith("-"):
        return Text(visible(row[column]))
    return Text(visible(row[column]), style="red" if low.startswith("-") else "green")


# The names of patchkit.gpu.hardware.bench.tables.CONDITIONS, written out so that --help need not import it;
# a test compares the two.
ACROSS = ("cache", "flash", "batch", "threads", "layers", "load", "backend", "device", "other")


@verb_group(
    "bench",
    example=(
        "patchkit bench compare HIP.jsonl tuned.jsonl",
        "patchkit bench run --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf",
    ),
)
def command() -> None:
    """Run llama-bench on upstream and the patched branch, or compare result files of llama-bench.

    Both commands only show measurements. To decide whether a branch is faster or slower, use patchkit verify
    --gate bench, which also measures the noise.
    """


_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "markdown", "csv"]),
    default="terminal",
    show_default=True,
    help="Output format of the table.",
)


class _Lengths(click.ParamType[tuple[int, ...]]):
    """A list of token counts such as ``0,1024,4096``, sorted, without duplicates."""

    name = "lengths"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers; llama-bench takes up to nine digits."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):  # noqa: PLR2004
            self.fail(f"expected token counts such as 0,1024,4096, got '{value}'", param, ctx)
        return tuple(sorted({int(word) for word in words}))


_LENGTHS = _Lengths()


@verb(
    "compare",
    group=command,
    about="Compare result files of llama-bench.",
    example=(
        "patchkit bench compare HIP.jsonl rocWMMA.jsonl tuned.jsonl",
        "patchkit bench compare a.jsonl b.jsonl --label HIP --label tuned --format markdown",
        "patchkit bench compare old.jsonl new.jsonl --across load",
    ),
)
@click.argument("files", nargs=-1, required=True, type=FOLDER, metavar="FILE...")
@click.option(
    "--label",
    "labels",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Label of a file; repeat it for each file, in order (default: the file names).",
)
@click.option(
    "--baseline",
    type=TEXT,
    metavar="NAME",
    help="Label to compare the others with (default: the first).",
)
@click.option(
    "--across",
    multiple=True,
    type=click.Choice(ACROSS),
    help="Compare tests even if they differ in this condition; the table notes it. May be repeated.",
)
@_format_option
def _compare(settings: Settings, form: TableFormat, **options: Any) -> None:
    """Compare result files of llama-bench (-o jsonl or -o json), with the change in percent.

    Reads the output of builds 6628 to 11549. Only equal tests of the same model under equal conditions are
    compared; all others get a line of their own and a note below the table. A test that was run only once has
    no known variation, so its change has no interval.
    """
    table = run_bench_compare(CompareRequest(**options))
    if settings.json:
        settings.terminal.document({"ok": True, **json_table(table)})
        return
    show_table(settings, table, form)


# llama-bench's default batch sizes.
_plan_options = packed(
    "plan",
    make_plan,
    click.option(
        "--depths",
        type=_LENGTHS,
        default=",".join(map(str, SWEEP_DEPTHS)),
        show_default=True,
        help="Tokens already in the KV cache (llama-bench -d).",
    ),
    click.option(
        "--repetitions",
        type=NUMBER,
        default=3,
        show_default=True,
        metavar="N",
        help="Calls of llama-bench per build and depth.",
    ),
    click.option(
        "--prompts",
        type=_LENGTHS,
        default="512",
        show_default=True,
        help="Prompt lengths in tokens (llama-bench -p).",
    ),
    click.option(
        "--generated",
        type=_LENGTHS,
        default="128",
        show_default=True,
        help="Tokens to generate (llama-bench -n).",
    ),
    batch_options,
    click.option(
        "--cache-type", type=TEXT, default="f16", show_default=True, help="Data type of the KV cache."
    ),
    threads_option,
)


@verb(
    "run",
    group=command,
    about="Measure upstream and the patched branch with llama-bench.",
    example=(
        "patchkit bench run --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf",
        "patchkit bench run --arch gfx1151 --model m.gguf --depths 0,4096 --repetitions 5 --out ./sweep",
        "patchkit bench run --arch gfx1151 --model m.gguf --off mmq-batch-limits",
        "patchkit bench run --arch gfx1151 --backend cpu --depths 0,64 --prompts 16 --generated 4",
    ),
)
@candidate_options
@click.option("--model", type=FOLDER, metavar="GGUF", help="GGUF model to run (default: a small test model).")
@backend_option
@_plan_options
@click.option(
    "--off",
    multiple=True,
    metavar="ID",
    help="Also measure the candidate with this patch turned off, without another build; may be repeated.",
)
@click.option("--out", type=FOLDER, metavar="DIR", help="Folder for the results (default: in the cache).")
@click.option("--fresh", is_flag=True, help="Discard earlier results.")
@timeout_option
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
    """Measure upstream and the patched branch with llama-bench at several depths, and compare them.

    Builds what is missing first. In the table, upstream is HIP (with another backend: baseline) and the
    patched branch is candidate. Up to b10068, upstream is also measured with its rocWMMA attention kernel
    (rocWMMA). Each build gets one result file, which bench compare can read.

    Each call of llama-bench measures one build at one depth, and is saved when it ends. To resume after a
    Ctrl-C, run the same command again. More depths or repetitions add to the saved results.
    """
    if not any((*plan.prompts, *plan.generated)):
        raise UsageError(
            "nothing to measure: --prompts and --generated are both 0",
            code="USAGE_SYNTAX",
            hint="patchkit bench run --help",
        )
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # checked later, after the other options
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
    yield f"model: {report.model}"
    yield from report.conditions
    yield f"{counted(report.measured, 'run')} measured now, {report.kept} from before"
    yield from (f"{label}: {path}" for label, path in report.files.items())
