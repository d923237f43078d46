"""The small models that patchkit writes itself."""

from __future__ import annotations

import gguf

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.models import SmallModel, model_file


def test_the_model_is_what_it_is_asked_to_be(tmp_path):
    model = SmallModel(head_size=64)
    path = model_file(model, tmp_path, NullReporter())
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama"
    assert fields["llama.attention.head_count"] == 4
    assert fields["llama.attention.head_count_kv"] == 1
    assert fields["llama.attention.key_length"] == 64
    assert fields["llama.vocab_size"] == 512
    assert fields["tokenizer.ggml.model"] == "no_vocab"
    tensors = {tensor.name: list(tensor.shape) for tensor in reader.tensors}
    assert tensors["blk.1.attn_k.weight"] == [256, 64]
    assert len(tensors) == 3 + 2 * 9
    assert model.name == "llama-d64-gqa4"


def test_the_model_is_written_once_and_always_the_same(tmp_path):
    model = SmallModel(head_size=64)
    first = model_file(model, tmp_path / "a", NullReporter())
    written = first.stat().st_mtime_ns
    assert model_file(model, tmp_path / "a", NullReporter()).stat().st_mtime_ns == written
    again = model_file(model, tmp_path / "b", NullReporter())
    assert again.read_bytes() == first.read_bytes()


def test_a_quantized_model_has_its_types_in_turn_and_nothing_but_zeros(tmp_path):
    model = SmallModel(head_size=64, weights=("Q4_K", "Q8_0"))
    path = model_file(model, tmp_path, NullReporter())
    assert path != model_file(SmallModel(head_size=64), tmp_path, NullReporter())
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    kinds = [tensors[f"blk.0.attn_{name}.weight"].tensor_type.name for name in ("q", "k", "v", "output")]
    assert kinds == ["Q4_K", "Q8_0", "Q4_K", "Q8_0"]
    assert list(tensors["blk.0.attn_k.weight"].shape) == [256, 64]
    assert not tensors["output.weight"].data.any()
    assert tensors["token_embd.weight"].tensor_type.name == "F16"
    assert tensors["output_norm.weight"].data.all()
    assert model.name == "llama-d64-gqa4-q4_k-q8_0"
