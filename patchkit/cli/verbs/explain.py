"""``patchkit explain``."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.cli.completing import gpus
from patchkit.cli.request import CandidateChoice, candidate_options
from patchkit.cli.settings import Settings, verb
from patchkit.gpu.emulated.cases import Case, whole_blocks
from patchkit.gpu.emulated.device import MEMORY_BYTES
from patchkit.prove.explain.run import (
    NOT_KNOWN,
    Account,
    BatchSpan,
    Explanation,
    LaunchedKernel,
    PathLine,
    PathReport,
    explain_case,
    explain_paths,
)

_COUNT = click.IntRange(min=1)
_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")


_WRAP = textwrap.TextWrapper(
    100, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)


@verb(
    "explain",
    example=(
        "patchkit explain --arch gfx1151 --head-size 128 --gqa 4 --kv 65536 --tokens 1",
        "patchkit explain --arch gfx1151 --head-size 64 --gqa 1 --kv 4096 --tokens 512 --type q8_0 --json",
        "patchkit explain --arch gfx1151 --path",
        "patchkit explain --arch gfx1151 --path --gpu gfx1100 --gpu gfx1201 --json",
    ),
)
@candidate_options
@click.option(
    "--path", is_flag=True, help="Show every operation of a language model instead of one attention shape."
)
@click.option(
    "--gpu",
    "others",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="With --path: also show this GPU. May be repeated.",
)
@click.option("--head-size", metavar="D", help="Head size; 576/512 if K and V differ.")
@click.option("--gqa", type=_COUNT, default=1, show_default=True, help="Query heads per KV head.")
@click.option("--kv-heads", type=_COUNT, default=8, show_default=True, help="Number of KV heads.")
@click.option("--kv", type=_COUNT, help="Tokens in the KV cache.")
@click.option("--tokens", type=_COUNT, default=1, show_default=True, help="Tokens in the batch; 1 is decode.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(_TYPES),
    default="f16",
    show_default=True,
    help="Data type of the KV cache.",
)
@click.option("--no-mask", is_flag=True, help="No attention mask.")
@click.option("--sinks", is_flag=True, help="Use attention sinks.")
@click.option("--max-bias", type=float, default=0.0, show_default=True, help="ALiBi bias; 0 for none.")
@click.option("--softcap", type=float, default=0.0, show_default=True, help="Logit softcap; 0 for none.")
def command(
    settings: Settings,
    choice: CandidateChoice,
    path: bool,
    others: tuple[str, ...],
    head_size: str | None,
    kv: int | None,
    **shape: Any,
) -> None:
    """Show which attention kernel runs for a shape, before and after the patches, and why.

    Runs llama.cpp's own kernel selection on a stub of the HIP runtime that records the launches. The reason
    shown is the list of branches that the selection took. Registers and LDS come from compiling the kernels.

    With --path, shows which kernels run for every operation of a language model, by weight type and batch
    size, and in which precision they compute, before and after the patches.
    """
    if others and not path:
        raise UsageError(
            "--gpu requires --path",
            code="OPTIONS_CONTRADICT",
            hint="patchkit explain --arch GFX --path --gpu ...",
        )
    if path and (head_size is not None or kv is not None):
        raise UsageError(
            "--path cannot be combined with --head-size or --kv",
            code="OPTIONS_CONTRADICT",
            hint="patchkit explain --arch GFX --path",
        )
    case = None if path else _case(head_size, kv, **shape)
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    if len(chosen.archs) != 1:
        raise UsageError(
            f"explain takes one GPU, not {' and '.join(chosen.archs)}",
            code="OPTIONS_CONTRADICT",
            hint="to compare several GPUs, use --path with --gpu GFX",
        )
    arch, upstream = chosen.archs[0], chosen.upstream
    if case is None:
        report = explain_paths(workspace, arch=arch, others=others, upstream=upstream, environ=os.environ)
        settings.show(report.model_dump(mode="json"), path_lines(report))
    else:
        found = explain_case(workspace, arch=arch, case=case, upstream=upstream, environ=os.environ)
        settings.show(found, _lines(found))


def _case(head_size: str | None, kv: int | None, *, kind: str, no_mask: bool, **more: Any) -> Case:
    """Make the case from the options; raise for impossible shapes before anything is built."""
    if head_size is None or kv is None:
        raise UsageError(
            "--head-size and --kv are missing",
            code="OPTIONS_CONTRADICT",
            hint="--head-size 128 --kv 65536 --tokens 1, or --path for every operation",
        )
    size, size_v = _sizes(head_size)
    padded = whole_blocks(size, kind), whole_blocks(size_v, kind)
    if padded != (size, size_v):
        text = str(padded[0]) if padded[0] == padded[1] else f"{padded[0]}/{padded[1]}"
        raise UsageError(
            f"head size {head_size} is not possible with a {kind} KV cache",
            code="HEAD_SIZE_NOT_IN_BLOCKS",
            why=f"{kind} packs {whole_blocks(1, kind)} values in a block, and a head must fill whole blocks",
            hint=f"use --head-size {text} (upstream's test-backend-ops pads to it), or --type f16",
        )
    case = Case(
        id="explained",
        head_size=size,
        head_size_v=size_v,
        kv=kv,
        mask=not no_mask,
        type_k=kind,
        type_v=kind,
        **more,
    )
    if not (math.isfinite(case.max_bias) and math.isfinite(case.softcap)):
        raise UsageError(
            "--max-bias and --softcap must be finite numbers",
            code="SHAPE_IMPOSSIBLE",
            hint="omit them for none",
        )
    if case.bytes > MEMORY_BYTES:
        raise UsageError(
            f"{case} with {case.kv_heads} KV heads needs {case.bytes / 2**30:.0f} GiB",
            code="SHAPE_IMPOSSIBLE",
            why=f"the emulated GPU has {MEMORY_BYTES // 2**30} GiB",
            hint="use a smaller --kv, --tokens or --kv-heads",
        )
    return case


def _sizes(text: str) -> tuple[int, int]:
    parts = text.split("/")
    if len(parts) in {1, 2} and all(part.isdecimal() and int(part) > 0 for part in parts):
        return int(parts[0]), int(parts[-1])
    raise UsageError(
        f"--head-size {text!r} is not a head size",
        code="USAGE_VALUE",
        hint="for example --head-size 128, or --head-size 576/512 if K and V differ",
    )


def _lines(found: Explanation) -> Iterator[str]:
    yield f"{found.case} on {found.arch}, {found.branch}"
    yield f"compiled with {found.tools}"
    yield ""
    yield from _verdict(found)
    for account in found.accounts:
        yield ""
        yield from _account(account)


def _verdict(found: Explanation) -> Iterator[str]:
    """Yield the kernel families before and after, and the branch where the selection differs."""
    before, after = (_families(account) for account in found.accounts)
    yield f"{before} before the patches, {after} after" if before != after else f"{before}, before and after"
    if found.turn is not None:
        old, new = found.turn.before.where, found.turn.after.where
        yield f"  the selection differs from {new.path}:{new.line} on (before: line {old.line})"


def _attention(account: Account) -> list[LaunchedKernel]:
    return [launch for launch in account.launches if launch.family != "other"]


def _families(account: Account) -> str:
    kinds = dict.fromkeys(
        f"{launch.family.upper()}{' (compiled to a trap)' if launch.is_trap else ''}"
        for launch in _attention(account)
    )
    return " and ".join(kinds) or ("nothing" if account.supported else "not supported")


def _account(account: Account) -> Iterator[str]:
    kernels = ", ".join(f"{launch.kernel} ({launch.family.upper()})" for launch in _attention(account))
    nothing = "not supported on the GPU; computed on the CPU"
    yield f"{account.side} the patches: {kernels or nothing}"
    decisions = account.decisions
    yield f"  because ({decisions[0].where.path})" if decisions else "  because: no branch was recorded"
    for decision in decisions:
        line = f"    {decision.where.line:>5}"
        if decision.kind == "return":
            yield f"{line}  return {decision.text}"
            continue
        yield f"{line}  {decision.kind} ({decision.text})"
        by = f", by {decision.decided_by}" if decision.decided_by else ""
        yield f"           {decision.outcome}{by}"
    if account.launches:
        yield "  launches"
    for launch in account.launches:
        yield from _launch(launch)


def _launch(launch: LaunchedKernel) -> Iterator[str]:
    grid, block = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
    yield f"    {launch.kernel}"
    resident = f", {launch.resident} blocks per multiprocessor" if launch.resident is not None else ""
    threads = math.prod(launch.block)
    yield f"      grid {grid} of {block} ({threads} threads), dynamic LDS {launch.lds} bytes{resident}"
    if launch.vgprs is not None:
        trap = "; COMPILED TO A TRAP" if launch.is_trap else ""
        yield (
            f"      {launch.vgprs} VGPRs, {launch.sgprs} SGPRs, {launch.vgpr_spills} spilled, "
            f"static LDS {launch.static_lds} bytes, {launch.waves_per_simd} waves/SIMD{trap}"
        )


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
