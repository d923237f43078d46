"""Which graphs can be computed: valid extents and parameters, few values, indices of rows that exist."""

from __future__ import annotations

from collections.abc import Sequence

from patchkit.gpu.hardware.graphs.description import Graph, Tensor, first_numbers
from patchkit.gpu.hardware.graphs.extents import Extents, extents_of, four

MOST_NODES = 64
VISION = 24
"""The mode of a RoPE that rotates half of the row by one position and half by another."""
_MOST_VALUES = 1 << 20  # of one tensor: a second of emulated matmuls
# Values of a block of a quantized type.
_BLOCKS = {"q4_0": 32, "q4_1": 32, "q5_0": 32, "q5_1": 32, "q8_0": 32, "iq4_nl": 32, "mxfp4": 32}
_BLOCKS |= {"q2_K": 256, "q3_K": 256, "q4_K": 256, "q5_K": 256, "q6_K": 256, "iq4_xs": 256}
# By operation: which operand has the indices, and which has the rows, along which dimension.
_INDEXED = {"get_rows": (1, 0, 1), "set_rows": (2, 0, 1), "mul_mat_id": (2, 0, 2), "add_id": (2, 1, 1)}
# Operations whose result ggml's allocator may put where an operand is (ggml_op_can_inplace).
_IN_PLACE = frozenset(
    {"scale", "add", "add_id", "sub", "mul", "div", "clamp", "rms_norm", "rope", "soft_max"}
)
_IN_PLACE |= {"silu", "sigmoid", "gelu", "relu", "tanh", "exp", "softplus"}


def is_usable(graph: Graph) -> bool:
    """Whether extents and parameters are valid, tensors have few values to emulate, and indices are right.

    Rows that are stored differ, because the order of two stores to one row is not defined. The experts of a
    token differ, because upstream's kernels read indices that nothing has written for an expert twice.
    """
    if len(graph.tensors) > 2 * MOST_NODES:
        return False
    try:
        for one in graph.tensors:
            count = 1
            for extent in one.ne:
                count *= graph.number(extent)
            if not 0 < count <= _MOST_VALUES:
                return False
            if one.leaf is not None and graph.number(one.ne[0]) % _BLOCKS.get(one.type, 1) != 0:
                return False
        known = extents_of(graph)
        return has_free_memory(graph) and all(_is_right(graph, one, known) for one in graph.nodes)
    except ValueError:
        return False


def has_free_memory(graph: Graph) -> bool:
    """Whether each node that lies in the memory of another tensor could be there for ggml's allocator.

    What was in that memory before is not an output, and no later node reads it. The node itself may read it
    if it can be computed in place.
    """
    owners: dict[str, str] = {}
    for number, node in enumerate(graph.tensors):
        owners[node.name] = owners.get(node.over or node.view_of, node.name)
        if not node.over:
            continue
        if node.view_of or owners[node.name] == node.name:  # the other tensor is absent or comes later
            return False
        before = [one for one in graph.tensors[:number] if owners[one.name] == owners[node.name]]
        if any(one.output or one.leaf in {"weight", "cache"} for one in before):
            return False
        names = {one.name for one in before}
        reads = [(one, name) for one in graph.tensors[number:] for name in one.of if name in names]
        if reads and not (len(reads) == 1 and _is_in_place(graph, node, *reads[0])):
            return False
    return True


def _is_in_place(graph: Graph, node: Tensor, reader: Tensor, read: str) -> bool:
    """Whether the node is the reader, and lies where the operand does."""
    known = extents_of(graph)
    is_alike = known.get(read, ()) == known.get(node.name)
    while graph.named[read].op == "reshape":
        read = graph.named[read].of[0]
    is_there = read == node.over and not node.at and graph.named[read].type == "f32"
    return node == reader and node.op in _IN_PLACE and is_alike and is_there


def _is_right(graph: Graph, node: Tensor, known: dict[str, Extents]) -> bool:
    if node.op in _INDEXED:
        return _has_right_indices(graph, node, known)
    if node.op in {"rope", "rope_inplace"}:
        return _has_right_rope(graph, node, known)
    return node.op != "view" or _is_within(graph, node, known)


def _has_right_indices(graph: Graph, node: Tensor, known: dict[str, Extents]) -> bool:
    which, rows, along = _INDEXED[node.op]
    leaf = graph.named[node.of[which]]
    while leaf.leaf is None and leaf.is_free:
        leaf = graph.named[leaf.of[0]]
    if leaf.leaf != "numbers" or node.of[rows] not in known:
        return leaf.leaf is None  # the graph computes them
    numbers = first_numbers(graph, leaf)
    if max(numbers) + leaf.step * (graph.rounds - 1) >= graph.number(known[node.of[rows]][along]):
        return False
    if node.op == "set_rows":
        return _are_different(numbers)
    used = graph.number(leaf.ne[0])
    starts = range(0, len(numbers), used) if node.op == "mul_mat_id" else ()
    return all(_are_different(numbers[start : start + used]) for start in starts)


def _has_right_rope(graph: Graph, rope: Tensor, known: dict[str, Extents]) -> bool:
    """Whether the rotated values are pairs, and lie within the row."""
    if rope.of[0] not in known:
        return True
    columns = graph.number(known[rope.of[0]][0])
    dims, mode, offset, *_ = (*(graph.number(each) for each in rope.i), 0, 0)
    if mode == VISION:
        return offset == 0 and 2 * dims == columns
    return columns % 2 == 0 and dims % 2 == 0 and dims > 0 and dims + offset <= columns


def _is_within(graph: Graph, view: Tensor, known: dict[str, Extents]) -> bool:
    """Whether a view lies within its source, where that is one piece of memory of a known size."""
    source = graph.named[view.of[0]]
    if source.name not in known or source.is_free:
        return True
    block = _BLOCKS.get(source.type, 1) if source.leaf is not None else 1
    ne = [graph.number(each) for each in known[source.name]]
    strides = [1, ne[0] // block]
    strides += [strides[1] * ne[1], strides[1] * ne[1] * ne[2]]

    def stride(text: str) -> int:
        times, _, dimension = text.rpartition(".")
        return graph.number(times) * strides[int(dimension)]

    of_view = [graph.number(each) for each in four(view.ne)]
    of_dimension = [1, *(stride(each) for each in view.nb), *strides[len(view.nb) + 1 :]]
    of_view[0] = -(-of_view[0] // block)
    last = sum((count - 1) * each for count, each in zip(of_view, of_dimension, strict=True))
    return last + (stride(view.at) if view.at else 0) < strides[3] * ne[3]


def _are_different(numbers: Sequence[int]) -> bool:
    return len(set(numbers)) == len(numbers)
