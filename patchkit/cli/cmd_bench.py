"""``patchkit bench``: its two commands, ``compare`` and ``run``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from patchkit.cli.bench_output import TableFormat, show_table
from patchkit.cli.commands import COMMANDS, Verb
from patchkit.cli.outputs import check_beside_document
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import FOLDER, TEXT, Settings, example_epilog, shared_options
from patchkit.errors import UsageError

if TYPE_CHECKING:
    from patchkit.build.parts import BackendName
    from patchkit.flow.bench_run import BenchRunReport

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

    check_beside_document(settings, options["plot"])
    table = run_bench_compare(CompareRequest(files=files, **options))
    if settings.json:
        drawn = {} if options["plot"] is None else {"plot": str(options["plot"])}
        settings.terminal.document({"ok": True, **json_table(table), **drawn})
        return
    show_table(settings, table, form)
    if options["plot"] is not None:
        settings.reporter().info(f"drawn: {options['plot']}")


class _RunOptions(TypedDict):
    model: Path | None
    backend: BackendName | None
    out: Path | None
    fresh: bool


class _PlanOptions(TypedDict):
    depths: tuple[int, ...]
    prompts: tuple[int, ...]
    generated: tuple[int, ...]
    repetitions: int
    batch: int
    micro_batch: int
    cache_type: str
    threads: int | None


def _plan_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The lengths of the published sweeps of gfx1151, and llama-bench's own batches."""
    number = click.IntRange(min=1)
    for option in (
        click.option("--threads", type=number, metavar="N", help="CPU threads (default: llama-bench's)."),
        click.option(
            "--cache-type", type=TEXT, default="f16", show_default=True, help="The type of the KV cache."
        ),
        click.option("--micro-batch", type=number, default=512, show_default=True, metavar="N", help="-ub"),
        click.option("--batch", type=number, default=2048, show_default=True, metavar="N", help="-b"),
        click.option(
            "--generated", type=_LENGTHS, default="128", show_default=True, help="Tokens to generate (tg)."
        ),
        click.option(
            "--prompts", type=_LENGTHS, default="512", show_default=True, help="Tokens to read (pp)."
        ),
        click.option(
            "--repetitions", type=number, default=3, show_default=True, metavar="N", help="Calls of each."
        ),
        click.option(
            "--depths",
            type=_LENGTHS,
            default="0,1024,4096,16384,65536",
            show_default=True,
            help="Tokens in the cache before.",
        ),
    ):
        function = option(function)
    return function


@_part(
    "run",
    "Measure the baselines and the candidate.",
    example=(
        "patchkit bench run --arch gfx1151 --model llama-3.2-1b-q4_k_m.gguf",
        "patchkit bench run --arch gfx1151 --model m.gguf --depths 0,4096 --repetitions 5 --out ./sweep",
        "patchkit bench run --arch gfx1151 --backend cpu --depths 0,64 --prompts 16 --generated 4",
    ),
)
@candidate_options
@click.option("--model", type=FOLDER, metavar="GGUF", help="What to run, instead of a small model.")
@click.option(
    "--backend", type=click.Choice(["hip", "cuda", "cpu"]), help="On what (default: hip, if the GPU is here)."
)
@_plan_options
@click.option("--out", type=FOLDER, metavar="DIR", help="Keep the results there (default: in the cache).")
@click.option("--fresh", is_flag=True, help="Throw away what was measured there before.")
@click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="For one call.",
)
@click.option("--runner", "url", type=TEXT, metavar="ssh://HOST", help="Run on that machine (default: here).")
@click.option("--ssh-config", type=FOLDER, metavar="FILE", help="For --runner, instead of your own.")
@_format_option
def _run(
    settings: Settings,
    choice: CandidateChoice,
    timeout: int,
    url: str | None,
    ssh_config: Path | None,
    form: TableFormat,
    **options: Any,  # noqa: ANN401  # _RunOptions and _PlanOptions, told apart below
) -> None:
    """Measure baselines and candidate with llama-bench at several depths, and compare them.

    For HIP the baselines are upstream without rocWMMA (HIP) and with it (rocWMMA). What is missing is built
    first. Every call of llama-bench measures one label at one depth; it is kept when it has ended, so that a
    Ctrl-C loses one call and the same command goes on. More depths or repetitions add to what is there. The
    results are one file per label, in the form that bench compare reads.
    """
    from patchkit.bench.options import BenchPlan
    from patchkit.flow.bench_run import BenchRunRequest, run_bench
    from patchkit.runner.choose import choose_runner

    own: _RunOptions = {name: options.pop(name) for name in _RunOptions.__annotations__}  # type: ignore[assignment]
    plan: _PlanOptions = options  # type: ignore[assignment]
    if not any((*plan["prompts"], *plan["generated"])):
        raise UsageError(
            "--prompts and --generated leave nothing to measure",
            code="USAGE_SYNTAX",
            hint="patchkit bench run --help",
        )
    workspace = settings.workspace()
    chosen = choice.choose(workspace, check=False)  # told after what is wrong with the other options
    request = BenchRunRequest(
        archs=chosen.archs,
        upstream=chosen.upstream,
        wish=choice.wish,
        plan=BenchPlan(**plan),
        timeout_s=60.0 * timeout,
        **own,
    )
    runner = choose_runner(url, config=ssh_config, environ=os.environ, reporter=workspace.reporter)
    report = run_bench(workspace, request, runner, os.environ)
    if settings.json:
        settings.terminal.document(_run_document(report))
        return
    show_table(settings, report.table, form)
    reporter = settings.reporter()
    for line in _run_lines(report):
        reporter.info(line)


def _run_document(report: BenchRunReport) -> dict[str, object]:
    from patchkit.bench.table_text import json_table

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


def _run_lines(report: BenchRunReport) -> list[str]:
    lines = [f"{label} is {what}" for label, what in report.arms.items()]
    lines += [f"the model is {report.model}", *report.conditions]
    lines.append(f"{report.measured} runs were measured now, {report.kept} before")
    return [*lines, *(f"{label}: {path}" for label, path in report.files.items())]
