"""Published times of attention: sums over the calls of a kernel, and what a batch takes longer at depth."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from patchkit.base.plain import fields_of
from patchkit.carry.series.lock import load_lock
from patchkit.gpu.emulated.cases import Case
from patchkit.gpu.modelled.against import Published
from patchkit.gpu.modelled.attention import attention_points_of, compare_attention
from patchkit.gpu.modelled.compare import Comparison
from patchkit.gpu.modelled.network import Batch
from patchkit.gpu.modelled.operation import kind_of
from patchkit.gpu.modelled.shape import load_models

_SPEED = {
    "kind": "model-prefill",
    "group": "g",
    "source": "somebody",
    "date": "2025-10-28",
    "what": "pp512",
    "model": "llama 1B Q8_0",
}
_KERNEL = {
    "kind": "kernel-time",
    "group": "k",
    "date": "2026-07-18",
    "what": "flash_attn_tile<256,256,4,8>",
    "model": "Qwen3.6-35B-A3B-UD-Q4_K_XL",
    "depth": 16384,
    "n_tokens": 512,
    "us_sum": 158900.0,
    "calls": 10,
}
_TILE = "_ZL15flash_attn_tileILi256ELi256ELi4ELi8ELb0EEvPKc"
_MMA = "_ZL18flash_attn_ext_f16ILi256ELi256ELi8ELi8ELb0ELb0ELb0EEvPKc"


@pytest.fixture
def points(checkout: Path):
    models = load_models(checkout / "arch_profiles")
    pins = load_lock(checkout / "patches" / "upstream.lock").pins

    def of(*rows):
        return attention_points_of([Published.model_validate(row) for row in rows], models, pins)

    return of


def test_the_difference_of_two_depths_of_a_build_is_attention(points):
    rows = [{**_SPEED, "depth": depth, "ts_before": rate} for depth, rate in ((0, "512"), (4096, "256.0"))]
    (point,) = points(*rows)
    assert point.measured_us == pytest.approx(1e6)  # two seconds less one
    assert (point.batch, point.less) == (Batch(tokens=512, depth=4096), Batch(tokens=512, depth=0))
    assert (point.index, point.pin.build, point.kernel) == (1, 6900, None)
    assert point.model.family == "llama 1B"  # attention is the same in every type of file
    assert str(point) == "llama 1B Q4_K - Medium, attention of 512 tokens at depth 0 to 4096"


def test_depths_that_hardly_differ_are_passed_over(points):
    rates = {0: "100", 1024: "95", 4096: "80", 8192: "79"}
    rows = [{**_SPEED, "depth": depth, "ts_before": rate} for depth, rate in rates.items()]
    (point,) = points(*rows)
    assert (point.less.depth, point.batch.depth) == (0, 4096)


@pytest.mark.parametrize(
    "other",
    [
        {"what": "pp128"},
        {"n_ubatch": 64},
        {"date": "2026-01-01"},
        {"model": "llama 8B Q8_0"},
        {"config_before": "Vulkan"},
        {"config_before": "HIP + rocWMMA"},
    ],
)
def test_only_speeds_of_one_build_and_test_have_a_difference(points, other):
    assert (
        points({**_SPEED, "ts_before": "512"}, {**_SPEED, "depth": 4096, "ts_before": "256", **other}) == []
    )


def test_a_build_that_is_in_no_tree_counts_where_it_names_upstreams_kernel(points):
    def rows(text):
        return [
            {**_SPEED, "depth": depth, "ts_before": rate, "config_before": text}
            for depth, rate in ((0, "512"), (4096, "256"))
        ]

    (tile,) = points(*rows("a fork, FA by TILE"))
    assert (tile.kernel, tile.rocwmma) == ("tile", False)
    (wmma,) = points(*rows("GGML_HIP_ROCWMMA_FATTN=ON (fattn-wmma-f16)"))
    assert (wmma.kernel, wmma.rocwmma) == ("wmma", True)
    assert points(*rows("a fork")) == []


def test_a_sum_over_the_calls_of_a_kernel_is_a_point(points):
    (point,) = points(_KERNEL)
    assert (point.kernel, point.arguments) == ("tile", ("256", "256", "4", "8"))
    assert (point.batch, point.less, point.measured_us) == (Batch(tokens=512, depth=16384), None, 158900.0)
    assert point.pin.build == 10068  # nearest to the day
    (ranged,) = points(
        {
            **_KERNEL,
            "what": "2048-token ubatch, kv range 6k-8k",
            "heads_note": "flash_attn_tile<256,256,4,8>, 10 dispatches",
            "depth": None,
            "n_tokens": 2048,
            "us_sum": None,
            "us_sum_fa": 331000,
            "calls": None,
        }
    )
    assert (ranged.batch.depth, ranged.measured_us) == (6144, 331000)


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": 20},  # of two batches
        {"calls": "10+10"},
        {"what": "mul_mat_q<12>"},
        {"depth": None},
        {"n_tokens": None},
        {"us_sum": None},
        {"model": "llama 13B"},
    ],
)
def test_a_sum_that_says_too_little_is_none(points, changes):
    assert points({**_KERNEL, **changes}) == []


def test_the_days_of_a_build_are_not_its_number(points):
    (point,) = points({**_KERNEL, "llama_build": "4781fb9 (fork of upstream, 2026-07-18)"})
    assert point.pin.build == 10068


def _timed(us_per_row: float, name: str = _TILE):
    def timed(case: Case):
        kernel = SimpleNamespace(us=1.0, kind=kind_of(name), played=SimpleNamespace(kernel=name))
        return SimpleNamespace(us=us_per_row * case.kv, kernels=(kernel,), kind=kernel.kind)

    return timed


def test_all_layers_are_counted_and_the_shallower_batch_is_taken_off(points):
    rows = [{**_SPEED, "depth": depth, "ts_before": rate} for depth, rate in ((0, "512"), (4096, "256"))]
    (point,) = points(*rows)
    found = compare_attention(point, _timed(2.0))
    assert found.modelled_us == 16 * 2.0 * 4096  # layers of llama 1B
    assert found.error == pytest.approx(16 * 2.0 * 4096 / 1e6 - 1)
    comparison = Comparison(arch="gfx1151", compared=(), refused=(), ratios=(), attention=(found,))
    errors = comparison.attention_errors()
    assert list(errors) == ["tile, prompts"]
    assert fields_of(comparison)["errors"]["attention"]["tile, prompts"]["points"] == 1


def test_another_kernel_than_was_measured_is_not_compared(points):
    (point,) = points(_KERNEL)
    assert compare_attention(point, _timed(1.0)).modelled_us == 10 * 16896
    for name in (_MMA, _TILE.replace("Li4E", "Li2E")):
        other = compare_attention(point, _timed(1.0, name))
        assert other.modelled_us is None
        assert "another kernel for it: flash_attn_" in other.why
    none = compare_attention(point, lambda _: None)
    assert "has no kernel for D=256" in none.why


def test_of_large_batches_the_rows_that_the_mask_hides_are_left_out(points):
    (point,) = points({**_KERNEL, "n_tokens": 2048})
    assert compare_attention(point, _timed(1.0)).modelled_us == 10 * (16384 + 1024)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (_TILE, "tile"),
        (_MMA, "mma"),
        ("_ZL18flash_attn_ext_f16ILi64ELi32ELi4ELi256EfLb0EEvPKc", "wmma"),
        ("_ZL18flash_attn_ext_f16ILi64ELi32ELi4ELi256E6__halfLb0EEvPKc", "wmma"),
        ("_ZL22flash_attn_mma_promptsILi64ELi4EEvPKc", "mma"),
        ("_ZL18flash_attn_ext_vecILi128ELi1EL9ggml_type1ELS0_1ELb0EEvPKc", "vec"),
        ("_ZL26flash_attn_combine_resultsILi64EEvPKf", "attention"),
        ("_ZL9mul_mat_qIL9ggml_type12ELi128ELb0EEvPKc", "mmq"),
    ],
)
def test_kernels_of_attention_have_kinds_of_their_own(name, kind):
    assert kind_of(name) == kind
