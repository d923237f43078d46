"""What the prefix's hipcc makes is a program that the runtime runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.build.sdk.prefix import current_prefix

pytestmark = [pytest.mark.hip, pytest.mark.slow]

# The kernel is one that stand_in_emulator.cpp knows.
_PROGRAM = """\
#include <hip/hip_runtime.h>

__global__ void put(int * place, int value) { *place = value; }

int main() {
    int * place = nullptr;
    int value = 0;
    (void) hipMalloc(&place, sizeof(int));
    put<<<1, 1>>>(place, 42);
    (void) hipMemcpy(&value, place, sizeof(int), hipMemcpyDeviceToHost);
    return value;
}
"""


@pytest.mark.parametrize("archs", ["gfx1151", "gfx90a,gfx1151"])
def test_a_program_of_hipcc_runs(
    hip_toolchain, test_cache: Path, execute, tmp_path: Path, archs: str
) -> None:
    prefix = current_prefix(test_cache / "sdk") if hip_toolchain.kind == "sdk" else None
    if prefix is None:
        pytest.skip("this machine has a ROCm, with a hipcc of its own")
    (tmp_path / "put.hip").write_text(_PROGRAM, "utf-8")
    argv = [str(prefix.hipcc), f"--offload-arch={archs}", "put.hip", "-o", "put"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    done = execute(tmp_path / "put")
    assert (done.returncode, done.stderr) == (42, "")
