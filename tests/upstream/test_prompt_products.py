"""Products of prompts by the patch's own kernel: nearly exact in many shapes, and nothing for the checks."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping
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

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "mul-mat-prompts"
KERNEL = "mul_mat_prompts"
PROGRAM = Path(__file__).with_name("prompt_products.cpp")
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
_PRODUCTS_OF_ANY_BATCH = 3


@dataclass(frozen=True)
class Ran:
    """The error of each scene; whether columns depend on others; launches; and kernels with findings."""

    errors: Mapping[str, float]
    any_batch: str
    launched: Mapping[str, int]
    blamed: frozenset[str]


@pytest.fixture(scope="module")
def ran(
    hip_toolchain: Toolchain, test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """The program, with all checks on, with the HIP backend of the tree with this patch and no other."""
    folder = tmp_path_factory.mktemp("products")
    tree = tree_with(PATCH, BUILD, test_cache=test_cache, gates_cache=gates_cache, folder=folder)
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    report = folder / "report.json"
    options = EmulationOptions(report=report, checks=usual_checks())
    with trees.running(BUILD, options, programs=("llama-bench",), candidate=tree) as side:
        program = compile_with_ggml(PROGRAM, side, trees.root(BUILD), folder)
        done = subprocess.run(
            [program, side.folder],
            env={"PATH": os.environ["PATH"], **side.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
    assert done.returncode == 0, done.stderr
    found = load_report(report)
    launched = Counter[str]()
    for one in found.kernels:
        launched[read_name(one.name).base] += one.launches
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    any_batch = told.pop("any-batch")
    return Ran(
        errors={scene: float(error) for scene, error in told.items()},
        any_batch=any_batch,
        launched=launched,
        blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
    )


def test_products_are_nearly_exact_and_the_checks_find_nothing(ran: Ran) -> None:
    served = {scene: error for scene, error in ran.errors.items() if scene not in _UPSTREAMS}
    assert {scene: error for scene, error in served.items() if not error < _NEAR} == {}
    assert ran.launched[KERNEL] == len(served) + _PRODUCTS_OF_ANY_BATCH
    assert ran.blamed == frozenset()


def test_a_column_is_the_same_whatever_is_beside_it(ran: Ran) -> None:
    assert ran.any_batch == "same"
