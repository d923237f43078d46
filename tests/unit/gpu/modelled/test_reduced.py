"""A model with few layers: which layers stand for all, and its file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.base.errors import PatchkitError
from patchkit.gpu.emulated.sparse_model import Stored
from patchkit.gpu.gguf import load_gguf
from patchkit.gpu.modelled.reduced import reduced, whole_of_header, whole_of_shape

MODELS = Path(__file__).parents[4] / "arch_profiles" / "models"
REFUSED = ("deepseek", "gemma-4", "glm", "qwen3.8-flash")  # llama.cpp needs more than their shape files have
SHAPES = [path for path in sorted(MODELS.glob("*.toml")) if not path.stem.startswith(REFUSED)]


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_the_layers_counted_up_have_the_tensors_of_all(path: Path) -> None:
    whole = whole_of_shape(path)
    few = reduced(whole)

    def counted(names: list[tuple[int, tuple[Stored, ...]]]) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for times, tensors in names:
            for one in tensors:
                found[one.name, one.kind.name] += times
        return found

    all_layers = counted([(1, layer) for layer in whole.layers])
    chosen = [(times, whole.layers[at]) for times, at in zip(few.counts, few.chosen, strict=True)]
    assert counted(chosen) == all_layers
    assert sum(few.counts) == len(whole.layers)


def test_layers_keep_the_window_that_their_number_gives_them() -> None:
    few = reduced(whole_of_shape(MODELS / "gemma-3-27b-q4_k_m.toml"))
    windows = Counter[int | None]()
    for place, times in enumerate(few.counts):
        windows[few.window_of(place)] += times
    assert windows == {1024: 52, None: 10}  # every sixth of 62 sees all tokens


def test_its_file_has_the_shapes_of_the_model_and_takes_no_room(tmp_path: Path) -> None:
    few = reduced(whole_of_shape(MODELS / "llama-3.1-70b-q4_k_m.toml"))
    path = few.file(tmp_path)
    header = load_gguf(path)
    tensors = {tensor.name: tensor for tensor in header.tensors}

    assert header.metadata["llama.block_count"] == 3  # of both sets of types, and the last
    assert header.metadata["llama.attention.head_count_kv"] == 8
    assert tensors["blk.2.ffn_down.weight"].shape == (28672, 8192)
    assert tensors["blk.2.ffn_down.weight"].kind.name == "Q6_K"
    assert path.stat().st_size > 2**31
    assert path.stat().st_blocks * 512 < 2**20
    with path.open("rb") as file:
        file.seek(-math.prod((28672, 8192)) // 256 * 210, 2)  # the last tensor, of Q6_K
        assert not any(file.read(4096))


def test_of_a_file_the_lists_by_layer_shrink_with_it(tmp_path: Path) -> None:
    source = reduced(whole_of_shape(MODELS / "llama-3.2-1b-q4_k_m.toml")).file(tmp_path)
    header = load_gguf(source)
    whole = whole_of_header(header, source)
    assert [layer[0].name for layer in whole.layers] == ["attn_norm.weight"] * 3
    assert reduced(whole).counts == (1, 1, 1)  # each layer of this one is of its own kind


@pytest.mark.parametrize(
    "path", [path for path in MODELS.glob("*.toml") if path not in SHAPES], ids=lambda path: path.stem
)
def test_models_that_a_shape_file_does_not_describe_as_a_whole_are_refused(path: Path) -> None:
    with pytest.raises(PatchkitError) as raised:
        whole_of_shape(path)
    assert raised.value.code == "MODEL_MISSING"
    assert "lacks metadata" in str(raised.value.why)


def test_layers_for_drafts_are_not_the_last_layers(tmp_path: Path) -> None:
    source = reduced(whole_of_shape(MODELS / "llama-3.2-1b-q4_k_m.toml")).file(tmp_path)
    header = load_gguf(source)
    more = {"llama.nextn_predict_layers": 1, "llama.attention.head_count_kv": (8, 8, 4)}
    whole = whole_of_header(replace(header, metadata={**header.metadata, **more}), source)
    assert len(whole.layers) == 2
    assert whole.metadata["attention.head_count_kv"] == (8, 8)


def test_a_description_that_does_not_say_which_layers_is_refused(tmp_path: Path) -> None:
    text = (MODELS / "llama-3.2-1b-q4_k_m.toml").read_text("utf-8")
    path = tmp_path / "odd.toml"
    path.write_text(text.replace('type = "Q6_K", count = 8', 'type = "Q6_K", count = 3'), "utf-8")
    with pytest.raises(PatchkitError) as raised:
        whole_of_shape(path)
    assert raised.value.code == "MODEL_MISSING"
    assert "11 of 16 layers have attn_v.weight" in str(raised.value.why)
