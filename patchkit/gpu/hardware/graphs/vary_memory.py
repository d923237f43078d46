"""Variations of memory: reused by ggml's allocator, in place, or where another tensor was."""

from __future__ import annotations

import random
from collections.abc import Iterable

from patchkit.gpu.hardware.graphs.description import Graph
from patchkit.gpu.hardware.graphs.extents import Extents, extents_of
from patchkit.gpu.hardware.graphs.usable import has_free_memory
from patchkit.gpu.hardware.graphs.vary_nodes import Vary, one_of, place

# Operations that have a form in place.
_IN_PLACE = frozenset({"add", "mul", "scale", "rms_norm", "silu", "rope"})
_ALIGNED = 32  # floats in 128 bytes, of which an offset is a multiple


def _memory(graph: Graph, chance: random.Random) -> Graph:
    others = [one for one in ("apart", "reused", "scheduled") if one != graph.memory]
    return graph.changed(memory=chance.choice(others))


def _in_place(graph: Graph, chance: random.Random) -> Graph | None:
    """An operation writes where its first operand is, or no longer does."""
    suffix = "_inplace"
    nodes = [one for one in graph.nodes if one.op.removesuffix(suffix) in _IN_PLACE]
    one = one_of(nodes, chance)
    op = one.op.removesuffix(suffix) if one.op.endswith(suffix) else one.op + suffix
    return graph.replaced(one.changed(op=op, over="", at=""))


def _over(graph: Graph, chance: random.Random) -> Graph | None:
    """A node lies in the memory of a tensor that is no longer needed, in part or as a whole."""
    nodes = [one for one in graph.operations if not one.view_of]
    node = one_of(nodes, chance)
    known = extents_of(graph)

    def free(over: str, places: Iterable[str]) -> list[Graph]:
        changed = (graph.replaced(node.changed(over=over, at=at)) for at in places)
        return [one for one in changed if has_free_memory(one)]

    earlier = graph.tensors[: place(graph, node.name)]
    others = [one.name for one in earlier if one.name in known and not one.view_of and free(one.name, [""])]
    other = one_of(others, chance)
    return chance.choice(free(other, ["", *_offsets(graph, known[other])]))


def _offsets(graph: Graph, ne: Extents) -> Iterable[str]:
    """128 bytes or a row after or before the start of a tensor, half a row, its middle, and its last row."""
    columns, rows = graph.number(ne[0]), graph.number(ne[1]) * graph.number(ne[2]) * graph.number(ne[3])
    by_value = {one: f"{one}.0" for one in (_ALIGNED, -_ALIGNED, columns // 2)}
    by_row = {one * columns: f"{one}.1" for one in (1, -1, rows // 2, rows - 1)}
    return [text for offset, text in {**by_value, **by_row}.items() if offset and offset % _ALIGNED == 0]


MEMORY_VARIATIONS: tuple[Vary, ...] = (_memory, _in_place, _over)
"""Every variation."""
