"""Host code compared without the bodies of kernels: the same verdict and digest as with them, for less."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.prove.gates.isolation.evidence import Compared
from patchkit.prove.gates.isolation.gate import _compare_code
from patchkit.prove.gates.isolation.kernel_bodies import trees_without_bodies
from patchkit.toolchain.compiler import open_compiler
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.units import SourceTree

pytestmark = pytest.mark.hip

UNIT = "ggml/src/ggml-cuda/k.cu"
TEXT = """\
#include <hip/hip_runtime.h>
template <int n> __device__ __host__ int rows(int i) { return i * n; }
template <int n> static __global__ void k(int * p) {
    for (int i = 0; i < n; ++i) { p[i] = rows<n>(i); }
}
int more(int cc) { return cc == 7 ? 2 : 1; }
void launch(int cc, int * p) {
    if (false) { k<3><<<more(cc), 4>>>(p); }
    k<8><<<more(cc), 4>>>(p);
}
"""
TEMPLATE = "template <int n> __device__ __host__ int rows(int i) { return i * n; }"
LEAKING = """\
template <int n> __device__ __host__ int rows(int i) { return i * n + (sizeof(seen<n>) > 9 ? seen<n> : 0); }
"""


def compared(folder: Path, toolchain: Toolchain, before: str, after: str) -> tuple[Compared, Compared]:
    """By both ways."""
    roots = folder / "before", folder / "after"
    for root, text in zip(roots, (before, after), strict=True):
        (root / UNIT).parent.mkdir(parents=True)
        (root / UNIT).write_text(text)
    trees = SourceTree(roots[0]), SourceTree(roots[1])
    compiler = open_compiler(toolchain, folder / "cache", NullReporter())
    found = trees_without_bodies(*roots, [UNIT])
    bodyless = None if found is None else (SourceTree(found[0]), SourceTree(found[1]))
    pair = (UNIT, "gfx1151", False)
    quick = _compare_code(trees, compiler, "host", "gfx1151", bodyless, pair)
    return quick, _compare_code(trees, compiler, "host", "gfx1151", None, pair)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("if (false) { k<3>", "if (false) { k<5>", True),
        ("return i * n;", "return n * i + 0;", True),  # called by kernels alone: no host code
        ("p[i] = rows<n>(i);", "p[i] = rows<n>(i + 1);", True),
        ("cc == 7 ? 2", "cc == 7 ? 3", False),
        ("if (false) { k<3>", "if (cc == 8) { k<3>", False),
        ("    k<8>", "    k<9>", False),
        ("int more(", "int leaked = rows<2>(3);\nint more(", False),
        # Only a kernel uses it, and yet the program has a variable more, and sets it before main.
        (TEMPLATE, f"int more(int cc);\ntemplate <int n> int seen = more(n);\n{LEAKING}", False),
    ],
)
def test_both_ways_say_the_same(
    tmp_path: Path, hip_toolchain: Toolchain, old: str, new: str, *, same: bool
) -> None:
    assert old in TEXT
    quick, whole = compared(tmp_path, hip_toolchain, TEXT, TEXT.replace(old, new))
    assert quick == whole
    assert quick.equal is same
    assert quick.form == ("ir" if same else "assembly")
