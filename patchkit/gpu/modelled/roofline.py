"""The least time for a prompt, or for generated tokens: for its bytes or its operations, as takes longer.

Not counted: activations, the new rows of the KV cache, softmax, norms, launches. The result is a bound.
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
    """``value`` in units of ``unit``: GB/s are 10^9 bytes per second, TFLOPS 10^12 operations per second."""

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
        told = "" if self.kind == "given" else f", {self.confidence} confidence: {self.source}"
        return f"{self.value:g} {self.unit} ({self.kind}{told})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """One multiplication with its addition counts as two operations."""

    bandwidth: Figure
    compute: Figure


# In the order of preference: what was measured says more about what a kernel can reach.
_BANDWIDTH: tuple[tuple[str, FigureKind], ...] = (
    ("bandwidth_measured_gb_s", "measured"),
    ("bandwidth_gb_s", "specified"),
)
_COMPUTE: tuple[tuple[str, FigureKind], ...] = (("fp16_tflops", "specified"),)


def peaks_of(profile: GpuProfile, *, bandwidth: float | None = None, compute: float | None = None) -> Peaks:
    """The figures of a GPU; ``bandwidth`` (GB/s) and ``compute`` (TFLOPS) replace those of the profile.

    Of a figure that is a range the higher end is taken: the result is a bound.

    Raises:
        FIGURE_MISSING: neither the profile nor the caller has one.
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
        f"the profile of {profile.arch} states no {' and no '.join(name for name, _ in names)}",
        code="FIGURE_MISSING",
        where=profile.where,
        hint=f"add it there with its source, or give it: {option} NUMBER",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """As llama-bench runs it: ``tokens`` of a prompt in batches of ``batch``, or generated one by one (1)."""

    tokens: int
    depth: int
    batch: int

    @property
    def is_generation(self) -> bool:
        """Whether every token is a batch of its own."""
        return self.batch == 1

    @property
    def name(self) -> str:
        """As llama-bench prints it."""
        kind = "tg" if self.is_generation else "pp"
        return f"{kind}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")

    def batches(self) -> Iterator[tuple[int, int]]:
        """Tokens before, and tokens in, each batch."""
        for done in range(0, self.tokens, self.batch):
            yield self.depth + done, min(self.batch, self.tokens - done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """``macs`` are multiplications, each with its addition."""

    bytes: float
    macs: float

    def seconds(self, peaks: Peaks) -> float:
        """Time for the bytes or for the operations, whichever is longer."""
        return max(self.bytes / peaks.bandwidth.per_second, 2 * self.macs / peaks.compute.per_second)

    def is_memory_bound(self, peaks: Peaks) -> bool:
        """Whether its bytes take the longer time."""
        return self.bytes / peaks.bandwidth.per_second >= 2 * self.macs / peaks.compute.per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time of a test, in seconds; ``from_memory`` is the part of it that waits for memory."""

    test: Test
    weights: float
    attention: float
    from_memory: float
    bytes: float
    macs: float

    @property
    def seconds(self) -> float:
        """Of the whole test."""
        return self.weights + self.attention

    @property
    def rate(self) -> float:
        """Tokens per second, at most."""
        return self.test.tokens / self.seconds

    @property
    def share(self) -> float:
        """Attention's part of the time, 0 to 1."""
        return self.attention / self.seconds

    @property
    def gain(self) -> float:
        """By which factor the test would be faster if attention took no time (Amdahl)."""
        return self.seconds / self.weights if self.weights else float("inf")

    @property
    def limit(self) -> str:
        """What most of the time is spent on."""
        return "memory" if 2 * self.from_memory >= self.seconds else "compute"

    @property
    def memory_share(self) -> float:
        """The part of the time that memory bounds."""
        return self.from_memory / self.seconds

    @property
    def bytes_per_token(self) -> float:
        """Bytes from memory for one token."""
        return self.bytes / self.test.tokens

    @property
    def macs_per_token(self) -> float:
        """Multiplications with an addition for one token."""
        return self.macs / self.test.tokens


def bound_of(model: ModelShape, test: Test, peaks: Peaks, kv: Kind) -> Bound:
    """The least time of ``test``, with K and V kept as ``kv``."""
    weights = attention = _NOTHING
    last = test.depth + test.tokens
    layers = Counter(model.layers)  # most are alike
    seen: dict[tuple[int, int], _Sum] = {}  # generated tokens are all alike
    for before, tokens in test.batches():
        # The logits of a prompt are asked for its last token only (llama_batch_get_one).
        outputs = 1 if test.is_generation or before + tokens == last else 0
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
    """Time and work of many parts together."""

    seconds: float = 0
    from_memory: float = 0
    bytes: float = 0
    macs: float = 0

    @classmethod
    def of(cls, work: Work, peaks: Peaks, count: int = 1) -> _Sum:
        """``count`` parts of equal work."""
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
    """A batch of ``tokens``, of which ``outputs`` are asked for their logits."""
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
    """How many experts a batch touches on average, if each token picks ``used`` of them evenly."""
    return experts * (1 - (1 - used / experts) ** tokens)


def attention_work(layer: Layer, before: int, tokens: int, kv: Kind) -> Work:
    """A batch of ``tokens`` behind ``before`` others: each sees itself and, in its window, those before.

    K and V of the rows that any of them sees are read once; QK and PV are multiplied for visible pairs only.
    """
    first, last = before + 1, before + tokens
    if layer.window is None:
        rows, pairs = last, tokens * (first + last) // 2
    else:
        rows = min(last, layer.window + tokens - 1)
        whole = max(0, min(last, layer.window) - before)  # tokens that see all before them
        pairs = whole * (first + before + whole) // 2 + (tokens - whole) * layer.window
    values = layer.head_size_k + (0 if layer.shares_v else layer.head_size_v)
    return Work(
        bytes=rows * layer.kv_heads * values * kv.bytes / kv.block,
        macs=float(pairs * layer.heads * (layer.head_size_k + layer.head_size_v)),
    )
