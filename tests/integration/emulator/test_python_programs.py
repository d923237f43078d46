"""Python programs that use HIP: by ctypes, and by the packages of PATCHKIT_TEST_PYTHON."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import patchkit_process

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_FOLDER = Path(__file__).parent / "python"


@pytest.fixture
def run(gates_cache: Path, tmp_path: Path, hip_toolchain):
    """Runs a script under a command."""

    def start(command: str, script: str, *words: str, arch: str = "gfx1151", python: str = sys.executable):
        argv = ("--arch", arch, "--", python, "-W", "ignore", str(_FOLDER / script), *words)
        return patchkit_process(command, "--cache-dir", gates_cache, *argv, cwd=tmp_path)

    return start


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
@pytest.mark.parametrize("name", ["compiled", "linked", "comgr"])
def test_a_program_by_ctypes_is_right(run, name, arch):
    done = run("emulate", "ctypes_programs.py", name, arch, arch=arch)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    assert "1 launch of 1 kernel" in done.stderr


def test_a_program_by_ctypes_is_checked_and_timed(run):
    done = run("sanitize", "ctypes_programs.py", "compiled")
    assert (done.returncode, "0 findings" in done.stdout) == (0, True), (done.stdout, done.stderr)
    done = run("model", "ctypes_programs.py", "compiled")
    assert (done.returncode, "scale" in done.stdout) == (0, True), (done.stdout, done.stderr)


def test_code_for_waves_of_64_lanes_is_refused_when_it_is_compiled(run):
    done = run("emulate", "ctypes_programs.py", "wave64")
    assert done.returncode == 1
    assert "-mwavefrontsize64: the emulated GPU executes only waves of 32 lanes" in done.stderr


def test_code_for_another_gpu_is_not_compiled_by_comgr(run):
    done = run("emulate", "ctypes_programs.py", "comgr", "gfx90a")
    assert (done.returncode, "a call returned 1" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
@pytest.mark.parametrize("package", ["hip", "cupy", "tinygrad"])
def test_a_program_with_a_package_is_right_and_checked(run, package, arch):
    python = os.environ.get("PATCHKIT_TEST_PYTHON", sys.executable)
    code = f"import importlib.util as u; raise SystemExit(u.find_spec({package!r}) is None)"
    if subprocess.run([python, "-c", code], check=False).returncode:
        pytest.skip(f"{python} has no {package}; PATCHKIT_TEST_PYTHON names a Python that has")
    done = run("emulate", "packages.py", package, arch=arch, python=python)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["right"]), (done.stdout, done.stderr)
    done = run("sanitize", "packages.py", package, arch=arch, python=python)
    assert (done.returncode, "0 findings" in done.stdout) == (0, True), (done.stdout, done.stderr)
