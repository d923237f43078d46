"""Published speeds of whole models: which can be modelled, as which batch, of which tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.plain import fields_of
from patchkit.carry.series.lock import load_lock
from patchkit.gpu.modelled.against import Published
from patchkit.gpu.modelled.compare import Comparison
from patchkit.gpu.modelled.network import Batch, ModelTime
from patchkit.gpu.modelled.shape import load_models, of_one_type
from patchkit.gpu.modelled.whole import ComparedModel, model_points_of

_ROW = {
    "kind": "model-prefill",
    "group": "g",
    "source": "somebody",
    "date": "2025-10-28",
    "what": "pp2048",
    "model": "llama 1B Q4_K - Medium",
    "ts_before": "4076.03 ± 2.1",
}


@pytest.fixture(scope="module")
def models():
    return load_models(Path(__file__).resolve().parents[4] / "arch_profiles")


@pytest.fixture
def points(models, checkout: Path):
    pins = load_lock(checkout / "patches" / "upstream.lock").pins

    def of(**changes):
        return model_points_of([Published.model_validate({**_ROW, **changes})], models, pins)

    return of


def test_a_row_is_the_batch_in_the_middle_of_the_test_on_the_nearest_pin(points):
    (point,), none = points(n_ubatch=128, depth=1000)
    assert none == []
    assert point.batch == Batch(tokens=128, depth=1000 + (2048 - 128) // 2)
    assert (point.measured, point.pin.build, point.rocwmma, point.is_prompt) == (4076.03, 6900, False, True)
    assert points()[0][0].batch == Batch(tokens=512, depth=768)  # llama-bench's micro-batch
    assert points(what="pp100")[0][0].batch == Batch(tokens=100, depth=0)
    (decode,), _ = points(what="tg128", kind="model-decode", depth=16384)
    assert decode.batch == Batch(tokens=1, depth=16384 + 63)
    assert not decode.is_prompt


def test_sides_are_upstreams_trees_with_rocwmma_and_without(points):
    found, refused = points(
        config_before="HIP, no rocWMMA",
        config_mid="HIP + rocWMMA untuned",
        config_after="HIP + rocWMMA lhl-tune-tile",
        ts_mid="4204.81",
        ts_after="4575.18",
    )
    assert [(one.side, one.rocwmma, one.measured) for one in found] == [
        ("before", False, 4076.03),
        ("between", True, 4204.81),
    ]
    assert [(one.side, one.why) for one in refused] == [
        ("after", "whole model: 'HIP + rocWMMA lhl-tune-tile' is not an upstream tree")
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "llama 13B Q4_0"}, "no shape of 'llama 13B Q4_0'"),
        ({"model": "llama 1B Q4_K - Small"}, "no shape of"),
        ({"model": None}, "no shape of ''"),
        ({"what": "prefill ms"}, "not a test of llama-bench"),
        ({"what": "pp0"}, "not a test of llama-bench"),
        ({"config_before": "Vulkan"}, "'Vulkan' is not an upstream tree"),
        ({"config_before": "default"}, "'default' is not an upstream tree"),
    ],
)
def test_what_cannot_be_modelled_says_why(points, changes, why):
    found, (refused,) = points(**changes)
    assert found == []
    assert why in refused.why


def test_rows_without_a_speed_or_of_kernels_are_no_points(points):
    assert points(ts_before=None) == ([], [])
    assert points(ts_before="about 5") == ([], [])
    assert points(kind="kernel-time") == ([], [])


def test_a_model_is_known_by_other_names_and_in_other_types(points, models):
    (point,), _ = points(model="Qwen3.6-35B-A3B Q4_K_M")
    assert point.model.name == "qwen35moe 35B.A3B Q4_K - Medium"
    (point,), _ = points(model="llama 8B Q5_K_S")
    kinds = {weight.name: weight.kind.name for weight in point.model.weights}
    assert kinds["blk.*.ffn_down.weight"] == kinds["token_embd.weight"] == "Q5_K"
    assert (kinds["output.weight"], kinds["output_norm.weight"]) == ("Q6_K", "F32")
    llama = next(model for model in models if model.family == "llama 8B")
    # What llama-bench prints of these files: 4.33, 7.95 and 14.96 GiB.
    sizes = {name: of_one_type(llama, name) for name in ("Q4_0", "Q8_0", "F16")}
    told = {name: round(model.bytes / 2**30, 2) for name, model in sizes.items() if model is not None}
    assert told == {"Q4_0": 4.33, "Q8_0": 7.95, "F16": 14.96}
    assert of_one_type(llama, "IQ3_S") is None


def test_errors_of_models_stand_apart(points):
    (point,), _ = points()
    (decode,), _ = points(what="tg128")

    class Time(ModelTime):
        @property
        def us(self) -> float:
            return self.batch.tokens * 1e6 / (point.measured * 1.1)

        @property
        def of_library(self) -> float:
            return 0.5 if self.batch.tokens > 1 else 0.0

    compared = tuple(
        ComparedModel(point=one, modelled=Time(batch=one.batch, parts=(), missing=()))
        for one in (point, decode)
    )
    found = Comparison(arch="gfx1151", compared=(), refused=(), ratios=(), models=compared)
    assert found.errors() == {}
    errors = found.model_errors()
    assert list(errors) == ["prompts", "generated tokens"]  # of prompts none is without BLAS
    assert errors["prompts"].median == pytest.approx(0.1)
    document = fields_of(found)
    assert document["errors"]["models"]["prompts"]["points"] == 1
    assert document["models"][1]["test"] == "tg128"
