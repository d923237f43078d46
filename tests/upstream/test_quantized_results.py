"""Gate and up, and attention, write the quantized copy of what they give: upstream's numbers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, assert_right_when_replayed, every_scene

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "attention-quantized"
NEEDS = ("quantize-once", "norm-quantized", "gate-up-quantized")
GATE, JOIN, QUANTIZE = "mul_mat_vec_q_gate_up", "flash_attn_combine_quantized", "quantize_q8_1"
ROUNDS = 5

# Not left out: GGML_CUDA_DISABLE_FUSION (below), forks (on another stream quantize-once gives no copy),
# that there is a gate (without one no operation is named, either), and that a step belongs to a graph.
RULES = {
    # the kernel reads one half of the buffer while it writes the other
    "quantize-once.cuh": [
        Rule("other-half", "1 - kept.half", "kept.half", ("gate-over-input",), by="checks")
    ],
    "gate-up-quantized.cuh": [
        Rule("token", "ggml_nrows(src1) != 1", "false", ("gate-not-2-of-experts",)),
        Rule(
            "large",
            "2*ggml_nrows(dst)*src0->ne[1]*int64_t(src0->nb[1]) > gate_up_quantized_most",
            "false",
            ("gate-not-large",),
            by="launches",
        ),
        Rule("no-copy", "copy == nullptr", "false", ("gate-not-read-by-quantized",), by="checks"),
    ],
    "attention-quantized.cuh": [
        Rule("whole", "columns % MATRIX_ROW_PADDING == 0", "true", ("attention-not-2-of-384",)),
        Rule("no-join", "copy == nullptr", "false", ("attention-not-read-by-quantized",), by="checks"),
    ],
    "quantized-results.cuh": [
        Rule(
            "as-wide",
            "reads->ne[0] != columns",
            "false",
            ("gate-not-in-halves", "attention-not-in-halves"),
        ),
    ],
}


def test_every_scene_is_upstreams_to_the_last_bit(
    program: Program, upstream: GraphsRan, patched: Path
) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
    for kernel, what in ((GATE, "gate"), (JOIN, "attention")):
        served = [name for name in after.scenes if name.startswith(what) and "-not-" not in name]
        assert after.launched[kernel] == ROUNDS * len(served)


@pytest.mark.parametrize("scene", ["gate-q4_k", "gate-experts", "gate-experts-shared", "attention-128"])
def test_the_product_behind_finds_the_copy(program: Program, patched: Path, scene: str) -> None:
    before = program.run(None, scene).launched[QUANTIZE]
    assert program.run(patched, scene).launched[QUANTIZE] == before - ROUNDS


def test_a_result_lies_where_the_activation_was(upstream: GraphsRan) -> None:
    assert "same-place 1" in upstream.scenes["gate-over-input"]


def test_without_fusion_upstream_computes(program: Program, patched: Path) -> None:
    after = program.run(patched, GGML_CUDA_DISABLE_FUSION="1")
    assert not after.launched.keys() & {GATE, JOIN}


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    assert_right_when_replayed(program, upstream, with_graphs, fork)


@pytest.mark.parametrize(("rule", "scene"), every_scene(RULES))
def test_a_rule_that_is_left_out_is_noticed(program: Program, left_out: Path, rule: Rule, scene: str) -> None:
    rule.assert_noticed(functools.partial(program.run, left_out, scene))
