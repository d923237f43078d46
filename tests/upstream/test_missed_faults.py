"""Faults of our own kernels that a reader of the code found while every gate passed.

Each is one scene of a program whose other scenes are run by hand (``hours``): these few run in CI.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_graphs import GraphsRan, Program, tree_with

from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]
BUILD = 11549
ATTENTION = "flash_attn_mma_prompts"
MASK_SCAN = "flash_attn_mask_to_KV_max"
Run = Callable[..., GraphsRan]


@pytest.fixture(scope="module")
def tree(test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with all patches that no one has measured."""
    return tree_with(
        None,
        BUILD,
        test_cache=test_cache,
        gates_cache=gates_cache,
        folder=tmp_path_factory.mktemp("series"),
    )


@pytest.fixture(scope="module")
def run(hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs scenes of a program, by its name."""

    def start(program: str, tree: Path | None, *scene: str, **how: Any) -> GraphsRan:
        source = Path(__file__).with_name(f"{program}.cpp")
        made = Program(
            source,
            BUILD,
            toolchain=hip_toolchain,
            gates_cache=gates_cache,
            folder=tmp_path_factory.mktemp(program),
        )
        return made.run(tree, *scene, **how)

    return start


@pytest.mark.parametrize(
    ("program", "scene"),
    [
        ("shared_activations", "routed-fallback"),  # q8_1 activations identified by a reused address
        ("token_steps", "attention-not-heads-as-positions"),  # one position for all rows of a RoPE
    ],
)
def test_results_are_upstreams_to_the_bit(run: Run, tree: Path, program: str, scene: str) -> None:
    after = run(program, tree, scene)
    assert after.scenes == run(program, None, scene).scenes
    assert after.blamed == frozenset()


@pytest.mark.parametrize(
    ("scene", "kernel"),
    [("repeated-node", "quantize_q8_1"), ("repeated-node-prompt", "mul_mat_prompts_activations")],
)
def test_a_node_that_is_repeated_to_be_timed_does_all_of_its_work(
    run: Run, tree: Path, scene: str, kernel: str
) -> None:
    rounds, nodes = 5, 8
    assert run("shared_activations", tree, scene).launched[kernel] == rounds * nodes


@pytest.mark.parametrize(
    ("program", "scene"),
    [
        ("shared_activations", "shared"),
        ("token_steps", "attention-qwen3"),
        ("token_steps", "sums-two"),
        ("delta_nets", "net-token"),
        ("quantized_results", None),
    ],
)
def test_without_fusion_there_are_upstreams_launches(
    run: Run, tree: Path, program: str, scene: str | None
) -> None:
    scenes = () if scene is None else (scene,)
    after = run(program, tree, *scenes, is_checked=False, GGML_CUDA_DISABLE_FUSION="1")
    before = run(program, None, *scenes, is_checked=False, GGML_CUDA_DISABLE_FUSION="1")
    assert after.launched == before.launched
    assert after.scenes == before.scenes


def test_attention_reads_no_row_past_the_end_of_a_mask(run: Run, tree: Path) -> None:
    after = run("attention_masks", tree)
    assert all(told[0].startswith("right") for told in after.scenes.values()), after.scenes
    assert after.launched[ATTENTION] == len(after.scenes)
    assert after.launched[MASK_SCAN] == 1, "only of whole tiles"
    assert after.blamed == frozenset()
