"""Norms that quantize, and Q, K and V in two launches: upstream's numbers to the bit, or its own kernels."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_trees import EmulatedTrees
from own_graphs import compile_with_ggml, tree_with

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.tree import overlay_tree

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
NEEDS = ("quantize-once", "norm-quantized")
PROGRAM = Path(__file__).with_name("token_steps.cpp")
NORM, MULTIPLY, PLACE = "norm_quantized", "mul_mat_vec_q_attention_inputs", "attention_inputs_place"
ROUNDS = 5
_COMMON = "ggml/src/ggml-cuda/common.cuh"
_FIRST_LINES = b"#pragma once\n\n"


@dataclass(frozen=True)
class Ran:
    """What the program printed, by scene; how often each kernel ran; those with findings; graphs captured."""

    scenes: Mapping[str, tuple[str, ...]]
    launched: Mapping[str, int]
    blamed: frozenset[str]
    captured: int


@pytest.fixture(scope="module")
def trees(hip_toolchain: Toolchain, gates_cache: Path) -> EmulatedTrees:
    return EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))


@pytest.fixture(scope="module")
def run(trees: EmulatedTrees, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Runs the program, with all checks on, with the HIP backend of a tree (None: upstream's)."""
    folder = tmp_path_factory.mktemp("steps")

    def start(tree: Path | None, *scene: str, has_graphs: bool = False, **variables: str) -> Ran:
        report = folder / "report.json"
        options = EmulationOptions(report=report, checks=usual_checks())
        with trees.running(BUILD, options, programs=("llama-bench",), candidate=tree) as side:
            environment = {"PATH": os.environ["PATH"], **side.environment, **variables}
            if has_graphs:
                del environment["GGML_CUDA_DISABLE_GRAPHS"]
            done = subprocess.run(
                [compile_with_ggml(PROGRAM, side, trees.root(BUILD), folder), side.folder, *scene],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
        assert done.returncode == 0, done.stderr
        found = load_report(report)
        scenes: dict[str, tuple[str, ...]] = {}
        for line in done.stdout.splitlines():
            name, told = line.split(" ", 1)
            scenes[name] = (*scenes.get(name, ()), told)
        launched = Counter[str]()
        for one in found.kernels:
            launched[read_name(one.name).base] += one.launches
        return Ran(
            scenes=scenes,
            launched=launched,
            blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
            captured=done.stderr.count("CUDA graph warmup complete"),
        )

    return start


@pytest.fixture(scope="module")
def patched(test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with both patches and the one that they need."""
    folder = tmp_path_factory.mktemp("steps-series")
    where = {"test_cache": test_cache, "gates_cache": gates_cache, "folder": folder}
    return tree_with("attention-inputs", BUILD, needs=NEEDS, **where)


@pytest.fixture(scope="module")
def upstream(run: Callable[..., Ran]) -> Ran:
    return run(None)


def test_every_scene_is_upstreams_to_the_last_bit(
    run: Callable[..., Ran], upstream: Ran, patched: Path
) -> None:
    after = run(patched)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
    served = {
        what: [name for name in after.scenes if name.startswith(what) and "-not-" not in name]
        for what in ("norm", "attention")
    }
    assert after.launched[MULTIPLY] == after.launched[PLACE] == ROUNDS * len(served["attention"])
    two_norms = 1
    assert after.launched[NORM] == ROUNDS * (len(served["norm"]) + two_norms)


def test_the_scenes_are_about_memory_that_is_used_again(upstream: Ran) -> None:
    assert "same-place 1" in upstream.scenes["norm-in-place"]
    assert "same-place 1" in upstream.scenes["attention-llama"], "V lies where Q was"


def test_without_fusion_upstream_computes(run: Callable[..., Ran], patched: Path) -> None:
    after = run(patched, "attention-qwen3", GGML_CUDA_DISABLE_FUSION="1")
    assert not after.launched.keys() & {NORM, MULTIPLY, PLACE}


@pytest.mark.parametrize("scene", ["norm-2048", "attention-llama"])
def test_products_behind_find_the_copy(run: Callable[..., Ran], patched: Path, scene: str) -> None:
    # of the second the first launch quantizes, and the product behind Q, K and V does not
    assert run(patched, scene).launched["quantize_q8_1"] == (0 if scene == "norm-2048" else ROUNDS)


# The emulated GPU's backend has no graphs otherwise, and upstream forks only where it has: all is compiled.
@pytest.fixture(scope="module")
def with_graphs(patched: Path) -> Path:
    common = (patched / _COMMON).read_bytes()
    # On an empty line: code objects of kernels have line numbers, and are those that are there already.
    assert common.startswith(_FIRST_LINES)
    common = common.replace(_FIRST_LINES, b"#pragma once\n#define GGML_HIP_GRAPHS\n", 1)
    return overlay_tree(patched, {_COMMON: common}, "graphs", below=".")


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    run: Callable[..., Ran], upstream: Ran, with_graphs: Path, fork: str
) -> None:
    after = run(with_graphs, has_graphs=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()
