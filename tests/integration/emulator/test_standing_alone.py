"""The emulated GPU for users without patches: commands, and an API that imports no carry, prove or tune."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_ALONE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] in (["patchkit", package] for package in ("carry", "prove", "tune")):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refuse())
"""
_COMMAND = "import sys\nfrom patchkit.cli.app import run\nsys.exit(run())\n"
_API = f"""{_ALONE}
import json
from concurrent.futures import ThreadPoolExecutor
from patchkit.gpu.api import open_gpu

gpu = open_gpu("gfx1151")
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(gpu.run, sys.argv[1:]).result().status == 0
ran, seen, timed = gpu.run(sys.argv[1:]), gpu.sanitize(sys.argv[1:]), gpu.time(sys.argv[1:])
print(json.dumps([ran.status, sum(one.launches for one in ran.report.kernels), len(seen.findings),
                  [(one.head.grid, one.launches, one.us > 0) for one in timed.kernels]]))
"""


@pytest.fixture(scope="module")
def own_kernel(hip_toolchain: Toolchain, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    del hip_toolchain  # it installs the SDK
    made = tmp_path_factory.mktemp("own") / "own_kernel"
    hipcc = gates_cache / "sdk" / "current" / "bin" / "hipcc"
    source = Path(__file__).with_name("own_kernel.hip")
    subprocess.run([hipcc, "--offload-arch=gfx1151", source, "-o", made], check=True, capture_output=True)
    return made


def _python(code: str, *words: str | Path, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PATCHKIT_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "tells"),
    [
        ("emulate", lambda told: told["report"]["kernels"][0]["launches"] == 3),
        ("sanitize", lambda told: told["ok"] and told["launches"] == 3),
        ("model", lambda told: told["kernels"][0]["launches"] == 3 and told["us"] > 0),
    ],
)
def test_a_command_runs_a_program(own_kernel, gates_cache, command, tells) -> None:
    done = _python(_COMMAND, command, "--json", "--arch", "gfx1151", "--", own_kernel, cache=gates_cache)
    assert done.returncode == 0, done.stderr
    assert tells(json.loads(done.stdout))


def test_python_opens_a_gpu_runs_a_program_and_reads_what_it_did(own_kernel, gates_cache) -> None:
    done = _python(_API, own_kernel, cache=gates_cache)
    assert done.returncode == 0, done.stderr
    status, launches, findings, kernels = json.loads(done.stdout.splitlines()[-1])
    assert (status, launches, findings) == (0, 3, 0)
    assert kernels == [[[64, 1, 1], 3, True]]


def _model(cache: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return _python(_COMMAND, "model", "--json", "--arch", "gfx1151", "--", *words, cache=cache)


def test_launches_of_other_sizes_are_told_apart(own_kernel, gates_cache) -> None:
    done = _model(gates_cache, own_kernel, "sizes")
    kernels = json.loads(done.stdout)["kernels"]
    assert [(one["block"], one["launches"]) for one in kernels] == [([256, 1, 1], 3), ([32, 1, 1], 1)]
    assert json.loads(done.stdout)["us"] == pytest.approx(sum(one["us"] for one in kernels))


def test_a_program_that_a_signal_ends_has_no_whole_time(own_kernel, gates_cache) -> None:
    done = _model(gates_cache, own_kernel, "abort")
    assert done.returncode == 1
    assert json.loads(done.stdout)["cut_short"]
    assert "its later launches are missing" in done.stderr


def test_launches_of_two_processes_are_not_mixed(own_kernel, gates_cache) -> None:
    done = _model(gates_cache, "sh", "-c", f"{own_kernel}; {own_kernel}")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "PROGRAM_PROCESSES"


def test_a_program_that_is_not_there_is_told_before_anything_is_built(tmp_path: Path, gates_cache) -> None:
    (tmp_path / "sdk").symlink_to(gates_cache / "sdk")
    for command in ("emulate", "sanitize", "model"):
        done = _python(_COMMAND, command, "--json", "--arch", "gfx1151", "--", "./none", cache=tmp_path)
        assert json.loads(done.stdout)["error"]["code"] == "PROGRAM_MISSING"
    assert [path.name for path in tmp_path.iterdir()] == ["sdk"]
