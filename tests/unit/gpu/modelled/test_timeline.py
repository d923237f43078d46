"""The time of a batch: how often each launch counts, what it is about, and its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.plain import fields_of
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
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
from patchkit.gpu.modelled.machine import Busy, KernelTime, Machine, load_machine
from patchkit.gpu.modelled.operation import TimedKernel, kind_of
from patchkit.gpu.modelled.reduced import ReducedModel, reduced, whole_of_shape
from patchkit.gpu.modelled.roofline import Peaks, peaks_of
from patchkit.gpu.modelled.timeline import BatchReader, Timeline, mean_of

PROFILES = Path(__file__).parents[4] / "arch_profiles"
_TEST = BatchTest(name="pp", depth=0, tokens=512)
_VECTOR = "_Z13mul_mat_vec_qv"
_IDLE = Busy(valu=0, wmma=0, scalar=0, lds_banks=0, l0=0, l1=0, l2=0, mall=0, dram=1, code=0)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine(PROFILES, device_of(load_profile(PROFILES, "gfx1151"), guess_units=True))


@pytest.fixture(scope="module")
def peaks() -> Peaks:
    return peaks_of(load_profile(PROFILES, "gfx1151"))


@pytest.fixture(scope="module")
def model() -> ReducedModel:
    return reduced(whole_of_shape(PROFILES / "models" / "llama-3.2-1b-q4_k_m.toml"))


def _tensor(
    name: str, at: int, *shape: int, kind: str = "f32", size: int = 4, leaf: bool = False
) -> SeenTensor:
    whole = (*shape, *[1] * (4 - len(shape)))
    return SeenTensor(name=name, at=at, bytes=size, type=kind, shape=whole, is_leaf=leaf)


def _product(layer: str, weight: int, result: int, *, size: int) -> Node:
    """Of 2048 x 2048 weights with 512 tokens."""
    return Node(
        op="MUL_MAT",
        result=_tensor(f"q-{layer}", result, 2048, 512),
        sources=(_tensor(f"{layer}attn_q.weight", weight, 2048, 2048, kind="q4_K", size=size, leaf=True),),
    )


def _start(number: int, *pointers: int, kernel: str = _VECTOR) -> Started:
    return Started(
        kernel=kernel, grid=(1, 1, 1), block=(32, 1, 1), lds=0, number=number, pointers=tuple(pointers)
    )


def _time(kernel: str, us: float) -> TimedKernel:
    played = KernelTime(
        kernel=kernel,
        us=us,
        cycles=1,
        clock_mhz=1,
        blocks=1,
        threads=32,
        vgprs=1,
        lds=0,
        resident=1,
        waves_per_simd=1,
        simulated=1,
        instructions=1,
        busy=_IDLE,
        dram_bytes=0,
        l1_bytes=0,
        channels=16,
    )
    return TimedKernel(played=played, kind=kind_of(kernel), launch_us=3)


def _timed(nodes: Sequence[Node], events: Sequence[Event], times: Sequence[float], *of: object) -> Timeline:
    model, machine, peaks = of
    assert isinstance(model, ReducedModel)
    assert isinstance(machine, Machine)
    assert isinstance(peaks, Peaks)
    run = BatchRun(nodes=tuple(nodes), events=tuple(events))
    reader = BatchReader(run, _TEST, model, machine, peaks)
    kernels = {event.number: event.kernel for event in events if isinstance(event, Started)}
    return reader.timeline({number: _time(kernel, times[number]) for number, kernel in kernels.items()})


def test_each_layer_counts_for_those_that_it_stands_for(
    model: ReducedModel, machine: Machine, peaks: Peaks
) -> None:
    nodes = [_product(f"blk.{layer}.", 100 + layer, 200 + layer, size=2**21) for layer in range(3)]
    nodes.append(_product("output_norm.", 110, 210, size=2**21))
    events = [_start(0, 100 + layer, 200 + layer) for layer in range(3)] + [_start(0, 110, 210)]
    timeline = _timed(nodes, events, [97.0], model, machine, peaks)
    assert model.counts == (8, 7, 1)
    assert [line.count for line in timeline.lines] == [8, 7, 1, 1]
    assert timeline.us == pytest.approx(17 * 100)  # with 3 us of each launch
    assert {line.what for line in timeline.lines} >= {"attn_q q4_K"}


def test_the_bound_is_of_the_weights_once_and_of_their_products(
    model: ReducedModel, machine: Machine, peaks: Peaks
) -> None:
    nodes = [_product("blk.2.", 100, 200, size=2**21)]
    line, other = _timed(nodes, [_start(0, 100, 200), _start(1, 7)], [97.0, 1.0], model, machine, peaks).lines
    products = 2 * 2048 * 2048 * 512 / peaks.compute.per_second * 1e6
    assert line.bound_us == pytest.approx(products)
    assert (other.bound_us, other.what) == (0.0, "-")
    assert line.above == pytest.approx(100 - products)


def test_weights_that_are_unpacked_for_a_library_are_bound_there(
    model: ReducedModel, machine: Machine, peaks: Peaks
) -> None:
    nodes = [_product("blk.2.", 100, 200, size=2**21)]
    events = [_start(0, 100, kernel="_Z16dequantize_blockv"), LibraryCall(call="hipblasGemmEx 2048x512x2048")]
    unpacked, product = _timed(nodes, events, [50.0], model, machine, peaks).lines
    assert (unpacked.bound_us, product.what) == (0.0, "BLAS")
    assert product.bound_us > 0
    assert not product.is_bound


def test_a_copy_takes_its_least_time_and_says_so(model: ReducedModel, machine: Machine, peaks: Peaks) -> None:
    (copy,) = _timed([], [Moved(how="to the GPU", bytes=10**6, to=1)], [], model, machine, peaks).lines
    rate = machine.file.figures.dram_gb_s.value
    assert copy.us == pytest.approx(machine.launch_us + 2 * 10**3 / rate)
    assert copy.is_bound


def test_equal_kernels_are_told_together_by_their_time_above_the_bound(
    model: ReducedModel, machine: Machine, peaks: Peaks
) -> None:
    nodes = [_product("blk.2.", 100, 200, size=2**21), _product("blk.2.", 101, 201, size=2**21)]
    events = [_start(0, 100, 200), _start(1, 101, 201), _start(2, 1, kernel="_Z4normv")]
    timeline = _timed(nodes, events, [97.0, 197.0, 500.0], model, machine, peaks)
    first, second = timeline.merged()
    assert (first.kernel, second.kernel, second.count) == ("norm", "mul_mat_vec_q", 2)
    assert second.all_us == pytest.approx(300)
    assert sum(line.all_us for line in timeline.merged()) == pytest.approx(timeline.us)


def test_two_micro_batches_stand_for_all(model: ReducedModel, machine: Machine, peaks: Peaks) -> None:
    nodes = [_product("blk.2.", 100, 200, size=2**21)]
    one = _timed(nodes, [_start(0, 100, 200)], [97.0], model, machine, peaks)
    slow = _timed(nodes, [_start(0, 100, 200)], [297.0], model, machine, peaks)
    whole = mean_of(replace(_TEST, tokens=2048), [one, slow])
    assert whole.us == pytest.approx(2 * (100 + 300))
    assert whole.launches == 4
    assert whole.rate == pytest.approx(2048e6 / 800)


def test_tokens_of_several_sequences_are_counted_once(
    model: ReducedModel, machine: Machine, peaks: Peaks
) -> None:
    """Of four sequences, as llama 1B Q4_K_M in docs/records/data/with-patches.json: 634.51 t/s in total."""
    nodes = [_product("blk.2.", 100, 200, size=2**21)]
    step = _timed(nodes, [_start(0, 100, 200)], [4e6 / 634.51 - 3], model, machine, peaks)
    test = BatchTest(name="x4", depth=64, tokens=1, sequences=4)
    for timeline in (replace(step, test=test), mean_of(test, [replace(step, test=test)])):
        assert (timeline.us, timeline.launches) == (pytest.approx(4e6 / 634.51), 1)
        assert timeline.rate == pytest.approx(634.51)
        assert timeline.rates == "634.5 t/s in total, 158.6 per sequence"
        document = fields_of(timeline)
        assert document["tokens"] == 4
        assert document["tokens_per_second"] == pytest.approx(634.51)
        assert document["tokens_per_second_per_sequence"] == pytest.approx(634.51 / 4)
    assert mean_of(_TEST, [step]).rates == f"{_TEST.tokens * 634.51 / 4:.1f} t/s"


def test_every_launch_is_played_with_what_it_finds_in_the_caches(
    model: ReducedModel, machine: Machine, peaks: Peaks, tmp_path: Path
) -> None:
    nodes = [
        _product("blk.2.", 100, 200, size=2**21),
        Node(op="ADD", result=_tensor("small", 300, 1), sources=()),
        Node(op="ADD", result=_tensor("large", 400, 1, size=2**27), sources=()),
    ]
    events = [
        _start(0, 100, 200),
        _start(1, 300, kernel="_Z3addv"),
        _start(2, 400, kernel="_Z3addv"),
    ]
    run = BatchRun(nodes=tuple(nodes), events=tuple(events))
    recorded = RecordedBatches(runs={"pp": run}, traces={n: tmp_path / str(n) for n in range(3)})
    reader = BatchReader(run, _TEST, model, machine, peaks)
    assert {number: one.cold for number, one in reader.played(recorded)} == {0: 1.0, 1: 0.0, 2: 1.0}
