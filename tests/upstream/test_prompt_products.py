"""Products of prompts by the patch's own kernel: nearly exact in many shapes, and nothing for the checks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "mul-mat-prompts"
KERNEL = "mul_mat_prompts"
# Scenes that stay upstream's: few columns or rows, types or strides that it does not take, f32 asked for.
_UPSTREAMS = {
    "few-columns",
    "few-rows",
    "unaligned",
    "another-type",
    "experts-few",
    "experts-view",
    "f32-wanted",
}
# With weights of f16 and activations of f16; upstream, with activations of 8 bits, has 4e-4 of such numbers.
_NEAR = 5e-7
_ANY_BATCH = "any-batch"
_PRODUCTS_OF_ANY_BATCH = 3


@pytest.fixture(scope="module")
def run(program: Program, patched: Path) -> Callable[..., GraphsRan]:
    """Runs the program, with all checks on, with the HIP backend of the tree with this patch and no other."""
    return functools.partial(program.run, patched)


@pytest.fixture(scope="module")
def ran(run: Callable[..., GraphsRan]) -> GraphsRan:
    return run()


def test_products_are_nearly_exact_and_the_checks_find_nothing(ran: GraphsRan) -> None:
    errors = {scene: float(error) for scene, (error,) in ran.scenes.items() if scene != _ANY_BATCH}
    served = {scene: error for scene, error in errors.items() if scene not in _UPSTREAMS}
    assert {scene: error for scene, error in served.items() if not error < _NEAR} == {}
    assert ran.launched[KERNEL] == len(served) + _PRODUCTS_OF_ANY_BATCH
    assert ran.blamed == frozenset()


def test_a_column_is_the_same_whatever_is_beside_it(ran: GraphsRan) -> None:
    assert ran.scenes[_ANY_BATCH] == ("same",)


@pytest.mark.parametrize(("scene", "launches"), [("f16", 0), ("q4_k", 1)])
def test_who_says_of_what_type_blas_is_to_be_gets_it_where_upstream_would_take_it(
    run: Callable[..., GraphsRan], scene: str, launches: int
) -> None:
    assert run(scene, GGML_CUDA_CUBLAS_COMPUTE_TYPE="f32").launched[KERNEL] == launches
