"""hipBLAS whole, levels 1 to 3, on the executing runtime: against plain loops, in every form of a call."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from patchkit.gpu.emulated.runtime import STUB_NAMES, build_stub

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("blas_levels", "-Wno-deprecated-declarations")


@pytest.mark.parametrize("name", ["level1", "level2", "level3", "others", "reads_no_more"])
def test_what_it_computes_is_right(program, execute, name):
    done = execute(program, name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_solvers_leave_what_solves_the_system(compile_program, execute):
    done = execute(compile_program("blas_solvers", "-std=c++20"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_vector_that_goes_on_behind_its_memory_is_named(program, execute):
    done = execute(program, "runs_over")
    assert done.returncode == -signal.SIGABRT
    assert "hipblasDscal: operand x of batch entry 0 has 80 bytes at 0x" in done.stderr


def test_every_function_of_the_header_is_there(compiler):
    header = (compiler.toolchain.root / "include" / "hipblas" / "hipblas.h").read_text("utf-8")
    declared = set(re.findall(r"HIPBLAS_EXPORT[\w\s]*?(hipblas\w+)\s*\(", header))
    assert len(declared) > 1000
    library = build_stub(compiler) / STUB_NAMES[0]
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    missing = declared - {line.split()[0] for line in listed.stdout.splitlines()}
    assert missing == set()
