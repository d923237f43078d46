"""Reduces a graph with a fault: fewer nodes, smaller dimensions, simpler settings, and still the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from patchkit.gpu.hardware.graphs.description import Graph, Tensor
from patchkit.gpu.hardware.graphs.usable import is_usable

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Type and extents of each node."""

_SMALLER = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SIMPLE_TYPES = ("q8_0", "f32")


def reduce_graph(
    graph: Graph,
    has_fault: Callable[[Sequence[Graph]], Sequence[bool]],
    shapes_of: Callable[[Graph], Shapes],
    *,
    at_once: int = 12,
    is_over: Callable[[], bool] = lambda: False,
) -> Graph:
    """The smallest graph found that still has the fault.

    Args:
        graph: has the fault.
        has_fault: whether each of several graphs has it; False for graphs that ggml does not accept.
        shapes_of: the shapes of a valid graph's nodes.
        at_once: how many graphs ``has_fault`` gets at once.
        is_over: stop and return the smallest graph so far.
    """
    while not is_over():
        simpler = simplifications(graph, shapes_of(graph))
        smaller = [one for one in _unique(graph, simpler) if is_usable(one)]
        for start in range(0, len(smaller), at_once):
            some = smaller[start : start + at_once]
            found = next((one for one, still in zip(some, has_fault(some), strict=True) if still), None)
            if found is not None or is_over():
                break
        else:
            return graph
        graph = found or graph
    return graph


def _unique(graph: Graph, simpler: Iterator[Graph]) -> Iterator[Graph]:
    seen = {repr(graph.tensors) + repr(graph.dims)}
    for one in simpler:
        key = "|".join(
            map(
                repr,
                (
                    one.tensors,
                    one.dims,
                    one.memory,
                    one.rounds,
                    one.steps,
                    one.contexts,
                    one.captured,
                    one.environment,
                ),
            )
        )
        if key not in seen and one != graph:
            seen.add(key)
            yield one


def simplifications(graph: Graph, shapes: Shapes) -> Iterator[Graph]:
    """Graphs that are simpler in one respect, those that spare most first."""
    nodes = [one.name for one in graph.nodes]
    size = len(nodes) // 2
    while size > 0:
        for start in range(0, len(nodes), size):
            yield _without(graph, set(nodes[start : start + size]), shapes)
        size //= 2
    yield from _bypassed(graph, shapes)
    yield from _with_fewer_outputs(graph)
    for one in graph.nodes:
        if one.over:
            yield graph.replaced(one.changed(over="", at=""))
    yield from _with_simpler_settings(graph)
    for name, value in graph.dims.items():
        wanted = [one for one in (*_SMALLER, value // 2, value - 1) if 0 < one < value]
        yield from (graph.changed(dims={**graph.dims, name: one}) for one in dict.fromkeys(wanted))
    for leaf in graph.tensors:
        if leaf.leaf == "weight" and leaf.type not in _SIMPLE_TYPES:
            yield from (graph.replaced(leaf.changed(type=kind)) for kind in _SIMPLE_TYPES)


def _with_simpler_settings(graph: Graph) -> Iterator[Graph]:
    if graph.environment:
        yield graph.changed(environment={})
    if graph.captured:
        yield graph.changed(captured=False)
    if graph.contexts > 1:
        yield graph.changed(contexts=1)
    if graph.rounds > 1:
        yield graph.changed(rounds=1)
    if graph.steps:
        yield graph.changed(steps=False)
    if graph.memory != "apart":
        yield graph.changed(memory="apart")


def _without(graph: Graph, gone: set[str], shapes: Shapes) -> Graph:
    """Without some nodes: their readers get leaves of the same shape."""
    kept: list[Tensor] = []
    for one in graph.tensors:
        if one.name not in gone:
            kept.append(one)
        elif any(one.name in other.of for other in graph.nodes if other.name not in gone):
            kept.append(_leaf_for(one, shapes))
    return _tidy(graph.with_tensors(kept))


def _leaf_for(node: Tensor, shapes: Shapes) -> Tensor:
    kind, ne = shapes.get(node.name, ("f32", (1, 1, 1, 1)))
    is_integer = kind in {"i32", "i64"}
    is_activation = kind == "f32"
    leaf = "numbers" if is_integer else "input" if is_activation else "weight"
    return Tensor(name=node.name, leaf=leaf, type=kind, ne=ne)  # type: ignore[arg-type]


def _bypassed(graph: Graph, shapes: Shapes) -> Iterator[Graph]:
    """A node's readers read one of its sources, which has the same shape."""
    leaves = {one.name: (one.type, _extents(graph, one)) for one in graph.tensors if one.leaf is not None}
    known = {**leaves, **shapes}
    for node in graph.nodes:
        for source in node.of:
            if known.get(source) == known.get(node.name):
                tensors = [
                    one.changed(of=tuple(source if each == node.name else each for each in one.of))
                    for one in graph.tensors
                    if one.name != node.name
                ]
                yield _tidy(graph.with_tensors(tensors))


def _extents(graph: Graph, leaf: Tensor) -> tuple[int, ...]:
    ne = [graph.number(each) for each in leaf.ne]
    return (*ne, *([1] * (4 - len(ne))))


def _with_fewer_outputs(graph: Graph) -> Iterator[Graph]:
    outputs = [one for one in graph.nodes if one.output]
    for one in outputs:
        if len(outputs) > 1:
            yield graph.replaced(one.changed(output=False))


def _tidy(graph: Graph) -> Graph:
    """Without leaves that no node reads, and without dimensions that nothing depends on."""
    read = {name for one in graph.nodes for name in one.of}
    kept = [one for one in graph.tensors if one.leaf is None or one.name in read]
    text = " ".join(
        str(part)
        for one in kept
        for part in (
            *one.ne,
            *one.i,
            *one.nb,
            one.at,
            one.start,
            one.modulo,
            *(times for times, _ in one.runs),
        )
    )
    dims = {name: value for name, value in graph.dims.items() if _is_word(name, text)}
    return graph.changed(tensors=tuple(kept), dims=dims)


def _is_word(name: str, text: str) -> bool:
    for sign in "*+-.":
        text = text.replace(sign, " ")
    return name in text.split()
