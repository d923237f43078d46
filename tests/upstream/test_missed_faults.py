"""Faults of our own kernels that a reader of the code found while every gate passed.

The scenes are those of single patches, which run by hand (``hours``). Here a few run in CI, on the tree with
all patches that no one has measured, so that a fault between two patches shows, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_scenes import UNFUSED, SceneTrees

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def tree(scene_trees: SceneTrees) -> Path:
    """The tree with all patches that no one has measured."""
    return scene_trees.tree_with()


@pytest.mark.parametrize(
    ("patch", "scene"),
    [
        ("reuse-q8-1-activations", "routed-fallback"),  # q8_1 activations identified by a reused address
        ("fuse-norm-q8-1", "attention-not-heads-as-positions"),  # one position for all rows of a RoPE
    ],
)
def test_results_are_upstreams_to_the_bit(
    scene_trees: SceneTrees, tree: Path, patch: str, scene: str
) -> None:
    after = scene_trees.run(tree, patch, scene)
    assert after.scenes == scene_trees.run(None, patch, scene).scenes
    assert after.blamed == frozenset()


@pytest.mark.parametrize(
    ("scene", "kernel"),
    [("repeated-node", "quantize_q8_1"), ("repeated-node-prompt", "mul_mat_prompts_activations")],
)
def test_a_node_that_is_repeated_to_be_timed_does_all_of_its_work(
    scene_trees: SceneTrees, tree: Path, scene: str, kernel: str
) -> None:
    rounds, nodes = 5, 8
    assert scene_trees.run(tree, "reuse-q8-1-activations", scene).launched[kernel] == rounds * nodes


@pytest.mark.parametrize(
    ("patch", "scene"),
    [
        ("reuse-q8-1-activations", "shared"),
        ("fuse-norm-q8-1", "attention-qwen3"),
        ("fuse-norm-q8-1", "sums-two"),
    ],
)
def test_without_fusion_there_are_upstreams_launches(
    scene_trees: SceneTrees, tree: Path, patch: str, scene: str
) -> None:
    after, before = (scene_trees.run(one, patch, scene, is_checked=False, **UNFUSED) for one in (tree, None))
    assert after.launched == before.launched
    assert after.scenes == before.scenes


def test_attention_reads_no_row_past_the_end_of_a_mask(scene_trees: SceneTrees, tree: Path) -> None:
    after = scene_trees.run(tree, "fattn-wmma-prefill", "mask-*")
    assert after.wrong(lambda: after) == []
    assert after.launched["flash_attn_mma_prompts"] == len(after.scenes)
    assert after.launched["flash_attn_mask_to_KV_max"] == 1, "only of whole tiles"
    assert after.blamed == frozenset()
