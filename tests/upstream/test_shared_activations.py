"""Products that read one activation share its quantized copy; nobody reads a copy of what was written over.

Every scene of shared_activations.cpp has to give upstream's numbers to the last bit. Then each rule that
keeps the copy right is left out of the patch's header, one at a time, and the scenes that are about it have
to come out wrong. Scenes of gate logits see two of the rules, "overlap" and "layout" (a model of K
quantizations, tried by hand); the others they do not see.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, with_hip_graphs, with_switches

from patchkit.toolchain.tree import overlay_tree

# The host code of build 11549 is compiled again for each rule that is left out.
pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "quantize-once"
HEADER = "ggml/src/ggml-cuda/quantize-once.cuh"
# Where each rule stands in the header, what is there without it, and the scenes that then come out wrong.
_RULES = {
    "graph": ("next == 0", "false", {"rounds"}),
    "overlap": (
        "written < kept.end",
        "false",
        {"copied-over", "gate", "half", "in-place", "in-place-prompt", "reused-memory"},
    ),
    "plain": ("!ggml_cuda_quantize_once_is_plain(node->op)", "false", {"optimizer"}),
    "layout": ("kept.layout == layout", "true", {"layouts"}),
    "shape": ("std::memcmp(kept.ne, src1->ne, sizeof(kept.ne)) == 0", "true", {"shapes"}),
    "strides": ("std::memcmp(kept.nb, src1->nb, sizeof(kept.nb)) == 0", "true", {"strides"}),
    "stream": ("ctx.curr_stream_no != 0", "false", set[str]()),  # a race, which the checks find
}


@pytest.fixture(scope="module")
def upstream(program: Program) -> GraphsRan:
    return program.run(None)


@pytest.fixture(scope="module")
def switched(patched: Path) -> dict[str, bytes]:
    """The patch's header, in which the variable LEFT_OUT names a rule that does not hold."""
    rules = {name: (rule, without) for name, (rule, without, _) in _RULES.items()}
    return {HEADER: with_switches((patched / HEADER).read_text("utf-8"), rules)}


def _quantized(ran: GraphsRan) -> int:
    return ran.launched["quantize_q8_1"] + ran.launched["quantize_mmq_q8_1"]


def test_every_scene_is_upstreams_to_the_last_bit(
    program: Program, upstream: GraphsRan, patched: Path
) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert "same-place 1" in after.scenes["reused-memory"], "the scene is about two tensors at one address"
    assert after.blamed == frozenset()
    assert _quantized(after) < _quantized(upstream)


@pytest.mark.parametrize("scene", ["shared", "shared-prompt"])
def test_an_activation_is_quantized_once(program: Program, patched: Path, scene: str) -> None:
    rounds, products = 5, 3
    assert _quantized(program.run(None, scene)) == rounds * products
    assert _quantized(program.run(patched, scene)) == rounds


@pytest.mark.parametrize("rule", [name for name, (_, _, scenes) in _RULES.items() if scenes])
def test_without_a_rule_its_scenes_are_wrong(
    program: Program, upstream: GraphsRan, patched: Path, switched: dict[str, bytes], rule: str
) -> None:
    tree = overlay_tree(patched, switched, "left-out", below=".")
    after = program.run(tree, is_checked=False, LEFT_OUT=rule)
    wrong = {name for name, told in after.scenes.items() if told != upstream.scenes[name]}
    assert wrong >= _RULES[rule][2]


@pytest.fixture(scope="module")
def with_graphs(patched: Path, switched: dict[str, bytes]) -> Path:
    return with_hip_graphs(patched, switched)


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    after = program.run(with_graphs, has_graphs=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()


def test_streams_of_a_fork_quantize_for_themselves(program: Program, with_graphs: Path) -> None:
    def blamed(**variables: str) -> frozenset[str]:
        return program.run(
            with_graphs, "forked", has_graphs=True, GGML_CUDA_GRAPH_OPT="1", **variables
        ).blamed

    assert blamed() == frozenset()
    assert blamed(LEFT_OUT="stream") == {"mul_mat_vec_q", "quantize_q8_1"}
