"""Upper bound of a model's speed on a GPU, and attention's share of the time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.arch import load_gpu
from patchkit.base.errors import Location, UsageError
from patchkit.base.series_folder import SeriesDir
from patchkit.gpu.gguf import Kind, load_gguf_parts, tensor_kinds_by_name
from patchkit.gpu.hardware.bench.compare import load_rows
from patchkit.gpu.hardware.bench.rows import BenchRow
from patchkit.gpu.modelled.drafting import Drafting, DraftStep
from patchkit.gpu.modelled.roofline import Bound, Peaks, Test, bound_of, peaks_of
from patchkit.gpu.modelled.shape import ModelShape, shape_of_file, shape_of_header


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """One measured test; rates in tokens per second, the median of ``samples`` repetitions."""

    json_keys: ClassVar = (
        "tokens_per_second=rate samples base_depth attention_share_at_least=share largest_attention_gain=gain"
    )

    prompt: int
    generated: int
    depth: int
    rate: float
    samples: int
    base_rate: float
    base_depth: int

    @property
    def share(self) -> float:
        """Lower bound of attention's share of the time, 0 to 1; 0 at the base depth."""
        return max(0.0, 1 - self.rate / self.base_rate)

    @property
    def gain(self) -> float:
        """Speedup if depth had no cost."""
        return max(1.0, self.base_rate / self.rate)


def measured_of(rows: Iterable[BenchRow], kv: str, source: str) -> dict[tuple[int, int, int], MeasuredSpeed]:
    """Measurements by prompt, generated tokens and depth; only rows with ``kv`` as the type of K and V.

    Raises:
        BENCH_FILE_BAD: the rows differ in build or settings.
    """
    rows = [row for row in rows if (row.test.type_k, row.test.type_v) == (kv, kv)]
    runs = {(row.test.setting, row.test.flash, row.build) for row in rows}
    if len(runs) > 1:
        details = "; ".join(
            f"build {build}, flash attention {flash}, {setting}" for setting, flash, build in sorted(runs)
        )
        raise UsageError(
            f"{source} contains {len(runs)} different runs",
            code="BENCH_FILE_BAD",
            where=Location(path=source),
            why=details[:400],
            hint="put the rows of each build and setting into a separate file",
        )
    rates: dict[tuple[int, int, int], list[float]] = {}
    for row in rows:
        test = row.test
        key = (test.prompt, test.generated, test.depth)
        rates.setdefault(key, []).extend(test.tokens * 1e9 / each for each in row.samples_ns)
    medians = {key: statistics.median(each) for key, each in rates.items()}
    found = {}
    for (prompt, generated, depth), rate in medians.items():
        base = min(at for p, g, at in medians if (p, g) == (prompt, generated))
        found[prompt, generated, depth] = MeasuredSpeed(
            prompt=prompt,
            generated=generated,
            depth=depth,
            rate=rate,
            samples=len(rates[prompt, generated, depth]),
            base_rate=medians[prompt, generated, base],
            base_depth=base,
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """What to estimate: either ``model`` (GGUF) or ``shape`` (TOML); other names as in llama-bench.

    ``bandwidth`` (GB/s) and ``compute`` (TFLOPS) override the profile's figures. ``drafting``: how
    speculative decoding drafts tokens, if at all.
    """

    arch: str
    depths: Sequence[int]
    model: Path | None = None
    shape: Path | None = None
    kv: str = "f16"
    prompt: int = 512
    generated: int = 128
    batch: int = 512
    bandwidth: float | None = None
    compute: float | None = None
    bench: Path | None = None
    drafting: Drafting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """One test; ``measured`` is None if llama-bench's output has no such test."""

    json_keys: ClassVar = (
        "test=bound.test.name depth=bound.test.depth tokens_per_second=bound.rate limit=bound.limit "
        "memory_share=bound.memory_share attention_share=bound.share largest_attention_gain=bound.gain "
        "bytes_per_token=bound.bytes_per_token macs_per_token=bound.macs_per_token measured "
        "bound_over_measured"
    )

    bound: Bound
    measured: MeasuredSpeed | None

    @property
    def bound_over_measured(self) -> float | None:
        """The bound's rate over the measured rate."""
        return None if self.measured is None else self.bound.rate / self.measured.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """All tests of one model on one GPU."""

    json_keys: ClassVar = "arch model kv_type=kv bandwidth=peaks.bandwidth compute=peaks.compute rows drafts"

    arch: str
    model: ModelShape
    kv: str
    peaks: Peaks
    rows: tuple[EstimateRow, ...]
    drafts: tuple[DraftStep, ...] = ()

    @property
    def measured(self) -> dict[tuple[int, int, int], MeasuredSpeed]:
        """The measured tests, by prompt, generated tokens and depth."""
        found = [row.measured for row in self.rows if row.measured is not None]
        return {(each.prompt, each.generated, each.depth): each for each in found}


def make_estimate(series: SeriesDir, request: EstimateRequest) -> Estimate:
    """Read the model and compute the bounds.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC: the profile does not exist.
        FIGURE_MISSING: a figure is neither in the profile nor given.
        GgufError, MODEL_MISSING: the file is not a model that can be estimated.
        ConfigError, ErrorGroup, TENSOR_TYPE_UNKNOWN: the shape file is invalid.
        BENCH_FILE_BAD and similar, BenchUnreadable, BENCH_FILE_BAD: the measurement is invalid.
    """
    profile = load_gpu(series.profiles, request.arch)
    peaks = peaks_of(profile, bandwidth=request.bandwidth, compute=request.compute)
    if request.model is not None:
        model = shape_of_header(load_gguf_parts(request.model), request.model)
    elif request.shape is not None:
        model = shape_of_file(request.shape)
    else:
        raise AssertionError("one of model and shape is needed")
    measured = {}
    if request.bench is not None:
        measured = measured_of(load_rows(request.bench), request.kv, str(request.bench))
    kv = tensor_kinds_by_name()[request.kv.upper()]
    rows = []
    for prompt, generated in ((request.prompt, 0), (0, request.generated)):
        tokens, batch = (prompt, request.batch) if prompt else (generated, 1)
        for depth in request.depths if tokens else ():
            bound = bound_of(model, Test(tokens=tokens, depth=depth, batch=batch), peaks, kv)
            rows.append(EstimateRow(bound=bound, measured=measured.get((prompt, generated, depth))))
    drafts: list[DraftStep] = []
    if request.drafting is not None:
        shape = request.drafting.shape(request.model)
        drafts = [_step(request.drafting, model, shape, depth, peaks, kv) for depth in request.depths]
    return Estimate(
        arch=request.arch,
        model=model,
        kv=request.kv,
        peaks=peaks,
        rows=tuple(rows),
        drafts=tuple(drafts),
    )


def _step(
    drafting: Drafting, model: ModelShape, shape: ModelShape | None, depth: int, peaks: Peaks, kv: Kind
) -> DraftStep:
    batch = 1 + drafting.drafts
    token = Test(tokens=1, depth=depth, batch=1)
    verified = Test(tokens=batch, depth=depth, batch=batch, has_all_logits=True)
    return DraftStep(
        depth=depth,
        drafting=drafting,
        verifying_seconds=bound_of(model, verified, peaks, kv).seconds,
        token_seconds=bound_of(model, token, peaks, kv).seconds,
        draft_seconds=None if shape is None else bound_of(shape, token, peaks, kv).seconds,
    )
