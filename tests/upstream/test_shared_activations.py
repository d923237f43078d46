"""Products that read one activation share its quantized copy; nobody reads a copy of what was written over.

Every scene of shared_activations.cpp has to give upstream's numbers to the last bit. Then each rule that
keeps the copy right is left out of the patch's header, one at a time, and the scenes that are about it have
to come out wrong. Scenes of gate logits see two of the rules, "overlap" and "layout" (a model of K
quantizations, tried by hand); the others they do not see.
"""

from __future__ import annotations

import os
import subprocess
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

# The host code of build 11549 is compiled again for each rule that is left out.
pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "quantize-once"
HEADER = "ggml/src/ggml-cuda/quantize-once.cuh"
PROGRAM = Path(__file__).with_name("shared_activations.cpp")
_QUANTIZE = {"quantize_q8_1", "quantize_mmq_q8_1"}
_COMMON = "ggml/src/ggml-cuda/common.cuh"
_FIRST_LINES = b"#pragma once\n\n"
# Where each rule stands in the header, what is there without it, and the scenes that then come out wrong.
_RULES = {
    "graph": ("next == 0", "false", {"rounds"}),
    "overlap": (
        "written < kept.end",
        "false",
        {"copied-over", "gate", "half", "in-place", "in-place-prompt", "reused-memory"},
    ),
    "plain": ("!ggml_cuda_quantize_once_is_plain(node->op)", "false", {"optimizer"}),
    "layout": ("kept.layout == layout", "true", {"layouts"}),
    "shape": ("std::memcmp(kept.ne, src1->ne, sizeof(kept.ne)) == 0", "true", {"shapes"}),
    "strides": ("std::memcmp(kept.nb, src1->nb, sizeof(kept.nb)) == 0", "true", {"strides"}),
    "stream": ("ctx.curr_stream_no != 0", "false", set[str]()),  # a race, which the checks find
}


@dataclass(frozen=True)
class Ran:
    """What the program printed, by scene, how often activations were quantized, and kernels with findings."""

    scenes: Mapping[str, tuple[str, ...]]
    quantized: int
    blamed: frozenset[str]
    captured: int


@pytest.fixture(scope="module")
def trees(hip_toolchain: Toolchain, gates_cache: Path) -> EmulatedTrees:
    return EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))


@pytest.fixture(scope="module")
def run(trees: EmulatedTrees, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Runs the program with the HIP backend of a tree (None: upstream's)."""
    folder = tmp_path_factory.mktemp("shared")

    def start(
        tree: Path | None, *scene: str, has_graphs: bool = False, checked: bool = False, **variables: str
    ) -> Ran:
        report = folder / "report.json"
        options = EmulationOptions(report=report, checks=usual_checks() if checked else ())
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
        return Ran(
            scenes=scenes,
            quantized=sum(one.launches for one in found.kernels if read_name(one.name).base in _QUANTIZE),
            blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
            captured=done.stderr.count("CUDA graph warmup complete"),
        )

    return start


@pytest.fixture(scope="module")
def patched(test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with this patch and no other."""
    folder = tmp_path_factory.mktemp("shared-series")
    return tree_with(PATCH, BUILD, test_cache=test_cache, gates_cache=gates_cache, folder=folder)


@pytest.fixture(scope="module")
def upstream(run: Callable[..., Ran]) -> Ran:
    return run(None)


@pytest.fixture(scope="module")
def with_switches(patched: Path) -> Path:
    """The patched tree, in which the variable LEFT_OUT names a rule that does not hold: one build for all."""
    return overlay_tree(patched, {HEADER: _switched(patched)}, "left-out", below=".")


def _switched(patched: Path) -> bytes:
    text = (patched / HEADER).read_text("utf-8")
    for name, (rule, without, _) in _RULES.items():
        assert text.count(rule) == 1, rule
        text = text.replace(rule, f'(is_left_out("{name}") ? {without} : {rule})')
    question = (
        "#include <cstdlib>\ninline bool is_left_out(const char * rule) {\n"
        '    const char * named = std::getenv("LEFT_OUT");\n'
        "    return named != nullptr && std::strcmp(named, rule) == 0;\n}\n"
    )
    return text.replace("#include <vector>\n", f"#include <vector>\n{question}", 1).encode()


def test_every_scene_is_upstreams_to_the_last_bit(
    run: Callable[..., Ran], upstream: Ran, patched: Path
) -> None:
    after = run(patched, checked=True)
    assert after.scenes == upstream.scenes
    assert "same-place 1" in after.scenes["reused-memory"], "the scene is about two tensors at one address"
    assert after.blamed == frozenset()
    assert after.quantized < upstream.quantized


@pytest.mark.parametrize("scene", ["shared", "shared-prompt"])
def test_an_activation_is_quantized_once(run: Callable[..., Ran], patched: Path, scene: str) -> None:
    rounds, products = 5, 3
    assert run(None, scene).quantized == rounds * products
    assert run(patched, scene).quantized == rounds


@pytest.mark.parametrize("rule", [name for name, (_, _, scenes) in _RULES.items() if scenes])
def test_without_a_rule_its_scenes_are_wrong(
    run: Callable[..., Ran], upstream: Ran, with_switches: Path, rule: str
) -> None:
    after = run(with_switches, LEFT_OUT=rule)
    wrong = {name for name, told in after.scenes.items() if told != upstream.scenes[name]}
    assert wrong >= _RULES[rule][2]


# The emulated GPU's backend has no graphs otherwise, and upstream forks only where it has: all is compiled.
@pytest.fixture(scope="module")
def with_graphs(patched: Path) -> Path:
    common = (patched / _COMMON).read_bytes()
    # On an empty line: code objects of kernels have line numbers, and are those that are there already.
    assert common.startswith(_FIRST_LINES)
    common = common.replace(_FIRST_LINES, b"#pragma once\n#define GGML_HIP_GRAPHS\n", 1)
    return overlay_tree(patched, {HEADER: _switched(patched), _COMMON: common}, "graphs", below=".")


@pytest.mark.parametrize("fork", ["0", "1"])
def test_a_graph_that_is_captured_and_replayed_is_right(
    run: Callable[..., Ran], upstream: Ran, with_graphs: Path, fork: str
) -> None:
    after = run(with_graphs, has_graphs=True, checked=True, GGML_CUDA_GRAPH_OPT=fork)
    assert after.captured == len(after.scenes)
    assert after.scenes == upstream.scenes
    assert after.blamed == frozenset()


def test_streams_of_a_fork_quantize_for_themselves(run: Callable[..., Ran], with_graphs: Path) -> None:
    asked = (with_graphs, "forked")
    how = {"has_graphs": True, "checked": True, "GGML_CUDA_GRAPH_OPT": "1"}
    assert run(*asked, **how).blamed == frozenset()
    assert run(*asked, **how, LEFT_OUT="stream").blamed == {"mul_mat_vec_q", "quantize_q8_1"}
