"""Norms that quantize, sums before norms, Q, K and V in one launch: upstream's numbers, or its kernels."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, assert_right_when_replayed, every_scene

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "sums-normed"
NEEDS = ("quantize-once", "norm-quantized", "attention-inputs")
SUM = "sums_normed"
NORM, MULTIPLY = "norm_quantized", "mul_mat_vec_q_attention_inputs"
ROUNDS = 5


_CAN_FUSE = "ggml_can_fuse_subgraph_ext(cgraph, numbers.data(), numbers.size(), ops.data(), outputs, 3)"
_COMPUTED = "ggml_backend_buffer_get_usage(matrix->buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE"
_TURNED_ALIKE = "std::memcmp(params, k.rope->op_params, sizeof(q.rope->op_params)) != 0"
# All but GGML_CUDA_DISABLE_FUSION (above), forks and attention-inputs (no graph of ours forks there), that
# nobody looks further than 24 nodes for a product, that a matrix has no more than 2^31 weights, and that
# biases and weights of norms are f32: else upstream ends the program.
RULES = {
    "ggml-cuda.cu": [
        Rule(
            "norm-both",
            "ggml_cuda_can_fuse(cgraph, i, { GGML_OP_RMS_NORM, GGML_OP_MUL }, {})\n",
            "(i + 1 < cgraph->n_nodes && node->op == GGML_OP_RMS_NORM"
            " && cgraph->nodes[i + 1]->op == GGML_OP_MUL)",
            ("norm-not-for-both",),
        )
    ],
    "quantize-once.cuh": [
        Rule("norm-forked", "ctx.curr_stream_no == 0", "true", ("norm-forked-again",), by="checks"),
        Rule("norm-kept", "kept.made != nullptr", "true", ("norm-2048",), by="end"),
    ],
    "norm-quantized.cuh": [
        Rule("norm-rows", "rows != ggml_nrows(x)", "false", ("norm-not-in-channels",)),
        Rule("norm-long", "padded > 8192", "false", ("norm-not-8224",)),
        Rule("norm-width", "weights->ne[0] != columns", "false", ("norm-not-by-one",)),
        Rule("norm-weights", "ggml_nrows(weights) != 1", "false", ("norm-not-two-rows",)),
    ],
    "quantized-results.cuh": [
        Rule("norm-read", "reads == nullptr", "false", ("norm-not-unread", "sums-not-unread"), by="end"),
        Rule("norm-as-wide", "reads->ne[0] != columns", "false", ("norm-not-as-one-row",)),
        Rule(
            "norm-all",
            "ggml_nelements(read) == ggml_nelements(made)",
            "true",
            ("norm-not-first-row",),
            by="checks",
        ),
        Rule("norm-in-order", "!ggml_is_contiguous(read)", "false", ("norm-not-first-row-twice",)),
        Rule(
            "norm-quantizes",
            "!ggml_is_quantized(weights->type)",
            "false",
            ("norm-not-f16-experts",),
            by="launches",
        ),
        Rule(
            "norm-vector",
            "ggml_cuda_should_use_mmvq(weights->type, cc, read->ne[1])",
            "true",
            ("norm-not-9-tokens",),
            by="launches",
        ),
        Rule(
            "norm-vector-experts",
            "node->ne[2] <= get_mmvq_mmid_max_batch(weights->type, cc)",
            "true",
            ("norm-not-9-of-experts",),
            by="launches",
        ),
    ],
    "sums-normed.cuh": [
        Rule(
            "sums-fork",
            "!ctx.stream_context().concurrent_events.empty()",
            "false",
            ("sums-forked",),
            by="launches",
        ),
        Rule("sums-rows", "rows != ggml_nrows(match.sum)", "false", ("sums-not-in-channels",)),
        Rule("sums-long", "padded > 8192", "false", ("sums-not-8224",)),
        Rule("sums-apart", "!match.has_rows_apart()", "false", ("sums-in-part-over-experts",), by="checks"),
        Rule("sums-some", "n_added == 0", "false", ("sums-not-without-a-sum",), by="checks"),
        Rule(
            "sums-of-norm",
            "begins == sums_normed_begins::with_norm ? 1 : 2",
            "2",
            ("sums-in-part-norm-and-two",),
        ),
        Rule("sums-in-turn", "node->src[to] != last_made", "false", ("sums-in-part-behind-another",)),
        Rule(
            "sums-alike",
            "!is_alike(node->src[1 - to], node)",
            "false",
            ("sums-not-one-row", "sums-not-rows-apart"),
        ),
        Rule("sums-norm-alike", "!is_alike(x, sum)", "false", ("sums-not-rows-apart-normed",)),
        Rule("sums-normed", "norm->src[0] != sum", "false", ("sums-not-other-norm",)),
        Rule("sums-weights", "ggml_nrows(weights) == 1", "true", ("sums-not-two-rows-of-weights",)),
        Rule(
            "sums-not-own",
            "is_made_within(cgraph, first, read)",
            "false",
            (
                "sums-in-part-gated-twice",
                "sums-not-norm-squared",
                "sums-not-norm-by-sum",
                "sums-in-part-norm-before-squared",
            ),
        ),
        Rule(
            "sums-sigmoid",
            "ggml_get_unary_op(cgraph->nodes[i]) != GGML_UNARY_OP_SIGMOID",
            "false",
            ("sums-in-part-gated-by-silu",),
        ),
        Rule("sums-apart-from-norm", "norm->view_src != nullptr", "false", ("sums-not-norm-in-place",)),
        Rule("sums-fuse", "is_sum_read = !can_fuse(1)", "is_sum_read = false", ("sums-two",)),
    ],
    "attention-inputs.cuh": [
        Rule("token", "ggml_nrows(activation) != 1", "false", ()),  # with "positions", below
        Rule("alone", _CAN_FUSE, "true", ("attention-not-kept",)),
        Rule("three", "known == 3", "false", ("attention-not-four-products",), by="end"),
        Rule("input", "node->src[1] != activation", "false", ("attention-not-one-input",)),
        Rule("apart", "!ggml_is_contiguous(matrix)", "false", ("attention-not-rows-apart",)),
        Rule("type", "attention_inputs_vdr(matrix->type) == 0", "false", ("attention-not-iq4",)),
        Rule("made-here", _COMPUTED, "false", ("attention-not-weights-made-here",)),
        Rule("repeated", "ggml_is_contiguous(tensor)", "true", ("attention-not-repeated",)),
        Rule("part", "ggml_nelements(tensor) == ggml_nelements(node)", "true", ("attention-not-part",)),
        Rule("sourced", "node->src[from] != nullptr", "true", ("attention-not-from-nothing",), by="end"),
        Rule("between", "chain == nullptr", "false", ("attention-not-between",), by="end"),
        Rule("bias-first", "chain->last != chain->product", "false", ("attention-not-two-biases",)),
        Rule("given", "tensor->op == GGML_OP_NONE", "true", ("attention-not-v-added",)),
        Rule(
            "bias-shape",
            "!ggml_are_same_shape(bias, chain->product)",
            "false",
            ("attention-not-one-bias",),
        ),
        Rule(
            "positions",
            "node->ne[2] != 1 || node->ne[3] != 1",
            "false",
            ("attention-not-heads-as-positions",),
        ),
        Rule("turned-once", "chain->rope != nullptr", "false", ("attention-not-turned-twice",)),
        Rule("turned-last", "chain->rope != nullptr", "false", ("attention-not-norm-behind",), by="end"),
        Rule(
            "one-norm",
            "chain->norm != nullptr || is_turned",
            "is_turned",
            ("attention-not-two-norms",),
        ),
        Rule("norm-first", "node->src[0] != chain->norm", "false", ("attention-not-multiplied",)),
        Rule("norm-row", "ggml_nrows(weights) != 1", "false", ("attention-not-norm-by-head",)),
        Rule("norm-wide", "weights->ne[0] != node->ne[0]", "false", ("attention-not-norm-by-one",)),
        Rule("norm-weighted", "chain->weights == nullptr", "false", ("attention-not-norm-alone",), by="end"),
        Rule(
            "norm-head",
            "chain->norm->ne[0] != node->ne[0]",
            "false",
            ("attention-not-norm-of-all",),
        ),
        Rule("scale-last", "chain->last != chain->rope", "false", ("attention-not-scaled-before",)),
        Rule("cache-f16", "node->type != GGML_TYPE_F16", "false", ("attention-not-f32-cache",)),
        Rule("row-i64", "node->src[1]->type != GGML_TYPE_I64", "false", ("attention-not-i32-rows",)),
        Rule("one-row", "ggml_nrows(node->src[0]) != 1", "false", ("attention-not-heads-in-rows",)),
        Rule("one-each", "place.product != nullptr", "false", ("attention-not-v-turned",), by="end"),
        Rule("q-turned", "q.rope == nullptr", "false", ("attention-not-q-as-it-is",), by="end"),
        Rule("v-plain", "v.norm != nullptr", "false", ("attention-not-v-normed",)),
        Rule("k-plain", "k.scale != nullptr", "false", ("attention-not-k-scaled",)),
        Rule("alike", _TURNED_ALIKE, "false", ("attention-not-alike",)),
        Rule(
            "one-position",
            "k.rope->src[1] != q.rope->src[1]",
            "false",
            ("attention-not-own-position",),
        ),
        Rule("one-factors", "k.rope->src[2] != q.rope->src[2]", "false", ("attention-not-own-factors",)),
        Rule("one-head", "k.rope->ne[0] != q.rope->ne[0]", "false", ("attention-not-own-head",)),
        Rule("head", "q.rope->ne[0] > 256", "false", ("attention-not-512",)),
        Rule(
            "mode",
            "(mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX)",
            "false",
            ("attention-not-many-positions",),
        ),
        Rule("offset", "params[15] != 0", "false", ("attention-not-from-the-first",)),
        Rule("over-some", "read != nullptr", "true", ("attention-by-parts",), by="end"),
        Rule("over", "overlap(read, q.last)", "false", ("attention-not-over-a-row-number",)),
        Rule("within", "is_made_within(cgraph, first, read)", "false", ("attention-not-factors-of-v",)),
        Rule(
            "two-places",
            "!overlap(k.last, v.last)",
            "true",
            ("attention-not-one-row-of-one-cache",),
            by="checks",
        ),
    ],
}


def test_every_scene_is_upstreams_to_the_last_bit(
    program: Program, upstream: GraphsRan, patched: Path
) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
    served = {
        what: [name for name in after.scenes if name.startswith(what) and "-not-" not in name]
        for what in ("norm", "sums", "attention")
    }
    assert after.launched[MULTIPLY] == ROUNDS * len(served["attention"])
    assert after.launched[SUM] == ROUNDS * len(served["sums"])
    # two scenes have two, one of attention and one of sums begin with one, six of sums end with one
    more_norms = 10
    assert after.launched[NORM] == ROUNDS * (len(served["norm"]) + more_norms)


def test_the_scenes_are_about_memory_that_is_used_again(upstream: GraphsRan) -> None:
    assert "same-place 1" in upstream.scenes["norm-in-place"]
    assert "same-place 1" in upstream.scenes["attention-llama"], "V lies where Q was"
    assert "same-place 1" in upstream.scenes["attention-not-over-a-row-number"]


def test_without_fusion_upstream_computes(program: Program, patched: Path) -> None:
    after = program.run(patched, "attention-qwen3", GGML_CUDA_DISABLE_FUSION="1")
    assert not after.launched.keys() & {NORM, MULTIPLY}


@pytest.mark.parametrize("scene", ["norm-2048", "attention-llama"])
def test_products_behind_find_the_copy(program: Program, patched: Path, scene: str) -> None:
    # of the second the first launch quantizes, and the product behind Q, K and V does not
    assert program.run(patched, scene).launched["quantize_q8_1"] == (0 if scene == "norm-2048" else ROUNDS)


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    program: Program, upstream: GraphsRan, with_graphs: Path, fork: str
) -> None:
    assert_right_when_replayed(program, upstream, with_graphs, fork)


def test_rules_that_protect_a_scene_together_are_noticed_together(program: Program, left_out: Path) -> None:
    scene = "attention-not-2-in-a-row"
    without = program.run(left_out, scene, LEFT_OUT="token,positions")
    assert without.scenes != program.run(left_out, scene).scenes


@pytest.mark.parametrize(("rule", "scene"), every_scene(RULES))
def test_a_rule_that_is_left_out_is_noticed(
    program: Program,
    left_out: Path,
    request: pytest.FixtureRequest,
    rule: Rule,
    scene: str,
) -> None:
    if "forked" in scene:
        tree = request.getfixturevalue("with_graphs")
        run = functools.partial(program.run, tree, scene, has_graphs=True, GGML_CUDA_GRAPH_OPT="1")
    else:
        run = functools.partial(program.run, left_out, scene)
    rule.assert_noticed(run)
