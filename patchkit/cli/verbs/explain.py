"""``patchkit explain``."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from itertools import groupby

import click

from patchkit.base.errors import UsageError
from patchkit.cli.completing import gpus
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import Settings, verb
from patchkit.prove.explain import NOT_KNOWN, BatchSpan, PathLine, PathReport, explain_paths

_WRAP = textwrap.TextWrapper(
    100, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)


@verb(
    "explain",
    example=(
        "patchkit explain --arch gfx1151",
        "patchkit explain --arch gfx1151 --gpu gfx1100 --gpu gfx1201 --json",
    ),
)
@candidate_options
@click.option("--path", is_flag=True, hidden=True, expose_value=False)  # what this command always does now
@click.option(
    "--gpu",
    "others",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="Also show this GPU. May be repeated.",
)
def command(settings: Settings, choice: CandidateChoice, others: tuple[str, ...]) -> None:
    """Show which kernels run for every operation of a language model, before and after the patches.

    Lists the kernels by weight type and batch size, and in which precision they compute; attention by head
    size, by query heads per KV head and by type of the KV cache. Runs llama.cpp's own kernel selection on a
    stub of the HIP runtime that records the launches.
    """
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    if len(chosen.archs) != 1:
        raise UsageError(
            f"explain takes one GPU, not {' and '.join(chosen.archs)}",
            code="OPTIONS_CONTRADICT",
            hint="to compare several GPUs, use --gpu GFX",
        )
    report = explain_paths(
        workspace, arch=chosen.archs[0], others=others, upstream=chosen.upstream, environ=os.environ
    )
    settings.show(report.model_dump(mode="json"), path_lines(report))


def path_lines(report: PathReport) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"kernels that run, {report.branch} (build {report.build})"
    yield f"compiled with {report.tools}"
    for gpu, mine in groupby(report.lines, key=lambda line: line.gpu):
        kept = list(mine)
        changed = sum(line.changed for line in kept)
        yield ""
        yield f"{gpu}: {len(kept)} operations and types; the patches change the kernels of {changed}"
        for op in dict.fromkeys(line.op for line in kept):
            yield from _operation(op, [line for line in kept if line.op == op])
    yield ""
    yield from (f"note: {remark}" for remark in report.remarks)
    yield "cannot be determined from host code:"
    yield from (f"  {each}" for each in NOT_KNOWN)


def _operation(op: str, lines: list[PathLine]) -> Iterator[str]:
    sizes = ", ".join(dict.fromkeys(line.sizes for line in lines))
    yield ""
    yield f"  {op} ({sizes}), by batch size in tokens"
    blocks: dict[object, list[PathLine]] = {}
    for line in lines:
        alike = tuple(span.alike for span in line.after), tuple(span.alike for span in line.before)
        blocks.setdefault(alike, []).append(line)
    for block in blocks.values():
        first = block[0]
        separator = ", " if " " in first.what else " "
        yield _WRAP.fill(separator.join(line.what for line in block))
        yield from _spans(first.after)
        if first.changed:
            yield "      before the patches:"
            yield from _spans(first.before)


_NOT_THERE = "not on the GPU: not supported there, or not in this build"


def _spans(spans: tuple[BatchSpan, ...]) -> Iterator[str]:
    for span in spans:
        (low, high), route, precision = span.alike
        batch = f"{low}" if low == high else f"{low}-{high}"
        yield f"      {batch:>8}  {', '.join(route) or _NOT_THERE}"
        yield from (f"                {each}" for each in precision)
