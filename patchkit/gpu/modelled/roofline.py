"""Roofline: lower bound of the time for a prompt or for generated tokens, from bytes and operations.

Not counted: activations, new rows of the KV cache, softmax, norms, launch overhead. The result is a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from patchkit.base.arch import GpuProfile
from patchkit.base.errors import UsageError
from patchkit.gpu.gguf import Kind
from patchkit.gpu.modelled.shape import Layer, ModelShape, Weight

FigureKind = Literal["measured", "specified", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A peak figure in ``unit``: GB/s are 10^9 bytes per second, TFLOPS 10^12 operations per second."""

    value: float
    unit: str
    kind: FigureKind
    source: str
    confidence: str

    @property
    def per_second(self) -> float:
        """Bytes or operations per second."""
        return self.value * (1e9 if self.unit == "GB/s" else 1e12)

    def __str__(self) -> str:
        details = "" if self.kind == "given" else f", {self.confidence} confidence: {self.source}"
        return f"{self.value:g} {self.unit} ({self.kind}{details})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Peak bandwidth and compute. A multiply-add counts as two operations."""

    bandwidth: Figure
    compute: Figure


# In order of preference: a measured value is closer to what a kernel can reach.
_BANDWIDTH: tuple[tuple[str, FigureKind], ...] = (
    ("bandwidth_measured_gb_s", "measured"),
    ("bandwidth_gb_s", "specified"),
)
_COMPUTE: tuple[tuple[str, FigureKind], ...] = (("fp16_tflops", "specified"),)


def peaks_of(profile: GpuProfile, *, bandwidth: float | None = None, compute: float | None = None) -> Peaks:
    """The peak figures of a GPU; ``bandwidth`` (GB/s) and ``compute`` (TFLOPS) override the profile's.

    If a figure is a range, its upper end is used, because the result is a bound.

    Raises:
        FIGURE_MISSING: neither the profile nor the caller has the figure.
    """
    return Peaks(
        bandwidth=_figure(profile, _BANDWIDTH, "GB/s", bandwidth, "--bandwidth"),
        compute=_figure(profile, _COMPUTE, "TFLOPS", compute, "--tflops"),
    )


def _figure(
    profile: GpuProfile,
    names: tuple[tuple[str, FigureKind], ...],
    unit: str,
    given: float | None,
    option: str,
) -> Figure:
    if given is not None:
        return Figure(value=given, unit=unit, kind="given", source=option, confidence="-")
    for name, kind in names:
        fact = profile.facts.report(name)
        if fact is None or isinstance(fact.value, str):
            continue
        value = max(fact.value) if isinstance(fact.value, tuple) else fact.value
        return Figure(
            value=float(value), unit=unit, kind=kind, source=fact.source, confidence=fact.confidence
        )
    raise UsageError(
        f"the profile of {profile.arch} has no {' or '.join(name for name, _ in names)}",
        code="FIGURE_MISSING",
        where=profile.where,
        hint=f"add it to the profile with its source, or pass {option} NUMBER",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A llama-bench test: ``tokens`` of a prompt in batches of ``batch``, or generated one by one (1).

    ``has_all_logits``: of every token of a prompt, as when drafts are verified, instead of the last one.
    """

    tokens: int
    depth: int
    batch: int
    has_all_logits: bool = False

    @property
    def is_generation(self) -> bool:
        """Whether it is token generation (batches of one token)."""
        return self.batch == 1

    @property
    def name(self) -> str:
        """Its name as printed by llama-bench."""
        kind = "tg" if self.is_generation else "pp"
        return f"{kind}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")

    def batches(self) -> Iterator[tuple[int, int]]:
        """For each batch, the tokens before it and the tokens in it."""
        for done in range(0, self.tokens, self.batch):
            yield self.depth + done, min(self.batch, self.tokens - done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Bytes to read and multiply-adds (``macs``) to compute."""

    bytes: float
    macs: float

    def seconds(self, peaks: Peaks) -> float:
        """Time for the bytes or the operations, whichever is longer."""
        return max(self.bytes / peaks.bandwidth.per_second, 2 * self.macs / peaks.compute.per_second)

    def is_memory_bound(self, peaks: Peaks) -> bool:
        """Whether the bytes take longer than the operations."""
        return self.bytes / peaks.bandwidth.per_second >= 2 * self.macs / peaks.compute.per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Lower bound of a test's time in seconds; ``from_memory`` is the memory-bound part."""

    test: Test
    weights: float
    attention: float
    from_memory: float
    bytes: float
    macs: float

    @property
    def seconds(self) -> float:
        """Time of the whole test."""
        return self.weights + self.attention

    @property
    def rate(self) -> float:
        """Upper bound of tokens per second."""
        return self.test.tokens / self.seconds

    @property
    def share(self) -> float:
        """Attention's fraction of the time, 0 to 1."""
        return self.attention / self.seconds

    @property
    def gain(self) -> float:
        """Speedup of the test if attention took no time (Amdahl's law)."""
        return self.seconds / self.weights if self.weights else float("inf")

    @property
    def limit(self) -> str:
        """What limits most of the time: memory or compute."""
        return "memory" if 2 * self.from_memory >= self.seconds else "compute"

    @property
    def memory_share(self) -> float:
        """Fraction of the time that is memory-bound."""
        return self.from_memory / self.seconds

    @property
    def bytes_per_token(self) -> float:
        """Bytes read per token."""
        return self.bytes / self.test.tokens

    @property
    def macs_per_token(self) -> float:
        """Multiply-adds per token."""
        return self.macs / self.test.tokens


def bound_of(model: ModelShape, test: Test, peaks: Peaks, kv: Kind) -> Bound:
    """The lower bound of ``test``, with K and V stored as ``kv``."""
    weights = attention = _NOTHING
    last = test.depth + test.tokens
    layers = Counter(model.layers)  # most layers are equal
    seen: dict[tuple[int, int], _Sum] = {}  # all batches of one token are equal
    for before, tokens in test.batches():
        # For a prompt, only the logits of its last token are computed (llama_batch_get_one).
        outputs = 1 if test.is_generation or before + tokens == last else 0
        if test.has_all_logits:
            outputs = tokens
        if (tokens, outputs) not in seen:
            parts = (_Sum.of(weight_work(each, tokens, outputs, model), peaks) for each in model.weights)
            seen[tokens, outputs] = sum(parts, _NOTHING)
        weights += seen[tokens, outputs]
        for layer, count in layers.items():
            attention += _Sum.of(attention_work(layer, before, tokens, kv), peaks, count)
    return Bound(
        test=test,
        weights=weights.seconds,
        attention=attention.seconds,
        from_memory=weights.from_memory + attention.from_memory,
        bytes=weights.bytes + attention.bytes,
        macs=weights.macs + attention.macs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """Sum of time and work of several parts."""

    seconds: float = 0
    from_memory: float = 0
    bytes: float = 0
    macs: float = 0

    @classmethod
    def of(cls, work: Work, peaks: Peaks, count: int = 1) -> _Sum:
        """The sum of ``count`` equal parts."""
        seconds = count * work.seconds(peaks)
        return cls(
            seconds=seconds,
            from_memory=seconds * work.is_memory_bound(peaks),
            bytes=count * work.bytes,
            macs=count * work.macs,
        )

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(
            seconds=self.seconds + other.seconds,
            from_memory=self.from_memory + other.from_memory,
            bytes=self.bytes + other.bytes,
            macs=self.macs + other.macs,
        )


_NOTHING = _Sum()


def weight_work(weight: Weight, tokens: int, outputs: int, model: ModelShape) -> Work:
    """Work of a batch of ``tokens``, of which ``outputs`` need logits."""
    used = outputs if weight.after_last_attention else tokens
    if used == 0:
        return Work(bytes=0, macs=0)
    if weight.role == "lookup":
        row = weight.shape[0] if weight.shape else 1
        return Work(bytes=weight.kind.size(used * row * weight.count), macs=0)
    if weight.role == "experts" and model.experts:
        touched = distinct_experts(model.experts, model.experts_used, used) / model.experts
        macs = (
            weight.values / model.experts * model.experts_used * used
            if weight.name.endswith(".weight")
            else 0
        )
        return Work(bytes=weight.bytes * touched, macs=macs)
    return Work(bytes=weight.bytes, macs=weight.values * used if weight.role != "vector" else 0)


def distinct_experts(experts: int, used: int, tokens: int) -> float:
    """Expected number of experts that a batch uses, if each token selects ``used`` of them uniformly."""
    return experts * (1 - (1 - used / experts) ** tokens)


def attention_work(layer: Layer, before: int, tokens: int, kv: Kind) -> Work:
    """Work of a batch of ``tokens`` at depth ``before``, with a causal mask and the rows that a layer sees.

    Each visible row of K and V is read once; QK and PV are counted only for visible pairs. Compressed rows
    count as if the whole batch saw those of its middle.
    """
    first, last = before + 1, before + tokens
    if layer.visible is None:
        rows, pairs = last, tokens * (first + last) // 2
    else:
        rows = min(last, layer.visible + tokens - 1)
        whole = max(0, min(last, layer.visible) - before)  # tokens that see everything before them
        pairs = whole * (first + before + whole) // 2 + (tokens - whole) * layer.visible
    compressed = layer.compressed_rows(before + tokens // 2)
    rows += compressed
    pairs += tokens * compressed
    return Work(
        bytes=rows * layer.values_per_row * kv.bytes / kv.block,
        macs=float(pairs * layer.heads * (layer.head_size_k + layer.head_size_v)),
    )
