"""hiprtc: a program has device code compiled by the toolchain's compiler while it runs, and launches it."""

from __future__ import annotations

import pytest

from patchkit.toolchain.hip import hip_flags

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture(scope="module")
def program(compile_program):
    return compile_program("compiled_while_running")


@pytest.fixture
def device_compiler(compiler) -> str:
    words = [str(compiler.toolchain.clang), *hip_flags(compiler.toolchain, "gfx1151", which="device")]
    return "\n".join(words)


def test_kernels_are_compiled_found_by_name_and_run(program, emulate):
    done = emulate(program, "compiles")
    assert (done.returncode, done.stderr) == (0, "")
    names, numbers, others = done.stdout.splitlines()
    assert names == "_ZN5inner6scaledIfEEvPT_S1_ _ZN5inner6scaledIiEEvPT_S1_ table"
    assert numbers == "7 100"  # 1.5 * 2 * 31 + 7
    assert others == "5 8"


def test_errors_name_the_programs_own_line(program, execute, device_compiler):
    done = execute(program, "refuses", PATCHKIT_EMULATOR_COMPILER=device_compiler)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "9 6 4 named\n2 3 4\n"


def test_without_a_compiler_the_log_says_so(program, execute):
    done = execute(program, "compiles")
    assert done.returncode == 1
    assert done.stdout == "patchkit: no compiler available: PATCHKIT_EMULATOR_COMPILER is not set\n"
