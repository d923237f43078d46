"""The check of ``up``, on what test-backend-ops prints with a GPU and where it finds none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from refusing import refused

from patchkit.base.reporter import NullReporter
from patchkit.carry.candidate.decision import Wish
from patchkit.gpu.hardware.program import RunContext
from patchkit.prove.up import UpRequest, _check, _check_operations
from patchkit.toolchain.sides import BuiltSide

HEADER = '"backend_name","op_name","op_params","test_mode","supported","error_message","backend_reg_name"\n'
ROW = '"CUDA0","RMS_NORM","type=f32,ne=[64,5,4,3]","test","{supported}","{error}","CUDA"\n'


@pytest.fixture
def check(tmp_path: Path):
    def run(row: str, request: UpRequest | None = None) -> str:
        folder = tmp_path / "side"
        folder.mkdir(exist_ok=True)
        cpu, module = folder / "libggml-cpu.so", folder / "libggml-cuda.so"
        cpu.touch()
        (tmp_path / "table").write_text(HEADER + row)
        program = folder / "test-backend-ops"
        program.write_text(
            f'#!/bin/sh\ncat {tmp_path}/table\necho "load_backend: loaded CPU backend from $(dirname "$0")'
            f'/{cpu.name}" >&2\necho "load_backend: loaded CUDA backend from {module}" >&2\n'
        )
        program.chmod(0o755)
        side = BuiltSide(tree="", backend="cuda", folder=folder, module=module, cpu=cpu, parts=())
        place = RunContext(folder=tmp_path / "runs", reporter=NullReporter())
        subject = SimpleNamespace(reporter=NullReporter(), archs=("gfx1151",))
        if request is not None:
            return _check(side, subject, request)
        return _check_operations(side, subject, "cuda", place)

    return run


def test_operations_on_the_gpu_are_counted(check) -> None:
    assert check(ROW.format(supported=1, error="")) == "5 operations of test-backend-ops passed on CUDA0"


def test_a_wrong_operation_is_named(check) -> None:
    with refused("UP_WRONG", match="in 5 of 5 operations") as caught:
        check(ROW.format(supported=1, error="NMSE = 1"))
    assert "RMS_NORM(type=f32,ne=[64,5,4,3])" in (caught.value.why or "")


@pytest.mark.parametrize("row", ["", ROW.format(supported=0, error="")])
def test_without_a_gpu_no_patch_is_blamed(check, row: str) -> None:
    with refused("DEVICE_MISSING", match="found no GPU") as caught:
        check(row)
    assert "--no-check" in (caught.value.hint or "")


@pytest.mark.parametrize("backend", ["hip", "cuda"])
def test_a_machine_without_a_gpu_is_named_instead_of_what_a_program_prints(
    backend, check, monkeypatch
) -> None:
    monkeypatch.setattr("patchkit.prove.build.detect_gpus", dict)
    monkeypatch.setattr("patchkit.prove.build.has_amd_driver", lambda: False)
    monkeypatch.setattr("patchkit.prove.build.has_nvidia_gpu", lambda: False)
    request = UpRequest(archs=("gfx1151",), upstream=None, wish=Wish(), backend=backend)
    with refused("DEVICE_MISSING", match="the build is complete, but not installed") as caught:
        check(ROW.format(supported=1, error=""), request)
    assert "--no-check" in (caught.value.hint or "")
    unchecked = check("", replace(request, check=False))
    assert unchecked == "nothing ran: --no-check"
