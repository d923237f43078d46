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
@click.option("--path", is_flag=True, help="Every operation of a model instead of one shape of attention.")
@click.option(
    "--gpu",
    "others",
    multiple=True,
    metavar="GFX",
    shell_complete=gpus,
    help="With --path: another GPU, too.",
)
@click.option("--head-size", metavar="D", help="Values per head; 576/512 where K and V differ.")
@click.option("--gqa", type=_COUNT, default=1, show_default=True, help="Query heads per KV head.")
@click.option("--kv-heads", type=_COUNT, default=8, show_default=True, help="KV heads.")
@click.option("--kv", type=_COUNT, help="Tokens in the KV cache.")
@click.option("--tokens", type=_COUNT, default=1, show_default=True, help="Tokens in the batch; 1: decode.")
@click.option(
    "--type", "kind", type=click.Choice(_TYPES), default="f16", show_default=True, help="Of K and V."
)
@click.option("--no-mask", is_flag=True, help="Without attention mask.")
@click.option("--sinks", is_flag=True, help="With attention sinks.")
@click.option("--max-bias", type=float, default=0.0, show_default=True, help="ALiBi.")
@click.option("--softcap", type=float, default=0.0, show_default=True, help="Cap of the logits.")
def command(
    settings: Settings,
    choice: CandidateChoice,
    path: bool,
    others: tuple[str, ...],
    head_size: str | None,
    kv: int | None,
    **shape: Any,
) -> None:
    """Show which attention kernel a shape gets, before and after the patches, and why.

    The selection of the candidate runs on the launch recorder; what is shown as the reason are the branches
    it took. Registers and LDS come from compiling the kernels that it chose.

    With --path: which kernels run for every operation of a language model, by type of the weights and
    batch, and in which numbers they compute, before and after the patches.
    """
    if others and not path:
        raise UsageError(
            "--gpu goes with --path",
            code="SHAPE_NOT_STATED",
            hint="patchkit explain --arch GFX --path --gpu ...",
        )
    if path and (head_size is not None or kv is not None):
        raise UsageError(
            "--path takes no shape", code="SHAPE_NOT_STATED", hint="patchkit explain --arch GFX --path"
        )
    case = None if path else _case(head_size, kv, **shape)
    workspace = settings.workspace()
    chosen = choice.choose(workspace)
    if len(chosen.archs) != 1:
        raise UsageError(
            f"explain looks at one GPU at a time, not at {' and '.join(chosen.archs)}",
            code="SHAPE_NOT_STATED",
            hint="with --path others can be compared: --gpu GFX",
        )
    arch, upstream = chosen.archs[0], chosen.upstream
    if case is None:
        report = explain_paths(workspace, arch=arch, others=others, upstream=upstream, environ=os.environ)
        settings.show(report.model_dump(mode="json"), path_lines(report))
    else:
        found = explain_case(workspace, arch=arch, case=case, upstream=upstream, environ=os.environ)
        settings.show(found, _lines(found))


def _case(head_size: str | None, kv: int | None, *, kind: str, no_mask: bool, **more: Any) -> Case:
    """The shape of the options; raises the errors of what cannot be, before anything is built for it."""
    if head_size is None or kv is None:
        raise UsageError(
            "a shape of attention is --head-size and --kv",
            code="SHAPE_NOT_STATED",
            hint="--head-size 128 --kv 65536 --tokens 1, or --path for every operation",
        )
    size, size_v = _sizes(head_size)
    padded = whole_blocks(size, kind), whole_blocks(size_v, kind)
    if padded != (size, size_v):
        text = str(padded[0]) if padded[0] == padded[1] else f"{padded[0]}/{padded[1]}"
        raise UsageError(
            f"there is no {kind} KV cache for head size {head_size}",
            code="HEAD_SIZE_NOT_IN_BLOCKS",
            why=f"a row has to be whole blocks of {whole_blocks(1, kind)} values",
            hint=f"--head-size {text}, which is what upstream's own test rounds it to, or --type f16",
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
            "--max-bias and --softcap must be numbers",
            code="SHAPE_IMPOSSIBLE",
            hint="leave them out for none",
        )
    if case.bytes > MEMORY_BYTES:
        raise UsageError(
            f"{case} with {case.kv_heads} KV heads needs {case.bytes / 2**30:.0f} GiB",
            code="SHAPE_IMPOSSIBLE",
            why=f"the GPU that is played has {MEMORY_BYTES // 2**30} GiB",
            hint="a smaller --kv, --tokens or --kv-heads",
        )
    return case


def _sizes(text: str) -> tuple[int, int]:
    parts = text.split("/")
    if len(parts) in {1, 2} and all(part.isdecimal() and int(part) > 0 for part in parts):
        return int(parts[0]), int(parts[-1])
    raise UsageError(
        f"--head-size {text!r} is no head size",
        code="HEAD_SIZE_MALFORMED",
        hint="--head-size 128, or --head-size 576/512 for K and V",
    )


def _lines(found: Explanation) -> Iterator[str]:
    yield f"{found.case} on {found.arch}, {found.branch}"
    yield f"with {found.tools}"
    yield ""
    yield from _verdict(found)
    for account in found.accounts:
        yield ""
        yield from _account(account)


def _verdict(found: Explanation) -> Iterator[str]:
    """What changes, and at which branch."""
    before, after = (_families(account) for account in found.accounts)
    yield f"{before} before the patches, {after} after" if before != after else f"{before}, before and after"
    if found.turn is not None:
        old, new = found.turn.before.where, found.turn.after.where
        yield f"  the selection turns at {new.path}:{new.line} (before: line {old.line})"


def _attention(account: Account) -> list[LaunchedKernel]:
    return [launch for launch in account.launches if launch.family != "other"]


def _families(account: Account) -> str:
    kinds = dict.fromkeys(
        f"{launch.family.upper()}{' (its code is a trap)' if launch.is_trap else ''}"
        for launch in _attention(account)
    )
    return " and ".join(kinds) or ("nothing" if account.supported else "not supported")


def _account(account: Account) -> Iterator[str]:
    kernels = ", ".join(f"{launch.kernel} ({launch.family.upper()})" for launch in _attention(account))
    nothing = "not supported: the CPU computes it"
    yield f"{account.side} the patches: {kernels or nothing}"
    told = account.decisions
    yield f"  why ({told[0].where.path})" if told else "  why: nothing was decided"
    for decision in told:
        line = f"    {decision.where.line:>5}"
        if decision.kind == "return":
            yield f"{line}  return {decision.text}"
            continue
        yield f"{line}  {decision.kind} ({decision.text})"
        behind = f", by {decision.decided_by}" if decision.decided_by else ""
        yield f"           {decision.outcome}{behind}"
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
        trap = "; ITS BODY IS A TRAP" if launch.is_trap else ""
        yield (
            f"      {launch.vgprs} VGPRs, {launch.sgprs} SGPRs, {launch.vgpr_spills} spilled, "
            f"static LDS {launch.static_lds} bytes, {launch.waves_per_simd} waves/SIMD{trap}"
        )


def path_lines(report: PathReport) -> Iterator[str]:
    """The report, line by line."""
    yield f"which kernels run, {report.branch} (build {report.build})"
    yield f"with {report.tools}"
    for gpu, mine in groupby(report.lines, key=lambda line: line.gpu):
        kept = list(mine)
        changed = sum(line.changed for line in kept)
        yield ""
        yield f"{gpu}: {len(kept)} operations and types; the patches change the kernels of {changed}"
        for op in dict.fromkeys(line.op for line in kept):
            yield from _operation(op, [line for line in kept if line.op == op])
    yield ""
    yield from (f"remark: {remark}" for remark in report.remarks)
    yield "not known from host code:"
    yield from (f"  {each}" for each in NOT_KNOWN)


def _operation(op: str, lines: list[PathLine]) -> Iterator[str]:
    sizes = ", ".join(dict.fromkeys(line.sizes for line in lines))
    yield ""
    yield f"  {op} ({sizes}), by tokens in the batch"
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


def _spans(spans: tuple[BatchSpan, ...]) -> Iterator[str]:
    for span in spans:
        (low, high), route, precision = span.alike
        batch = f"{low}" if low == high else f"{low}-{high}"
        yield f"      {batch:>8}  {', '.join(route) or 'not supported: the CPU computes it'}"
        yield from (f"                {each}" for each in precision)
