"""What stands before a gated delta net and behind it, in fewer launches: upstream's numbers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, assert_right_when_replayed, every_scene

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "gated-quantized"
NEEDS = ("quantize-once", "norm-quantized", "delta-net-inputs")
CONVOLUTION, INPUTS, GATE = "delta_net_convolved", "delta_net_inputs", "gated_quantized"
ROUNDS = 5

_NEIGHBOUR = "before == number - 1"
# Not left out: forks, GGML_CUDA_DISABLE_FUSION (below), what another rule would catch as well (shapes), and
# memory that other blocks read (net-not-over-part-of-20-tokens): in the emulator's order all come first.
RULES = {
    "delta-net-inputs.cuh": [
        Rule(
            "silu",
            "ggml_get_unary_op(silu) != GGML_UNARY_OP_SILU",
            "false",
            ("net-convolution-not-gelu",),
        ),
        Rule(
            "newest",
            "last->view_offs != tokens*sizeof(float)",
            "false",
            ("net-convolution-not-kept-first",),
        ),
        Rule(
            "states-read",
            "!is_read_by(states, { concat })",
            "false",
            ("net-convolution-not-states-read",),
        ),
        Rule(
            "joined-read",
            "!is_read_by(concat, { copied, conv })",
            "false",
            ("net-convolution-not-joined-read",),
            by="checks",
        ),
        Rule("conv-read", "!is_read_by(conv, { silu })", "false", ("net-convolution-not-read",)),
        Rule(
            "cache-alone",
            "!is_left_alone(cache, states)",
            "false",
            ("net-convolution-not-cache-changed",),
        ),
        Rule(
            "given-alone",
            "!is_left_alone(given, concat)",
            "false",
            ("net-convolution-not-given-changed",),
        ),
        Rule(
            "kept-alone",
            "!is_left_alone(kept, copied, /*is_written =*/ true)",
            "false",
            ("net-convolution-not-kept-read",),
        ),
        Rule(
            "made-alone",
            "!is_left_alone(silu, silu, /*is_written =*/ true)",
            "false",
            ("net-convolution-not-kept-late",),
            by="checks",
        ),
        Rule(
            "whole-rows",
            "row_to_row % cache->nb[1] != 0",
            "false",
            ("net-convolution-not-between-rows",),
            by="checks",
        ),
        Rule("head", "made->ne[0] == delta_net_head", "true", ("net-inputs-not-64",)),
        Rule("no-bias", "number_in(made->op_params, 1) == 0.0f", "true", ("net-inputs-not-with-bias",)),
        Rule(
            "made-before",
            "is_waiting(read) || is_waiting(read->view_src)",
            "false",
            ("net-inputs-not-gate-squared",),
        ),
        Rule("in-place", "one->view_src != nullptr", "false", ("net-inputs-not-biased-in-place",)),
        Rule("norm-read", "!is_read_by(norm_q, { q })", "false", ("net-inputs-not-norm-read",)),
        Rule("biased-read", "!is_read_by(biased, { softplus })", "false", ("net-inputs-not-biased-read",)),
        Rule("inputs-alone", "!is_left_alone(read, by)", "false", ("net-inputs-not-convolved-changed",)),
        # a fusion computes a node that waits, which ends the program
        Rule("neighbour", _NEIGHBOUR, "false", ("net-inputs-not-behind-its-product",), by="end"),
    ],
    "gated-quantized.cuh": [
        Rule("gate-read", "reads != nullptr", "true", ("gate-not-unread",), by="end"),
        Rule("gate-in-order", "!ggml_is_contiguous(gate)", "false", ("gate-not-rows-apart",)),
    ],
}


def test_every_scene_is_upstreams_to_the_last_bit(
    program: Program, upstream: GraphsRan, patched: Path
) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
    nets = [name for name in after.scenes if name.startswith("net") and not name.startswith("net-not")]
    convolved = [name for name in nets if "convolution-not" not in name]
    assert after.launched[CONVOLUTION] == ROUNDS * len(convolved)
    assert after.launched[INPUTS] == ROUNDS * len([name for name in nets if "inputs-not" not in name])
    gates = [name for name in after.scenes if name.startswith("gate") and "-not-" not in name]
    # two sequences have one that is served, 20 tokens have none
    assert after.launched[GATE] == ROUNDS * (len(nets) + len(gates))


def test_a_scene_is_about_memory_that_is_used_again(upstream: GraphsRan) -> None:
    assert "same-place 1" in upstream.scenes["gate-in-place"]


def test_without_fusion_upstream_computes(program: Program, patched: Path) -> None:
    after = program.run(patched, "net-token", GGML_CUDA_DISABLE_FUSION="1")
    assert not after.launched.keys() & {CONVOLUTION, INPUTS, GATE}


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    assert_right_when_replayed(program, upstream, with_graphs, fork)


@pytest.mark.parametrize(("rule", "scene"), every_scene(RULES))
def test_a_rule_that_is_left_out_is_noticed(program: Program, left_out: Path, rule: Rule, scene: str) -> None:
    rule.assert_noticed(functools.partial(program.run, left_out, scene))
