"""Graphs as data: reading and writing, extents, random variations, and reducing them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import pytest

from patchkit.base.document import EvidenceMalformed
from patchkit.gpu.hardware.graphs.description import (
    Graph,
    Tensor,
    driver_lines,
    evaluate,
    first_numbers,
    read_graph,
    write_graph,
)
from patchkit.gpu.hardware.graphs.extents import extents_of
from patchkit.gpu.hardware.graphs.patterns import pattern_graphs
from patchkit.gpu.hardware.graphs.reducing import Shapes, reduce_graph
from patchkit.gpu.hardware.graphs.reproducer import reproducer
from patchkit.gpu.hardware.graphs.usable import is_usable
from patchkit.gpu.hardware.graphs.vary import FORKED, VARIATIONS, forked, random_graphs, with_positions
from patchkit.gpu.hardware.graphs.vary_memory import MEMORY_VARIATIONS
from patchkit.gpu.hardware.graphs.vary_nodes import Vary, apply
from patchkit.prove.gates.graphs.gate import stored_graphs

EVERY = (*pattern_graphs(), *stored_graphs())


@pytest.mark.parametrize("graph", EVERY, ids=[f"{one.name}-{n}" for n, one in enumerate(EVERY)])
def test_a_graph_survives_its_file_and_each_tensor_has_a_line(graph: Graph) -> None:
    text = write_graph(graph)
    assert read_graph(text.encode(), "graph.json") == graph
    lines = driver_lines(graph, "g0").splitlines()
    assert (lines[0].split()[:2], lines[-1]) == (["graph", "g0"], "end")
    assert [line.split()[1] for line in lines[1:-1]] == [one.name for one in graph.tensors]
    for one in graph.tensors:
        assert sum(f'"name": "{one.name}"' in line for line in text.splitlines()) == 1


@pytest.mark.parametrize("graph", EVERY, ids=[f"{one.name}-{n}" for n, one in enumerate(EVERY)])
def test_nodes_come_after_what_they_read(graph: Graph) -> None:
    known: set[str] = set()
    for one in graph.tensors:
        assert set(one.of) <= known, one.name
        known.add(one.name)


def test_extents_are_sums_of_products() -> None:
    dims = {"head": 64, "heads": 4}
    assert [evaluate(one, dims) for one in (3, "5", "head", "2*head*heads+heads", "head+1")] == [
        3,
        5,
        64,
        516,
        65,
    ]
    for wrong in ("width", "head-1", "head*", "", "(head)"):
        with pytest.raises(ValueError, match="cannot evaluate"):
            evaluate(wrong, dims)


def test_a_file_with_an_unknown_key_is_rejected() -> None:
    with pytest.raises(EvidenceMalformed):
        read_graph(b'{"name": "x", "dims": {}, "tensors": [], "speed": 1}', "graph.json")


def test_two_tensors_of_the_same_name_are_rejected() -> None:
    tensor = b'{"name": "i0", "leaf": "input", "ne": [1]}'
    with pytest.raises(EvidenceMalformed, match="two tensors have the same name"):
        read_graph(b'{"name": "x", "dims": {}, "tensors": [%b, %b]}' % (tensor, tensor), "graph.json")


def test_names_of_random_graphs_are_unique() -> None:
    for seed in (3, 259346132):  # the second one doubled a graph twice
        for graph in islice(random_graphs(pattern_graphs(), seed), 600):
            assert len(graph.named) == len(graph.tensors), graph.about


def test_numbers_are_runs_or_consecutive() -> None:
    graph = Graph(name="n", dims={"few": 2, "many": 3}, tensors=())
    runs = Tensor(name="a", leaf="numbers", type="i32", ne=("few+many",), runs=(("few", 7), ("many", 1)))
    assert first_numbers(graph, runs) == [7, 7, 1, 1, 1]
    counted = Tensor(name="b", leaf="numbers", type="i32", ne=(2, 3), start=1, modulo=4)
    assert first_numbers(graph, counted) == [1, 2, 3, 0, 1, 2]


def test_the_same_seed_gives_the_same_graphs_and_another_seed_others() -> None:
    first, again, other = (list(islice(random_graphs(pattern_graphs(), seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert all(is_usable(one) for one in first)
    assert len({write_graph(one) for one in first}) == len(first)


def test_a_rope_over_other_extents_has_as_many_positions() -> None:
    (graph,) = (one for one in pattern_graphs() if one.name == "qkv-rope-store")
    turned = [one for one in graph.nodes if one.op == "reshape" and len(one.ne) == 3]
    swapped = graph.replaced(
        *(one.model_copy(update={"ne": (one.ne[0], one.ne[2], one.ne[1])}) for one in turned)
    )
    changed = with_positions(swapped)
    ropes = [one for one in changed.nodes if one.op == "rope"]
    assert [changed.named[one.of[1]].ne for one in ropes] == [("heads",), ("kv_heads",)]


def test_a_graph_is_forked_after_a_tensor_that_three_operations_read() -> None:
    patterns = {one.name: one for one in pattern_graphs()}
    graph = forked(patterns["layer"])
    assert graph is not None
    assert [one.op for one in graph.operations if FORKED in one.of] == ["mul_mat"] * 3
    assert (graph.memory, graph.captured) == ("scheduled", True)  # else upstream does not fork
    assert forked(patterns["add-norm"]) is None


def _routed(*, used: int, runs: tuple[tuple[int, int], ...] = (), experts: int = 4) -> Graph:
    ids = Tensor(name="ids", leaf="numbers", type="i32", ne=("used", 2), modulo="experts", runs=runs)
    return Graph(
        name="routed",
        dims={"used": used, "experts": experts},
        tensors=(
            ids,
            Tensor(name="w", leaf="weight", ne=(32, 8, "experts")),
            Tensor(name="x", leaf="input", ne=(32, 1, 2)),
            Tensor(name="y", op="mul_mat_id", of=("w", "x", "ids")),
        ),
    )


def test_a_graph_with_an_expert_twice_for_a_token_or_without_that_expert_is_not_usable() -> None:
    assert is_usable(_routed(used=4))
    assert not is_usable(_routed(used=5))
    assert is_usable(_routed(used=2, runs=((1, 0), (1, 3), (1, 1), (1, 2))))
    assert is_usable(_routed(used=2, runs=((1, 0), (1, 3), (1, 0), (1, 3))))
    assert not is_usable(_routed(used=2, runs=((2, 0), (1, 1), (1, 2))))
    assert not is_usable(_routed(used=1, runs=((1, 0), (1, 4))))


@pytest.mark.parametrize(
    ("start", "rounds", "is_right"), [(0, 1, True), (6, 1, True), (7, 1, False), (6, 2, False)]
)
def test_a_graph_that_stores_past_the_end_of_a_cache_is_not_usable(
    start: int, rounds: int, is_right: bool
) -> None:
    graph = Graph(
        name="store",
        dims={},
        rounds=rounds,
        tensors=(
            Tensor(name="c", leaf="cache", type="f16", ne=(32, 8)),
            Tensor(name="x", leaf="input", ne=(32, 2)),
            Tensor(name="rows", leaf="numbers", type="i64", ne=(2,), start=start, step=1),
            Tensor(name="y", op="set_rows", of=("c", "x", "rows")),
        ),
    )
    assert is_usable(graph) is is_right


@pytest.mark.parametrize(
    ("kind", "at", "is_within"),
    [("f32", "32.0", True), ("f32", "33.0", False), ("q8_0", "1.0", True), ("q8_0", "32.0", False)],
)
def test_a_view_past_the_end_of_its_source_is_not_usable(kind: str, at: str, is_within: bool) -> None:
    tensors = (
        Tensor(name="w", leaf="weight", type=kind, ne=(64, 8)),
        Tensor(name="v", op="view", of=("w",), ne=(32, 8), nb=("1.1", "1.2", "1.3"), at=at),
    )
    assert is_usable(Graph(name="part", dims={}, tensors=tensors)) is is_within


def _laid(over: str, *, at: str = "", **changed: dict[str, object]) -> Graph:
    """A graph whose node ``d`` lies over another tensor; ``changed`` are fields of tensors."""
    tensors = (
        Tensor(name="w", leaf="weight", ne=(32, 4)),
        Tensor(name="i", leaf="input", ne=(32, "rows")),
        Tensor(name="n", leaf="numbers", type="i32", ne=("rows",)),
        Tensor(name="a", op="get_rows", of=("i", "n")),
        Tensor(name="b", op="silu", of=("a",)),
        Tensor(name="v", op="reshape", of=("b",), ne=("rows", 32)),
        Tensor(name="c", op="mul", of=("b", "w"), over="a"),
        Tensor(name="r", op="reshape", of=("c",), ne=(32, "rows")),
        Tensor(name="d", op="scale", of=("r",), f=(2.0, 0.0), over=over, at=at),
        Tensor(name="e", op="exp", of=("d",), output=True),
    )
    graph = Graph(name="laid", dims={"rows": 4}, tensors=tensors)
    return graph.replaced(*(graph.named[name].model_copy(update=made) for name, made in changed.items()))


@pytest.mark.parametrize(
    ("graph", "is_free"),
    [
        (_laid("i"), True),
        (_laid("i", at="-1.1"), True),
        (_laid("n"), True),
        (_laid("b", at="2.1"), True),
        (_laid("w"), False),  # weights are constant
        (_laid("i", i={"leaf": "cache"}), False),
        (_laid("e"), False),  # comes later
        (_laid("x"), False),
        (_laid("v"), True),  # a view that nobody reads
        (_laid("b", e={"op": "mul", "of": ("d", "v")}), False),  # a view of it is read later
        (_laid("b", b={"output": True}), False),
        (_laid("c"), True),  # in place, through a reshape
        (_laid("c", at="1.1"), False),
        (_laid("a"), False),  # c lies there
        (_laid("c", d={"op": "l2_norm"}), False),
        (_laid("c", d={"op": "add", "of": ("r", "r")}), False),
        (_laid("c", r={"ne": (16, 8)}, d={"op": "repeat", "of": ("r", "i")}), False),
        (_laid("b", d={"op": "scale_inplace"}), False),
    ],
)
def test_a_node_may_lie_where_nothing_is_read_any_more(graph: Graph, is_free: bool) -> None:
    assert is_usable(graph) is is_free


def test_a_node_over_another_one_has_its_offset_in_that_ones_strides() -> None:
    graph = _laid("i", at="-2*rows.1")
    assert "node d op=scale of=r output=0 f=2,0 over=i at=-8.1" in driver_lines(graph, "g0").splitlines()
    assert "t.over[d] = {t.i, -8 * t.i->nb[1]};" in reproducer(graph, "wrong")
    assert "t.over[c] = {a, 0 * a->nb[0]};" in reproducer(graph, "wrong")


def test_nodes_over_others_are_drawn_and_can_be_computed() -> None:
    vary = MEMORY_VARIATIONS[-1]
    drawn = [apply(vary, graph, random.Random(number)) for number, graph in enumerate(pattern_graphs())]
    places = [one.at for graph in drawn if graph is not None for one in graph.nodes if one.over]
    assert len(places) > len(drawn) // 2
    assert "" in places
    assert any(one.startswith("-") for one in places)
    assert all(is_usable(graph) for graph in drawn if graph is not None)


def test_random_graphs_are_usable_and_have_no_expert_twice() -> None:
    seen = 0
    for graph in islice(random_graphs(pattern_graphs(), 5), 400):
        assert is_usable(graph), graph.about
        for one in graph.tensors:
            ids = graph.named[one.of[2]] if one.op == "mul_mat_id" else None
            if ids is None or ids.leaf is None:
                continue
            numbers, used = first_numbers(graph, ids), graph.number(ids.ne[0])
            for start in range(0, len(numbers), used):
                assert len(set(numbers[start : start + used])) == used, graph.about
                seen += 1
    assert seen


def test_extents_follow_from_the_description() -> None:
    (graph,) = (one for one in pattern_graphs() if one.name == "layer")
    known = extents_of(graph)
    by_op = {one.op: known[one.name] for one in graph.nodes}
    assert by_op["attention"] == ("head", "heads", "tokens", 1)
    assert by_op["set_rows"] == ("head*kv_heads", "kv", 1, 1)
    assert by_op["mul_mat"] == (64, "tokens", 1, 1)
    assert by_op["swiglu"] == ("inner", "tokens", 1, 1)
    assert len(known) == len(graph.tensors)


@pytest.mark.parametrize("vary", dict.fromkeys(VARIATIONS), ids=lambda one: str(one.__name__))
def test_each_variation_changes_some_pattern_and_keeps_the_order(vary: Vary) -> None:
    changed = 0
    for number, graph in enumerate(pattern_graphs()):
        found = apply(vary, graph, random.Random(number))
        changed += found is not None and found != graph
        known: set[str] = set()
        for one in (found or graph).tensors:
            assert set(one.of) - {"-"} <= known, (graph.name, one.name)
            known.add(one.name)
    assert changed


def _shapes(graph: Graph) -> Shapes:
    """Shapes of the operations that the next test has: all are those of their first source."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for one in graph.tensors:
        ne = tuple(graph.number(each) for each in one.ne)
        found[one.name] = found[one.of[0]] if one.of else (one.type, (*ne, *([1] * (4 - len(ne)))))
    return {one.name: found[one.name] for one in graph.nodes}


def test_a_graph_is_reduced_to_what_has_the_fault() -> None:
    def chain(prefix: str, ops: Sequence[str], first: str) -> list[Tensor]:
        made = [first, *(f"{prefix}{n}" for n in range(len(ops)))]
        return [Tensor(name=made[n + 1], op=op, of=(made[n],), output=True) for n, op in enumerate(ops)]

    graph = Graph(
        name="chain",
        dims={"width": 300, "unused": 4},
        memory="reused",
        rounds=3,
        contexts=2,
        environment={"A": "1"},
        tensors=(
            Tensor(name="x", leaf="input", ne=("width",)),
            *chain("a", ("silu", "gelu", "silu", "tanh"), "x"),
            *chain("b", ("relu", "silu", "exp"), "a1"),
        ),
    )
    graph = graph.replaced(graph.named["b2"].model_copy(update={"over": "x", "at": "32.0"}))

    def has_fault(graphs: Sequence[Graph]) -> list[bool]:
        found = []
        for one in graphs:
            ops = [node.op for node in one.nodes]
            is_there = "gelu" in ops and "exp" in ops and ops.index("gelu") < ops.index("exp")
            found.append(is_there and one.dims.get("width", 1) > 16)
        return found

    assert has_fault([graph]) == [True]
    smallest = reduce_graph(graph, has_fault, _shapes)
    assert [one.op for one in smallest.nodes] == ["gelu", "exp"]
    assert (smallest.rounds, smallest.environment, smallest.memory) == (1, {}, "apart")
    assert smallest.contexts == 1
    assert not any(one.over or one.at for one in smallest.nodes)
    assert smallest.dims == {"width": 17}


@pytest.mark.parametrize("graph", EVERY, ids=[f"{one.name}-{n}" for n, one in enumerate(EVERY)])
def test_a_reproducer_names_every_tensor(graph: Graph) -> None:
    program = reproducer(graph, "wrong\nnumbers")
    assert "wrong numbers" in program.splitlines()[0]
    for one in graph.tensors:
        assert f" {one.name} = " in program or f"t.{one.name} = " in program


def test_a_node_that_is_not_computed_is_so_for_the_driver_and_in_the_program() -> None:
    graph = Graph(
        name="branches",
        dims={},
        tensors=(
            Tensor(name="x", leaf="input", ne=(4,)),
            Tensor(name="y", op="silu", of=("x",), output=True),
            Tensor(name="z", op="relu", of=("x",), idle=True),
        ),
    )
    lines = driver_lines(graph, "g0").splitlines()
    assert [line.split()[1] for line in lines if "idle=1" in line.split()] == ["z"]
    program = reproducer(graph, "wrong")
    assert 'y = node("y", ggml_silu(ctx, t.x), true);' in program
    assert 'z = node("z", ggml_relu(ctx, t.x), false, true);' in program
