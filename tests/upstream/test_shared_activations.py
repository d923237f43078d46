"""Products that read one activation share its quantized copy; nobody reads a copy of what was written over.

Every scene of shared_activations.cpp has to give upstream's numbers to the last bit. Then each rule that
keeps the copy right is left out of the patch's header, one at a time, and the scenes that are about it have
to come out wrong. Scenes of gate logits see two of the rules, "overlap" and "layout" (a model of K
quantizations, tried by hand); the others they do not see.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, assert_right_when_replayed

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
            ("copied-over", "gate", "half", "in-place", "in-place-prompt", "reused-memory"),
        ),
        Rule("plain", "!ggml_cuda_quantize_once_is_plain(node->op)", "false", ("optimizer",)),
        Rule("layout", "kept.layout == layout", "true", ("layouts",)),
        Rule("shape", "std::memcmp(kept.ne, src1->ne, sizeof(kept.ne)) == 0", "true", ("shapes",)),
        Rule("strides", "std::memcmp(kept.nb, src1->nb, sizeof(kept.nb)) == 0", "true", ("strides",)),
        Rule("stream", "ctx.curr_stream_no != 0", "false", ()),  # a race, which the checks find
    ]
}
_WITH_SCENES = [rule for rules in RULES.values() for rule in rules if rule.scenes]


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


@pytest.mark.parametrize("rule", _WITH_SCENES, ids=[rule.name for rule in _WITH_SCENES])
def test_without_a_rule_its_scenes_are_wrong(
    program: Program, upstream: GraphsRan, left_out: Path, rule: Rule
) -> None:
    after = program.run(left_out, is_checked=False, LEFT_OUT=rule.name)
    wrong = {name for name, told in after.scenes.items() if told != upstream.scenes[name]}
    assert wrong >= set(rule.scenes)


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    assert_right_when_replayed(program, upstream, with_graphs, fork)


def test_streams_of_a_fork_quantize_for_themselves(program: Program, with_graphs: Path) -> None:
    def blamed(**variables: str) -> frozenset[str]:
        return program.run(
            with_graphs, "forked", has_graphs=True, GGML_CUDA_GRAPH_OPT="1", **variables
        ).blamed

    assert blamed() == frozenset()
    assert blamed(LEFT_OUT="stream") == {"k_bin_bcast", "mul_mat_vec_q", "quantize_q8_1"}
