"""What hipBLAS calls compute on the CPU: right in every type, form, size and level of the CPU.

``blas_products.cpp`` compares with plain loops in double and prints a line per kind of check.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.gpu.emulated.runtime import _NATIVE, _WARNINGS, cxx_of
from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.hip, pytest.mark.slow]

_HERE = Path(__file__).parent
_LEVELS = ("plain", "avx2", "avx512")
_KINDS = {
    *(f"{given} to {result}" for given in ("f16", "bf16") for result in (given, "f32")),
    *("f32 to f32", "f64 to f64", "a batch", "triangular systems"),
    *("every f16 and bf16 is read", "every f16 and bf16 is rounded to"),
}


def _lines(toolchain: Toolchain, folder: Path, *flags: str) -> list[tuple[str, str, int, int, float]]:
    """Kind, level, numbers compared, wrong ones, the largest error as a part of what is allowed."""
    argv = [*cxx_of(toolchain), "-std=c++20", "-O1", *_WARNINGS, *flags, "-I", str(_NATIVE / "runtime")]
    sources = [str(_NATIVE / "runtime" / "products.cpp"), str(_HERE / "blas_products.cpp")]
    subprocess.run([*argv, *sources, "-pthread", "-o", str(folder / "products")], check=True)
    done = subprocess.run([str(folder / "products")], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = []
    for line in done.stdout.splitlines():
        what, compared, wrong, worst = line.split("\t")
        kind, _, level = what.rpartition(", ")
        lines.append((kind, level, int(compared), int(wrong), float(worst)))
    return lines


def _holds(lines: list[tuple[str, str, int, int, float]]) -> None:
    levels = {level for _, level, *_ in lines}
    assert "plain" in levels
    assert {(kind, level) for kind, level, *_ in lines} == {(k, level) for k in _KINDS for level in levels}
    assert [line for line in lines if line[3] != 0 or line[2] < 100_000] == []
    # As exact as the types allow, and no more: half a step of the type is what rounding once gives.
    assert all(worst > 0.9 for kind, *_, worst in lines if kind in {"f16 to f16", "bf16 to bf16"})


def test_products_are_right_on_every_level_of_this_cpu(hip_toolchain: Toolchain, tmp_path: Path) -> None:
    _holds(_lines(hip_toolchain, tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("flags", [("-fsanitize=address,undefined", "-fno-sanitize-recover=all"), ("-O0",)])
def test_they_are_with_sanitizers_and_without_optimisation(
    flags: tuple[str, ...], hip_toolchain: Toolchain, tmp_path: Path
) -> None:
    _holds(_lines(hip_toolchain, tmp_path, *flags))
