"""The modelled time of one batch of a model, as the sum of its operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.emulated.operations import OperationCase
from patchkit.gpu.modelled.machine import TestKind, kind_of_test
from patchkit.gpu.modelled.operation import (
    OperationTime,
    attention_case,
    is_moe,
    matrix_case,
    type_name,
)
from patchkit.gpu.modelled.recording import Timed
from patchkit.gpu.modelled.shape import Layer, ModelShape, Weight

_ROPE_HEAD = 128  # head size in native/drivers/op_cases.cpp
_KV_STEP = 256  # llama.cpp rounds the number of KV rows for attention up to a multiple of this
# From this number of tokens on, launch_fattn skips rows that are masked for all tokens of a block: half of
# the batch's own rows with a causal mask (flash_attn_mask_to_KV_max in fattn-common.cuh).
_SCANS_MASK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """``tokens`` tokens at a context depth of ``depth``; ``outputs`` of them need logits."""

    tokens: int
    depth: int
    outputs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``count`` equal operations of a batch, each taking ``time``."""

    json_keys: ClassVar = "operation=time.operation count us"

    case: Timed
    count: int
    time: OperationTime

    @property
    def us(self) -> float:
        """Microseconds of all of them."""
        return self.count * self.time.us


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTime:
    """One batch of a model. ``missing``: operations for which the backend has no kernel."""

    json_keys: ClassVar = (
        "tokens=batch.tokens depth=batch.depth tokens_per_second=rate modelled "
        "attention_share=attention blas_share=of_library missing parts=slowest"
    )

    batch: Batch
    parts: tuple[Part, ...]
    missing: tuple[str, ...]

    @property
    def us(self) -> float:
        """Microseconds of the batch."""
        return sum(part.us for part in self.parts)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.batch.tokens * 1e6 / self.us

    @property
    def attention(self) -> float:
        """Attention's fraction of the time (0 to 1)."""
        return sum(part.us for part in self.parts if isinstance(part.case, Case)) / self.us

    @property
    def of_library(self) -> float:
        """Fraction of the time (0 to 1) in BLAS calls, which are only estimated."""
        return sum(part.count * part.time.library_us for part in self.parts) / self.us

    modelled: ClassVar = True

    @property
    def kind(self) -> TestKind:
        """The kind of test that the batch is of."""
        return kind_of_test(
            self.batch.tokens,
            has_experts=any(is_moe(part.case) for part in self.parts),
            uses_blas=self.of_library > 0,
        )

    @property
    def slowest(self) -> list[Part]:
        """The parts, slowest first."""
        return sorted(self.parts, key=lambda part: -part.us)


def time_model(
    model: ModelShape, batch: Batch, kv: str, timed: Callable[[Timed], OperationTime | None]
) -> ModelTime:
    """Model the time of a batch; ``timed`` models one operation, ``kv`` is the type of K and V."""
    parts, missing = [], []
    for case, count in Counter(_operations(model, batch, kv)).items():
        time = timed(case)
        if time is None:
            missing.append(str(case))
        else:
            parts.append(Part(case=case, count=count, time=time))
    return ModelTime(batch=batch, parts=tuple(parts), missing=tuple(missing))


def operations_of(model: ModelShape, batch: Batch, kv: str) -> tuple[Timed, ...]:
    """The distinct operations of a batch."""
    return tuple(dict.fromkeys(_operations(model, batch, kv)))


def _operations(model: ModelShape, batch: Batch, kv: str) -> Iterator[Timed]:
    for weight in model.weights:
        tokens = batch.outputs if weight.after_last_attention else batch.tokens
        if tokens == 0 or weight.role in {"lookup", "vector"}:
            continue
        for _ in range(weight.count):
            yield _product(weight, tokens, model)
    width = next((weight.shape[0] for weight in model.weights if weight.role == "lookup"), 0)
    middle = max((weight.shape[1] for weight in model.weights if "ffn_up" in weight.name), default=width)
    for layer in model.layers:
        yield attention_of(layer, batch, kv)
        yield from _around(layer, batch, width=width, middle=middle, kv=kv)


def _product(weight: Weight, tokens: int, model: ModelShape) -> OperationCase:
    columns, rows = weight.shape[0], weight.shape[1]
    experts, used = (model.experts, model.experts_used) if weight.role == "experts" else (1, 1)
    return matrix_case(type_name(weight.kind), rows, columns, tokens, experts=experts, used=used)


def attention_of(layer: Layer, batch: Batch, kv: str) -> Case:
    """The attention of a layer; ``kv`` is the type of K and V."""
    rows = batch.depth + (batch.tokens // 2 if batch.tokens >= _SCANS_MASK else batch.tokens)
    compressed = layer.compressed_rows(rows)
    if layer.visible is not None:
        rows = min(rows, layer.visible + batch.tokens - 1)
    rows += compressed
    return attention_case(
        layer.head_size_k,
        layer.heads,
        layer.kv_heads,
        kv=-(-rows // _KV_STEP) * _KV_STEP,
        tokens=batch.tokens,
        kind=kv,
    )


def _around(layer: Layer, batch: Batch, *, width: int, middle: int, kv: str) -> Iterator[OperationCase]:
    """A layer's operations other than matmuls and attention, as in llama.cpp's graphs."""

    def plain(op: str, columns: int, kind: str = "f32") -> OperationCase:
        return OperationCase(
            id="timed",
            op=op,
            type=kind,
            rows=max(columns, batch.tokens),
            columns=columns,
            tokens=batch.tokens,
        )

    for op in ("RMS_NORM", "ADD"):
        yield plain(op, width)
        yield plain(op, width)
    for heads in (layer.heads, layer.kv_heads):
        columns = heads * layer.head_size_k
        yield plain("ROPE", -(-columns // _ROPE_HEAD) * _ROPE_HEAD)
    for size in (layer.head_size_k, layer.head_size_v):
        yield plain("SET_ROWS", layer.kv_heads * size, kv)
    yield plain("SWIGLU", middle)
