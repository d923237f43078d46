"""Compiling the proof's kernels over the stand-in, with a compiler and nothing else.

Vocabulary: the *stub headers* are the few lines of HIP that the stand-in needs.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from patchkit.wmma_layout.cases import function_names, source
from patchkit.wmma_layout.ir import Function
from patchkit.wmma_layout.ir_text import parse_functions

_STUB_HEADERS = Path(__file__).with_name("headers")

# From the newest on that is known to emit what the proof reads; 18 is the first that knows gfx12's builtins.
_CLANGS = (*(f"clang++-{major}" for major in range(22, 17, -1)), "clang++")

Compile = Callable[..., dict[str, Function]]


@pytest.fixture(scope="session")
def clang() -> str:
    for name in _CLANGS:
        found = shutil.which(name)
        if found is None:
            continue
        targets = subprocess.run([found, "--print-targets"], capture_output=True, text=True, check=False)
        if "amdgcn" in targets.stdout:
            return found
    return pytest.fail("no clang that makes code for AMD GPUs (leave these tests out with -m 'not hip')")


@pytest.fixture
def compile_cases(clang: str, tmp_path: Path) -> Compile:
    """The proof's functions as compiled for a GPU, with ``rocwmma/rocwmma.hpp`` from a folder."""

    def compile_over(include: Path, arch: str, extra: Sequence[str] = ()) -> dict[str, Function]:
        unit, emitted = tmp_path / "cases.hip", tmp_path / f"cases.{arch}.ll"
        unit.write_text(source(), "utf-8")
        subprocess.run(
            [
                *(clang, "-x", "hip", "-std=gnu++17", "-O3", f"--offload-arch={arch}", "--cuda-device-only"),
                *("-nogpuinc", "-nogpulib", "-isystem", str(_STUB_HEADERS), "-I", str(include), *extra),
                *("-S", "-emit-llvm", "-o", str(emitted), str(unit)),
            ],
            check=True,
        )
        return parse_functions(emitted.read_text("utf-8"), emitted.name, function_names())

    return compile_over
