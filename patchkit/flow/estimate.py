"""How fast a model can be on a GPU at best, and how much of that time is attention.

Vocabulary: an *estimate* is the bound of each test at each depth; with the output of llama-bench it has what
was measured beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.config.profile import load_profile
from patchkit.estimate.describe import shape_of_file, shape_of_header
from patchkit.estimate.measured import Measured, measured_of
from patchkit.estimate.model import ModelShape
from patchkit.estimate.peaks import Peaks, peaks_of
from patchkit.estimate.roofline import Bound, Test, bound_of
from patchkit.flow.bench_files import load_rows
from patchkit.gguf_file.header import load_gguf_parts
from patchkit.gguf_file.kinds import KINDS_BY_NAME
from patchkit.series_dir import SeriesDir


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """What to estimate: one of ``model`` (GGUF) and ``shape`` (TOML); the rest as llama-bench names it.

    ``bandwidth`` in GB/s and ``compute`` in TFLOPS replace the profile's figures.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One test; ``measured`` is None when the output of llama-bench has no such test."""

    bound: Bound
    measured: Measured | None

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        measured = None
        if self.measured is not None:
            measured = {
                **self.measured.as_json(),
                "bound_over_measured": self.bound.rate / self.measured.rate,
            }
        return {**self.bound.as_json(), "measured": measured}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """All tests of one model on one GPU."""

    arch: str
    model: ModelShape
    kv: str
    peaks: Peaks
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "arch": self.arch,
            "model": {
                "name": self.model.name,
                "source": self.model.source,
                "bytes": self.model.bytes,
                "parameters": self.model.values,
                "attending_layers": len(self.model.layers),
                "windowed_layers": sum(layer.window is not None for layer in self.model.layers),
                "experts": self.model.experts,
                "experts_used": self.model.experts_used,
                "notes": list(self.model.notes),
            },
            "kv_type": self.kv,
            "bandwidth": self.peaks.bandwidth.as_json(),
            "compute": self.peaks.compute.as_json(),
            "rows": [row.as_json() for row in self.rows],
        }


def make_estimate(series: SeriesDir, request: EstimateRequest) -> Estimate:
    """Read the model and compute.

    Raises:
        ARCH_UNKNOWN, ARCH_GENERIC: there is no such profile.
        FIGURE_MISSING: the profile has no figure, and none was given.
        GgufError, MODEL_NOT_DESCRIBED: the file is no model that can be estimated.
        ConfigError, ErrorGroup, TENSOR_TYPE_UNKNOWN: the shape file is wrong.
        BENCH_FILE_MISSING and its like, BenchGarbage and its like, BENCH_FILE_MIXED: the measurement is none.
    """
    profile = load_profile(series.profiles, request.arch)
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
    rows = []
    for prompt, generated in ((request.prompt, 0), (0, request.generated)):
        tokens, batch = (prompt, request.batch) if prompt else (generated, 1)
        for depth in request.depths if tokens else ():
            bound = bound_of(
                model, Test(tokens=tokens, depth=depth, batch=batch), peaks, KINDS_BY_NAME[request.kv.upper()]
            )
            rows.append(Row(bound=bound, measured=measured.get((prompt, generated, depth))))
    return Estimate(arch=request.arch, model=model, kv=request.kv, peaks=peaks, rows=tuple(rows))
