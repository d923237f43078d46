"""Which GPUs are played, and what is said of the others; nothing is compiled or run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from patchkit.carry.series.profile import load_profile
from patchkit.prove.gates.launch.recorded_gpus import choose_gpus

_ALL = ("gfx1030", "gfx1100", "gfx1151", "gfx1153", "gfx906", "gfx942")


@pytest.fixture
def subject(make_subject, checkout):
    profiles = {arch: load_profile(checkout / "arch_profiles", arch) for arch in _ALL}
    return replace(make_subject(), profiles=profiles)


def _archs(cast) -> list[str]:
    return [device.arch for device in cast.devices]


def test_the_gpus_of_the_candidate_come_first_then_all_others(subject):
    others = [arch for arch in _ALL if arch != "gfx1151"]
    assert _archs(choose_gpus(subject, None)) == ["gfx1151", *others]


def _write(root, text: str, name: str = "a.cuh") -> None:
    folder = root / "ggml/src/ggml-cuda"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vendors").mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8")


@pytest.mark.parametrize("code", ["int a = warpSize;", "#if __AMDGCN_WAVEFRONT_SIZE__ == 64\n#endif"])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_host_code_that_compiles_the_wave_size_in_leaves_the_other_wave_size_out(subject, code, side):
    _write(getattr(subject, side), f"// first\n{code}\n")
    cast = choose_gpus(subject, None)
    assert _archs(cast) == ["gfx1151", "gfx1030", "gfx1100", "gfx1153"]
    assert (
        "launches as gfx906 gfx942: host code is compiled for waves of 32 lanes, and "
        "ggml/src/ggml-cuda/a.cuh:2 depends on it"
    ) in cast.remarks


def test_vendor_headers_count_too(subject):
    _write(subject.baseline, "int a = warpSize;", "vendors/hip.h")
    assert any("vendors/hip.h:1 depends on it" in remark for remark in choose_gpus(subject, None).remarks)


@pytest.mark.parametrize("code", ["int a = prop.warpSize;", "int a = prop->warpSize;", "int my_warpSize;"])
def test_the_wave_size_asked_at_run_time_leaves_nobody_out(subject, code):
    _write(subject.candidate, code)
    assert "gfx906" in _archs(choose_gpus(subject, None))


def test_a_guessed_figure_is_played_and_named(subject):
    cast = choose_gpus(subject, None)
    (remark,) = [remark for remark in cast.remarks if "gfx1153" in remark]
    assert remark == "grids of gfx1153: recorded with 4 compute units, which its profile only guesses"


def test_others_can_be_limited_by_name(subject):
    cast = choose_gpus(subject, ("gfx1100",))
    assert _archs(cast) == ["gfx1151", "gfx1100"]
    assert "launches as gfx1030 gfx1153 gfx906 gfx942: not requested" in cast.remarks
    alone = choose_gpus(subject, ())
    assert _archs(alone) == ["gfx1151"]
    assert not [remark for remark in alone.remarks if remark.startswith("grids")]
