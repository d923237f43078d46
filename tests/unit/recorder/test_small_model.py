from __future__ import annotations

import gguf

from patchkit.recorder.model_file import SmallModel, model_file
from patchkit.report import NullReporter


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
