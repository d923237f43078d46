"""Device names, on what the real program printed on the launch recorder (build 6900, played gfx1151)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.backend_ops import Choice, Stage
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.build import Machine
from patchkit.prove.gates.operations import Tools, _mode

TALK = """\
load_backend: loaded CPU backend from {reference}
ggml_cuda_init: GGML_CUDA_FORCE_MMQ:    no
ggml_cuda_init: GGML_CUDA_FORCE_CUBLAS: no
ggml_cuda_init: found 1 ROCm devices:
  Device 0: Radeon 8060S, gfx1151 (0x1151), VMM: no, Wave Size: 32
load_backend: loaded ROCm backend from {module}
"""
HEADER = '"backend_name","op_name","op_params","test_mode","supported","error_message","backend_reg_name"\n'
ROW = '"ROCm0","FLASH_ATTN_EXT","hsk=40,hsv=40,nh=4","support","1","","ROCm"\n'


@pytest.fixture
def look(tmp_path: Path):
    """Runs a program that prints what the real one printed."""

    def run(table: str, *, archs=("gfx1151",), talk: str = TALK):
        program = tmp_path / "test-backend-ops"
        reference, module = tmp_path / "libggml-cpu.so", tmp_path / "libggml-hip.so"
        (tmp_path / "table").write_text(table)
        (tmp_path / "talk").write_text(talk.format(reference=reference, module=module))
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/table\ncat {tmp_path}/talk >&2\n")
        program.chmod(0o755)
        tools = Tools(
            subject=SimpleNamespace(archs=archs),
            machine=Machine(backend="hip"),
            sides=SimpleNamespace(),
            place=RunContext(folder=tmp_path / "runs", reporter=NullReporter()),
            timeout_s=60.0,
        )
        stage = Stage(program=program, module=module, reference=reference)
        return _mode(tools, stage, "support", "baseline", Choice(ops=("FLASH_ATTN_EXT",)))

    return run


def test_the_gpu_of_the_candidate_is_taken(look) -> None:
    ran, _ = look(HEADER + ROW)
    assert "-b ROCm0 --output csv" in ran.command
    assert "GGML_BACKEND_PATH=" in ran.command


def test_a_name_that_no_device_has_gives_no_rows_and_status_0(look) -> None:
    # As the real program answers to -b ROCm1 where there is one GPU: every device is skipped.
    with refused("DEVICE_MISSING", match="no row for the device ROCm0"):
        look(HEADER)


def test_another_gpu_is_not_the_candidates(look) -> None:
    with refused("DEVICE_MISSING", match="the GPU here is not gfx1100") as caught:
        look(HEADER + ROW, archs=("gfx1100",))
    assert "gfx1151 (0x1151)" in (caught.value.why or "")


def test_the_reference_must_be_loaded_first_and_the_backend_at_all(look) -> None:
    cpu, *gpu, hip = TALK.splitlines(keepends=True)
    for talk in (cpu, hip, "".join([hip, *gpu, cpu]), ""):
        with refused("PROGRAM_FAILED", match="did not load the two backends"):
            look(HEADER + ROW, talk=talk)
