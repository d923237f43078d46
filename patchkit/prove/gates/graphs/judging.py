"""Compares a graph's results on both sides: equal bits where the patches claim it, else a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from patchkit.gpu.hardware.graphs.description import Graph, Tensor
from patchkit.gpu.hardware.graphs.running import Computed, Result, differing
from patchkit.prove.subject import PatchPart

Kind = Literal["bits", "far", "not finite", "ends", "memory"]

# As gate logits: chosen. Correct kernels with another order of sums differ by less.
FACTOR = 3.0
# Where bits may differ, an operation rounds otherwise than the CPU's: to f16, to bf16 if its weights are,
# or its activations to 8 bits if its weights are quantized. The last is step / sqrt(12), where the step is
# 1/127 of the largest of 32 or 256 values, which is three to four times their root mean square.
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-9, "quantized": 2.0**-7}
# Standard deviations. The NMSE of n normal errors over n normal values scatters by 2/sqrt(n).
_SCATTER = 5.0
# In root mean squares of the rounding errors: the largest of a million normal values is 5.
_LARGEST_VALUE = 8.0
# As gate logits: upstream itself computes something else than the CPU, often because it reads memory that
# nothing has written. Then even equal code may give other bits.
_ELSEWHERE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What the patches of a candidate claim about results.

    Results are bit-identical to upstream's unless a kernel of ``differ`` ran (shell patterns of names without
    template arguments). ``without`` are patches without a claim; if there are any, bits prove nothing.
    """

    differ: tuple[str, ...]
    without: tuple[str, ...]

    def wants_equal_bits(self, kernels: frozenset[str]) -> bool:
        """Whether a graph that launches these kernels must give results bit-identical to upstream's."""
        return not self.without and not any(
            fnmatchcase(kernel, pattern) for kernel in kernels for pattern in self.differ
        )


def claims_of(patches: Sequence[PatchPart]) -> Claims:
    """What the patches claim in ``[results]``."""
    tables = [(part.id, part.patch.results) for part in patches]
    return Claims(
        differ=tuple(sorted({one for _, table in tables if table is not None for one in table.differ})),
        without=tuple(name for name, table in tables if table is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Why a graph fails: the result of both sides that differs most, and what was allowed."""

    kind: Kind
    before: Result | None = None
    after: Result | None = None
    allowed: tuple[float, float] = (0.0, 0.0)

    @property
    def text(self) -> str:
        """The difference in words."""
        if self.before is None or self.after is None:
            return {"ends": "the program ends", "memory": "the checks report a fault"}.get(
                self.kind, self.kind
            )
        ours, theirs = self.after, self.before
        distance = (
            f"NMSE {ours.nmse:.1e} and {ours.worst:.1e} for the worst value; the baseline has "
            f"{theirs.nmse:.1e} and {theirs.worst:.1e}"
        )
        where = f"result {ours.name}" + (f", round {ours.round}" if ours.round else "")
        if self.kind == "bits":
            return (
                f"{where}: not bit-identical to upstream's, as the patches claim; against the CPU {distance}"
            )
        if self.kind == "not finite":
            return f"{where}: NaN or infinity, which the baseline does not have"
        nmse, worst = self.allowed
        return f"{where}: {distance}; allowed are {nmse:.1e} and {worst:.1e}"


def allowed_distance(rounding: float, before: Result) -> tuple[float, float]:
    """The largest NMSE and error of one value: a factor of the baseline's, at least the ``rounding`` error.

    The NMSE of a result with few values may scatter.
    """
    scatter = 1.0 + _SCATTER * 2.0 / math.sqrt(before.values) if before.values else 1.0
    return (
        scatter * max(FACTOR * before.nmse, rounding**2),
        max(FACTOR * before.worst, _LARGEST_VALUE * rounding),
    )


def rounding_of(graph: Graph) -> float:
    """The relative rounding error of all operations of a graph together."""
    return math.hypot(*(rounding_error(graph, one) for one in graph.operations))


def rounding_error(graph: Graph, node: Tensor) -> float:
    """The relative rounding error of an operation."""
    if not node.op.startswith("mul_mat"):
        return ROUNDING["f16"]
    weights = graph.named[node.of[0]]
    while weights.leaf is None and weights.of:
        weights = graph.named[weights.of[0]]
    if weights.type in {"f32", "f16"}:
        return ROUNDING["f16"]
    return ROUNDING.get(weights.type, ROUNDING["quantized"])


def compare(graph: Graph, before: Computed, after: Computed, claims: Claims) -> Difference | None:
    """The difference that fails the graph, the largest one; None if it passes."""
    if before.has_ended and not after.has_ended:
        return Difference(kind="ends")
    found = [
        _judged(graph, *pair, is_exact=claims.wants_equal_bits(before.kernels | after.kernels))
        for pair in differing(before, after)
    ]
    differences = [one for one in found if one is not None]
    return max(differences, key=_size, default=None)


def _judged(graph: Graph, before: Result, after: Result, *, is_exact: bool) -> Difference | None:
    if not (before.is_finite and before.nmse <= _ELSEWHERE):
        return None
    if not after.is_finite:
        return Difference(kind="not finite", before=before, after=after)
    allowed = allowed_distance(rounding_of(graph), before)
    is_far = not (after.nmse <= allowed[0] and after.worst <= allowed[1])
    if is_far or is_exact:
        return Difference(kind="far" if is_far else "bits", before=before, after=after, allowed=allowed)
    return None


def _size(one: Difference) -> tuple[int, float]:
    order = ("bits", "far", "not finite", "ends", "memory")
    nmse = 0.0 if one.after is None or math.isnan(one.after.nmse) else one.after.nmse
    return order.index(one.kind), nmse


def is_upstreams_fault(before: Computed) -> bool:
    """Whether the baseline itself computes something else than the CPU."""
    return any(not one.nmse <= _ELSEWHERE for one in before.results)
