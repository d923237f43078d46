"""Matmuls that read the same activations quantize them once; none reads what was written over since.

Every scene of shared_activations.cpp has to give upstream's numbers to the last bit. Then each rule that
keeps the copy right is left out of the patch's header, one at a time, and the scenes that are about it have
to come out wrong. Scenes of gate logits see two of the rules, "overlap" and "layout" (a model of K
quantizations, tried by hand); the others they do not see.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, assert_right_when_replayed, every_scene

# The host code of build 11549 is compiled again, with all rules as switches.
pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "quantize-once"
# Of each rule all scenes that come out wrong without it.
RULES = {
    "quantize-once.cuh": [
        Rule("graph", "next == 0", "false", ("rounds",)),
        Rule(
            "overlap",
            "written < kept.end",
            "false",
            ("copied-over", "half", "in-place", "in-place-prompt"),
        ),
        Rule("plain", "!ggml_cuda_quantize_once_is_plain(node->op)", "false", ("optimizer",)),
        Rule("of-the-graph", "!ggml_cuda_quantize_once_is_of_step(kept, src1, dst)", "false", ()),
        Rule("root", "kept.root == ggml_cuda_quantize_once_root(src1)", "true", ()),
        Rule("layout", "kept.layout == layout", "true", ("layouts",)),
        Rule("shape", "std::memcmp(kept.ne, src1->ne, sizeof(kept.ne)) == 0", "true", ("shapes",)),
        Rule("strides", "std::memcmp(kept.nb, src1->nb, sizeof(kept.nb)) == 0", "true", ("strides",)),
        Rule("stream", "ctx.curr_stream_no == 0", "true", ()),  # a race, which the checks find
        Rule(
            "reader",
            "std::find(kept.readers.begin(), kept.readers.end(), dst) == kept.readers.end()",
            "true",
            ("repeated-node", "repeated-node-prompt"),
            by="launches",
        ),
    ]
}


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


@pytest.mark.parametrize(("rule", "scene"), every_scene(RULES))
def test_a_rule_that_is_left_out_is_noticed(program: Program, left_out: Path, rule: Rule, scene: str) -> None:
    rule.assert_noticed(functools.partial(program.run, left_out, scene))


@pytest.mark.parametrize(
    ("rules", "scene"),
    [
        ("of-the-graph,root,reader", "routed-fallback"),  # its slices lie at one place of the stack
        ("root,overlap", "gate"),
        ("root,overlap", "reused-memory"),
    ],
)
def test_rules_that_protect_a_scene_together_are_noticed_together(
    program: Program, left_out: Path, rules: str, scene: str
) -> None:
    assert program.run(left_out, scene, LEFT_OUT=rules).scenes != program.run(left_out, scene).scenes


def test_without_fusion_every_matmul_quantizes(program: Program, upstream: GraphsRan, patched: Path) -> None:
    after = program.run(patched, GGML_CUDA_DISABLE_FUSION="1")
    assert _quantized(after) == _quantized(program.run(None, GGML_CUDA_DISABLE_FUSION="1"))


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    # routed-fallback waits for the host
    assert_right_when_replayed(program, upstream, with_graphs, fork, direct=1, stale={"rounds"})


def test_streams_of_a_fork_quantize_for_themselves(program: Program, with_graphs: Path) -> None:
    def blamed(**variables: str) -> frozenset[str]:
        return program.run(
            with_graphs, "forked", has_graphs=True, GGML_CUDA_GRAPH_OPT="1", **variables
        ).blamed

    assert blamed() == frozenset()
    assert blamed(LEFT_OUT="stream") == {"k_bin_bcast", "mul_mat_vec_q", "quantize_q8_1"}
