"""Upstream's operations in the shapes and with the numbers that public reports name, against the CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulated_trees import ARCH, EmulatedTrees
from kernel_scenes import compile_with_ggml, environment_with_ggml

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]
_PROGRAM = Path(__file__).with_name("public_cases.cpp")


@dataclass(frozen=True)
class Ran:
    """What the program said of each case, why it ended early if it did, and findings: kernel and kind."""

    said: Mapping[str, str]
    error: str
    blamed: frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def run(
    hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Ran]:
    """Runs cases on a build, its kernels upstream's or a candidate's."""
    folder = tmp_path_factory.mktemp("cases")
    compiler = open_compiler(hip_toolchain, gates_cache, NullReporter())

    def start(build: int, cases: Sequence[str], *, arch: str = ARCH, candidate: Path | None = None) -> Ran:
        trees = EmulatedTrees(gates_cache, compiler, arch)
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        options = EmulationOptions(report=report, checks=usual_checks())
        with trees.running(build, options, candidate=candidate, whole=()) as side:
            done = subprocess.run(
                [compile_with_ggml(_PROGRAM, side, trees.root(build), folder), side.folder, *cases],
                env=environment_with_ggml(side),
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
        findings = load_report(report).findings if report.is_file() else ()
        parted = (line.partition(": ") for line in done.stdout.splitlines())
        return Ran(
            said={case: text for case, _, text in parted if case in cases},
            error="" if done.returncode == 0 else done.stderr,
            blamed=frozenset((read_name(one.kernel).base, one.kind) for one in findings if not one.note),
        )

    return start


def _all_right(cases: Sequence[str]) -> Ran:
    return Ran(said=dict.fromkeys(cases, "right"), error="", blamed=frozenset())


_SHORT = ("topk 1000 3 40", "topk 1024 2 16")  # one kernel sorts a row
_LONG = ("topk 1500 3 400", "topk 4096 2 1000", "topk 33000 2 40")  # chosen by radix
_NUMBERS = ("random", "ties", "equal", "inf", "minus-inf", "nan", "some-inf", "masked")


@pytest.mark.parametrize("build", [pytest.param(11063, marks=pytest.mark.hours), 11549])
def test_top_k_takes_the_largest_of_ties_infinities_and_masked_rows(
    run: Callable[..., Ran], build: int
) -> None:
    cases = [f"{shape} {numbers}" for shape in (*_SHORT, *_LONG) for numbers in _NUMBERS]
    assert run(build, cases) == _all_right(cases)


def test_a_row_with_some_nan_is_chosen_from_by_radix_and_not_by_sorting(run: Callable[..., Ran]) -> None:
    ran = run(11549, [f"{shape} some-nan" for shape in (*_SHORT, *_LONG)])
    assert {ran.said[f"{shape} some-nan"] for shape in _LONG} == {"right"}
    # Columns that there are, each once. NaN has no place in an order, nor has what a sort makes of it.
    assert {ran.said[f"{shape} some-nan"] for shape in _SHORT} == {"wrong: a larger number was left in row 0"}
    assert ran.blamed == frozenset()


_BARRIER = "vec_dot(tile_x, tile_y, sum, MMQ_TILE_NE_K);\n\n        __syncthreads();\n"


@pytest.mark.hours
def test_mmq_without_its_barrier_between_tiles_is_blamed_for_every_width(
    run: Callable[..., Ran], hip_toolchain: Toolchain, gates_cache: Path, tmp_path: Path
) -> None:
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    candidate = tmp_path / "tree"
    shutil.copytree(trees.root(11549), candidate)
    source = candidate / "ggml" / "src" / "ggml-cuda" / "mmq.cuh"
    text = source.read_text("utf-8")
    assert text.count(_BARRIER) == 1
    source.write_text(text.replace(_BARRIER, _BARRIER.replace("__syncthreads();", "")), "utf-8")
    cases = ["product q4_0 256 1024 9", "product q4_0 256 1024 128", "experts q8_0 256 1024 20"]
    for case in cases:
        assert run(11549, [case]) == _all_right([case])
        ran = run(11549, [case], candidate=candidate)
        assert ran.said[case].startswith("wrong: error ")
        assert ("mul_mat_q", "races") in ran.blamed


@pytest.mark.hours
@pytest.mark.parametrize("build", [10068, 10566])
def test_attention_of_44_heads_and_ratios_that_are_no_powers_of_two(
    run: Callable[..., Ran], build: int
) -> None:
    shapes = ("128 128 4 11", "128 128 44 1", "128 128 8 6", "128 128 4 9", "256 256 4 12", "64 64 4 11")
    cases = [f"attention {shape} {rows}" for shape in shapes for rows in ("512 1", "320 40")]
    assert run(build, cases) == _all_right(cases)


_DEEPSEEK = ("attention 576 512 1 16 512 1", "attention 576 512 1 16 512 40")
# TILE has these, but not beside rocWMMA.
_MIMO = ("attention 192 128 4 8 512 1", "attention 192 128 4 16 512 40")
_MISTRAL = "attention 320 256 1 32 512 1"  # rocWMMA is chosen, and does not have it


@pytest.mark.hours
def test_a_build_with_rocwmma_ends_with_head_sizes_that_it_lacks_on_gfx1100_too(
    run: Callable[..., Ran],
) -> None:
    assert run(9538, _DEEPSEEK, arch="gfx1100") == _all_right(_DEEPSEEK)
    for case in _MIMO:
        ran = run(9538, [case], arch="gfx1100")
        assert not ran.said
        assert "flash_attn_tile" in ran.error
        assert "the kernel trapped (s_trap 2)" in ran.error
    ran = run(9538, [_MISTRAL], arch="gfx1100")
    assert not ran.said
    assert re.search(r"fattn-wmma-f16\.cu:\d+: fatal error", ran.error)
