"""The attention kernel's variants, its LDS, and the rules of its parameters."""

from __future__ import annotations

import pytest

from patchkit.base.occupancy import reported_waves
from patchkit.carry.placing.wmma import (
    VARIANTS,
    WmmaParams,
    WmmaVariant,
    lds_bytes,
    legal_params,
    violations,
    vkq_ratio,
    vkq_stride,
)


@pytest.mark.parametrize(
    ("head_size", "nwarps", "stride", "ratio"),
    [
        (64, 4, 64, 1),
        (64, 8, 64, 2),
        (80, 4, 16, 4),
        (96, 4, 32, 2),
        (112, 2, 16, 2),
        (128, 8, 128, 1),
        (256, 4, 64, 1),
    ],
)
def test_vkq_stride_and_ratio(head_size, nwarps, stride, ratio) -> None:
    variant, params = WmmaVariant(head_size, 16, "f16"), WmmaParams(256, nwarps)
    assert (vkq_stride(variant, params), vkq_ratio(variant, params)) == (stride, ratio)


def test_lds_is_the_compilers_on_every_row(compiled) -> None:
    assert len(compiled) == 268
    for row in compiled:
        assert lds_bytes(row.variant, row.params) == row.lds, row


@pytest.mark.parametrize(
    ("variant", "params", "rule", "text"),
    [
        ((64, 16, "f32"), (32, 4), "C1", "kq_stride 32 is not a multiple of 16*nwarps = 64"),
        ((80, 16, "f32"), (96, 8), "C2", "kq_stride 96 is not a multiple of 16*8 = 128"),
        ((64, 16, "f16"), (32, 2), "C3", "kq_stride 32 is not a multiple of 2*32 lanes"),
        ((64, 16, "f16"), (192, 4), "C4", "kq_stride 192 does not divide the KV padding 256"),
        ((64, 16, "f16"), (512, 4), "C4", "kq_stride 512 does not divide the KV padding 256"),
        ((64, 16, "f16"), (192, 3), "C6", "16 columns are not a multiple of nwarps 3"),
        ((64, 32, "f16"), (1024, 64), "C7", "2048 threads per block are more than 1024"),
        ((112, 32, "f16"), (128, 8), "C8", "69120 bytes of LDS are more than 65536"),
        ((64, 16, "f16"), (256, 4, 17), "M1", "min_waves 17 is not between 1 and 16"),
        ((64, 16, "f16"), (256, 4, 0), "M1", "min_waves 0 is not between 1 and 16"),
    ],
)
def test_each_rule_says_its_numbers(limits, variant, params, rule, text) -> None:
    broken = violations(WmmaVariant(*variant), WmmaParams(*params), limits["gfx1151"])
    assert broken[rule] == text


def test_the_ratio_never_exceeds_the_waves() -> None:
    # C9 cannot be broken by params of this kernel; a change of vkq_stride would show here.
    for variant in VARIANTS:
        for nwarps in range(1, 17):
            assert vkq_ratio(variant, WmmaParams(256, nwarps)) <= nwarps


def test_the_legal_set_is_what_was_compiled(compiled, limits) -> None:
    legal = {(v, p) for v in VARIANTS for p in legal_params(v, limits["gfx1151"])}
    measured = {(row.variant, row.params) for row in compiled}
    assert measured == legal


def test_wide_waves_need_wider_strides(limits) -> None:
    variant = WmmaVariant(64, 16, "f16")
    assert [p.kq_stride for p in legal_params(variant, limits["gfx90a"])] == [128] * 4 + [256] * 5
    assert [p.kq_stride for p in legal_params(variant, limits["gfx1151"])][:3] == [64, 64, 64]


def test_params_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        WmmaParams(0, 4)


def test_reported_waves_are_the_compilers_on_every_row(compiled, limits) -> None:
    for row in compiled:
        threads = 32 * row.params.nwarps
        assert reported_waves(row.vgprs, row.lds, threads, limits["gfx1151"]) == row.waves, row
