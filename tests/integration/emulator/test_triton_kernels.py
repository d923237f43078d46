"""Kernels that Triton compiled compute what numpy does: triton/kernels.py, by triton/build.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.hip

_RUN = Path(__file__).parent / "triton" / "run.py"


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1151", "gfx1201"])
@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul", "attention", "histogram"])
def test_a_kernel_of_triton_is_right(emulate, arch, name):
    done = emulate(Path(sys.executable), str(_RUN), arch, name, arch=arch)
    assert (done.returncode, done.stderr) == (0, "")
