"""A missing barrier shows on the emulated GPU when a shuffle lets waves of a block run in another order."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of
from patchkit.gpu.emulated.emulator import EmulationOptions, emulated_gpu
from patchkit.toolchain.compiler import Compiler

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture
def answer(
    compile_program, compiler: Compiler, checkout: Path, tmp_path: Path
) -> Callable[[EmulationOptions], str]:
    program = compile_program("wave_order")
    gpu = emulated_gpu(device_of(load_profile(checkout / "arch_profiles", "gfx1151")), compiler)

    def run(options: EmulationOptions) -> str:
        variables = {"PATH": os.environ["PATH"], **gpu.environment(tmp_path, options)}
        done = subprocess.run([str(program)], env=variables, capture_output=True, text=True, check=True)
        return done.stdout

    return run


def test_a_missing_barrier_shows_in_another_order_of_waves(answer):
    right = "with a barrier 1, without 1\n"
    assert answer(EmulationOptions()) == right  # the wave that writes happens to run first
    shuffled = {answer(EmulationOptions(schedule=("shuffle", seed))) for seed in range(1, 7)}
    assert "with a barrier 1, without 0\n" in shuffled
    assert shuffled <= {right, "with a barrier 1, without 0\n"}
