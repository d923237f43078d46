"""Whatever a CPU has: what the emulator was built for the lower levels of this one computes the same."""

from __future__ import annotations

import pytest
from right_kernels import RIGHT_KERNELS

from patchkit.gpu.emulated.emulator import (
    Level,
    build_alone,
    build_emulator,
    find_disassembler,
    level_of,
    this_level,
)

pytestmark = [pytest.mark.hip, pytest.mark.slow]

AVX2 = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
LEVELS: tuple[Level, ...] = ("x86-64", "x86-64-v3", "x86-64-v4")


@pytest.fixture(params=["x86-64", pytest.param("x86-64-v3", marks=pytest.mark.hours)])
def level(request: pytest.FixtureRequest) -> Level:
    """A level of x86-64 below the best one of this CPU."""
    best = this_level()
    if best not in LEVELS or LEVELS.index(request.param) >= LEVELS.index(best):
        pytest.skip(f"this CPU has {best}")
    return request.param


def test_instructions_leave_the_same(level: Level, compiler, family_cases) -> None:
    family_cases.check(build_alone(compiler, level), find_disassembler(compiler.toolchain))


def test_kernels_compute_what_the_host_does(level: Level, compiler, compile_program, emulate) -> None:
    program = compile_program("emulated_kernels")
    library = str(build_emulator(compiler, level))
    for name in RIGHT_KERNELS:
        done = emulate(program, name, PATCHKIT_EMULATOR=library)
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["right"]), (name, done.stderr)


@pytest.mark.parametrize(
    ("machine", "flags", "level"),
    [
        ("x86_64", "fpu sse2", "x86-64"),
        ("x86_64", AVX2, "x86-64-v3"),
        ("x86_64", f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl", "x86-64-v4"),
        ("aarch64", "", "armv8-a"),
    ],
)
def test_what_the_cpu_has_decides_the_level(machine: str, flags: str, level: Level) -> None:
    assert level_of(machine, f"processor: 0\nflags\t\t: {flags}\n") == level
