"""``patchkit estimate``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import click

from patchkit.base.errors import UsageError
from patchkit.base.plain import fields_of
from patchkit.base.series_folder import find_series_dir
from patchkit.cli.completing import gpus
from patchkit.cli.draft_options import draft_lines, draft_options
from patchkit.cli.settings import FOLDER, Settings, Size, verb
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.hardware.bench.remaining_time import format_duration
from patchkit.gpu.modelled.estimate import Estimate, EstimateRequest, EstimateRow, make_estimate
from patchkit.prove.durations import Duration, durations_of, seconds_from

_KV = ("f16", "q8_0", "q4_0", "bf16", "f32")
_TOKENS = click.IntRange(min=0, max=2**16)
_SPEED = Size(min=0, min_open=True, max=1e9)
_MAX_DEPTH = 2**24
_MAX_DEPTHS = 64


@verb(
    "estimate",
    example=(
        "patchkit estimate --arch gfx1151 --model model.gguf",
        "patchkit estimate --arch gfx1151 --model model.gguf --depth 0,65536 --kv-type q8_0 --json",
        "patchkit estimate --arch gfx1151 --shape arch_profiles/models/gpt-oss-20b-f16.toml --bench r.jsonl",
        "patchkit estimate --arch gfx1151 --model model.gguf --drafts 3 --durations",
    ),
)
@click.option("--arch", required=True, metavar="GFX", shell_complete=gpus, help="GPU, for example gfx1151.")
@click.option("--model", type=FOLDER, metavar="FILE.gguf", help="GGUF model (only its header is read).")
@click.option(
    "--shape", type=FOLDER, metavar="FILE.toml", help="Description of the model, instead of a GGUF."
)
@click.option(
    "--depth",
    default="0,1024,4096,16384,65536",
    show_default=True,
    help="Tokens already in the KV cache, as a list (llama-bench -d).",
)
@click.option(
    "--kv-type",
    "kv",
    type=click.Choice(_KV),
    default="f16",
    show_default=True,
    help="Data type of the KV cache.",
)
@click.option(
    "--pp",
    "prompt",
    type=_TOKENS,
    default=512,
    show_default=True,
    help="Prompt length in tokens (0 to skip).",
)
@click.option(
    "--tg",
    "generated",
    type=_TOKENS,
    default=128,
    show_default=True,
    help="Tokens to generate (0 to skip).",
)
@click.option(
    "--ubatch",
    "batch",
    type=click.IntRange(min=1, max=2**20),
    default=512,
    show_default=True,
    help="Micro-batch size (llama-bench -ub).",
)
@click.option(
    "--bandwidth", type=_SPEED, metavar="GB/S", help="Memory bandwidth (default: the GPU profile's)."
)
@click.option(
    "--tflops",
    "compute",
    type=_SPEED,
    metavar="TFLOPS",
    help="Peak compute rate (default: the GPU profile's).",
)
@click.option(
    "--bench",
    type=FOLDER,
    metavar="FILE.jsonl",
    help="Compare with results of llama-bench -o jsonl (or -o json).",
)
@draft_options
@click.option(
    "--durations",
    is_flag=True,
    help="Also how long bench run, verify and pick measure with this model, at least.",
)
def command(settings: Settings, depth: str, *, durations: bool, **options: Any) -> None:
    """Compute the roofline of a model on a GPU: its maximum speed, and the share of attention.

    Divides the bytes that must be read and the operations that must be done, computed from the sizes in the
    model file, by the bandwidth and peak rate in the GPU's profile. Nothing is run or measured.
    """
    if (options["model"] is None) == (options["shape"] is None):
        raise UsageError(
            "exactly one of --model and --shape is required",
            code="OPTIONS_CONTRADICT",
            hint="--model FILE.gguf, or --shape FILE.toml",
        )
    request = EstimateRequest(depths=_depths(depth), **options)
    if not (request.prompt or request.generated):
        raise UsageError(
            "nothing to estimate: --pp and --tg are both 0",
            code="NOTHING_TO_ESTIMATE",
            hint="--pp 512 --tg 128",
        )
    found = make_estimate(find_series_dir(settings.series_dir), request)
    if not durations:
        settings.show(found, _lines(found))
        return
    kind = tensor_kinds_by_name()[found.kv.upper()]
    measuring = durations_of(seconds_from(found.model, found.peaks, kind, found.measured))
    document = {**fields_of(found), "durations": measuring}
    settings.show(document, (*_lines(found), *_durations(measuring, has_measured=bool(found.measured))))


def _durations(measuring: Sequence[Duration], *, has_measured: bool) -> Iterator[str]:
    yield ""
    whence = "computed from your measurement" if has_measured else "at least, computed from the bound"
    yield f"How long measuring takes with the default options, {whence}"
    for each in measuring:
        yield f"  {each.command:<19} {format_duration(each.seconds):>10}  {each.what}"
    yield "Not counted: building, loading the model, and other gates of verify. pick ends after --minutes."
    if not has_measured:
        yield "A GPU takes several times as long for prompts. With --bench FILE the times are your GPU's."


def _depths(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) <= _MAX_DEPTHS and all(
        part.isascii() and part.isdecimal() and len(part) < 9 and int(part) <= _MAX_DEPTH  # noqa: PLR2004  of it
        for part in parts
    ):
        return tuple(sorted({int(part) for part in parts}))
    raise UsageError(
        f"--depth {text[:60]!r} is not a list of depths",
        code="USAGE_VALUE",
        why=f"expected up to {_MAX_DEPTHS} numbers from 0 to {_MAX_DEPTH}, separated by commas",
        hint="--depth 0,4096,65536",
    )


def _lines(found: Estimate) -> Iterator[str]:
    model = found.model
    experts = f", {model.experts_used} of {model.experts} experts" if model.experts else ""
    windowed = sum(layer.window is not None for layer in model.layers)
    some = f" ({windowed} with sliding-window attention)" if windowed else ""
    yield f"{model.name} on {found.arch}, {found.kv} KV cache"
    size = f"{model.bytes / 2**20:.2f} MiB, {model.values / 1e9:.2f} B parameters"
    yield f"  {size}, {len(model.layers)} layers{some}{experts}"
    yield f"  from: {model.source}"
    yield from (f"  note: {note}" for note in model.notes)
    yield f"  bandwidth {found.peaks.bandwidth}"
    yield f"  compute   {found.peaks.compute}"
    yield ""
    has_measured = any(row.measured is not None for row in found.rows)
    head = f"{'test':<16} {'max t/s':>11}  {'bound by':<8} {'MB/token':>9} {'GMAC/token':>10}"
    head += f" {'attention':>9} {'gain':>7}"
    yield head + (f"  {'measured':>9} {'max/meas':>8} {'attn. >=':>8} {'gain':>7}" if has_measured else "")
    yield from (_row(row) for row in found.rows)
    yield ""
    yield "attention: its share of the time. gain: the speed-up if attention took no time (Amdahl's law)."
    yield "This is an upper bound, not a forecast. It excludes activations, softmax, launch overhead and"
    yield "the inefficiency of real kernels."
    yield from draft_lines([("", step) for step in found.drafts])
    if has_measured:
        yield (
            "The columns after 'measured' are from your measurement, counting the cost of depth as attention."
        )


def _row(row: EstimateRow) -> str:
    bound = row.bound
    text = (
        f"{bound.test.name:<16} {bound.rate:>11.2f}  {bound.limit:<8} "
        f"{bound.bytes / bound.test.tokens / 1e6:>9.1f} {bound.macs / bound.test.tokens / 1e9:>10.3f} "
        f"{bound.share:>9.1%} {_factor(bound.gain):>7}"
    )
    measured = row.measured
    if measured is None:
        return text
    return (
        f"{text}  {measured.rate:>9.2f} {bound.rate / measured.rate:>8.2f} "
        f"{measured.share:>8.1%} {_factor(measured.gain):>7}"
    )


def _factor(value: float) -> str:
    return f"x{value:.2f}" if math.isfinite(value) else "any"
