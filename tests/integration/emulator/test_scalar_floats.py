"""Floats that are computed once for a wave: by VGPRs on RDNA3, by instructions of their own on RDNA4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.mark.parametrize(("arch", "is_of_wave"), [("gfx1151", False), ("gfx1201", True)])
def test_exp_and_its_like_of_a_scalar_are_right(compile_program, emulate, tmp_path: Path, arch, is_of_wave):
    program = compile_program("scalar_floats", arch=arch)
    report = tmp_path / "report"
    done = emulate(program, arch=arch, PATCHKIT_EMULATOR_COUNT="1", PATCHKIT_EMULATOR_REPORT=str(report))
    assert (done.returncode, done.stdout) == (0, "")
    (kernel,) = json.loads(report.read_text("utf-8"))["kernels"]
    names = {text.split()[0] for text, _, _ in kernel["by_instruction"]}
    of_wave = {f"v_s_{name}" for name in ("exp_f32", "log_f32", "rcp_f32", "rsq_f32", "sqrt_f32", "rcp_f16")}
    assert (of_wave <= names) == is_of_wave
    assert any(name.startswith("v_exp_f32") for name in names) != is_of_wave
