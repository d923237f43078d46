"""Compiling the proof's kernels over the stand-in, with a compiler and nothing else.

The *stub headers* are the few lines of HIP that the stand-in needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock
from stand_in_proof.cases import function_names, source
from stand_in_proof.ir import Function
from stand_in_proof.ir_text import parse_functions

from patchkit.base.errors import ToolchainError
from patchkit.base.reporter import NullReporter
from patchkit.build.toolchain import Toolchain, ToolchainMissing, find_toolchain, hip_flags

ROOT = Path(__file__).resolve().parents[3]
_STUB_HEADERS = Path(__file__).with_name("headers")

# From the newest on that is known to emit what the proof reads; 18 is the first that knows gfx12's builtins.
_CLANGS = (*(f"clang++-{major}" for major in range(22, 17, -1)), "clang++")

Compile = Callable[..., dict[str, Function]]


@pytest.fixture(scope="session")
def clang(request: pytest.FixtureRequest) -> str:
    """One of the system's, else the one that the SDK brings: a fresh machine has no other."""
    for name in _CLANGS:
        found = shutil.which(name)
        if found is None:
            continue
        targets = subprocess.run([found, "--print-targets"], capture_output=True, text=True, check=False)
        if "amdgcn" in targets.stdout:
            return found
    return str(request.getfixturevalue("toolchain").clang)


@pytest.fixture
def compile_cases(clang: str, tmp_path: Path) -> Compile:
    """The proof's functions as compiled for a GPU, with ``rocwmma/rocwmma.hpp`` from a folder."""

    def compile_over(include: Path, arch: str, extra: Sequence[str] = ()) -> dict[str, Function]:
        flags = ("-x", "hip", "-std=gnu++17", "-O3", f"--offload-arch={arch}", "--cuda-device-only")
        stubs = ("-nogpuinc", "-nogpulib", "-isystem", str(_STUB_HEADERS))
        return _emit(clang, (*flags, *stubs, "-I", str(include), *extra), tmp_path)

    return compile_over


@pytest.fixture(scope="session")
def toolchain(test_cache: Path) -> Toolchain:
    """The ROCm of this machine, else the SDK that all tests share. Fails when it cannot be installed."""
    folder = test_cache / "sdk"
    with FileLock(test_cache / "sdk.lock"):
        try:
            return find_toolchain(folder, dict(os.environ), NullReporter())
        except ToolchainError as error:
            if not isinstance(error, ToolchainMissing) and error.code != "SDK_PREFIX_DAMAGED":
                raise
            argv = [sys.executable, "-m", "patchkit", "sdk", "install", "--cache-dir", str(folder)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [*argv, "--rocwmma", "stand-in"],
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
    if done.returncode:
        pytest.fail(f"no SDK could be installed (leave these tests out with -m 'not hip'):\n{done.stderr}")
    return find_toolchain(folder, dict(os.environ), NullReporter())


@pytest.fixture
def compile_with_toolchain(toolchain: Toolchain, tmp_path: Path) -> Compile:
    """As ``compile_cases``, with the toolchain's compiler and HIP headers."""

    def compile_over(include: Path, arch: str, extra: Sequence[str] = ()) -> dict[str, Function]:
        flags = hip_flags(toolchain, arch, which="device")
        return _emit(str(toolchain.clang), ("-w", "-I", str(include), *flags, *extra), tmp_path)

    return compile_over


def _emit(clang: str, flags: Sequence[str], folder: Path) -> dict[str, Function]:
    unit, emitted = folder / "cases.hip", folder / "cases.ll"
    unit.write_text(source(), "utf-8")
    argv = [clang, *flags, "-S", "-emit-llvm", "-o", str(emitted), str(unit)]
    subprocess.run(argv, check=True)
    return parse_functions(emitted.read_text("utf-8"), emitted.name, function_names())
