"""Random numbers in every type of tensors, read back with gguf."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.attention_models import Architecture as OtherArchitecture
from patchkit.gpu.emulated.attention_models import AttentionModel
from patchkit.gpu.emulated.models import CLASSES, SmallModel, model_file
from patchkit.gpu.emulated.random_tensors import RandomTensors
from patchkit.gpu.emulated.recurrent import Architecture, RecurrentModel
from patchkit.prove.gates.logits_scenes import groups

QUANTIZED = tuple(
    kind
    for group in groups()
    if group.kind == "weights"
    for model in group.models
    if isinstance(model, SmallModel)
    for kind in model.weights
)


def written(path: Path) -> dict[str, np.ndarray]:
    return {one.name: gguf.dequantize(one.data, one.tensor_type) for one in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_every_type_holds_numbers_of_the_spread_that_was_asked_for(tmp_path: Path, kind: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "x")
    tensors = RandomTensors(writer, seed=1, spread=0.08, types=(kind,))
    tensors.matrix("x", 3, 64, 256, zeros=5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = written(tmp_path / "x.gguf")["x"].astype(np.float64)
    assert values.shape == (3, 64, 256)
    assert not values[:, :5].any()
    rest = values[:, 5:]
    assert 0.07 < rest.std() < 0.09
    assert abs(rest.mean()) < 0.01
    assert np.abs(rest).max() < 0.6  # no scale is out of the ordinary
    assert len(np.unique(rest)) > 15


def test_every_quantization_of_upstream_is_there_but_those_no_gpu_multiplies_by() -> None:
    assert set(QUANTIZED) == {
        *("F32", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "MXFP4"),
    }


def test_which_experts_a_token_gets_depends_on_its_class_alone(tmp_path: Path) -> None:
    model = SmallModel(head_size=64, experts=6, experts_used=2, weights=("Q4_0",), is_filled=True)
    tensors = written(model_file(model, tmp_path, NullReporter()))
    classes = tensors["token_embd.weight"][:, :8].astype(np.float32)
    assert (classes.sum(axis=1) == 1).all()
    assert (classes.argmax(axis=1) == np.arange(512) % 8).all()
    for layer in range(2):
        routes = tensors[f"blk.{layer}.ffn_gate_inp.weight"]
        assert not routes[:, 8:].any()
        # Neighbours in the order of a class are half a step apart at least: no rounding swaps them.
        assert (np.diff(np.sort(routes[:, :8], axis=0), axis=0) >= 0.5).all()
        # No layer writes where the class stands.
        assert not tensors[f"blk.{layer}.attn_output.weight"][:8].any()
        assert not tensors[f"blk.{layer}.ffn_down_exps.weight"][:, :8].any()
    assert model.name == "llama-d64-gqa4-moe6of2-q4_0"


@pytest.mark.parametrize(
    ("name", "head", "matrices", "kind"),
    [
        ("qwen3next", 64, {"ssm_ba": 8}, "F16"),
        ("qwen35moe", 128, {"ssm_beta": 4, "ssm_alpha": 4}, "Q8_0"),
        ("qwen4exp", 128, {"ssm_beta": 4, "ffn_gate_shexp": 256}, "Q8_0"),
    ],
)
def test_a_recurrent_model_is_of_its_architecture_and_always_the_same(
    tmp_path: Path, name: Architecture, head: int, matrices: dict[str, int], kind: str
) -> None:
    model = RecurrentModel(architecture=name)
    path = model_file(model, tmp_path / "a", NullReporter())
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    assert fields["general.architecture"] == name
    assert fields[f"{name}.full_attention_interval"] == 2
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tuple(tensors["blk.0.ssm_norm.weight"].shape) == (head,)
    for matrix, rows in matrices.items():
        found = tensors[f"blk.0.{matrix}.weight"]
        assert (tuple(found.shape), found.tensor_type.name) == ((256, rows), kind)
    assert model_file(model, tmp_path / "b", NullReporter()).read_bytes() == path.read_bytes()
    assert (
        path.read_bytes()
        != model_file(RecurrentModel(architecture="mamba"), tmp_path / "a", NullReporter()).read_bytes()
    )


@pytest.mark.parametrize(
    ("name", "tensor", "shape", "kind"),
    [
        ("gemma3", "post_ffw_norm.weight", (256,), "F32"),
        ("gemma4", "attn_q.weight", (256, 1024), "Q6_K"),
        ("glm4moe", "ffn_down_shexp.weight", (256, 256), "Q4_K"),
        ("gpt-oss", "ffn_down_exps.weight", (256, 256, 6), "MXFP4"),
        ("deepseek2", "attn_k_b.weight", (128, 512, 16), "Q8_0"),
    ],
)
def test_a_model_of_another_attention_has_its_tensors_and_fixed_routes(
    tmp_path: Path, name: OtherArchitecture, tensor: str, shape: tuple[int, ...], kind: str
) -> None:
    path = model_file(AttentionModel(architecture=name), tmp_path, NullReporter())
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.architecture"].contents() == name
    tensors = {each.name: each for each in reader.tensors}
    found = tensors[f"blk.1.{tensor}"]
    assert (tuple(found.shape), found.tensor_type.name) == (shape, kind)
    numbers = written(path)
    if name.startswith("gemma"):
        return  # no experts
    # No layer writes to the values that determine a token's experts.
    for block in ("blk.0", "blk.1"):
        for ending in (
            "attn_output.weight",
            "ffn_down.weight",
            "ffn_down_exps.weight",
            "ffn_down_shexp.weight",
        ):
            matrix = numbers.get(f"{block}.{ending}")
            assert matrix is None or not matrix[..., :CLASSES, :].any()
        for ending in ("attn_output.bias", "ffn_down_exps.bias"):
            bias = numbers.get(f"{block}.{ending}")
            assert bias is None or not bias[..., :CLASSES].any()
