"""What the prefix's hipcc makes is a program that the runtime runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import patchkit_process

from patchkit.toolchain.sdk.prefix import Prefix, current_prefix

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


@pytest.fixture(scope="module")
def prefix(hip_toolchain, test_cache: Path) -> Prefix:
    """The prefix of the test cache, which the toolchain's fixture has brought up to date."""
    found = current_prefix(test_cache / "sdk") if hip_toolchain.kind == "sdk" else None
    if found is None:
        pytest.skip("this machine has a ROCm, with a hipcc of its own")
    return found


@pytest.mark.parametrize("archs", ["gfx1151", "gfx90a,gfx1151"])
def test_a_program_of_hipcc_runs(prefix: Prefix, execute, tmp_path: Path, archs: str) -> None:
    (tmp_path / "put.hip").write_text(_PROGRAM, "utf-8")
    argv = [str(prefix.hipcc), f"--offload-arch={archs}", "put.hip", "-o", "put"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    done = execute(tmp_path / "put")
    assert (done.returncode, done.stderr) == (42, "")


def test_the_page_about_own_kernels_says_what_happens(
    prefix: Prefix, gates_cache: Path, checkout: Path, tmp_path: Path
) -> None:
    page = (checkout / "docs" / "guide" / "kernels-without-gpu.md").read_text("utf-8")
    (program,) = re.findall(r"<!-- compile -->\n```cpp\n(.*?)```", page, re.DOTALL)
    (fixed,) = re.findall(r"^```cpp\n(    if .*?)```", page, re.DOTALL | re.MULTILINE)
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    compile_it, run_it, check_it, model_it = (
        shlex.split(line) for line in commands if line.endswith((" -o saxpy", " ./saxpy"))
    )
    (in_python,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (printed,) = re.findall(r"^It prints `(.*)`\.$", page, re.MULTILINE)
    (tmp_path / "saxpy.hip").write_text(program, "utf-8")
    assert (compile_it[0], run_it[:2]) == ("hipcc", ["patchkit", "emulate"])
    path = f"{prefix.hipcc.parent}:{os.environ['PATH']}"
    made = subprocess.run(compile_it, cwd=tmp_path, env={"PATH": path}, capture_output=True, check=False)
    assert (made.returncode, made.stdout, made.stderr) == (0, b"", b"")
    done = patchkit_process("emulate", "--cache-dir", gates_cache, *run_it[2:], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{printed}\n"), done.stderr
    done = patchkit_process("sanitize", "--cache-dir", gates_cache, *check_it[2:], cwd=tmp_path)
    assert (done.returncode, done.stdout.count("4000 bytes of device memory")) == (1, 2), done.stderr
    edited = program.replace("    y[i] = a * x[i] + y[i];\n", fixed)
    assert edited != program
    (tmp_path / "saxpy.hip").write_text(edited, "utf-8")
    subprocess.run(compile_it, cwd=tmp_path, env={"PATH": path}, check=True)
    done = patchkit_process("sanitize", "--cache-dir", gates_cache, *check_it[2:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = patchkit_process("model", "--cache-dir", gates_cache, *model_it[2:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "saxpy" in done.stdout
    told = f"{in_python}\nprint(ran.status, len(seen.findings), [one.launches for one in timed.kernels])"
    environment = {**os.environ, "PATCHKIT_CACHE": str(gates_cache)}
    done = subprocess.run(
        [sys.executable, "-c", told],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "0 0 [1]", done.stderr
    refused = [word if word != "gfx1151" else "gfx1100" for word in run_it[2:]]
    done = patchkit_process("emulate", "--cache-dir", gates_cache, *refused, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


def test_the_page_about_faults_says_what_is_found(
    prefix: Prefix, gates_cache: Path, checkout: Path, tmp_path: Path
) -> None:
    page = (checkout / "docs" / "guide" / "sanitize.md").read_text("utf-8")
    (program,) = re.findall(r"<!-- compile -->\n```cpp\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    (printed,) = re.findall(r"<!-- prints -->\n```\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shares.hip").write_text(program, "utf-8")
    compile_it, run_it = (shlex.split(line) for line in commands.splitlines())
    path = f"{prefix.hipcc.parent}:{os.environ['PATH']}"
    subprocess.run(compile_it, cwd=tmp_path, env={"PATH": path}, check=True)
    done = patchkit_process("sanitize", "--cache-dir", gates_cache, *run_it[2:], cwd=tmp_path)
    assert done.returncode == 1, done.stderr

    def comparable(text: str) -> list[str]:
        return re.sub(r"0x[0-9a-f]+", "0x", text.replace(f"{tmp_path}/", "/src/")).splitlines()

    # The first line is the program's own.
    assert comparable(done.stdout)[1:] == comparable(printed)


def test_files_that_the_device_linker_joined_have_all_their_kernels(
    prefix: Prefix, emulate, tmp_path: Path
) -> None:
    """With -fgpu-rdc the code object has a note of metadata for each file."""
    (tmp_path / "a.hip").write_text(
        """\
#include <hip/hip_runtime.h>
__device__ int twice(int);
__global__ void first(int * p) { *p = twice(*p); }
__global__ void second(int *);
int main() {
    int *p = nullptr, value = 0;
    (void) hipMalloc(&p, sizeof(int));
    (void) hipMemset(p, 1, sizeof(int));
    first<<<1, 1>>>(p);
    second<<<1, 1>>>(p);
    (void) hipMemcpy(&value, p, sizeof(int), hipMemcpyDeviceToHost);
    return value == 0x02020203 ? 0 : 1;
}
""",
        "utf-8",
    )
    (tmp_path / "b.hip").write_text(
        """\
#include <hip/hip_runtime.h>
__device__ int twice(int value) { return 2 * value; }
__global__ void second(int * p) { *p += 1; }
""",
        "utf-8",
    )
    argv = [str(prefix.hipcc), "-fgpu-rdc", "--offload-arch=gfx1151", "a.hip", "b.hip", "-o", "ab"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    done = emulate(tmp_path / "ab")
    assert (done.returncode, done.stderr) == (0, "")
