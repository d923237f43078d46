"""Bytes and multiplications of weights and attention, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusing import refused

from patchkit.gpu.gguf import tensor_kinds_by_name
from patchkit.gpu.hardware.bench.rows import parse_rows
from patchkit.gpu.modelled.estimate import measured_of
from patchkit.gpu.modelled.roofline import (
    Figure,
    Peaks,
    attention_work,
    bound_of,
    distinct_experts,
    weight_work,
)
from patchkit.gpu.modelled.roofline import Test as Run
from patchkit.gpu.modelled.shape import Layer, ModelShape, Weight, role_of, with_output

_F16, _Q8, _INT8 = tensor_kinds_by_name()["F16"], tensor_kinds_by_name()["Q8_0"], tensor_kinds_by_name()["I8"]
_LAYER = Layer(heads=32, kv_heads=8, head_size_k=64, head_size_v=64)


def _peaks(bandwidth: float, compute: float) -> Peaks:
    def figure(value: float, unit: str) -> Figure:
        return Figure(value=value, unit=unit, kind="given", source="test", confidence="-")

    return Peaks(bandwidth=figure(bandwidth, "GB/s"), compute=figure(compute, "TFLOPS"))


def _model(*weights: Weight, layers: tuple[Layer, ...] = (), **more: int) -> ModelShape:
    return ModelShape(name="m", source="test", layers=layers, weights=weights, **more)


def _matrix(*shape: int, name: str = "w.weight", count: int = 1, kind=_F16) -> Weight:
    return Weight(name=name, shape=shape, kind=kind, role=role_of(name, shape), count=count)


def test_the_worked_example_of_7b_at_8_bits_is_gigabytes_per_token():
    # d=4096, 11008 in the middle, 32 layers: (4 d^2 + 3 d f) bytes per layer, all of it for every token.
    layer = [_matrix(4096, 4096, count=4 * 32, kind=_INT8), _matrix(4096, 11008, count=3 * 32, kind=_INT8)]
    bound = bound_of(_model(*layer), Run(tokens=1, depth=0, batch=1), _peaks(800, 1e6), _F16)
    assert bound.bytes == 6_476_005_376
    assert bound.rate == pytest.approx(123.5, abs=0.05)


def test_attention_of_one_token_sees_all_before_and_itself():
    work = attention_work(_LAYER, before=1023, tokens=1, kv=_F16)
    assert work.bytes == 1024 * 8 * 128 * 2
    assert work.macs == 1024 * 32 * 128
    assert attention_work(_LAYER, before=1023, tokens=1, kv=_Q8).bytes == 1024 * 8 * 128 * 34 / 32


def test_a_window_bounds_what_is_read_and_multiplied():
    windowed = Layer(heads=32, kv_heads=8, head_size_k=64, head_size_v=64, window=128)
    assert attention_work(windowed, before=5000, tokens=1, kv=_F16).macs == 128 * 32 * 128
    assert attention_work(windowed, before=5000, tokens=512, kv=_F16).bytes == (128 + 511) * 8 * 128 * 2
    early, full = (attention_work(each, before=0, tokens=100, kv=_F16) for each in (windowed, _LAYER))
    assert (early.bytes, early.macs) == (full.bytes, full.macs)


@given(before=st.integers(0, 300), tokens=st.integers(1, 80), window=st.integers(1, 200) | st.none())
def test_pairs_and_rows_are_what_counting_them_gives(before, tokens, window):
    layer = Layer(heads=1, kv_heads=1, head_size_k=1, head_size_v=1, window=window)
    seen = [
        {key for key in range(token + 1) if window is None or token - key < window}
        for token in range(before, before + tokens)
    ]
    work = attention_work(layer, before, tokens, _F16)
    assert work.macs == 2 * sum(map(len, seen))
    assert work.bytes == 4 * len(set().union(*seen))


def test_compressed_rows_are_read_besides_the_window():
    layer = Layer(heads=4, kv_heads=1, head_size_k=8, head_size_v=8, shares_v=True, window=128, compressed=4)
    assert attention_work(layer, before=7999, tokens=1, kv=_F16).bytes == (128 + 1999) * 8 * 2
    selecting = replace(layer, selected=512)
    assert attention_work(selecting, before=7999, tokens=1, kv=_F16).bytes == (128 + 512) * 8 * 2
    assert attention_work(selecting, before=7999, tokens=1, kv=_F16).macs == (128 + 512) * 4 * 16
    # Without compression, the selected rows are those of the cache.
    sparse = Layer(heads=4, kv_heads=1, head_size_k=8, head_size_v=8, selected=512)
    assert attention_work(sparse, before=7999, tokens=1, kv=_F16).bytes == 512 * 16 * 2
    assert attention_work(sparse, before=99, tokens=1, kv=_F16).bytes == 100 * 16 * 2


def test_latent_attention_reads_v_as_part_of_k():
    layer = Layer(heads=128, kv_heads=1, head_size_k=576, head_size_v=512, shares_v=True)
    work = attention_work(layer, before=99, tokens=1, kv=_F16)
    assert work.bytes == 100 * 576 * 2
    assert work.macs == 100 * 128 * (576 + 512)


def test_experts_are_read_as_far_as_tokens_touch_them():
    assert distinct_experts(32, 4, 1) == pytest.approx(4)
    assert distinct_experts(32, 4, 512) == pytest.approx(32)
    weight = _matrix(10, 10, 32, name="blk.0.ffn_up_exps.weight")
    model = _model(weight, experts=32, experts_used=4)
    work = weight_work(weight, 1, 1, model)
    assert (work.bytes, work.macs) == (pytest.approx(weight.bytes / 8), 400)
    assert weight_work(weight, 512, 1, model).macs == 400 * 512


def test_the_embedding_is_looked_up_and_a_tied_one_multiplied_for_the_asked_token_only():
    model = _model(*with_output([_matrix(64, 1000, name="token_embd.weight")]))
    assert [weight.role for weight in model.weights] == ["lookup", "matrix"]
    lookup, tied = (weight_work(weight, 512, 1, model) for weight in model.weights)
    assert (lookup.bytes, lookup.macs) == (512 * 128, 0)
    assert (tied.bytes, tied.macs) == (128_000, 64_000)
    assert model.bytes == 128_000
    assert weight_work(model.weights[1], 512, 0, model).bytes == 0


def test_norms_and_biases_are_read_only():
    assert {role_of(name, (64,)) for name in ("blk.0.attn_norm.weight", "blk.0.attn_q.bias")} == {"vector"}
    assert role_of("blk.0.attn_q.weight", (64, 64)) == "matrix"
    assert role_of("blk.0.ffn_gate_exps.bias", (64, 8)) == "experts"


def test_a_bound_is_the_longer_of_both_and_the_gain_is_amdahls():
    model = _model(_matrix(1000, 1000), layers=(_LAYER,))
    bound = bound_of(model, Run(tokens=4, depth=4096, batch=1), _peaks(1, 1e6), _F16)
    assert bound.limit == "memory"
    assert bound.seconds == pytest.approx(bound.bytes / 1e9)
    assert bound.gain == pytest.approx(1 / (1 - bound.share))
    fast = bound_of(model, Run(tokens=4, depth=4096, batch=1), _peaks(1e9, 1e-3), _F16)
    assert fast.limit == "compute"
    assert fast.seconds == pytest.approx(2 * fast.macs / 1e9)
    assert bound_of(
        _model(layers=(_LAYER,)), Run(tokens=4, depth=0, batch=4), _peaks(1, 1), _F16
    ).gain == float("inf")


def test_a_prompt_in_two_batches_reads_the_weights_twice():
    model = _model(_matrix(1000, 1000))
    whole, halves = (
        bound_of(model, Run(tokens=512, depth=0, batch=batch), _peaks(200, 60), _F16) for batch in (512, 256)
    )
    assert halves.bytes == 2 * whole.bytes
    assert halves.macs == whole.macs


# As build 6900 writes it, without what nobody reads.
_FIELDS = {
    "build_commit": "c22473b58", "build_number": 6900, "cpu_info": "c", "gpu_info": "g", "backends": "ROCm",
    "model_filename": "m.gguf", "model_type": "llama 1B Q4_K - Medium", "model_size": 799862912,
    "model_n_params": 1235814432, "n_batch": 2048, "n_ubatch": 512, "n_threads": 16, "cpu_mask": "0x0",
    "cpu_strict": False, "poll": 50, "type_k": "f16", "type_v": "f16", "n_gpu_layers": 99, "n_cpu_moe": 0,
    "split_mode": "layer", "main_gpu": 0, "no_kv_offload": False, "flash_attn": True, "devices": "auto",
    "tensor_split": "0.00", "tensor_buft_overrides": "none", "use_mmap": False, "embeddings": False,
    "no_op_offload": 0, "no_host": False, "n_prompt": 512, "n_gen": 0, "n_depth": 0,
    "test_time": "2025-11-01T00:00:00Z",
}  # fmt: skip


def _row(depth: int, *ns: int, **other: object) -> str:
    samples = {"samples_ns": ns, "samples_ts": [512e9 / each for each in ns], "avg_ns": sum(ns) // len(ns)}
    rest = {"stddev_ns": 0, "avg_ts": 512e9 / ns[0], "stddev_ts": 0.0, "n_depth": depth}
    return json.dumps({**_FIELDS, **samples, **rest, **other}) + "\n"


def test_what_depth_costs_is_attention():
    text = _row(0, 10**9) + _row(4096, 4 * 10**9, 2 * 10**9, 3 * 10**9)
    text += _row(0, 1, type_k="q8_0", type_v="q8_0")
    found = measured_of(parse_rows(text, "run.jsonl"), "f16", "run.jsonl")
    deep = found[512, 0, 4096]
    assert (deep.rate, deep.base_rate, deep.samples) == (pytest.approx(512 / 3), 512, 3)
    assert deep.share == pytest.approx(2 / 3)
    assert deep.gain == pytest.approx(3)
    assert (found[512, 0, 0].share, found[512, 0, 0].gain) == (0, 1)


def test_two_builds_in_one_file_are_refused():
    with refused("BENCH_FILE_BAD", match="2 different runs"):
        measured_of(parse_rows(_row(0, 1) + _row(0, 1, build_number=7000), "r"), "f16", "run.jsonl")
