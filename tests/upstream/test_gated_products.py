"""Gate and up of prompts in one launch: the numbers of three launches, to the last bit."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, Rule, every_scene

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "mul-mat-prompts"
GATE = "unary_gated_op_kernel"
ROUNDS = 5

# Not left out: forks, the Hadamard transform, results of f32, weights that a graph computes; that products
# are those before the gate (of others the result would be the same); their type, as strides say the same.
RULES = {
    "mmq-prompts.cuh": [
        Rule(
            "read",
            "!ggml_can_fuse_subgraph_ext(cgraph, numbers, 3, ops, numbers + 2, 1)",
            "false",
            ("not-gate-read",),
        ),
        Rule("op", "(op != GGML_GLU_OP_SWIGLU && op != GGML_GLU_OP_GEGLU)", "false", ("not-relu",)),
        Rule("input", "up->src[1] != src1", "false", ("not-one-input",)),
        Rule("ids", "up->src[2] != ids", "false", ("not-experts-others",)),
        Rule("quantized", "!ggml_is_quantized(src0->type)", "false", ("not-f16",)),
        Rule("served", "!serves", "false", ("not-few-tokens",)),
        Rule("asked", "product->op_params[0] == GGML_PREC_F32", "false", ("not-f32-wanted",), by="launches"),
    ]
}


@pytest.fixture(scope="module")
def apart(program: Program, patched: Path) -> GraphsRan:
    return program.run(patched, GGML_CUDA_DISABLE_FUSION="1")


def test_numbers_are_those_of_three_launches(program: Program, patched: Path, apart: GraphsRan) -> None:
    after = program.run(patched)
    assert after.scenes == apart.scenes
    assert after.blamed == frozenset()
    served = [name for name in after.scenes if not name.startswith("not-")]
    assert apart.launched[GATE] - after.launched[GATE] == ROUNDS * len(served)


def test_a_scene_is_about_memory_that_is_used_again(apart: GraphsRan) -> None:
    assert "same-place 1" in apart.scenes["in-place"]


@pytest.mark.parametrize(("rule", "scene"), every_scene(RULES))
def test_a_rule_that_is_left_out_is_noticed(program: Program, left_out: Path, rule: Rule, scene: str) -> None:
    rule.assert_noticed(functools.partial(program.run, left_out, scene))
