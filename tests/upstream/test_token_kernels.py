"""Upstream's kernels for one token, their loops changed: upstream's numbers, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import KERNELS, GraphsRan, Program

from patchkit.toolchain.tree import overlay_tree

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "hidden-rows"
NEEDS = ("fattn-vec-heads-first", "mmvq-loops")

# In device code, so each is compiled: what stands there, once, what instead, and a scene that tells.
WRONG = {
    "hides-what-is-seen": ("fattn-vec.cuh", "== -INFINITY", "<= 0.0f", "attention-256"),
    "other-step": ("fattn-vec.cuh", "k_VKQ_max = last;", "k_VKQ_max = begin;", "attention-200-size-256"),
    "gate-left-out": (
        "mmvq.cu",
        "if (use_gate) {\n            for (int block",
        "if (false) {\n            for (int block",
        "gate-q4_0",
    ),
}


def test_numbers_are_upstreams_without_findings(program: Program, upstream: GraphsRan, patched: Path) -> None:
    after = program.run(patched)
    assert after.scenes == upstream.scenes
    assert after.launched == upstream.launched
    assert after.blamed == frozenset()


@pytest.mark.parametrize("scene", ["sum-q4_0", "sum-experts", "gate-q4_0", "gate-biased", "gate-experts"])
def test_upstream_joins_what_the_loops_are_for(program: Program, scene: str) -> None:
    launched = program.run(None, scene, is_checked=False).launched
    assert launched["mul_mat_vec_q"]
    assert not [kernel for kernel in launched if kernel.startswith(("k_bin", "add_id", "swiglu", "unary"))]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_noticed(program: Program, upstream: GraphsRan, patched: Path, name: str) -> None:
    file, right, wrong, scene = WRONG[name]
    text = (patched / KERNELS / file).read_text("utf-8")
    assert text.count(right) == 1
    changed = overlay_tree(
        patched, {f"{KERNELS}/{file}": text.replace(right, wrong).encode()}, name, below="."
    )
    assert program.run(changed, scene, is_checked=False).scenes[scene] != upstream.scenes[scene]
