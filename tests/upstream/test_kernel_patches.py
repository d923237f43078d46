"""Patches of kernels: results of small graphs, the launches they take, and the rules that keep them right.

A patch is a row of PATCHES, and its scenes are rows of the tables in scenes/. Each rule is left out of the
patch, one at a time, and the scenes that are about it have to come out otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from kernel_scenes import KernelPatch, Ran, Rule, SceneTrees

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]

_CAN_FUSE = "ggml_cuda_can_fuse_nodes(cgraph, first, last, { q.number, k.number, v.number })"
_SAME_ROOT = "kept.of.view_src == (src1->view_src != nullptr ? src1->view_src : src1)"
_COMPUTED = "ggml_backend_buffer_get_usage(matrix->buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE"
_TURNED_ALIKE = "std::memcmp(params, k.rope->op_params, sizeof(q.rope->op_params)) != 0"

PATCHES = (
    KernelPatch(
        name="reuse-q8-1-activations",
        spared={"shared": 2, "shared-prompt": 2},
        rules={
            "quantize-once.cuh": [
                Rule("graph", "next == 0", "false", ("rounds",)),
                Rule(
                    "overlap",
                    "!ggml_cuda_overlap(&kept.of, node)",
                    "true",
                    ("copied-over", "half", "in-place", "in-place-prompt"),
                ),
                Rule("optimizer", "node->op != GGML_OP_OPT_STEP_ADAMW", "true", ("optimizer",)),
                Rule("of-the-graph", "!ggml_cuda_quantize_once_is_of_step(kept, src1, dst)", "false", ()),
                Rule("root", _SAME_ROOT, "true", ()),
                Rule("layout", "kept.layout == layout", "true", ("layouts",)),
                Rule("shape", "ggml_are_same_shape(&kept.of, src1)", "true", ("shapes",)),
                Rule("strides", "ggml_are_same_stride(&kept.of, src1)", "true", ("strides",)),
                Rule("stream", "ctx.curr_stream_no == 0", "true", ("forked",), by="checks"),
                Rule(
                    "reader",
                    "std::find(kept.readers.begin(), kept.readers.end(), dst) == kept.readers.end()",
                    "true",
                    ("repeated-node", "repeated-node-prompt"),
                    by="launches",
                ),
            ]
        },
        together=(
            ("of-the-graph,root,reader", "routed-fallback"),  # its slices lie at one place of the stack
            ("root,overlap", "gate"),
            ("root,overlap", "reused-memory"),
        ),
        is_replayed=True,
        not_captured=1,  # routed-fallback
        stale=frozenset({"rounds"}),
    ),
    KernelPatch(
        name="moe-sum-coalesce",
        kernels={"moe_weighted_reduction_f32": r"(?!not)"},
        has_upstreams_launches=True,
    ),
    KernelPatch(
        name="fattn-wmma-prefill",
        rounds=1,
        kernels={"flash_attn_mma_prompts": r"(?!not)"},
        is_quick=True,
    ),
    KernelPatch(
        name="mul-mat-wmma-prefill",
        rounds=1,
        kernels={"mul_mat_prompts": r"product-(?!not)"},
        more={"mul_mat_prompts": 2},  # any-batch has three
    ),
    # Not left out: GGML_CUDA_DISABLE_FUSION, forks (a norm in a fork makes no copy, and the add that joins
    # is after it) and fuse-qkv-rope-kv-store (no graph of ours forks there),
    # that nobody looks further than 24 nodes for a product, that a matrix has no more than 2^31 weights,
    # and that biases and weights of norms are f32: else upstream ends the program.
    KernelPatch(
        name="fuse-norm-q8-1",
        needs=("reuse-q8-1-activations", "fuse-qkv-rope-kv-store"),
        kernels={
            "mul_mat_vec_q_attention_inputs": r"attention-(?!not)",
            "norm_quantized": r"(sums|norm)-(?!not)",
        },
        # two scenes of norms have two, one of attention and one of sums begin with one, four of sums end with
        # one
        more={"norm_quantized": 8},
        spared={"norm-2048": 2, "attention-llama": 3},
        rules={
            "ggml-cuda.cu": [
                Rule(
                    "norm-both",
                    "is_norm  = ggml_cuda_can_fuse(cgraph, i, { GGML_OP_RMS_NORM, GGML_OP_MUL }, {})",
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
                Rule(
                    "norm-rows",
                    "rows != ggml_nrows(match.norm)",
                    "false",
                    ("norm-not-in-channels", "sums-not-in-channels"),
                ),
                Rule("norm-long", "padded > 8192", "false", ("norm-not-8224", "sums-not-8224")),
                Rule("norm-width", "match.weights->ne[0] != columns", "false", ("norm-not-by-one",)),
                Rule(
                    "norm-weights",
                    "ggml_nrows(match.weights) != 1",
                    "false",
                    ("norm-not-two-rows", "sums-not-two-rows-of-weights"),
                ),
                Rule(
                    "sums-apart",
                    "!match.has_rows_apart()",
                    "false",
                    ("sums-in-part-over-rows",),
                    by="checks",
                ),
                Rule(
                    "sums-alike",
                    "!is_alike(added, sum)",
                    "false",
                    ("sums-not-one-row", "sums-not-rows-apart"),
                ),
                Rule("sums-then-norm", "norm->src[0] != sum", "false", ("sums-not-other-norm",)),
                Rule(
                    "sums-not-own",
                    "ggml_cuda_is_made_within(cgraph, first, last, weights)",
                    "false",
                    ("sums-not-norm-squared", "sums-not-norm-by-sum"),
                ),
                Rule(
                    "sums-apart-from-norm", "norm->view_src == nullptr", "true", ("sums-not-norm-in-place",)
                ),
                Rule(
                    "sums-fuse",
                    "is_sum_read = !ggml_cuda_can_fuse_nodes(cgraph, first, last, { last })",
                    "is_sum_read = false",
                    ("sums-two",),
                ),
                Rule(
                    "norm-read", "reads == nullptr", "false", ("norm-not-unread", "sums-not-unread"), by="end"
                ),
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
            "attention-inputs.cuh": [
                Rule("token", "ggml_nrows(activation) != 1", "false", ()),  # together with "positions"
                Rule("alone", _CAN_FUSE, "true", ("attention-not-kept",)),
                Rule("three", "known == 3", "false", ("attention-not-four-products",), by="end"),
                Rule("input", "node->src[1] != activation", "false", ("attention-not-one-input",)),
                Rule("apart", "!ggml_is_contiguous(matrix)", "false", ("attention-not-rows-apart",)),
                Rule(
                    "type", "attention_inputs_vec_dot_vdr(matrix->type) == 0", "false", ("attention-not-iq4",)
                ),
                Rule("made-here", _COMPUTED, "false", ("attention-not-weights-made-here",)),
                Rule("repeated", "ggml_is_contiguous(tensor)", "true", ("attention-not-repeated",)),
                Rule(
                    "part", "ggml_nelements(tensor) == ggml_nelements(node)", "true", ("attention-not-part",)
                ),
                Rule(
                    "sourced", "node->src[from] != nullptr", "true", ("attention-not-from-nothing",), by="end"
                ),
                Rule("between", "chain == nullptr", "false", ("attention-not-between",), by="end"),
                Rule("bias-first", "chain->last != chain->product", "false", ("attention-not-two-biases",)),
                Rule("given", "tensor->op == GGML_OP_NONE", "true", ()),  # together with "within"
                Rule(
                    "bias-shape",
                    "!ggml_are_same_shape(other, chain->product)",
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
                Rule(
                    "turned-last", "chain->rope != nullptr", "false", ("attention-not-norm-behind",), by="end"
                ),
                Rule(
                    "one-norm",
                    "chain->norm != nullptr || is_turned",
                    "is_turned",
                    ("attention-not-two-norms",),
                ),
                Rule("norm-first", "node->src[0] != chain->norm", "false", ("attention-not-multiplied",)),
                Rule("norm-row", "ggml_nrows(other) != 1", "false", ("attention-not-norm-by-head",)),
                Rule("norm-wide", "other->ne[0] != node->ne[0]", "false", ("attention-not-norm-by-one",)),
                Rule(
                    "norm-weighted",
                    "chain->weights == nullptr",
                    "false",
                    ("attention-not-norm-alone",),
                    by="end",
                ),
                Rule(
                    "norm-head",
                    "chain->norm->ne[0] != node->ne[0]",
                    "false",
                    ("attention-not-norm-of-all",),
                ),
                Rule("scale-last", "chain->last != chain->rope", "false", ("attention-not-scaled-before",)),
                Rule("cache-f16", "node->type != GGML_TYPE_F16", "false", ("attention-not-f32-cache",)),
                Rule("row-i64", "other->type != GGML_TYPE_I64", "false", ("attention-not-i32-rows",)),
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
                Rule(
                    "one-factors", "k.rope->src[2] != q.rope->src[2]", "false", ("attention-not-own-factors",)
                ),
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
                Rule(
                    "over", "ggml_cuda_overlap(read, q.last)", "false", ("attention-not-over-a-row-number",)
                ),
                Rule(
                    "within",
                    "ggml_cuda_is_made_within(cgraph, first, last, read)",
                    "false",
                    ("attention-not-factors-of-v",),
                ),
                Rule(
                    "two-places",
                    "!ggml_cuda_overlap(k.last, v.last)",
                    "true",
                    ("attention-not-one-row-of-one-cache",),
                    by="checks",
                ),
            ],
        },
        together=(
            ("token,positions", "attention-not-2-in-a-row"),
            ("given,within", "attention-not-v-added"),
        ),
        is_replayed=True,
    ),
    KernelPatch(
        name="rope-block-size",
        kernels={
            "rope_norm": r"norm-",
            "rope_neox": r"neox-",
        },
        has_upstreams_launches=True,
    ),
    KernelPatch(name="fattn-vec-heads-first", has_upstreams_launches=True),
    KernelPatch(name="fattn-vec-gqa-heads", has_upstreams_launches=True),
)


def _rows(of: Callable[[KernelPatch], Iterable[tuple[Any, ...]]] = lambda _: [()]) -> list[Any]:
    """Each patch with each case that ``of`` gives for it, as parameters; ``hours`` unless it is quick."""
    return [
        pytest.param(
            patch,
            *case,
            id="-".join(
                [
                    patch.name,
                    *(part.name if isinstance(part, Rule) else str(part) for part in case),
                ]
            ),
            marks=() if patch.is_quick else pytest.mark.hours,
        )
        for patch in PATCHES
        for case in of(patch)
    ]


def _quantized(ran: Ran) -> int:
    return ran.launched.get("quantize_q8_1", 0) + ran.launched.get("quantize_mmq_q8_1", 0)


@pytest.mark.parametrize("patch", _rows())
def test_results_are_right_in_the_launches_that_the_patch_is_for(
    scene_trees: SceneTrees, patch: KernelPatch
) -> None:
    after = scene_trees.run(scene_trees.tree(patch), patch.name)
    assert after.wrong(lambda: scene_trees.before(patch)) == []
    assert after.blamed == frozenset()
    expected = patch.expected(after.scenes)
    assert {kernel: after.launched.get(kernel, 0) for kernel in expected} == expected
    if patch.has_upstreams_launches:
        assert after.launched == scene_trees.before(patch).launched


@pytest.mark.parametrize(("patch", "scene", "spared"), _rows(lambda patch: patch.spared.items()))
def test_an_activation_that_has_its_copy_is_not_quantized_again(
    scene_trees: SceneTrees, patch: KernelPatch, scene: str, spared: int
) -> None:
    before, after = (scene_trees.run(tree, patch.name, scene) for tree in (None, scene_trees.tree(patch)))
    assert _quantized(before) - _quantized(after) == patch.rounds * spared


@pytest.mark.parametrize(
    ("patch", "fork"), _rows(lambda patch: [("0",), ("1",)] if patch.is_replayed else [])
)
def test_a_graph_that_is_captured_and_replayed_is_right(
    scene_trees: SceneTrees, patch: KernelPatch, fork: str
) -> None:
    """With upstream's fork of streams, and without."""
    tree = scene_trees.tree(patch)
    after = scene_trees.run(tree, patch.name, has_graphs=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes) - patch.not_captured
    assert set(after.wrong(lambda: scene_trees.before(patch))) <= patch.stale
    assert after.blamed == frozenset()


@pytest.mark.parametrize(
    ("patch", "rule", "scene"),
    _rows(
        lambda patch: (
            (rule, scene) for rules in patch.rules.values() for rule in rules for scene in rule.scenes
        )
    ),
)
def test_a_rule_that_is_left_out_is_noticed(
    scene_trees: SceneTrees, patch: KernelPatch, rule: Rule, scene: str
) -> None:
    is_forked = "forked" in scene
    tree = scene_trees.with_switches(patch)
    fork = {"GGML_CUDA_GRAPH_OPT": "1"} if is_forked else {}
    run = functools.partial(scene_trees.run, tree, patch.name, scene, has_graphs=is_forked, **fork)
    with_all = run()
    assert with_all.blamed == frozenset()
    after = run(may_fail=True, LEFT_OUT=rule.name)
    assert rule.is_noticed(with_all, after), after


@pytest.mark.parametrize(("patch", "rules", "scene"), _rows(lambda patch: patch.together))
def test_rules_that_protect_a_scene_together_are_noticed_together(
    scene_trees: SceneTrees, patch: KernelPatch, rules: str, scene: str
) -> None:
    run = functools.partial(scene_trees.run, scene_trees.with_switches(patch), patch.name, scene)
    with_all, after = run(), run(LEFT_OUT=rules)
    assert (after.scenes, after.launched) != (with_all.scenes, with_all.launched)


@pytest.mark.hours
@pytest.mark.parametrize(("scene", "launches"), [("product-q6_k", 0), ("product-q4_k", 1)])
def test_a_blas_type_that_is_asked_for_is_used_where_upstream_would_use_it(
    scene_trees: SceneTrees, scene: str, launches: int
) -> None:
    tree = scene_trees.tree_with("mul-mat-wmma-prefill")
    ran = scene_trees.run(tree, "mul-mat-wmma-prefill", scene, GGML_CUDA_CUBLAS_COMPUTE_TYPE="f32")
    assert ran.launched.get("mul_mat_prompts", 0) == launches
