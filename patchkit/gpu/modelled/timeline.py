"""The time of a model's batch, from the launches and copies of upstream's host code.

The launches are recorded with a model file of few layers (:mod:`patchkit.gpu.modelled.reduced`); those of
each layer are counted for all layers that it represents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.modelled.batches import (
    BatchRun,
    BatchTest,
    Event,
    LibraryCall,
    Moved,
    Node,
    RecordedBatches,
    SeenTensor,
    Started,
)
from patchkit.gpu.modelled.machine import Kind, Machine, Played, TestKind, kind_of_test, play
from patchkit.gpu.modelled.operation import (
    READS_MODEL,
    TimedKernel,
    kind_of,
    library_us,
    matrix_case,
    share_beyond_cache,
    working_of,
)
from patchkit.gpu.modelled.recording import TraceHead
from patchkit.gpu.modelled.reduced import ReducedModel
from patchkit.gpu.modelled.roofline import Peaks, Work, attention_work, distinct_experts
from patchkit.gpu.modelled.shape import Layer, role_of
from patchkit.toolchain.compiler import Compiler

_OF_LAYER = re.compile(r"(?:blk\.|cache_[kv]_l|cache_[rs]_l)(\d+)\b(?:\.(\S+))?")
_MOVES = 2.0  # memory traffic per copied byte: a read and a write
_ATTENTION = "FLASH_ATTN_EXT"
_ATTENDS: frozenset[Kind] = frozenset({"tile", "mma", "wmma", "vec", "attention"})
_PRODUCTS = frozenset({"MUL_MAT", "MUL_MAT_ID"})
_UNPACKS = re.compile(r"dequantize|convert_unary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A kernel, library call or copy that was started ``count`` times in a batch, each taking ``us``.

    ``what``: the weights or operation it is for. ``bound_us``: lower bound of the time of one, from its bytes
    and multiplications (:mod:`patchkit.gpu.modelled.roofline`); 0 if the roofline does not count it.
    ``is_bound``: ``us`` is a lower bound (of a copy) instead of a modelled time. ``is_held``: modelled times
    of this kind of kernel were compared with published ones.
    """

    json_keys: ClassVar = (
        "what kernel kind count us=all_us bound_us=all_bound_us above_bound_us=above limit shares "
        "is_bound is_held"
    )

    what: str
    kernel: str
    kind: Kind | None
    count: float
    us: float
    bound_us: float
    limit: str
    shares: Mapping[str, float]
    is_bound: bool = False
    is_held: bool = False

    @property
    def above(self) -> float:
        """Microseconds above the bound, in total."""
        return self.count * (self.us - self.bound_us)

    @property
    def all_us(self) -> float:
        """Microseconds in total."""
        return self.count * self.us

    @property
    def all_bound_us(self) -> float:
        """The bound in total."""
        return self.count * self.bound_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One batch. ``library_us``: time in BLAS library calls, which is only estimated."""

    json_keys: ClassVar = (
        "test=test.name tokens=test.all_tokens sequences=test.sequences depth=test.depth us "
        "tokens_per_second=rate tokens_per_second_per_sequence=rate_per_sequence bound_us "
        "share_of_bound launches blas_share modelled lines=merged_lines"
    )

    test: BatchTest
    lines: tuple[Line, ...]
    library_us: float

    @property
    def kind(self) -> TestKind:
        """The kind of test that the batch is of."""
        return kind_of_test(
            self.test.tokens,
            sequences=self.test.sequences,
            has_experts=any("exps" in line.what for line in self.lines),
            uses_blas=self.library_us > 0,
        )

    @property
    def us(self) -> float:
        """Microseconds of the batch."""
        return sum(line.all_us for line in self.lines)

    @property
    def bound_us(self) -> float:
        """Lower bound of the time, in microseconds."""
        return sum(line.count * line.bound_us for line in self.lines)

    @property
    def launches(self) -> float:
        """Number of started kernels, copies and BLAS calls."""
        return sum(line.count for line in self.lines)

    @property
    def rate(self) -> float:
        """Tokens per second, summed over all sequences."""
        return self.test.all_tokens * 1e6 / self.us

    @property
    def rates(self) -> str:
        """The rate as text; with several sequences ``180.0 t/s in total, 45.0 per sequence``."""
        if self.test.sequences == 1:
            return f"{self.rate:.1f} t/s"
        return f"{self.rate:.1f} t/s in total, {self.rate / self.test.sequences:.1f} per sequence"

    def merged(self) -> tuple[Line, ...]:
        """Lines merged by kernel and by what they are for, sorted by the time above the bound."""
        groups: dict[tuple[str, str], list[Line]] = {}
        for line in self.lines:
            groups.setdefault((line.kernel, line.what), []).append(line)
        return tuple(sorted(map(_together, groups.values()), key=lambda line: -line.above))

    modelled: ClassVar = True

    @property
    def rate_per_sequence(self) -> float:
        """Tokens per second of one sequence."""
        return self.rate / self.test.sequences

    @property
    def share_of_bound(self) -> float:
        """The bound as a fraction of the modelled time."""
        return self.bound_us / self.us

    @property
    def blas_share(self) -> float:
        """Fraction of the time in a BLAS library."""
        return self.library_us / self.us

    @property
    def merged_lines(self) -> Sequence[Line]:
        """:meth:`merged` as a property for JSON."""
        return self.merged()


def mean_of(test: BatchTest, parts: Sequence[Timeline]) -> Timeline:
    """The timeline of a batch split into equal parts that run in sequence, from a sample of the parts."""
    times = test.all_tokens / sum(part.test.all_tokens for part in parts)
    lines = tuple(replace(line, count=line.count * times) for part in parts for line in part.lines)
    return Timeline(test=test, lines=lines, library_us=times * sum(part.library_us for part in parts))


def time_batches(
    machine: Machine,
    model: ReducedModel,
    recorded: RecordedBatches,
    tests: Sequence[BatchTest],
    peaks: Peaks,
    compiler: Compiler,
) -> dict[str, Timeline]:
    """The modelled time of each test, by test name.

    Raises:
        TRACE_UNREADABLE, NOT_BUILT: a launch cannot be simulated.
    """
    readers = {
        test.name: BatchReader(recorded.runs[test.name], test, model, machine, peaks) for test in tests
    }
    wanted: dict[int, Played] = {}
    for reader in readers.values():
        for started, played in reader.played(recorded):
            wanted.setdefault(started, played)
    times = dict(zip(wanted, play(machine, list(wanted.values()), compiler), strict=True))
    kernels = {
        number: TimedKernel(played=time, kind=kind_of(time.kernel), launch_us=machine.launch_us)
        for number, time in times.items()
    }
    return {name: reader.timeline(kernels) for name, reader in readers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """An event, how many times it counts, and the operation that it belongs to, if one was found."""

    event: Event
    count: int
    node: Node | None
    tensors: tuple[SeenTensor, ...]


class BatchReader:
    """Assigns the launches of one test to layers and operations."""

    def __init__(
        self, run: BatchRun, test: BatchTest, model: ReducedModel, machine: Machine, peaks: Peaks
    ) -> None:
        self._test = test
        self._model = model
        self._machine = machine
        self._peaks = peaks
        self._placed = list(self._place(run))

    def _place(self, run: BatchRun) -> Iterator[_Placed]:
        """Assign events to operations by the addresses that launches use.

        Launches and operations have the same order, and the addresses of weights and caches are unique. So a
        launch with a pointer to one belongs to the next operation that uses it, and launches between two of
        these belong to operations in between. Other memory is reused, so its addresses are ambiguous.
        """
        own = _own_places(run.nodes)
        anchors = list(_anchors(run, own))
        layer: int | None = None  # None: before the first layer or after the last
        at = 0
        for place, event in enumerate(run.events):
            pointers = set(event.pointers) if isinstance(event, Started) else set()
            anchor = anchors[place]
            if anchor is not None:
                at = anchor
            end = next((each for each in anchors[place:] if each is not None), len(run.nodes) - 1)
            near = run.nodes[at : end + 1]
            about = near[0] if anchor is not None else _about(near, pointers)
            tensors = _pointed_at(near, pointers) | {each: own[each] for each in pointers & own.keys()}
            for one in sorted(pointers & own.keys()):
                number = _OF_LAYER.match(own[one].name)
                layer = int(number[1]) if number is not None else layer if _is_shared(own[one]) else None
            count = 1 if layer is None else self._model.counts[layer]
            yield _Placed(event=event, count=count, node=about, tensors=tuple(tensors.values()))

    def played(self, recorded: RecordedBatches) -> Iterator[tuple[int, Played]]:
        """What to simulate for each launch, by its number."""
        for one in self._placed:
            if not isinstance(one.event, Started):
                continue
            kind = kind_of(one.event.kernel)
            touched = sum(tensor.bytes for tensor in one.tensors)
            yield (
                one.event.number,
                Played(
                    trace=recorded.traces[one.event.number],
                    # Other kernels read what the previous kernel wrote, from the last cache if it fits.
                    cold=1.0 if kind in READS_MODEL else share_beyond_cache(self._machine, touched),
                    working=_working(one.event, one.node),
                ),
            )

    def timeline(self, kernels: Mapping[int, TimedKernel]) -> Timeline:
        """The timeline, given the times of the launches."""
        lines, in_library = [], 0.0
        owed = 0.0  # bound of weights that were only dequantized so far, for the BLAS call that follows
        for one in self._placed:
            if one.count == 0:
                continue
            bound = self._bound(one)
            match one.event:
                case Started() as started:
                    if _UNPACKS.search(started.kernel):
                        owed, bound = max(owed, bound), 0.0
                    kernel = kernels[started.number]
                    lines.append(
                        Line(
                            what=_what(one),
                            kernel=short_name(started.kernel),
                            kind=kernel.kind,
                            count=one.count,
                            us=kernel.us,
                            bound_us=bound,
                            limit=kernel.limit,
                            shares=kernel.shares,
                            is_held=self._machine.has_error(kernel.kind),
                        )
                    )
                case LibraryCall(call=call):
                    us = library_us(call, self._machine)
                    in_library += one.count * us
                    name = call.partition(" ")[0]
                    lines.append(_unplayed("BLAS", name, one.count, us, owed, "BLAS", is_bound=False))
                    owed = 0.0
                case Moved(how=how, bytes=size):
                    rate = self._machine.file.figures.dram_gb_s.value * 1e3
                    us = self._machine.launch_us + _MOVES * size / rate
                    lines.append(_unplayed("copies", how, one.count, us, 0.0, "DRAM", is_bound=True))
        return Timeline(test=self._test, lines=tuple(lines), library_us=in_library)

    def _bound(self, one: _Placed) -> float:
        """Lower bound of a launch in microseconds, from the weights or K and V that it reads."""
        node = one.node
        if node is None or not isinstance(one.event, Started):
            return 0.0
        if node.op == _ATTENTION and kind_of(one.event.kernel) in READS_MODEL:
            return self._of_attention(node)
        work = Work(bytes=0, macs=0)
        for tensor in one.tensors:
            if tensor.is_leaf and tensor.name.endswith((".weight", ".bias")) and node.op in _PRODUCTS:
                work = _sum(work, _work_of(tensor, node))
        return 1e6 * work.seconds(self._peaks)

    def _of_attention(self, node: Node) -> float:
        query, key, value = node.sources[:3]
        number = _OF_LAYER.match(key.name)
        layer = int(number[1]) if number is not None else 0
        of = Layer(
            heads=query.shape[2],
            kv_heads=key.shape[2],
            head_size_k=key.shape[0],
            head_size_v=value.shape[0],
            window=self._model.window_of(layer),
        )
        kind = tensor_kinds_by_name().get(key.type.upper())
        if kind is None:
            return 0.0
        work = attention_work(of, self._test.depth, query.shape[1], kind)
        return 1e6 * work.seconds(self._peaks)


def _own_places(nodes: Sequence[Node]) -> dict[int, SeenTensor]:
    """Weights, and the caches of each layer, by address."""
    found: dict[int, SeenTensor] = {}
    for node in nodes:
        for tensor in (node.result, *node.sources):
            is_weight = tensor.is_leaf and tensor.name.endswith((".weight", ".bias", ".ssm_a", ".ssm_d"))
            if is_weight or tensor.name.startswith("cache_"):
                known = found.get(tensor.at)
                if known is None or tensor.bytes > known.bytes:
                    found[tensor.at] = tensor
    return found


def _anchors(run: BatchRun, own: Mapping[int, SeenTensor]) -> Iterator[int | None]:
    """For each event, the index of the operation whose weights or cache it has a pointer to."""
    has = [{tensor.at for tensor in (node.result, *node.sources)} & own.keys() for node in run.nodes]
    at = 0
    for event in run.events:
        wanted = set(event.pointers) & own.keys() if isinstance(event, Started) else set()
        wanted = {each for each in wanted if not _is_shared(own[each])}
        attends = isinstance(event, Started) and kind_of(event.kernel) in _ATTENDS
        found = next(
            (
                number
                for number in range(at, len(has))
                if has[number] & wanted and (run.nodes[number].op == _ATTENTION) == attends
            ),
            None,
        )
        if found is not None:
            at = found
        yield found


def _is_shared(tensor: SeenTensor) -> bool:
    """Whether all layers use the tensor."""
    return tensor.name.startswith("rope_")


def _about(near: Sequence[Node], pointers: set[int]) -> Node | None:
    """The operation of which a launch has pointers to the result and a source, else to the result only."""
    of_result = [node for node in near if node.result.at in pointers]
    both = (node for node in of_result if any(source.at in pointers for source in node.sources))
    return next(both, of_result[0] if of_result else None)


def _pointed_at(near: Sequence[Node], pointers: set[int]) -> dict[int, SeenTensor]:
    """The largest tensor at each address."""
    found: dict[int, SeenTensor] = {}
    for node in near:
        for tensor in (node.result, *node.sources):
            if tensor.at in pointers and (tensor.at not in found or tensor.bytes > found[tensor.at].bytes):
                found[tensor.at] = tensor
    return found


def _what(one: _Placed) -> str:
    """Label of the weights that a launch reads, or of its operation."""
    if isinstance(one.event, Started) and short_name(one.event.kernel).startswith("quantize"):
        return "activations"
    for tensor in one.tensors:
        found = _OF_LAYER.match(tensor.name)
        if tensor.is_leaf and found is not None and found[2] and "norm" not in found[2]:
            return f"{found[2].removesuffix('.weight')} {tensor.type}"
        if tensor.is_leaf and tensor.name.startswith(("output.", "token_embd")):
            return f"output {tensor.type}"
    return one.node.op if one.node is not None else "-"


def _work_of(weight: SeenTensor, node: Node) -> Work:
    columns, rows, many, _ = weight.shape
    experts = many if role_of(weight.name, weight.shape) == "experts" else 0
    if experts and node.op == "MUL_MAT_ID":
        used, tokens = node.sources[2].shape[0], node.result.shape[2]
        touched = distinct_experts(experts, used, tokens) / experts
        return Work(bytes=weight.bytes * touched, macs=float(columns * rows * used * tokens))
    tokens = node.result.shape[1] * node.result.shape[2] * node.result.shape[3]
    return Work(bytes=weight.bytes, macs=float(columns * rows * tokens))


def _sum(one: Work, other: Work) -> Work:
    return Work(bytes=one.bytes + other.bytes, macs=one.macs + other.macs)


def _working(started: Started, node: Node | None) -> float:
    if node is None or node.op != "MUL_MAT_ID" or kind_of(started.kernel) not in {"mmq", "gemm"}:
        return 1.0
    weight, ids = node.sources[0], node.sources[2]
    case = matrix_case(
        weight.type,
        weight.shape[1],
        weight.shape[0],
        ids.shape[1],
        experts=weight.shape[2],
        used=ids.shape[0],
    )
    return working_of(case, TraceHead(kernel=started.kernel, grid=started.grid), is_drawn=True)


def _unplayed(
    what: str, name: str, count: int, us: float, bound: float, limit: str, *, is_bound: bool
) -> Line:
    return Line(
        what=what,
        kernel=name,
        kind=None,
        count=count,
        us=us,
        bound_us=min(bound, us),
        limit=limit,
        shares={limit: 1.0},
        is_bound=is_bound,
    )


def _together(lines: Sequence[Line]) -> Line:
    count = sum(line.count for line in lines)
    longest = max(lines, key=lambda line: line.all_us)
    total = sum(line.all_us for line in lines)
    names = dict.fromkeys(name for line in lines for name in line.shares)
    shares = {name: sum(line.all_us * line.shares.get(name, 0.0) for line in lines) / total for name in names}
    return Line(
        what=longest.what,
        kernel=longest.kernel,
        kind=longest.kind,
        count=count,
        us=total / count,
        bound_us=sum(line.count * line.bound_us for line in lines) / count,
        limit=longest.limit,
        shares=dict(sorted(shares.items(), key=lambda item: -item[1])),
        is_bound=longest.is_bound,
        is_held=longest.is_held,
    )


def short_name(mangled: str) -> str:
    """A kernel's name without template arguments."""
    return read_name(mangled).base
