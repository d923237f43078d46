"""Faults of our own kernels that a reader of the code found while every gate passed.

Each is one scene of a program whose other scenes are run by hand (``hours``): these few run in CI.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
    """The tree with the patches that had the faults."""
    return tree_with(
        "attention-inputs",
        BUILD,
        needs=("quantize-once", "fattn-mma-prompts"),
        test_cache=test_cache,
        gates_cache=gates_cache,
        folder=tmp_path_factory.mktemp("series"),
    )


@pytest.fixture(scope="module")
def run(hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs scenes of a program, by its name."""

    def start(program: str, tree: Path | None, *scene: str, **variables: str) -> GraphsRan:
        source = Path(__file__).with_name(f"{program}.cpp")
        made = Program(
            source,
            BUILD,
            toolchain=hip_toolchain,
            gates_cache=gates_cache,
            folder=tmp_path_factory.mktemp(program),
        )
        return made.run(tree, *scene, **variables)

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


@pytest.mark.parametrize("scene", ["repeated-node", "repeated-node-prompt"])
def test_a_node_that_is_repeated_to_be_timed_does_all_of_its_work(run: Run, tree: Path, scene: str) -> None:
    assert run("shared_activations", tree, scene).launched == run("shared_activations", None, scene).launched


@pytest.mark.parametrize("program", ["shared_activations"])
def test_without_fusion_there_are_upstreams_launches(run: Run, tree: Path, program: str) -> None:
    variables = {"GGML_CUDA_DISABLE_FUSION": "1"}
    after = run(program, tree, "shared", **variables)
    assert after.launched == run(program, None, "shared", **variables).launched


def test_attention_reads_no_row_past_the_end_of_a_mask(run: Run, tree: Path) -> None:
    after = run("attention_masks", tree)
    assert all(told[0].startswith("right") for told in after.scenes.values()), after.scenes
    assert after.launched[ATTENTION] == len(after.scenes)
    assert after.launched[MASK_SCAN] == 1, "only of whole tiles"
    assert after.blamed == frozenset()
