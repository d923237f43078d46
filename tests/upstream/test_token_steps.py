"""Norms that quantize, and Q, K and V in two launches: upstream's numbers to the bit, or its own kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, tree_with, with_hip_graphs

from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
NEEDS = ("quantize-once", "norm-quantized")
NORM, MULTIPLY, PLACE = "norm_quantized", "mul_mat_vec_q_attention_inputs", "attention_inputs_place"
ROUNDS = 5


@pytest.fixture(scope="module")
def program(hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    source = Path(__file__).with_name("token_steps.cpp")
    folder = tmp_path_factory.mktemp("steps")
    return Program(source, BUILD, toolchain=hip_toolchain, gates_cache=gates_cache, folder=folder)


@pytest.fixture(scope="module")
def patched(test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with both patches and the one that they need."""
    folder = tmp_path_factory.mktemp("steps-series")
    where = {"test_cache": test_cache, "gates_cache": gates_cache, "folder": folder}
    return tree_with("attention-inputs", BUILD, needs=NEEDS, **where)


@pytest.fixture(scope="module")
def upstream(program: Program) -> GraphsRan:
    return program.run(None)


def test_every_scene_is_upstreams_to_the_last_bit(
    program: Program, upstream: GraphsRan, patched: Path
) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
    served = {
        what: [name for name in after.scenes if name.startswith(what) and "-not-" not in name]
        for what in ("norm", "attention")
    }
    assert after.launched[MULTIPLY] == after.launched[PLACE] == ROUNDS * len(served["attention"])
    two_norms = 1
    assert after.launched[NORM] == ROUNDS * (len(served["norm"]) + two_norms)


def test_the_scenes_are_about_memory_that_is_used_again(upstream: GraphsRan) -> None:
    assert "same-place 1" in upstream.scenes["norm-in-place"]
    assert "same-place 1" in upstream.scenes["attention-llama"], "V lies where Q was"


def test_without_fusion_upstream_computes(program: Program, patched: Path) -> None:
    after = program.run(patched, "attention-qwen3", GGML_CUDA_DISABLE_FUSION="1")
    assert not after.launched.keys() & {NORM, MULTIPLY, PLACE}


@pytest.mark.parametrize("scene", ["norm-2048", "attention-llama"])
def test_products_behind_find_the_copy(program: Program, patched: Path, scene: str) -> None:
    # of the second the first launch quantizes, and the product behind Q, K and V does not
    assert program.run(patched, scene).launched["quantize_q8_1"] == (0 if scene == "norm-2048" else ROUNDS)


@pytest.fixture(scope="module")
def with_graphs(patched: Path) -> Path:
    return with_hip_graphs(patched)


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    after = program.run(with_graphs, has_graphs=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
