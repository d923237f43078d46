"""Which small models the gate logits runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.recurrent import RecurrentModel
from patchkit.prove.gates.logits_scenes import choose, groups, kinds_of, knows

CUDA = "ggml/src/ggml-cuda/"
EVERY = {"attention", "depth", "weights", "experts", "recurrent"}


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        (["fattn-tile.cuh", "fattn.cu", "template-instances/fattn-vec.cu"], {"attention", "depth"}),
        (["mmq.cuh"], {"weights", "experts"}),
        (["fattn.cu", "ssm-scan.cu"], {"attention", "depth", "recurrent"}),
        (["fattn.cu", "common.cuh"], EVERY),
    ],
)
def test_files_are_known_by_their_names(changed, kinds) -> None:
    assert kinds_of([CUDA + name for name in changed]) == kinds


def test_a_sample_says_what_it_leaves_out() -> None:
    chosen = choose([CUDA + "fattn.cu"], is_sample=True)
    assert {group.kind for group in chosen.run} == {"attention", "depth"}
    told = list(chosen.not_run())
    assert len(told) == 4
    assert any("mamba" in line and "single" in line and "--full" in line for line in told)
    # Depth of every head size is for --full, too.
    assert any("llama-d96-gqa1" in line and "deep-32768" in line for line in told)


def test_all_of_it_leaves_nothing_out() -> None:
    chosen = choose([CUDA + "fattn.cu"], is_sample=False)
    assert chosen.run == groups()
    assert not list(chosen.not_run())


def test_no_scene_of_a_model_is_in_two_groups() -> None:
    every = [
        (model.name, scene.name) for group in groups() for model in group.models for scene in group.scenes
    ]
    assert len(set(every)) == len(every)


def test_depth_has_every_kind_of_cache_and_goes_as_far_as_32768() -> None:
    deep = [scene for group in groups() if group.kind == "depth" for scene in group.scenes]
    assert {scene.type_k for scene in deep} == {"f16", "q8_0", "q4_0"}
    assert max(scene.depth for scene in deep) == 32768
    # Prompts longer than a physical batch, everywhere.
    assert all(scene.tokens > scene.ubatch for scene in deep)


def test_an_upstream_knows_the_architectures_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "llama-arch.cpp").write_text(
        '{ LLM_ARCH_LLAMA, "llama" }, { LLM_ARCH_MAMBA2, "mamba2" }'
    )
    assert knows(tmp_path, SmallModel(head_size=64))
    assert knows(tmp_path, RecurrentModel(architecture="mamba2"))
    assert not knows(tmp_path, RecurrentModel(architecture="mamba"))
