"""pytest --emulated-gpu runs the tests of a project on the emulated GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = """\
import os

def test_there_is_a_gpu(emulated_gpu):
    assert emulated_gpu == "gfx1151"
    assert "PATCHKIT_EMULATOR" in os.environ
    print("seen")

def test_that_fails():
    assert "PATCHKIT_EMULATOR" not in os.environ
"""


def _run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_own.py").write_text(_TESTS, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    # By name, as the environment of the tests may have been installed before the entry point existed.
    argv = [sys.executable, "-m", "pytest", "-p", "patchkit.cli.pytest_plugin", "-rs", *options]
    return subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_without_the_option_a_test_of_a_gpu_is_skipped(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "no emulated GPU: run pytest --emulated-gpu gfx1151" in done.stdout


@pytest.mark.hip
def test_with_the_option_the_tests_run_on_the_emulated_gpu(
    tmp_path: Path, gates_cache: Path, hip_toolchain: object
) -> None:
    done = _run(tmp_path, "--emulated-gpu", "gfx1151", "-s", PATCHKIT_CACHE=str(gates_cache))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert done.stdout.count("seen") == 1


@pytest.mark.hip
def test_an_unknown_gpu_is_an_error(tmp_path: Path, gates_cache: Path, hip_toolchain: object) -> None:
    done = _run(tmp_path, "--emulated-gpu", "gfx9999", PATCHKIT_CACHE=str(gates_cache))
    assert done.returncode != 0
    assert "gfx9999" in done.stderr
    assert "passed" not in done.stdout
