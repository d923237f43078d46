"""Models described by a GGUF header or by a shape file."""

from __future__ import annotations

import pytest
from refusing import refused

from patchkit.base.errors import ErrorGroup
from patchkit.gpu.gguf import load_gguf
from patchkit.gpu.modelled.shape import draft_shape_of_header, load_models, shape_of_file, shape_of_header


def _read(path):
    return shape_of_header(load_gguf(path), path)


def _draft(path):
    return draft_shape_of_header(load_gguf(path), path)


def test_sizes_come_from_the_metadata_and_the_tensors(write_model):
    model = _read(write_model(attention__head_count_kv=2, attention__key_length=24))
    assert len(model.layers) == 4
    (layer,) = set(model.layers)
    assert (layer.heads, layer.kv_heads, layer.head_size_k, layer.head_size_v) == (4, 2, 24, 16)
    assert layer.window is None
    assert model.values == 64 * (32 + 8 * 64)
    late = {weight.name for weight in model.weights if weight.after_last_attention}
    assert late == {"blk.3.ffn_up.weight", "output.weight (token_embd.weight)"}


def test_heads_may_differ_by_layer_and_be_none(write_model):
    model = _read(write_model(attention__head_count_kv=[1, 0, 2, 0]))
    assert [layer.kv_heads for layer in model.layers] == [1, 2]
    assert "2 of 4 layers have no attention" in model.notes[0]


@pytest.mark.parametrize(
    ("arch", "windowed"), [("gpt-oss", [True, False, True, False]), ("cohere2", [True, True, True, False])]
)
def test_the_window_has_the_pattern_that_llama_cpp_gives_the_architecture(write_model, arch, windowed):
    model = _read(write_model(arch, attention__sliding_window=128))
    assert [layer.window == 128 for layer in model.layers] == windowed
    assert f"as for {arch}" in model.notes[0]


def test_a_pattern_in_the_file_goes_before(write_model):
    fields = {"attention__sliding_window": 9, "attention__sliding_window_pattern": [True, True, False, True]}
    model = _read(write_model("gpt-oss", **fields))
    assert [layer.window for layer in model.layers] == [9, 9, None, 9]


def test_a_window_without_a_known_pattern_is_told_and_left_out(write_model):
    model = _read(write_model("llama", attention__sliding_window=128))
    assert {layer.window for layer in model.layers} == {None}
    assert "not for which layers" in model.notes[0]


def test_latent_attention_is_seen(write_model):
    model = _read(write_model("deepseek2", attention__key_length=576, attention__key_length_mla=192))
    assert all(layer.shares_v for layer in model.layers)


def test_every_fourth_layer_of_a_hybrid_model_attends(write_model):
    for fields in (
        {},
        {"full_attention_interval": 4},
        {"attention__recurrent_layers": [True, True, True, False]},
    ):
        model = _read(write_model("qwen35", **fields))
        assert len(model.layers) == 1
        assert "3 of 4 layers have no attention; their state is not counted" in model.notes
    assert len(_read(write_model("qwen35moe", full_attention_interval=2)).layers) == 2
    assert len(_read(write_model("llama")).layers) == 4


def test_layers_for_drafts_are_not_counted(write_model):
    plain, with_drafts = _read(write_model("glm4moe")), _read(write_model("glm4moe", nextn_predict_layers=1))
    assert (len(plain.layers), len(with_drafts.layers)) == (4, 3)
    assert plain.bytes - with_drafts.bytes == 2 * 64 * 64 * 2  # attn_q and ffn_up in f16
    late = {weight.name for weight in with_drafts.weights if weight.after_last_attention}
    assert "blk.2.ffn_up.weight" in late
    assert "1 of 4 layers are for drafts (MTP)" in with_drafts.notes[0]
    drafting = _draft(write_model("glm4moe", nextn_predict_layers=1))
    assert drafting is not None
    assert len(drafting.layers) == 1
    # A draft reads its layer and the output; the embedding is read for one token only.
    assert {weight.name for weight in drafting.weights if weight.role == "matrix"} == {
        "blk.3.attn_q.weight",
        "blk.3.ffn_up.weight",
        "output.weight (token_embd.weight)",
    }
    assert _draft(write_model("glm4moe")) is None
    # Of a hybrid model, the layer for drafts is one that attends.
    assert len(_read(write_model("qwen35", full_attention_interval=2, nextn_predict_layers=2)).layers) == 1


def test_heads_of_layers_with_a_window_may_have_another_size(write_model):
    model = _read(
        write_model(
            "gemma4",
            attention__head_count_kv=[4, 4, 4, 1],
            attention__key_length=512,
            attention__value_length=512,
            attention__key_length_swa=256,
            attention__value_length_swa=256,
            attention__sliding_window=8,
            attention__sliding_window_pattern=[True, True, True, False],
            attention__shared_kv_layers=2,
        )
    )
    assert [layer.values_per_row for layer in model.layers] == [4 * 512] * 3 + [1024]
    assert [layer.reuses_kv for layer in model.layers] == [False, False, True, True]


def test_sparse_attention_reads_what_its_indexer_selects(write_model):
    ratios = {"attention__compress_ratios": [0, 4, 128, 4, 0], "attention__indexer__top_k": 16}
    model = _read(write_model("deepseek4", attention__sliding_window=8, attention__head_count_kv=1, **ratios))
    assert all(layer.shares_v for layer in model.layers)
    assert [(layer.window, layer.compressed, layer.selected) for layer in model.layers] == [
        (8, None, None),
        (8, 4, 16),
        (8, 128, None),
        (8, 4, 16),
    ]
    assert [layer.compressed_rows(1000) for layer in model.layers] == [0, 16, 7, 16]
    ratios = {"attention__compress_ratios": [0, 0, 0, 4], "attention__indexer__top_k": 16}
    (layer,) = _read(write_model("qwen4exp", **ratios)).layers
    assert (layer.window, layer.compressed, layer.selected, layer.visible) == (None, None, 16, 16)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"nextn_predict_layers": 4}, "4 of its 4 layers are for drafts"),
        ({"full_attention_interval": 0}, "full_attention_interval is 0"),
        ({"attention__key_length_swa": 0}, "head size is 0"),
        ({"attention__compress_ratios": [4]}, "compress_ratios has 1 entries for 4 layers"),
        ({"block_count": None}, "has no llama.block_count"),
        ({"block_count": 2**31}, "llama.block_count is 2147483648"),
        ({"block_count": 100_000}, "100000 layers"),
        ({"block_count": "many"}, "llama.block_count is many"),
        ({"attention__head_count": None}, "attention.head_count"),
        ({"attention__head_count": 1000}, "head size is 0"),
        ({"embedding_length": None}, "embedding_length"),
        ({"attention__head_count_kv": [1, 2]}, "2 entries for 4 layers"),
        ({"expert_count": 2, "expert_used_count": 3}, "3 of 2 experts"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(write_model, fields, why):
    with refused("MODEL_MISSING") as caught:
        _read(write_model(**fields))
    assert why in (caught.value.why or "")


# Size as llama-bench prints it (MiB, GiB or bytes) and billions of values.
_PRINTED = {
    "llama-3.2-1b-q4_k_m": ("762.81 MiB", 1.24),
    "gemma-3-4b-q4_k_m": ("2.31 GiB", 3.88),
    "llama-3.1-8b-q4_k_m": ("4.58 GiB", 8.03),
    "qwen3-8b-q4_k_m": ("4.68 GiB", 8.19),
    "gpt-oss-20b-f16": ("13141.28 MiB", 20.91),
    "gpt-oss-20b-mxfp4": ("11.27 GiB", 20.91),
    "gemma-3-27b-q4_k_m": ("15.40 GiB", 27.01),
    "qwen3-30b-a3b-q4_k_m": ("17.28 GiB", 30.53),
    "qwen3.6-35b-a3b-q4_k_m": ("21155768832 B", 34.66),
    "llama-2-7b-q4_0": ("3.56 GiB", 6.74),
    "llama-3.1-70b-q4_k_m": ("39.59 GiB", 70.55),
    "gpt-oss-120b-mxfp4": ("59.02 GiB", 116.83),
}


# Billions of values as published, where no file of this type is known whose size was printed. GLM-4.5-Air and
# the others with drafts: without the layer for drafts. Qwen3.8-Flash-Next: 125 of the model, 51 of the table.
_PUBLISHED = {
    "qwen3.8-27b-q4_k_m": 26.90,
    "glm-4.5-air-q4_k_m": 106.85,
    "gemma-4-31b-q4_k_m": 30.70,
    "gemma-4-26b-a4b-q4_k_m": 25.23,
    "deepseek-v4-flash-q2_k": 284.33,
    "qwen3.8-flash-next-iq4_xs": 176.94,
}


def test_the_shapes_described_by_hand_have_the_published_number_of_values(checkout):
    folder = checkout / "arch_profiles" / "models"
    for stem, billions in _PUBLISHED.items():
        model = shape_of_file(folder / f"{stem}.toml")
        assert round(model.values / 1e9, 2) == billions, stem
        assert model.is_unchecked
        assert "not compared" in model.notes[1]
    assert not any(model.is_unchecked for model in load_models(folder.parent))


def test_the_shapes_described_by_hand_have_the_size_that_llama_bench_printed(checkout):
    folder = checkout / "arch_profiles" / "models"
    assert {path.stem for path in folder.glob("*.toml")} == _PRINTED.keys() | _PUBLISHED.keys()
    for stem in _PRINTED:
        path = folder / f"{stem}.toml"
        model = shape_of_file(path)
        size, billions = _PRINTED[path.stem]
        number, unit = size.split(" ")
        digits = len(number.partition(".")[2])
        assert f"{model.bytes / {'B': 1, 'MiB': 2**20, 'GiB': 2**30}[unit]:.{digits}f}" == number, path.stem
        assert round(model.values / 1e9, 2) == billions, path.stem


def test_layers_that_keep_a_state_do_not_attend_and_are_told(checkout):
    model = shape_of_file(checkout / "arch_profiles" / "models" / "qwen3.6-35b-a3b-q4_k_m.toml")
    assert {(layer.heads, layer.kv_heads, layer.head_size_k) for layer in model.layers} == {(16, 2, 256)}
    assert len(model.layers) == 10
    assert "30 of 40 layers have no attention; their state is not counted" in model.notes
    assert {weight.role for weight in model.weights if "conv1d" in weight.name} == {"vector"}


_SHAPE = """name = "m"
source = "test"
layers = 2
heads = 8
kv_heads = 2
head_size = 64
tensors = [{ name = "blk.*.ffn_up.weight", shape = [64, 64], type = "TYPE", count = 2 }]
"""


def test_a_shape_file_tells_the_last_layer_apart(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(_SHAPE.replace("TYPE", "Q8_0"))
    assert [(w.count, w.after_last_attention) for w in shape_of_file(path).weights] == [(1, False), (1, True)]


def test_wrong_shape_files_are_refused(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(_SHAPE.replace("TYPE", "Q4_L"))
    with refused("TENSOR_TYPE_UNKNOWN"):
        shape_of_file(path)
    for old, new, says in (
        ("heads = 8", "heads = 7", "multiple"),
        ("[64, 64]", "[64, 0]", "dimension"),
        ("layers = 2", "layers = 2\nexperts_used = 1", "experts"),
        ("layers = 2", "layers = 2\nwindow_every = 2", "window"),
        ("layers = 2", "layers = 2\nattention_every = 3", "attention_every"),
        ("layers = 2", "layers = 2\nattention_every = 0", "attention_every"),
        ("layers = 2", "layers = 2\nwidnow = 2", "widnow"),
    ):
        path.write_text(_SHAPE.replace(old, new, 1))
        with pytest.raises(ErrorGroup) as caught:
            shape_of_file(path)
        assert says in str(caught.value.errors[0].message) + str(caught.value.errors[0].why)
