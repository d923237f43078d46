"""Variations of graphs: each changes one property, and a random graph has a few of them in a row.

A variation may give a graph that ggml does not accept; the driver reports such graphs, and they are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from patchkit.gpu.hardware.graphs.description import Extent, Graph, Tensor
from patchkit.gpu.hardware.graphs.extents import extents_of, four
from patchkit.gpu.hardware.graphs.usable import MOST_NODES, VISION, is_usable
from patchkit.gpu.hardware.graphs.vary_memory import MEMORY_VARIATIONS
from patchkit.gpu.hardware.graphs.vary_nodes import (
    NODE_VARIATIONS,
    Vary,
    apply,
    inserted,
    inserted_before,
    new_name,
    one_of,
    place,
    with_another_op,
)

# Both sides of every limit of ggml-cuda's kernel selection (8 for mat-vec, 16 columns per tile, 64 and 128
# rows or experts), and odd sizes that leave a tail.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 65, 96, 127, 128, 129, 136)
_WIDTHS = (32, 64, 96, 128, 160, 256, 288, 320, 512, 544, 768, 1024, 1056, 2048, 4352, 8448)
_WEIGHTS = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
    *("iq4_nl", "iq4_xs", "mxfp4", "f16", "bf16", "f32"),
)
_CACHES = ("f16", "f32", "bf16", "q8_0", "q4_0")
_HALF, _MOSTLY = 0.5, 0.7  # chances
_PLANE, _VOLUME = 2, 3  # extents
_TURNED, _SHIFTED = 2, 3  # of the ways to give a leaf other strides
_LARGE = 32  # dimensions from here on are widths of rows, mostly


def random_graphs(patterns: Sequence[Graph], seed: int) -> Iterator[Graph]:
    """Random graphs without end: patterns with one to four variations, the same for the same seed."""
    number = 0
    while True:
        chance = random.Random(f"{seed} {number}")  # noqa: S311 - no secret
        graph = chance.choice(patterns)
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
            graph = _varied(graph, chance)
        number += 1
        if is_usable(graph):
            yield graph.changed(
                seed=chance.randrange(1, 10**6), about=f"random graph {number - 1}, seed {seed}"
            )


def _varied(graph: Graph, chance: random.Random) -> Graph:
    """The graph with one of the variations that apply to it."""
    for vary in chance.sample(VARIATIONS, len(VARIATIONS)):
        changed = apply(vary, graph, chance)
        if changed is not None and changed != graph:
            return changed
    return graph


def _dimension(graph: Graph, chance: random.Random) -> Graph:
    name = chance.choice(sorted(graph.dims))
    sizes = _WIDTHS if graph.dims[name] >= _LARGE and chance.random() < _MOSTLY else _SIZES
    return graph.changed(dims={**graph.dims, name: chance.choice(sizes)})


def _type(graph: Graph, chance: random.Random) -> Graph | None:
    """Another type of a cache, or of weights whose type may differ from the activations'."""
    readers = [one for one in graph.nodes if one.op in {"mul_mat", "mul_mat_id", "get_rows"}]
    typed = {one.of[0] for one in readers}
    leaves = [one for one in graph.tensors if one.leaf == "cache" or one.name in typed]
    leaves = [one for one in leaves if one.leaf in {"weight", "cache"}]
    chosen = one_of(leaves, chance)
    kind = chance.choice(_CACHES if chosen.leaf == "cache" else _WEIGHTS)
    # Often all alike: K and V, gate and up.
    alike = chance.random() < _HALF
    return graph.replaced(
        *(
            one.changed(type=kind)
            for one in leaves
            if one.name == chosen.name or (alike and one.leaf == chosen.leaf and one.type == chosen.type)
        )
    )


def _output(graph: Graph, chance: random.Random) -> Graph | None:
    nodes = [one for one in graph.operations if not one.output]
    return graph.replaced(one_of(nodes, chance).changed(output=True))


_READERS = (
    Tensor(name="", op="scale", f=(3.0, 0.0), output=True),
    Tensor(name="", op="rms_norm", f=(1e-5,), output=True),
    Tensor(name="", op="sigmoid", output=True),
)


def _reader(graph: Graph, chance: random.Random) -> Graph | None:
    """A second reader of an intermediate, at a random later place or at the end.

    Norms and sigmoids are what fused operations begin with; at the end nothing follows.
    """
    nodes = graph.operations
    read = one_of(nodes, chance)
    end = len(graph.tensors)
    at = chance.choice((end, chance.randrange(place(graph, read.name) + 1, end + 1)))
    reader = chance.choice(_READERS).changed(name=new_name(graph), of=(read.name,))
    return graph.with_tensors((*graph.tensors[:at], reader, *graph.tensors[at:]))


_BETWEEN = (
    Tensor(name="", op="scale", f=(1.5, 0.0)),
    Tensor(name="", op="scale", f=(1.0, 0.25)),
    Tensor(name="", op="scale_inplace", f=(1.5,)),
    Tensor(name="", op="cont"),
    Tensor(name="", op="silu"),
    Tensor(name="", op="silu_inplace"),
    Tensor(name="", op="sigmoid"),
    Tensor(name="", op="rms_norm", f=(1e-5,)),
    Tensor(name="", op="permute", i=(0, 1, 2, 3)),
)


def _between(graph: Graph, chance: random.Random) -> Graph | None:
    """An operation between a node and one of its readers, or all of them."""
    edges = [
        (reader, n)
        for reader in graph.nodes
        for n, name in enumerate(reader.of)
        if name != "-" and graph.named[name].leaf not in {"numbers", "mask"}
    ]
    reader, n = one_of(edges, chance)
    read = reader.of[n]
    is_kept = graph.named[read].leaf in {"weight", "cache"} and graph.named[read].type != "f32"
    new = Tensor(name="", op="cont") if is_kept else chance.choice(_BETWEEN)
    new = new.changed(name=new_name(graph), of=(read,))
    changed = graph
    for one in graph.nodes:
        is_later = place(graph, one.name) > place(graph, reader.name)
        if one.name == reader.name or (is_later and chance.random() < _HALF):
            of = tuple(new.name if name == read else name for name in one.of)
            changed = changed.replaced(one.changed(of=of))
    return inserted_before(changed, reader.name, new)


def _strides(graph: Graph, chance: random.Random) -> Graph | None:
    """A leaf becomes a view of a larger one.

    It has part of each row, every other row, rows in another order, or rows that are not aligned.
    """
    leaves = [one for one in graph.tensors if one.leaf in {"input", "weight", "mask"} and one.ne]
    leaf = one_of(leaves, chance)
    name = new_name(graph)
    ne: list[Extent] = [*leaf.ne, *([1] * (4 - len(leaf.ne)))]
    how = chance.randrange(5)
    if how == 0:
        wide = [f"{ne[0]}+{ne[0]}", *ne[1:]]
        # Half of a row of blocks is not a multiple that the description can express.
        at = chance.choice(("0", str(ne[0]))) if leaf.type in {"f32", "f16", "bf16"} else "0"
        new = {"op": "view", "ne": tuple(ne), "nb": ("1.1", "1.2", "1.3"), "at": f"{at}.0"}
    elif how == 1:
        wide = [ne[0], f"{ne[1]}+{ne[1]}", *ne[2:]]
        new = {"op": "view", "ne": tuple(ne), "nb": ("2.1", "1.2", "1.3"), "at": f"{chance.randrange(2)}.1"}
    elif how == _TURNED:
        wide, new = [ne[0], ne[2], ne[1], ne[3]], {"op": "permute", "i": (0, 2, 1, 3)}
    elif how == _SHIFTED and leaf.type == "f32" and not any("+" in str(each) for each in ne):
        rows = [f"{ne[0]}", f"{ne[0]}*{ne[1]}", f"{ne[0]}*{ne[1]}*{ne[2]}"]
        wide = [f"{rows[2]}*{ne[3]}+1"]
        new = {"op": "view", "ne": tuple(ne), "nb": tuple(f"{each}.0" for each in rows), "at": "1.0"}
    else:
        wide, new = [*ne[:3], 2 if ne[3] == 1 else ne[3]], {"op": "view", "ne": tuple(ne)}
        new |= {"nb": ("1.1", "1.2", "1.3"), "at": "1.3" if ne[3] == 1 else "0.3"}
    larger = leaf.changed(name=name, ne=tuple(wide))
    seen = Tensor(name=leaf.name, of=(name,), **new)  # type: ignore[arg-type]
    first = place(graph, leaf.name)
    return graph.with_tensors((*graph.tensors[:first], larger, seen, *graph.tensors[first + 1 :]))


def _rounds(graph: Graph, chance: random.Random) -> Graph:
    return graph.changed(rounds=chance.choice((2, 3)))


def _steps(graph: Graph, _: random.Random) -> Graph:
    return graph.changed(steps=not graph.steps)


def in_two_contexts(graph: Graph) -> Graph:
    """The graph computed by two contexts at the same time, which exchange their threads once."""
    return graph.changed(contexts=2, rounds=max(2, graph.rounds))


def captured(graph: Graph) -> Graph:
    """The graph with HIP graphs: evaluated, captured, and replayed twice with other inputs."""
    return graph.changed(captured=True, rounds=max(4, graph.rounds), environment={})


OFF = "GGML_PATCHES_OFF"
"""The variable that turns patches off that have a run-time switch: ids with commas, or ``all``."""


def switched_off(graph: Graph, patches: str = "all") -> Graph:
    """The graph with patches off; with all of them off, the results are upstream's."""
    return graph.changed(environment={OFF: patches})


STREAMS = "GGML_CUDA_GRAPH_OPT"
"""The variable with which upstream computes parts of a graph in several streams."""
FORKED = "attn_norm"
"""Upstream forks where three operations read a tensor with this in its name."""
_BRANCHES = 3
_ELEMENTWISE = frozenset({"scale", "mul", "add"})


def forked(graph: Graph) -> Graph | None:
    """The graph with ``GGML_CUDA_GRAPH_OPT=1``: three matmuls of one tensor begin three streams.

    None if it has no such tensor. Other readers read what the tensor is made of. Upstream forks only what the
    scheduler places and what may be captured. On the emulated GPU work runs as late as possible, so that a
    missing wait gives wrong results.
    """
    for root in graph.operations:
        readers = [one for one in graph.operations if root.name in one.of]
        branches, others = readers[:_BRANCHES], readers[_BRANCHES:]
        joined = {name for one in graph.operations if one.op in _GLUS for name in one.of}
        if [one.op for one in branches] != ["mul_mat"] * _BRANCHES or root.op not in _ELEMENTWISE:
            continue
        if joined.isdisjoint(one.name for one in branches):  # upstream fuses those across streams
            changed = graph.replaced(*(_renamed_in(one, {root.name: root.of[0]}) for one in others))
            changed = _renamed(changed, {root.name: FORKED}, without=set())
            changed = changed.with_tensors(
                one.changed(name=FORKED) if one.name == root.name else one for one in changed.tensors
            )
            environment = {STREAMS: "1", "PATCHKIT_EMULATOR_SCHEDULE": "late"}
            return captured(changed).changed(memory="scheduled", environment=environment)
    return None


def _forked(graph: Graph, _: random.Random) -> Graph | None:
    return forked(graph)


def _captured(graph: Graph, _: random.Random) -> Graph:
    return captured(graph)


def _contexts(graph: Graph, _: random.Random) -> Graph:
    return in_two_contexts(graph)


def _switched_off(graph: Graph, _: random.Random) -> Graph:
    return switched_off(graph)


def _unfused(graph: Graph, _: random.Random) -> Graph:
    return graph.changed(environment={"GGML_CUDA_DISABLE_FUSION": "1"})


def _order(graph: Graph, chance: random.Random) -> Graph | None:
    """A node moves to another place that what it reads and its readers allow."""
    nodes = [one for one in graph.tensors if one.leaf is None]
    moved = one_of(nodes, chance)
    others = [one for one in graph.tensors if one.name != moved.name]
    first = max((n + 1 for n, one in enumerate(others) if one.name in moved.of), default=0)
    last = min((n for n, one in enumerate(others) if moved.name in one.of), default=len(others))
    at = chance.randint(first, max(first, last))
    return graph.with_tensors((*others[:at], moved, *others[at:]))


def _same(graph: Graph, chance: random.Random) -> Graph | None:
    """Two leaves of equal shape and type become one tensor."""
    pairs = [
        (one, other)
        for n, one in enumerate(graph.tensors)
        for other in graph.tensors[n + 1 :]
        if one.leaf is not None and one.changed(name=other.name) == other
    ]
    kept, gone = one_of(pairs, chance)
    return _renamed(graph, {gone.name: kept.name}, without={gone.name})


def _own(graph: Graph, chance: random.Random) -> Graph | None:
    """A reader of a leaf gets a leaf of its own: another position, another activation."""
    readers = [
        (one, n)
        for one in graph.nodes
        for n, name in enumerate(one.of)
        if name != "-" and graph.named[name].leaf in {"input", "numbers", "mask", "weight"}
    ]
    reader, n = one_of(readers, chance)
    leaf = graph.named[reader.of[n]]
    more = (
        {"start": f"{leaf.start}+2"} if leaf.leaf == "numbers" and not leaf.runs and not leaf.modulo else {}
    )
    new = leaf.model_copy(update={"name": new_name(graph), **more})
    of = (*reader.of[:n], new.name, *reader.of[n + 1 :])
    changed = graph.replaced(reader.changed(of=of))
    return changed.with_tensors((new, *changed.tensors))


def _number(graph: Graph, chance: random.Random) -> Graph | None:
    """Another parameter of an operation: a scale, an epsilon, the precision."""
    nodes = [one for one in graph.nodes if one.f or one.op in {"mul_mat", "attention"}]
    one = one_of(nodes, chance)
    if one.op in {"mul_mat", "attention"} and chance.random() < _MOSTLY:
        return graph.replaced(one.changed(i=(0,) if one.i == (1,) else (1,)))
    if not one.f or one.op.startswith("rope"):
        return None
    at = chance.randrange(len(one.f))
    values = (1e-6, 1e-3) if "norm" in one.op else (0.0, 0.5, 1.0, 2.0, 8.0)
    return graph.replaced(one.changed(f=(*one.f[:at], chance.choice(values), *one.f[at + 1 :])))


_MULTI = 8  # in the mode of a RoPE: four positions for each token
_MODES = (0, 2, 8, 24, 40)  # normal, neox, mrope, vision, imrope
# Base, frequency scale, weight and magnitude of YaRN, and its two limits: usual and other values.
_ROPE = (10000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
_OTHER_ROPE = (500000.0, 0.25, 1.0, 1.2, 16.0, 2.0)


def _rope(graph: Graph, chance: random.Random) -> Graph | None:
    """Another parameter of one RoPE or of all: mode, number of dimensions, offset, base, YaRN."""
    ropes = [one for one in graph.nodes if one.op.startswith("rope")]
    if not ropes:
        return None
    some = ropes if chance.random() < _HALF else [chance.choice(ropes)]
    which = chance.choice(("mode", "mode", "dims", "offset", *range(len(_ROPE))))
    mode = chance.choice(_MODES)
    dims = chance.choice((16, 32, 64))
    changed = graph
    for one in some:
        size, of_mode, *_ = (*one.i, 0)
        update: dict[str, object] = {}
        if which == "mode":
            half = graph.number(size) // 2
            update["i"] = (half if mode == VISION else size, mode)
        elif which == "dims":
            update["i"] = (dims, of_mode)
        elif which == "offset":
            update["i"] = (dims, of_mode, dims)
        else:
            f = [*one.f, *_ROPE[len(one.f) :]]
            f[int(which)] = _OTHER_ROPE[int(which)]
            update["f"] = tuple(f)
        changed = changed.replaced(one.model_copy(update=update))
    return with_positions(changed)


def _index_type(graph: Graph, chance: random.Random) -> Graph | None:
    """Row numbers of stores in 32 bits, not 64: some of them, or all."""
    stores = [one for one in graph.nodes if one.op == "set_rows" and graph.named[one.of[2]].leaf is not None]
    if not stores:
        return None
    some = stores if chance.random() < _HALF else [chance.choice(stores)]
    leaves = [graph.named[one.of[2]] for one in some]
    return graph.replaced(*(one.changed(type="i32" if one.type == "i64" else "i64") for one in leaves))


def _batched(graph: Graph, _: random.Random) -> Graph | None:
    """Activations get a third dimension, as those of several sequences have."""
    leaves = [one for one in graph.tensors if one.leaf == "input" and len(one.ne) == _PLANE]
    return graph.replaced(*(one.changed(ne=(*one.ne, 2)) for one in leaves))


def _reshaped(graph: Graph, chance: random.Random) -> Graph | None:
    """A reshape to other extents: two are exchanged, or heads are twice as large. RoPE gets its positions."""
    nodes = [one for one in graph.nodes if one.op == "reshape" and len(one.ne) > _PLANE]
    alike = one_of(nodes, chance)
    first, second = chance.choice(((0, 1), (1, 2), (1, 2), (1, 2), (0, 2), (1, 3), (2, 3)))
    changed, is_every, is_larger = graph, chance.random() < _HALF, chance.random() < 1 - _MOSTLY
    for one in nodes:
        if one.name == alike.name or is_every:
            ne = list(four(one.ne))
            heads = graph.number(ne[1])
            if is_larger and heads % 2 == 0 and "+" not in str(ne[0]):
                ne[0], ne[1] = f"2*{ne[0]}", heads // 2
            else:
                ne[first], ne[second] = ne[second], ne[first]
            changed = changed.replaced(one.changed(ne=tuple(ne)))
    return with_positions(changed)


def with_positions(graph: Graph) -> Graph:
    """The graph with as many positions for each RoPE as it reads; RoPEs that read as many share them."""
    changed, known = graph, extents_of(graph)
    for rope in graph.nodes:
        if not rope.op.startswith("rope") or rope.of[0] not in known:
            continue
        tokens = known[rope.of[0]][2]
        count = f"4*{tokens}" if len(rope.i) > 1 and int(rope.i[1]) & _MULTI else tokens
        position = graph.named[rope.of[1]]
        if "+" in str(tokens) or position.ne[:1] == (count,) or position.leaf is None:
            continue
        name = f"{position.name}_{graph.number(count)}"
        own = position.changed(name=name, ne=(count,))
        changed = changed.replaced(rope.changed(of=(rope.of[0], name, *rope.of[2:])))
        if name not in changed.named:
            changed = changed.with_tensors((own, *changed.tensors))
    return changed


_GLUS = ("swiglu", "geglu", "reglu", "geglu_erf", "geglu_quick", "glu_oai", "glu_clamp")


def _glu(graph: Graph, chance: random.Random) -> Graph | None:
    nodes = [one for one in graph.nodes if one.op in _GLUS]
    one, op = one_of(nodes, chance), chance.choice(_GLUS)
    f = {"glu_oai": (1.702, 7.0), "glu_clamp": (0.5,)}.get(op, ())
    of = (one.of[1], one.of[0]) if chance.random() < 1 - _MOSTLY else one.of
    return graph.replaced(one.changed(op=op, f=f, of=of))


def _seen(graph: Graph, chance: random.Random) -> Graph | None:
    masks = [one for one in graph.tensors if one.leaf == "mask"]
    if not masks:
        return None
    seen = chance.choice(("causal", "padded", "window", "all"))
    return graph.replaced(*(one.changed(seen=seen) for one in masks))


def _shared_mask(graph: Graph, _: random.Random) -> Graph | None:
    """All sequences share one mask."""
    masks = [one for one in graph.tensors if one.leaf == "mask" and len(one.ne) > _VOLUME]
    if not masks:
        return None
    return graph.replaced(*(one.changed(ne=(*one.ne[:3], 1)) for one in masks))


def _twice(graph: Graph, chance: random.Random) -> Graph | None:
    """The pattern again in the same graph, with weights of its own or the same ones, inputs shared or not."""
    if len(graph.tensors) > MOST_NODES:
        return None
    shared = {one.name for one in graph.tensors if one.leaf is not None and chance.random() < _HALF}
    mark = "b"
    while any(f"{name}{mark}" in graph.named for name in graph.named):  # the graph may be doubled already
        mark += "b"
    names = {one.name: one.name if one.name in shared else f"{one.name}{mark}" for one in graph.tensors}
    again = [
        one.changed(
            name=names[one.name],
            of=tuple(names.get(each, each) for each in one.of),
            over=names.get(one.over, ""),
        )
        for one in graph.tensors
        if one.name not in shared
    ]
    return graph.with_tensors((*graph.tensors, *again))


_ARITHMETIC = ("add", "sub", "mul")


def _arithmetic(graph: Graph, chance: random.Random) -> Graph | None:
    """A sum becomes a product or a difference, a product a sum or a difference."""
    return with_another_op(graph, _ARITHMETIC, chance)


def _same_for_all(graph: Graph, chance: random.Random) -> Graph | None:
    """An input is the same for all tokens: a gate, weights of experts, an activation that is added."""
    leaves = [one for one in graph.tensors if one.leaf == "input" and len(one.ne) > 1]
    leaf = one_of(leaves, chance)
    return graph.replaced(leaf.changed(ne=leaf.ne[:-1]))


def _joined_tokens(graph: Graph, _: random.Random) -> Graph | None:
    """Two tokens are one row: of heads, with one position, and of the cache."""
    known = extents_of(graph)
    stores = [one for one in graph.nodes if one.op == "set_rows" and graph.named[one.of[0]].leaf == "cache"]
    if "tokens" not in graph.dims or not stores or not all(one.of[1] in known for one in stores):
        return None
    changed = graph.changed(dims={**graph.dims, "tokens": 2})
    for one in graph.nodes:
        if one.op == "reshape" and one.ne[2:] == ("tokens",):
            ne = (one.ne[0], f"{one.ne[1]}*tokens")
            changed = changed.replaced(one.changed(ne=ne))
    for store in stores:
        cache, rows = graph.named[store.of[0]], graph.named[store.of[2]]
        row = f"{cache.ne[0]}*tokens"
        joined = Tensor(name=new_name(changed), op="reshape", of=(store.of[1],), ne=(row,))
        changed = changed.replaced(
            cache.changed(ne=(row, *cache.ne[1:])),
            rows.changed(ne=(1,)),
            store.changed(of=(cache.name, joined.name, rows.name)),
        )
        changed = inserted_before(changed, store.name, joined)
    return with_positions(changed)


def _projections(graph: Graph, chance: random.Random) -> Graph | None:
    """More matmuls of an activation, as a layer has that computes attention and feed-forward at once."""
    matmuls = [one for one in graph.nodes if one.op == "mul_mat" and graph.named[one.of[0]].leaf == "weight"]
    alike = one_of(matmuls, chance)
    weights, name = graph.named[alike.of[0]], new_name(graph)
    more: list[Tensor] = []
    for n in range(chance.choice((1, 2, 4, 8, 16))):
        own = weights.changed(name=f"{name}w{n}")
        update = {"name": f"{name}m{n}", "of": (own.name, alike.of[1]), "output": True}
        more += [own, alike.model_copy(update=update)]
    return inserted(graph, alike.name, *more)


VARIATIONS: tuple[Vary, ...] = (
    *(
        _dimension,
        _dimension,
        _type,
        _output,
        _reader,
        _between,
        _strides,
        _rounds,
        _steps,
        _contexts,
        _captured,
        _forked,
        _unfused,
        _switched_off,
    ),
    *(_order, _same, _own, _number, _rope, _rope, _index_type, _batched, _reshaped),
    *(_glu, _seen, _shared_mask, _twice),
    *(_arithmetic, _same_for_all, _joined_tokens, _projections),
    *NODE_VARIATIONS,
    *MEMORY_VARIATIONS,
)
"""Every variation; dimensions twice, because they have the most values."""


def _renamed(graph: Graph, names: dict[str, str], *, without: set[str]) -> Graph:
    return graph.with_tensors(_renamed_in(one, names) for one in graph.tensors if one.name not in without)


def _renamed_in(reader: Tensor, names: dict[str, str]) -> Tensor:
    of = tuple(names.get(each, each) for each in reader.of)
    return reader.changed(of=of, over=names.get(reader.over, reader.over))
