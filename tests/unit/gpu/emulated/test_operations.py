"""Single operations: their cases, and what the names of their kernels tell."""

from __future__ import annotations

import pytest
from launches import launch_of

from patchkit.gpu.emulated.log import Launch, Section
from patchkit.gpu.emulated.operations import (
    BATCHES,
    operation_cases,
    operation_line,
    precision_of,
    route_of,
)


def _section(launches: list[Launch], *products: str) -> Section:
    return Section(mark="", steps=(tuple(launches),), products=products)


_QUANTIZE = launch_of("_ZL13quantize_q8_1PKfPv")
_VECTOR = launch_of("_ZL13mul_mat_vec_qIL9ggml_type12ELi1ELb0EEvPKv")
_TO_HALF = launch_of("_ZL13convert_unaryIf6__halfEvPKvPT0_")
_WMMA = "_ZL18flash_attn_ext_f16ILi128ELi32ELi4ELi64EfLb0EEvPKc"


def test_cases_have_each_type_and_batch_once():
    cases = operation_cases()
    assert len({case.id for case in cases}) == len(cases)
    products = {(case.type, case.tokens) for case in cases if case.op == "MUL_MAT"}
    assert {("q4_K", tokens) for tokens in BATCHES} <= products
    assert {case.op for case in cases} >= {"MUL_MAT", "MUL_MAT_ID", "GET_ROWS", "SET_ROWS", "ROPE"}
    indexed = {(case.rows, case.tokens) for case in cases if case.op == "LIGHTNING_INDEXER"}
    assert {(4, 7), (4, 8), (64, 1)} <= indexed
    weighted = [case for case in cases if case.op in {"MUL_MAT", "MUL_MAT_ID", "GET_ROWS", "SET_ROWS"}]
    assert all(case.columns % 256 == 0 for case in weighted)  # whole blocks of every type
    assert operation_line(cases[0]) == (
        "op-0 op=MUL_MAT type=q4_0 rows=4096 columns=4096 tokens=1 experts=1 used=1\n"
    )


def test_a_route_names_each_kernel_once_and_tells_attention_kernels_apart():
    launches = [
        _QUANTIZE,
        _VECTOR,
        _VECTOR,
        launch_of(_WMMA, "fattn-wmma-f16.cu"),
        launch_of(_WMMA, "fattn-mma.cu"),
    ]
    assert route_of(_section(launches, "hipblasGemmEx 4x4x4", "hipblasGemmEx 8x8x8")) == (
        *("quantize_q8_1", "mul_mat_vec_q"),
        *("flash_attn_ext_f16 (WMMA)", "flash_attn_ext_f16 (MMA)", "hipblasGemmEx"),
    )


@pytest.mark.parametrize(
    ("launches", "products", "told"),
    [
        ([_QUANTIZE, _VECTOR], [], "weights as stored, activations in blocks of 8-bit integers"),
        ([_TO_HALF], ["hipblasGemmEx 1x1x1"], "matmul by the BLAS library of f16 inputs"),
        ([launch_of("_ZL11dequantizeXILb0EEvPKv")], ["hipblasGemmEx 1x1x1"], "matmul by the BLAS library"),
        ([], ["hipblasSgemm 1x1x1"], "f32 matmul by the BLAS library"),
        ([launch_of("_ZL13mul_mat_vec_fI6__halffLi1EEvPKv")], [], "f16 weights, f32 sums"),
        ([launch_of("_ZL13mul_mat_vec_fI6__halfS0_Li1EEvPKv")], [], "f16 weights, f16 sums"),
        ([launch_of(_WMMA, "fattn-wmma-f16.cu")], [], "f16 matmuls, f32 sums"),
    ],
)
def test_precision_is_read_off_names(launches, products, told):
    assert precision_of(_section(launches, *products)) == (told,)


def test_what_names_do_not_say_is_not_said():
    assert precision_of(_section([launch_of("_ZL12rms_norm_f32ILi256EEvPKf")])) == ()
    assert precision_of(_section([launch_of(_WMMA, "fattn-mma-f16.cu")])) == ()
