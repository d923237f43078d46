"""The description of a graph: plain data, read from JSON and written for the driver ``graph_check``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from patchkit.base.document import parse_model

Extent = int | str
"""A number, or an expression of named dimensions: products that are added, such as ``2*heads*head+1``."""

LeafKind = Literal["weight", "input", "cache", "mask", "numbers"]
_Extents = Annotated[tuple[Extent, ...], Field(strict=False)]
_TERM = re.compile(r"[A-Za-z_]\w*|\d+")


def evaluate(extent: Extent, dims: Mapping[str, int]) -> int:
    """The value of an extent. Raises ValueError if it is not an expression, or a dimension is unknown."""
    if isinstance(extent, int):
        return extent
    total = 0
    for term in extent.split("+"):
        product = 1
        for factor in term.split("*"):
            if _TERM.fullmatch(factor) is None or not (factor.isdigit() or factor in dims):
                raise ValueError(f"cannot evaluate {extent!r}")
            product *= int(factor) if factor.isdigit() else dims[factor]
        total += product
    return total


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Tensor(_Model):
    """A leaf (``leaf`` is its kind) or a node (``op`` reads the tensors ``of``; ``-`` for an absent one).

    Args:
        name: unique in its graph.
        leaf: ``weight`` has the same random values in every round, ``input`` other ones. ``cache`` is zero at
            first, and graphs write to it. ``numbers`` are integers.
        type: of a leaf, as ggml names it.
        ne: extents of a leaf, a reshape or a view.
        op: the operation, as the driver names it.
        i: integer parameters of the operation.
        f: float parameters of the operation.
        nb: strides 1 to 3 of a view: ``C.D`` is C times the source's stride of dimension D.
        at: the offset of a view, written like a stride.
        over: an earlier tensor, no longer needed, in whose memory the result lies from ``at`` on. ``at`` may
            have a minus sign, and the result may end after that tensor.
        output: the result is flagged as an output, and compared.
        idle: the graph has the node, but does not compute it unless a computed node reads it: a branch that
            ``ggml_build_forward_select`` did not select.
        runs: values of ``numbers`` as counts and values; empty for consecutive values from ``start``.
        start: the first of consecutive numbers.
        modulo: consecutive numbers start again at 0 when they reach it; 0 for never.
        step: what is added to each number in each round.
        seen: what a mask shows: ``causal``, ``window``, ``all``, or ``padded`` (causal, and the last quarter
            of the KV rows is not in use).
        filled: a cache has random values at first.
        negative: random values are negative, as the decay of a recurrent state is: else the state grows, and
            so does any rounding error.
        shift: is added to random values, as frequency factors of RoPE are positive.
    """

    name: str
    leaf: LeafKind | None = None
    type: str = "f32"
    ne: _Extents = ()
    op: str = ""
    of: Annotated[tuple[str, ...], Field(strict=False)] = ()
    i: _Extents = ()
    f: Annotated[tuple[float, ...], Field(strict=False)] = ()
    nb: Annotated[tuple[str, ...], Field(strict=False)] = ()
    at: str = ""
    over: str = ""
    output: bool = False
    idle: bool = False
    runs: Annotated[tuple[Annotated[tuple[Extent, int], Field(strict=False)], ...], Field(strict=False)] = ()
    start: Extent = 0
    modulo: Extent = 0
    step: int = 0
    seen: str = "causal"
    filled: bool = False
    negative: bool = False
    shift: float = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it is a view, which no kernel computes."""
        return self.op in {"view", "reshape", "permute", "transpose"}

    @property
    def view_of(self) -> str:
        """The tensor that the result is a view of for ggml, as that of a store or an operation in place."""
        if self.op == "cpy":
            return self.of[1]
        is_view = self.is_free or self.op == "set_rows" or self.op.endswith("_inplace")
        return self.of[0] if is_view else ""

    def changed(self, **values: object) -> Tensor:
        """The tensor with other values of its fields."""
        return self.model_copy(update=values)

    def reading(self, operand: int, name: str) -> Tensor:
        """The tensor with another operand, by its position."""
        return self.changed(of=(*self.of[:operand], name, *self.of[operand + 1 :]))


class Graph(_Model):
    """A graph: named dimensions, and tensors in the order in which they are computed.

    Args:
        dims: the named dimensions.
        tensors: leaves and nodes; a node comes after what it reads.
        memory: ``apart``: each tensor has a buffer of its own; ``reused``: ggml's allocator places nodes;
            ``scheduled``: ggml's scheduler does that, and computes the graph, as in llama.cpp.
        rounds: how often the graph is computed, with other inputs each time.
        steps: compute each node in a call of its own, as with an eval callback.
        contexts: with 2, a second backend context computes the graph at the same time in another thread, with
            other inputs and the same weights in memory.
        captured: with HIP graphs: the backend captures the graph in the second round, and replays it in later
            ones.
        environment: variables of the program.
        seed: of the values.
        about: where the graph comes from.
        name: its pattern.
    """

    name: str
    about: str = ""
    dims: dict[str, int]
    memory: Literal["apart", "reused", "scheduled"] = "apart"
    rounds: int = Field(default=1, ge=1, le=16)
    steps: bool = False
    contexts: int = Field(default=1, ge=1, le=2)
    captured: bool = False
    environment: dict[str, str] = Field(default_factory=dict)
    seed: int = Field(default=1, ge=0)
    tensors: Annotated[tuple[Tensor, ...], Field(strict=False)]

    @model_validator(mode="after")
    def _has_unique_names(self) -> Self:
        if len({one.name for one in self.tensors}) != len(self.tensors):
            raise ValueError("two tensors have the same name")
        return self

    @cached_property
    def named(self) -> Mapping[str, Tensor]:
        """The tensors by name."""
        return {one.name: one for one in self.tensors}

    @property
    def nodes(self) -> tuple[Tensor, ...]:
        """The nodes, in order."""
        return tuple(one for one in self.tensors if one.leaf is None)

    @property
    def operations(self) -> tuple[Tensor, ...]:
        """The nodes that kernels compute: all but views."""
        return tuple(one for one in self.nodes if not one.is_free)

    def number(self, extent: Extent) -> int:
        """The value of an extent. Raises ValueError."""
        return evaluate(extent, self.dims)

    def replaced(self, *tensors: Tensor) -> Graph:
        """The graph with other tensors of the same names."""
        new = {one.name: one for one in tensors}
        return self.with_tensors(new.get(one.name, one) for one in self.tensors)

    def with_tensors(self, tensors: Iterable[Tensor]) -> Graph:
        """The graph with other tensors."""
        return self.changed(tensors=tuple(tensors))

    def changed(self, **values: object) -> Graph:
        """The graph with other values of its fields."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in Graph.model_fields}
        return Graph(**{**fields, **values})


def read_graph(data: bytes, source: str) -> Graph:
    """Read a description; ``source`` names the file in errors.

    Raises EvidenceUnreadable, EvidenceMalformed.
    """
    return parse_model(data, Graph, source, hint="recreate the file with: patchkit verify --gate graphs")


def write_graph(graph: Graph) -> str:
    """The description as JSON, one tensor per line."""
    head = graph.model_dump(exclude_defaults=True, exclude={"tensors"})
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    tensors = [f"  {json.dumps(one.model_dump(exclude_defaults=True))}" for one in graph.tensors]
    return "\n".join(["{", *lines, ' "tensors": [', ",\n".join(tensors), " ]", "}", ""])


Compared = Literal["nothing", "results", "each node"]
"""What the driver compares with the CPU: nothing, outputs and caches, or each node, computed from the CPU's
values by a call of its own (the distance that the operation itself adds)."""
_COMPARED: tuple[Compared, ...] = ("nothing", "results", "each node")


def driver_lines(graph: Graph, identity: str, *, compared: Compared = "results") -> str:
    """The graph for the driver, under the name ``identity``.

    Raises ValueError for an invalid extent.
    """
    settings = f"seed={graph.seed} rounds={graph.rounds} memory={graph.memory} steps={graph.steps:d}"
    settings += f" compared={_COMPARED.index(compared)} contexts={graph.contexts}"
    head = f"graph {identity} {settings}"
    return "\n".join([head, *(_line(graph, one) for one in graph.tensors), "end", ""])


def _line(graph: Graph, one: Tensor) -> str:
    def numbers(extents: tuple[Extent, ...]) -> str:
        return ",".join(str(graph.number(each)) for each in extents)

    words = [f"{'node' if one.leaf is None else 'leaf'} {one.name}"]
    if one.leaf is not None:
        words += [f"is={one.leaf} type={one.type} ne={numbers(one.ne)} seen={one.seen} filled={one.filled:d}"]
        words += ["negative=1"] if one.negative else []
        words += [f"shift={one.shift:.9g}"] if one.shift else []
        if one.leaf == "numbers":
            words += [f"first={','.join(map(str, first_numbers(graph, one)))} step={one.step}"]
        return " ".join(words)
    words += [f"op={one.op} of={','.join(one.of)} output={one.output:d}"]
    words += [f"ne={numbers(one.ne)}"] if one.ne else []
    words += [f"i={numbers(one.i)}"] if one.i else []
    words += [f"f={','.join(f'{each:.9g}' for each in one.f)}"] if one.f else []
    words += [f"nb={','.join(_stride(graph, each) for each in one.nb)}"] if one.nb else []
    words += [f"over={one.over}"] if one.over else []
    words += [f"at={_stride(graph, one.at)}"] if one.at else []
    words += ["idle=1"] if one.idle else []
    return " ".join(words)


def stride_of(graph: Graph, text: str) -> tuple[int, str]:
    """How many times the source's stride of which dimension; offsets may be negative. Raises ValueError."""
    times, _, dimension = text.rpartition(".")
    sign = -1 if times.startswith("-") else 1
    return sign * graph.number(times.removeprefix("-")), dimension


def _stride(graph: Graph, text: str) -> str:
    times, dimension = stride_of(graph, text)
    return f"{times}.{dimension}"


_MOST_NUMBERS = 1 << 20


def first_numbers(graph: Graph, one: Tensor) -> list[int]:
    """The values of a leaf of integers in the first round. Raises ValueError if there are too many."""
    count = 1
    for each in one.ne:
        count *= graph.number(each)
    if not 0 <= count <= _MOST_NUMBERS:
        raise ValueError(f"{one.name} has {count} numbers")
    if one.runs:
        found = [value for times, value in one.runs for _ in range(graph.number(times))]
        return [found[n % len(found)] for n in range(count)] if found else []
    start, modulo = graph.number(one.start), graph.number(one.modulo)
    return [(start + n) % modulo if modulo else start + n for n in range(count)]
