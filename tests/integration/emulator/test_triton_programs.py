"""Triton programs run, are checked and are timed on the emulated GPU: triton/programs.py and faults.py.

Needs a Python with Triton and NumPy: that of the tests, or PATCHKIT_TEST_TRITON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import patchkit_process

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_FOLDER = Path(__file__).parent / "triton"


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("PATCHKIT_TEST_TRITON", sys.executable)
    asked = subprocess.run([found, "-c", "import numpy, triton"], capture_output=True, check=False)
    if asked.returncode:
        pytest.skip(f"{found} has no Triton; PATCHKIT_TEST_TRITON names a Python that has")
    return found


@pytest.fixture
def run(python: str, gates_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hip_toolchain):
    """Runs a script under a command; Triton's cache is shared by the tests."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(gates_cache / "triton"))

    def start(command: str, script: str, name: str, arch: str = "gfx1151"):
        argv = ("--arch", arch, "--", python, "-W", "ignore", str(_FOLDER / script), name)
        return patchkit_process(command, "--cache-dir", gates_cache, *argv, cwd=tmp_path)

    return start


def _line_of(name: str) -> int:
    lines = (_FOLDER / "faults.py").read_text("utf-8").splitlines()
    (line,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"# fault: {name}"))
    return line


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
@pytest.mark.parametrize(
    "name",
    [
        *("vector_add", "softmax", "matmul", "attention", "histogram", "sum_of_halves", "autotuned"),
        *("descriptors", "by_dlpack"),
    ],
)
def test_a_program_computes_what_numpy_does(run, arch, name):
    done = run("emulate", "programs.py", name, arch)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_addresses_in_an_array_are_those_of_the_device(run, python):
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no PyTorch")
    done = run("emulate", "programs.py", "addresses")
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize("buffers", ["0", "1"])
@pytest.mark.parametrize("name", ["softmax", "matmul", "histogram"])
def test_a_program_without_faults_has_no_findings(run, name, buffers, monkeypatch):
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", buffers)
    done = run("sanitize", "programs.py", name)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("no_mask", "memory"), ("wrong_stride", "memory"), ("far_atomic", "memory"), ("no_barrier", "races")],
)
@pytest.mark.parametrize("buffers", ["0", "1"])
def test_a_fault_is_found_at_its_line(run, name, kind, buffers, monkeypatch):
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", buffers)
    done = run("sanitize", "faults.py", name)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert f"{kind}: " in done.stdout
    assert f"faults.py:{_line_of(name)}: " in done.stdout
    assert "launched from <lambda> (" in done.stdout


def test_an_assertion_stops_the_program_at_its_line(run):
    done = run("emulate", "faults.py", "asserts")
    assert done.returncode != 0
    assert "device assertion failed: 'too large'" in done.stdout + done.stderr
    assert f"faults.py:{_line_of('asserts')}: stopped" in done.stderr


def test_a_kernel_for_waves_of_64_lanes_is_refused(run, monkeypatch):
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "gfx90a")
    done = run("emulate", "programs.py", "softmax")
    assert done.returncode != 0
    assert "kernel softmax is compiled for waves of 64 lanes, but only waves of 32" in done.stderr


def test_a_kernel_prints(run):
    done = run("emulate", "faults.py", "prints")
    assert (done.returncode, done.stdout.count(": 7\n")) == (0, 32), done.stderr


def test_the_autotuner_gets_modelled_times(run):
    done = run("emulate", "programs.py", "autotuned")
    assert "times known: [True, True]" in done.stdout


def test_a_benchmark_gets_modelled_times(run):
    done = run("emulate", "programs.py", "benchmarked")
    assert (done.returncode, "us between 1 and 100: True" in done.stdout) == (0, True), done.stderr


def test_a_program_is_modelled(run):
    done = run("model", "programs.py", "softmax")
    assert "softmax" in done.stdout, done.stderr
