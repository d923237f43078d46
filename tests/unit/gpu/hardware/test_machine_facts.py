"""What is kept of a machine: names of parts and versions, whatever else a system says."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.base.reporter import NullReporter
from patchkit.gpu.hardware.machine_facts import (
    machine_token,
    parse_machine,
    ranges_of,
    read_machine,
    tool_of,
    version_of,
)
from patchkit.gpu.hardware.runner import LocalRunner

TOKEN = "0" * 32
STRIX_HALO = """\
kernel 6.17.4-alices-box+
cpu AMD RYZEN AI MAX+ 395 w/ Radeon 8060S
amdgpu 6.14.14
rocm 7.2.1-43
kfd 0 0
kfd 110501 5510
"""


def test_a_strix_halo_is_known_by_its_parts() -> None:
    found = parse_machine(STRIX_HALO, TOKEN, arch="gfx1151", backend="hip", compiler="clang 20.0.0")
    assert (found.gpu, found.kernel, found.driver, found.rocm) == ("AMD 1586", "6.17.4", "6.14.14", "7.2.1")
    assert found.cpu == "AMD RYZEN AI MAX+ 395 w Radeon 8060S"
    assert "alices" not in found.model_dump_json()


def test_an_nvidia_card_names_its_capability() -> None:
    text = "kernel 6.8.0\nnvidia NVIDIA H100 80GB HBM3, 550.54.15, 9.0\n"
    found = parse_machine(text, TOKEN, arch="plain", backend="cuda")
    assert (found.gpu, found.arch, found.driver) == ("NVIDIA H100 80GB HBM3", "sm_90", "550.54.15")


@pytest.mark.parametrize("text", ["", "kernel\ncpu \nkfd x y\n", "\x1b[31m\nkernel not-a-version\n"])
def test_a_system_that_tells_nothing_gives_nothing(text: str) -> None:
    found = parse_machine(text, TOKEN, arch="gfx1151", backend="hip")
    assert (found.kernel, found.driver, found.rocm, found.cpu) == (None, None, None, None)
    assert found.gpu == "AMD gfx1151"


def test_of_versions_only_numbers_are_kept() -> None:
    assert version_of("6.17.4-my-own/kernel") == "6.17.4"
    assert version_of("unknown") is None
    assert tool_of("AMD clang version 19.0.0git (https://me@host)") == "clang 19.0.0"


def test_the_state_of_the_gpu_is_a_range_over_all_looks() -> None:
    looks = [
        {"clock_Hz:amdgpu": "600000000", "temp_mC:amdgpu:temp1_input": "45000"},
        {"clock_Hz:amdgpu": "2900000000"},
    ]
    found = ranges_of(looks)
    assert found["clock_mhz"] is not None
    assert (found["clock_mhz"].low, found["clock_mhz"].high) == (600.0, 2900.0)
    assert found["power_w"] is None


def test_a_machine_keeps_its_token_and_another_one_has_another(tmp_path: Path) -> None:
    runner = LocalRunner(reporter=NullReporter())
    token = machine_token(tmp_path / "a", runner)
    assert machine_token(tmp_path / "a", runner) == token
    assert machine_token(tmp_path / "b", runner) != token


def test_this_machine_can_be_asked() -> None:
    found = read_machine(LocalRunner(reporter=NullReporter()), TOKEN, arch="cpu", backend="cpu")
    assert (found.arch, found.backend) == ("cpu", "cpu")
    assert found.kernel is not None
