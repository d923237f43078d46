"""Short names of kernels keep everything that tells two kernels apart."""

from __future__ import annotations

import pytest

from patchkit.gpu.emulated.kernel_labels import label_kernel


@pytest.mark.parametrize(
    ("variant", "label"),
    [
        ("mul_mat_q<(ggml_type)8, 128, false>", "mul_mat_q Q8_0, 128 columns"),
        ("mul_mat_q<8, 128, true>", "mul_mat_q Q8_0, 128 columns, checked rows"),
        (
            "mul_mat_q<(ggml_type)6, 1, true, (ggml_prec)10>",
            "mul_mat_q Q5_0, 1 column, fallback, f32 precision",
        ),
        ("mul_mat_vec_q<(ggml_type)12, 1, true>", "mul_mat_vec_q Q4_K, 1 column, fused"),
        ("flash_attn_tile<128, 128, 2, 4, false>", "flash_attn_tile head size 128, 2 tokens, 4 heads"),
        (
            "flash_attn_tile<576, 512, 2, 1, true>",
            "flash_attn_tile head size 576, V 512, 2 tokens, 1 head, softcap",
        ),
        (
            "flash_attn_ext_f16<128, 16, 4, 64, __half, false>",
            "flash_attn_ext_f16 head size 128, 16 columns, 4 warps, stride 64, f16 acc",
        ),
        (
            "flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)8, false>",
            "flash_attn_ext_vec head size 128, 1 token, K F16, V Q8_0",
        ),
        ("k_get_rows<(ggml_type)2, dequantize<2, float>>", "k_get_rows<Q4_0, dequantize<2, float>>"),
        ("rms_norm_f32<1024, true>", "rms_norm_f32<1024, true>"),
        ("scale_f32", "scale_f32"),
        ("mul_mat_q<(ggml_type)99, 8, false>", "mul_mat_q (ggml_type)99, 8 columns"),
        ("<>", "<>"),
    ],
)
def test_a_kernel_has_a_short_name(variant: str, label: str) -> None:
    assert label_kernel(variant) == label
