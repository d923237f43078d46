"""Reading the KFD topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.gpu.hardware.gpus import detect_gpus, gfx_name, has_amd_driver, has_nvidia_gpu


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (110501, "gfx1151"),
        (110000, "gfx1100"),
        (120001, "gfx1201"),
        (100300, "gfx1030"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (90008, "gfx908"),
        (90006, "gfx906"),
    ],
)
def test_the_kernels_number_gives_the_llvm_name(version: int, name: str) -> None:
    assert gfx_name(version) == name


def _node(topology: Path, index: int, version: int) -> None:
    (topology / str(index)).mkdir(parents=True)
    (topology / str(index) / "properties").write_text(
        f"cpu_cores_count 0\nsimd_count 80\ngfx_target_version {version}\nvendor_id 4098\n"
    )


def test_cpus_are_left_out_and_twins_named_once(tmp_path: Path) -> None:
    for index, version in enumerate([0, 110501, 110501, 110000]):
        _node(tmp_path, index, version)
    assert detect_gpus(tmp_path) == ("gfx1100", "gfx1151")


def test_a_node_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "0" / "properties").mkdir(parents=True)
    _node(tmp_path, 1, 110501)
    assert detect_gpus(tmp_path) == ("gfx1151",)


def test_no_driver_is_no_gpu(tmp_path: Path) -> None:
    assert detect_gpus(tmp_path / "nothing") == ()


def test_a_driver_is_known_by_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_amd_driver(tmp_path)
    assert not has_nvidia_gpu(tmp_path)
    (tmp_path / "kfd").touch()
    (tmp_path / "nvidia0").touch()
    assert has_amd_driver(tmp_path)
    assert has_nvidia_gpu(tmp_path)
