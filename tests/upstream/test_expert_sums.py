"""The sum over the experts of a token gives upstream's numbers to the last bit, in shapes of many kinds."""

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

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "moe-reduction-columns"
PROGRAM = Path(__file__).with_name("expert_sums.cpp")
_NOT_FUSED = {"one-expert", "sixteen-experts"}


@dataclass(frozen=True)
class Ran:
    """What the program printed, by scene; how often each kernel was launched; and kernels with findings."""

    scenes: Mapping[str, str]
    launched: Mapping[str, int]
    blamed: frozenset[str]


@pytest.fixture(scope="module")
def run(
    hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path | None], Ran]:
    """Runs the program, with all checks on, with the HIP backend of a tree (None: upstream's)."""
    folder = tmp_path_factory.mktemp("sums")
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))

    def start(tree: Path | None) -> Ran:
        report = folder / "report.json"
        options = EmulationOptions(report=report, checks=usual_checks())
        with trees.running(BUILD, options, programs=("llama-bench",), candidate=tree) as side:
            program = compile_with_ggml(PROGRAM, side, trees.root(BUILD), folder)
            environment = {"PATH": os.environ["PATH"], **side.environment}
            done = subprocess.run(
                [program, side.folder],
                env=environment,
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
        return Ran(
            scenes=dict(line.split(" ", 1) for line in done.stdout.splitlines()),
            launched=launched,
            blamed=frozenset(read_name(one.kernel).base for one in found.findings if not one.note),
        )

    return start


def test_every_sum_is_upstreams_to_the_last_bit(
    run: Callable[[Path | None], Ran],
    test_cache: Path,
    gates_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("sums-series")
    upstream = run(None)
    after = run(tree_with(PATCH, BUILD, test_cache=test_cache, gates_cache=gates_cache, folder=folder))
    assert after.scenes == upstream.scenes
    assert len(set(after.scenes.values())) == len(after.scenes)
    fused = len(after.scenes.keys() - _NOT_FUSED)
    assert upstream.launched["moe_weighted_reduction_f32"] == fused
    assert after.launched["moe_reduction_columns"] == fused
    assert after.launched["moe_weighted_reduction_f32"] == 0
    assert after.blamed == frozenset()
