"""Variations of nodes: removed, repeated, with other operands, with biases and weights of other shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from patchkit.gpu.hardware.graphs.description import Extent, Graph, Tensor
from patchkit.gpu.hardware.graphs.extents import Extents, extents_of

Vary = Callable[[Graph, random.Random], Graph | None]
"""One property of a graph changes; None or NotThere if the graph does not have it."""
T = TypeVar("T")


class NotThere(Exception):
    """The graph does not have the property."""


def one_of(found: Sequence[T], chance: random.Random) -> T:
    """One of several, at random. Raises NotThere if there is none."""
    if not found:
        raise NotThere
    return chance.choice(found)


def apply(vary: Vary, graph: Graph, chance: random.Random) -> Graph | None:
    """The graph with a variation; None if it does not have the property."""
    try:
        return vary(graph, chance)
    except NotThere:
        return None


_HALF = 0.5
_STORES = frozenset({"set_rows", "cpy"})
_JOINS = frozenset({"add", "mul"})
_UNARY = ("silu", "sigmoid", "gelu", "relu", "tanh", "softplus")
_NORMS = ("rms_norm", "l2_norm", "norm")
_ALIGNED = 4  # floats in 16 bytes, which kernels load at once
_FAR = 64  # nodes: how far the matchers look at most


def new_name(graph: Graph) -> str:
    """A name that no tensor of the graph has."""
    number = len(graph.tensors)
    while f"v{number}" in graph.named:
        number += 1
    return f"v{number}"


def place(graph: Graph, name: str) -> int:
    """The position of a tensor."""
    return next(n for n, one in enumerate(graph.tensors) if one.name == name)


def inserted(graph: Graph, after: str, *new: Tensor) -> Graph:
    """The graph with tensors after another one."""
    at = place(graph, after) + 1
    return graph.with_tensors((*graph.tensors[:at], *new, *graph.tensors[at:]))


def inserted_before(graph: Graph, before: str, *new: Tensor) -> Graph:
    """The graph with tensors before another one."""
    at = place(graph, before)
    return graph.with_tensors((*graph.tensors[:at], *new, *graph.tensors[at:]))


def with_another_op(graph: Graph, ops: Sequence[str], chance: random.Random) -> Graph | None:
    """One node with one of these operations gets another of them."""
    nodes = [one for one in graph.nodes if one.op in ops]
    return graph.replaced(one_of(nodes, chance).changed(op=chance.choice(ops)))


def _reading(nodes: Iterable[Tensor], read: str, instead: str) -> list[Tensor]:
    return [
        one.changed(of=tuple(instead if each == read else each for each in one.of))
        for one in nodes
        if read in one.of
    ]


def _removed(graph: Graph, chance: random.Random) -> Graph | None:
    """An operation is absent: RoPE, a norm, its weights, a bias, a scale, a view."""
    known = extents_of(graph)
    nodes = [
        one
        for one in graph.nodes
        if one.op in _UNARY
        or (one.op not in _STORES and one.name in known and known[one.name] == known.get(one.of[0]))
    ]
    gone = one_of(nodes, chance)
    changed = graph.replaced(*_reading(graph.nodes, gone.name, gone.of[0]))
    return changed.with_tensors(one for one in changed.tensors if one.name != gone.name)


def _again(graph: Graph, chance: random.Random) -> Graph | None:
    """An operation twice in a row: two norms, two biases, two RoPEs."""
    known = extents_of(graph)
    nodes = [
        one
        for one in graph.operations
        if one.op not in _STORES and one.name in known and known[one.name] == known.get(one.of[0])
    ]
    first = one_of(nodes, chance)
    second = first.changed(name=new_name(graph), of=(first.name, *first.of[1:]))
    changed = graph.replaced(*_reading(graph.nodes, first.name, second.name))
    return inserted(changed, first.name, second)


def _exchanged(graph: Graph, chance: random.Random) -> Graph | None:
    """An operand becomes another tensor of the same shape: another activation, cache, position or weight.

    Weights may become something that the graph computes, and the other way round.
    """
    known = {name: tuple(map(graph.number, ne)) for name, ne in extents_of(graph).items()}
    choices: list[tuple[Tensor, int, str]] = []
    for reader in graph.nodes:
        for n, name in enumerate(reader.of):
            if name == "-":
                continue
            read = graph.named[name]
            choices += [
                (reader, n, one.name)
                for one in graph.tensors[: place(graph, reader.name)]
                if one.name != name and known.get(one.name) == known.get(name) and _is_like(one, read)
            ]
    reader, n, instead = one_of(choices, chance)
    return graph.replaced(reader.reading(n, instead))


def _is_like(one: Tensor, other: Tensor) -> bool:
    kinds = [None if each.leaf in {"input", "weight"} else each.leaf for each in (one, other)]
    return kinds[0] == kinds[1] and one.type == other.type and one.modulo == other.modulo


def _weighed(graph: Graph, chance: random.Random) -> Graph | None:
    """A bias or weights after a node, for one of its readers or all of them."""
    known = extents_of(graph)
    nodes = [one for one in graph.nodes if one.name in known and one.op not in _STORES]
    read = one_of(nodes, chance)
    weight = Tensor(name=new_name(graph), leaf="weight", ne=_broadcast(known[read.name], chance))
    made = Tensor(name=f"{weight.name}w", op=chance.choice(sorted(_JOINS)), of=(read.name, weight.name))
    readers = [one for one in graph.nodes if read.name in one.of]
    some = readers if chance.random() < _HALF else chance.sample(readers, min(1, len(readers)))
    return inserted(graph.replaced(*_reading(some, read.name, made.name)), read.name, weight, made)


def _broadcast(ne: Extents, chance: random.Random) -> tuple[Extent, ...]:
    """A row, a full tensor, a number, a number for each row."""
    return chance.choice(((ne[0],), (ne[0],), ne, (1,), (1, *ne[1:])))


def _weights_shape(graph: Graph, chance: random.Random) -> Graph | None:
    """Weights or a bias of another shape, which is broadcast."""
    known = extents_of(graph)
    pairs = [
        (one, graph.named[name])
        for one in graph.nodes
        if one.op in _JOINS and one.name in known
        for name in one.of[1:]
        if graph.named[name].leaf in {"weight", "input"}
    ]
    node, leaf = one_of(pairs, chance)
    return graph.replaced(leaf.changed(ne=_broadcast(known[node.name], chance)))


def _operands(graph: Graph, chance: random.Random) -> Graph | None:
    """The operands of a sum or product in the other order."""
    known = extents_of(graph)
    nodes = [
        one for one in graph.nodes if one.op in _JOINS and known.get(one.of[0]) == known.get(one.of[1], ())
    ]
    one = one_of(nodes, chance)
    return graph.replaced(one.changed(of=(one.of[1], one.of[0])))


def _unary(graph: Graph, chance: random.Random) -> Graph | None:
    return with_another_op(graph, _UNARY, chance)


def _factors(graph: Graph, chance: random.Random) -> Graph | None:
    """Frequency factors of one RoPE or of all, or none. The graph may compute them."""
    ropes = [one for one in graph.nodes if one.op.startswith("rope")]
    if not ropes:
        return None
    some = ropes if chance.random() < _HALF else [chance.choice(ropes)]
    few = 2  # operands without factors
    if len(some[0].of) > few:
        return graph.replaced(*(one.changed(of=one.of[:few]) for one in some))

    def with_factors(name: str) -> Graph:
        return graph.replaced(*(one.changed(of=(*one.of[:few], name)) for one in some))

    known = extents_of(graph)
    earlier = graph.tensors[: min(place(graph, one.name) for one in some)]
    made = [one.name for one in earlier if one.leaf is None and one.name in known]
    long = [one for one in made if graph.number(known[one][0]) >= graph.number(some[0].i[0]) // 2]
    if long and chance.random() < _HALF:
        return with_factors(chance.choice(long))
    leaf = Tensor(name=new_name(graph), leaf="weight", ne=(some[0].i[0],), shift=2.0)
    changed = with_factors(leaf.name)
    return changed.with_tensors((leaf, *changed.tensors))


def _viewed(graph: Graph, chance: random.Random) -> Graph | None:
    """A reader gets a view of what it reads: all of it, its rows in another order, or rows that overlap."""
    known = extents_of(graph)
    edges = [
        (reader, n)
        for reader in graph.nodes
        for n, name in enumerate(reader.of)
        if name in known and graph.named[name].leaf not in {"weight", "mask"}
    ]
    reader, n = one_of(edges, chance)
    read, ne = reader.of[n], known[reader.of[n]]
    view = Tensor(name=new_name(graph), op="view", of=(read,), ne=ne, nb=("1.1", "1.2", "1.3"), at="0.0")
    rows = graph.number(ne[1])
    half = graph.number(ne[0]) // 2
    if rows % 2 == 0 and ne[2:] == (1, 1) and chance.random() < _HALF:
        # Every other row first.
        view = view.changed(ne=(ne[0], rows // 2, 2), nb=("2.1", "1.1", "1.2"))
    elif rows > 1 and half % _ALIGNED == 0 and chance.random() < _HALF:
        # Each row begins in the middle of the one before.
        view = view.changed(nb=(f"{half}.0", "1.2", "1.3"))
    changed = graph.replaced(reader.reading(n, view.name))
    if chance.random() < _HALF:
        return inserted(changed, read, view)
    return inserted_before(changed, reader.name, view)


def _computed(graph: Graph, chance: random.Random) -> Graph | None:
    """A leaf becomes something that the graph computes: weights, a bias, positions."""
    leaves = [one for one in graph.tensors if one.leaf in {"weight", "input", "numbers"}]
    leaf = chance.choice(leaves)
    given = leaf.changed(name=new_name(graph))
    is_scaled = leaf.type == "f32" and chance.random() < _HALF
    f = (2.0, 0.0) if is_scaled else ()
    made = Tensor(name=leaf.name, op="scale" if is_scaled else "cont", of=(given.name,), f=f)
    at = place(graph, leaf.name)
    return graph.with_tensors((*graph.tensors[:at], given, made, *graph.tensors[at + 1 :]))


def _copied(graph: Graph, chance: random.Random) -> Graph | None:
    """Rows are stored to a copy of the cache, which the graph makes right before."""
    stores = [one for one in graph.nodes if one.op == "set_rows" and graph.named[one.of[0]].leaf == "cache"]
    store = one_of(stores, chance)
    copy = Tensor(name=new_name(graph), op="cont", of=store.of[:1])
    kept = store.changed(of=(copy.name, *store.of[1:]), output=True)
    filled = graph.replaced(graph.named[store.of[0]].changed(filled=True))
    at = place(filled, store.name)
    return filled.with_tensors((*filled.tensors[:at], copy, kept, *filled.tensors[at + 1 :]))


def _kept(graph: Graph, chance: random.Random) -> Graph | None:
    """Values are copied to a cache of their own, of another type or with longer rows, or not at all."""
    known = extents_of(graph)
    copies = [one for one in graph.nodes if one.op == "cpy" and graph.named[one.of[0]].ne]
    copy = one_of(copies, chance)
    if chance.random() < _HALF and not any(copy.name in one.of for one in graph.nodes):
        return graph.with_tensors(one for one in graph.tensors if one.name != copy.name)
    ne = known[copy.of[0]]
    name = new_name(graph)
    cache = Tensor(name=name, leaf="cache", type=chance.choice(("f16", "f32")), ne=(f"2*{ne[0]}", *ne[1:]))
    if chance.random() < _HALF or "+" in str(ne[0]):
        cache = cache.changed(ne=ne)
    part = Tensor(name=f"{name}p", op="view", of=(name,), ne=ne, nb=("1.1", "1.2", "1.3"), at="0.0")
    changed = graph.replaced(copy.changed(of=(copy.of[0], part.name)))
    at = place(changed, copy.name)
    return changed.with_tensors((cache, *changed.tensors[:at], part, *changed.tensors[at:]))


def _touched(graph: Graph, chance: random.Random) -> Graph | None:
    """A row of a cache is read, or written, by another operation as well."""
    known = extents_of(graph)
    caches = [one for one in graph.tensors if one.leaf == "cache" and known[one.name][2:] == (1, 1)]
    cache = one_of(caches, chance)
    ne, name = known[cache.name], new_name(graph)
    row = Tensor(name=name, op="view", of=(cache.name,), ne=(ne[0],), nb=("1.1", "1.1", "1.1"))
    row = row.changed(at=f"{chance.randrange(graph.number(ne[1]))}.1")
    at = chance.randrange(place(graph, cache.name) + 1, len(graph.tensors) + 1)
    new: tuple[Tensor, ...]
    if chance.random() < _HALF and cache.type == "f32":
        new = (Tensor(name=f"{name}r", op="scale", of=(name,), f=(3.0, 0.0), output=True),)
    else:
        given = Tensor(name=f"{name}g", leaf="input", ne=(ne[0],))
        new = (given, Tensor(name=f"{name}w", op="cpy", of=(given.name, name)))
    return graph.with_tensors((*graph.tensors[:at], row, *new, *graph.tensors[at:]))


def _both(graph: Graph, chance: random.Random) -> Graph | None:
    """Both operands of a sum or product are one tensor: a square, for example."""
    nodes = [one for one in graph.nodes if one.op in _JOINS and one.of[0] != one.of[1]]
    one = one_of(nodes, chance)
    return graph.replaced(one.changed(of=(one.of[0], one.of[0])))


def _column(graph: Graph, chance: random.Random) -> Graph | None:
    """A row of weights or a bias is a column of a matrix, whose values do not lie next to each other."""
    leaves = [one for one in graph.tensors if one.leaf == "weight" and one.type == "f32" and len(one.ne) == 1]
    row = one_of(leaves, chance)
    name = new_name(graph)
    matrix = row.changed(name=name, ne=(2, *row.ne))
    column = Tensor(name=f"{name}c", op="view", of=(name,), ne=(1, *row.ne), nb=("1.1", "1.2", "1.3"))
    turned = Tensor(name=row.name, op="transpose", of=(column.name,))
    # First of all, because a view between two operations can keep both from being fused.
    others = (one for one in graph.tensors if one.name != row.name)
    return graph.with_tensors((matrix, column, turned, *others))


def _part(graph: Graph, chance: random.Random) -> Graph | None:
    """A reader gets half of the rows of what it reads, or half of a matmul with twice the rows.

    Half of the rows are the first ones, the last ones or every other one.
    """
    known = extents_of(graph)
    matmuls = [one for one in graph.nodes if one.op == "mul_mat" and graph.named[one.of[0]].leaf == "weight"]
    if matmuls and chance.random() < _HALF:
        matmul = chance.choice(matmuls)
        weights = graph.named[matmul.of[0]]
        wide = weights.changed(name=new_name(graph), ne=(weights.ne[0], f"{weights.ne[1]}+{weights.ne[1]}"))
        more = matmul.changed(name=f"{wide.name}m", of=(wide.name, matmul.of[1]))
        part = Tensor(name=matmul.name, op="view", of=(more.name,), ne=known.get(matmul.name, ()), at="0.0")
        part = part.changed(nb=("1.1", "1.2", "1.3"), output=matmul.output)
        if not part.ne or len(weights.ne) != len(wide.ne) or "+" in str(weights.ne[1]):
            return None
        at = place(graph, matmul.name)
        return graph.with_tensors((wide, *graph.tensors[:at], more, part, *graph.tensors[at + 1 :]))
    edges = [
        (reader, n)
        for reader in graph.nodes
        for n, name in enumerate(reader.of)
        if name in known and graph.named[name].leaf in {None, "input"} and graph.number(known[name][1]) > 1
    ]
    reader, n = one_of(edges, chance)
    ne = known[reader.of[n]]
    half = graph.number(ne[1]) // 2
    stride, first = chance.choice(((1, 0), (1, half), (2, 0)))
    view = Tensor(name=new_name(graph), op="view", of=(reader.of[n],), ne=(ne[0], half, *ne[2:]))
    view = view.changed(nb=(f"{stride}.1", "1.2", "1.3"), at=f"{first}.1")
    changed = graph.replaced(reader.reading(n, view.name))
    return inserted_before(changed, reader.name, view)


def _begins(graph: Graph, chance: random.Random) -> Graph | None:
    """A view begins elsewhere: at the start, or some values or a row later."""
    views = [one for one in graph.nodes if one.op == "view"]
    if not views:
        return None
    at = chance.choice(("0.0", "1.0", f"{_ALIGNED}.0", "128.0", "1.1"))
    return graph.replaced(chance.choice(views).changed(at=at))


def _rows(graph: Graph, chance: random.Random) -> Graph | None:
    """A view has rows that follow each other, or a row for each of its columns."""
    views = [one for one in graph.nodes if one.op == "view" and len(one.ne) > 1 and one.nb]
    one = one_of(views, chance)
    turned = {"ne": (1, one.ne[1], one.ne[0], *one.ne[2:3]), "nb": (one.nb[0], "1.0", *one.nb[1:2])}
    packed = {"nb": (f"{one.ne[0]}.0", *one.nb[1:])}
    return graph.replaced(one.model_copy(update=turned if chance.random() < _HALF else packed))


def _norm_kind(graph: Graph, chance: random.Random) -> Graph | None:
    """Another kind of norm: RMS, L2, or with the mean."""
    return with_another_op(graph, _NORMS, chance)


def _halved(graph: Graph, chance: random.Random) -> Graph | None:
    """Two half rows are taken from a cache in place of a row; in the result they follow each other."""
    known = extents_of(graph)
    nodes = [
        one
        for one in graph.nodes
        if one.op == "get_rows"
        and graph.named[one.of[0]].leaf == "cache"
        and graph.named[one.of[1]].leaf == "numbers"
        and graph.named[one.of[1]].ne == (1,)
        and graph.number(known[one.of[0]][0]) % 2 == 0
    ]
    taken = one_of(nodes, chance)
    row, ne = graph.named[taken.of[1]], known[taken.of[0]]
    name = new_name(graph)
    half = (graph.number(ne[0]) // 2, *ne[1:])
    rows = row.changed(name=f"{name}n", ne=(2,))
    view = Tensor(name=name, op="view", of=taken.of[:1], ne=half, nb=("1.1", "1.2", "1.3"), at="0.0")
    changed = graph.replaced(taken.changed(of=(name, rows.name)))
    return inserted_before(changed.with_tensors((rows, *changed.tensors)), taken.name, view)


def _turned(graph: Graph, chance: random.Random) -> Graph | None:
    """A matrix is stored column by column, and transposed."""
    nodes = [one for one in graph.nodes if one.op == "reshape" and len(one.ne) == 2]  # noqa: PLR2004 - a matrix
    one = one_of(nodes, chance)
    other = one.changed(name=new_name(graph), ne=one.ne[::-1], output=False)
    changed = graph.replaced(Tensor(name=one.name, op="transpose", of=(other.name,), output=one.output))
    return inserted_before(changed, one.name, other)


def _late(graph: Graph, chance: random.Random) -> Graph | None:
    """A second reader of an intermediate, so many nodes later that matchers do not look that far."""
    if not graph.operations:
        return None
    name = new_name(graph)
    views = [
        Tensor(name=f"{name}n{n}", op="reshape", of=(f"{name}n{n - 1}" if n else name,), ne=(1,))
        for n in range(_FAR)
    ]
    read = chance.choice(graph.operations).name
    reader = Tensor(name=f"{name}r", op="scale", of=(read,), f=(3.0, 0.0), output=True)
    return graph.with_tensors((Tensor(name=name, leaf="input", ne=(1,)), *graph.tensors, *views, reader))


def _idle(graph: Graph, chance: random.Random) -> Graph | None:
    """The graph has a node, and what reads it, but does not compute them; another node becomes an output."""
    if not graph.operations:
        return None
    idle = {chance.choice(graph.operations).name}
    for one in graph.nodes:
        if not idle.isdisjoint(one.of):
            idle.add(one.name)
    computed = [one for one in graph.operations if one.name not in idle]
    shown = one_of(computed, chance)
    changed = graph.replaced(shown.changed(output=True))
    return changed.replaced(
        *(one.changed(idle=True, output=False) for one in graph.nodes if one.name in idle)
    )


def _added_rows(graph: Graph, chance: random.Random) -> Graph | None:
    """The operands of a sum become rows of one product, as those of weighed experts."""
    known = extents_of(graph)
    sums = [one for one in graph.nodes if one.op == "add" and one.name in known]
    nodes = [one for one in sums if all(graph.number(each) == 1 for each in known[one.name][2:])]
    total = one_of(nodes, chance)
    columns, rows, *_ = known[total.name]
    name = new_name(graph)
    experts = Tensor(name=f"{name}x", leaf="input", ne=(columns, 2, rows))
    shares = Tensor(name=f"{name}s", leaf="input", ne=(1, 2, rows))
    made = Tensor(name=f"{name}m", op="mul", of=(experts.name, shares.name))
    views = [
        Tensor(
            name=f"{name}p{n}", op="view", of=(made.name,), ne=(columns, rows), nb=("1.2",) * 3, at=f"{n}.1"
        )
        for n in range(2)
    ]
    changed = graph.replaced(total.changed(of=tuple(one.name for one in views)))
    return inserted_before(changed, total.name, experts, shares, made, *views)


NODE_VARIATIONS: tuple[Vary, ...] = (
    *(_removed, _removed, _again, _exchanged, _exchanged, _weighed, _weights_shape),
    *(_operands, _unary, _factors, _viewed, _computed),
    *(_copied, _kept, _touched, _both, _column, _part, _begins, _rows, _norm_kind),
    *(_halved, _turned, _late, _idle, _added_rows),
)
"""Every variation; those twice have the most places."""
