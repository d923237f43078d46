"""Attention of prompts by the patch's own kernel: right on odd shapes, and nothing for the checks.

Upstream's cases: 32 and 75 tokens fill no block, 512 and 1024 rows are few and many steps, heads share K and
V by 1, 4 and 12, sinks, several sequences, and a cache that is made f16 first.
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
from own_graphs import tree_with

from patchkit.base.reporter import NullReporter
from patchkit.gpu.emulated.checks import usual_checks
from patchkit.gpu.emulated.emulator import EmulationOptions, load_report
from patchkit.gpu.emulated.names import read_name
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow]
BUILD = 11549
PATCH = "fattn-mma-prompts"
KERNEL = "flash_attn_mma_prompts"
_PASSED = re.compile(r"(\d+)/(\d+) tests passed")
_PLAIN = r"max_bias=0\.000000,logit_softcap=0\.000000"


@dataclass(frozen=True)
class Ran:
    """How many cases were asked, how many right, how often each kernel ran, and those with findings."""

    cases: int
    right: int
    launches: dict[str, int]
    blamed: set[str]


@pytest.fixture(scope="module")
def patched(test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with this patch and no other."""
    folder = tmp_path_factory.mktemp("prompt-series")
    return tree_with(PATCH, BUILD, test_cache=test_cache, gates_cache=gates_cache, folder=folder)


@pytest.fixture
def run(hip_toolchain: Toolchain, gates_cache: Path, patched: Path, tmp_path: Path) -> Callable[[str], Ran]:
    """Runs those cases of upstream's whose parameters match a pattern, with the usual checks."""
    trees = EmulatedTrees(gates_cache, open_compiler(hip_toolchain, gates_cache, NullReporter()))
    report = tmp_path / "report.json"
    options = EmulationOptions(report=report, checks=usual_checks())

    def start(cases: str) -> Ran:
        with trees.running(BUILD, options, candidate=patched) as side:
            asked = ("test", "-b", "ROCm0", "-o", "FLASH_ATTN_EXT", "-p", cases)
            done = subprocess.run(
                [side.program("test-backend-ops"), *asked],
                env={"PATH": os.environ["PATH"], **side.environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=3600,
            )
        told = _PASSED.search(done.stdout)
        assert told is not None, done.stdout + done.stderr
        found = load_report(report)
        launches: dict[str, int] = {}
        for kernel in found.kernels:
            base = read_name(kernel.name).base
            launches[base] = launches.get(base, 0) + kernel.launches
        blamed = {read_name(one.kernel).base for one in found.findings}
        return Ran(cases=int(told[2]), right=int(told[1]), launches=launches, blamed=blamed)

    return start


@pytest.mark.parametrize(
    ("cases", "least"),
    [
        (
            rf"hsk=64,hsv=64,nh=4,nr23=\[4,[13]\],kv=512,nb=75,mask=1,sinks=[01],{_PLAIN},prec=f32,type_K=f16",
            8,
        ),
        (rf"hsk=64,hsv=64,nh=4,nr23=\[1,1\],kv=1024,nb=75,mask=1,sinks=0,{_PLAIN},prec=f32,type_K=q8_0", 1),
        (rf"hsk=128,hsv=128,nh=4,nr23=\[12,1\],kv=512,nb=(32|75),mask=1,sinks=1,{_PLAIN},prec=f32", 2),
    ],
    ids=["sequences", "quantized", "twelve-heads"],
)
def test_odd_shapes_are_right_and_the_checks_find_nothing(
    run: Callable[[str], Ran], cases: str, least: int
) -> None:
    ran = run(cases)
    assert ran.cases >= least
    assert ran.right == ran.cases
    assert ran.launches[KERNEL] == ran.cases
    assert ran.blamed == set()


@pytest.mark.parametrize(
    "cases",
    [
        rf"hsk=64,hsv=64,nh=4,nr23=\[1,1\],kv=113,nb=75,mask=1,sinks=0,{_PLAIN},prec=f32,type_K=f16",
        rf"hsk=64,hsv=64,nh=4,nr23=\[1,1\],kv=512,nb=75,mask=0,sinks=0,{_PLAIN},prec=f32,type_K=f16",
        r"hsk=64,hsv=64,nh=4,nr23=\[1,1\],kv=512,nb=75,mask=1,sinks=0,max_bias=8\.000000.*type_K=f16",
        rf"hsk=64,hsv=64,nh=4,nr23=\[4,1\],kv=512,nb=3,mask=1,sinks=0,{_PLAIN},prec=f32,type_K=f16",
    ],
    ids=["not-padded", "no-mask", "alibi", "few-tokens"],
)
def test_what_the_kernel_is_not_for_stays_upstreams(run: Callable[[str], Ran], cases: str) -> None:
    ran = run(cases)
    assert ran.cases > 0
    assert ran.right == ran.cases
    assert KERNEL not in ran.launches
