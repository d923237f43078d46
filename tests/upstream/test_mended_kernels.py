"""Patches for faults of upstream: with them the results are right, and the checks find nothing.

Each on a tree that has the fault, alone, so that nothing else can be what mends it; the faults are in
docs/records/findings.md.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_trees import EmulatedTrees
from kernel_scenes import SceneTrees

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.emulated.names import read_name
from patchkit.gpu.emulated.recurrent import RecurrentModel
from patchkit.gpu.hardware.driver_build import build_driver
from patchkit.gpu.hardware.logits import Distance, Scene, compare_logits, run_logits
from patchkit.gpu.hardware.program import RunContext
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]
_PASSED = re.compile(r"(\d+)/(\d+) tests passed")
_RACES_OF_SCAN = {"ssm_scan_f32", "ssm_scan_f32_group"}
_RACES_OF_REDUCTIONS = {"soft_max_f32", "soft_max_f32_parallelize_cols", "group_norm_f32"}


@dataclass(frozen=True)
class Ran:
    """How a program ended, what it wrote, and the kernels with findings."""

    code: int
    out: str
    blamed: set[str]

    @property
    def wrong(self) -> int:
        """Cases of test-backend-ops that were not right."""
        told = _PASSED.search(self.out)
        assert told is not None, self.out
        return int(told[2]) - int(told[1])


@pytest.fixture
def run(hip_toolchain: Toolchain, gates_cache: Path, tmp_path: Path) -> Callable[..., Ran]:
    """Runs a program of a build with the usual checks, its kernels upstream's or a candidate's."""
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    report = tmp_path / "report.json"
    options = EmulationOptions(report=report, checks=usual_checks())

    def start(build: int, candidate: Path | None, program: str, *arguments: str | Path) -> Ran:
        with trees.running(build, options, programs=(program,), candidate=candidate) as side:
            done = subprocess.run(
                [side.program(program), *arguments],
                env={"PATH": os.environ["PATH"], **side.environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=3600,
            )
        found = load_report(report).findings
        return Ran(done.returncode, done.stdout, {read_name(one.kernel).base for one in found})

    return start


@pytest.mark.parametrize(
    ("build", "patches", "operations", "faulty"),
    [
        (6900, ("ssm-scan-barrier", "ssm-group-barrier"), "SSM_SCAN", _RACES_OF_SCAN),
        pytest.param(
            9538,
            ("ssm-scan-barrier", "softmax-norm-barriers"),
            "SSM_SCAN,SOFT_MAX,GROUP_NORM,CROSS_ENTROPY_LOSS,CROSS_ENTROPY_LOSS_BACK",
            {"ssm_scan_f32", *_RACES_OF_REDUCTIONS},
            marks=pytest.mark.hours,
        ),
    ],
    ids=["b6900", "b9538"],
)
def test_barriers_make_wrong_results_right(
    scene_trees: SceneTrees,
    run: Callable[..., Ran],
    build: int,
    patches: tuple[str, ...],
    operations: str,
    faulty: set[str],
) -> None:
    asked = ("test-backend-ops", "test", "-b", "ROCm0", "-o", operations)
    before = run(build, None, *asked)
    assert before.code == 1
    assert before.wrong > 0
    assert before.blamed == faulty
    after = run(build, scene_trees.tree_with(*patches, build=build), *asked)
    assert (after.code, after.wrong, after.blamed) == (0, 0, set()), after.out


@pytest.mark.hours
@pytest.mark.parametrize("build", [9538, 11549])
def test_the_convolution_stays_in_its_rows(
    scene_trees: SceneTrees, run: Callable[..., Ran], tmp_path: Path, build: int
) -> None:
    model = tmp_path / "mamba2.gguf"
    RecurrentModel(architecture="mamba2").write(model)
    asked = ("llama-bench", "-m", model, "-p", "40", "-n", "3", "-r", "1", "--no-warmup", "-ngl", "99")
    before = run(build, None, *asked)
    assert before.code == 0
    assert before.blamed == {"ssm_conv_long_token_f32"}
    after = run(build, scene_trees.tree_with("ssm-conv-tail", build=build), *asked)
    assert (after.code, after.blamed) == (0, set())


_PROMPT = Scene(name="four-batches", tokens=120, ubatch=32, steps=2, stride=1)


@pytest.fixture
def distance_from_the_cpu(
    hip_toolchain: Toolchain, gates_cache: Path, tmp_path: Path
) -> Callable[..., Distance]:
    """How far the logits of a prompt of several batches are from the CPU's; work is done late."""
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    model = tmp_path / "small.gguf"
    SmallModel(head_size=64, heads=4, kv_heads=2).write(model)
    place = RunContext(folder=tmp_path, reporter=NullReporter())

    def measure(build: int, candidate: Path | None) -> Distance:
        options = EmulationOptions(schedule=("late", 0))
        with trees.running(build, options, programs=("llama-bench",), candidate=candidate) as side:
            driver = build_driver("logits", side, trees.root(build), gates_cache, NullReporter())
            found = [
                run_logits(
                    driver, side, model, scene, device=device, name=device, timeout_s=600.0, place=place
                )[1]
                for device, scene in (("CPU", _PROMPT.as_reference()), ("ROCm0", _PROMPT))
            ]
            return compare_logits(driver, *found, name="distance", place=place)

    return measure


@pytest.mark.hours
@pytest.mark.parametrize("build", [10068, 10566])
def test_a_prompt_of_several_batches_is_computed_on_its_own_inputs(
    scene_trees: SceneTrees, distance_from_the_cpu: Callable[..., Distance], build: int
) -> None:
    before = distance_from_the_cpu(build, None)
    assert before.nmse > 0.1
    after = distance_from_the_cpu(build, scene_trees.tree_with("integrated-host-buffers", build=build))
    assert after.nmse < 1e-4
