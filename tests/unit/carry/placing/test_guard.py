"""Guards for one GPU and for several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.carry.placing.context import make_guard
from patchkit.carry.series.patch import GuardMacros
from patchkit.carry.series.profile import load_profile

PROFILES = Path(__file__).resolve().parents[4] / "arch_profiles"


def test_one_gpu(guard):
    assert guard.device == "defined(GGML_USE_HIP) && defined(__gfx1151__)"
    assert (
        guard.region == "defined(GGML_USE_HIP) && (!defined(__HIP_DEVICE_COMPILE__) || defined(__gfx1151__))"
    )
    assert guard.host() == "(cc == GGML_CUDA_CC_OFFSET_AMD + 0x1151)"


def test_several_gpus(two_gpus):
    macros = "defined(GGML_USE_HIP) && defined(GGML_HIP_ROCWMMA_FATTN)"
    archs = "defined(__gfx1151__) || defined(__gfx90a__)"
    assert two_gpus.device == f"{macros} && ({archs})"
    assert two_gpus.region == f"{macros} && (!defined(__HIP_DEVICE_COMPILE__) || {archs})"
    amd = "GGML_CUDA_CC_OFFSET_AMD"
    assert two_gpus.host("info.cc") == f"(info.cc == {amd} + 0x1151 || info.cc == {amd} + 0x90a)"


def test_a_switch_is_part_of_the_host_condition(guard, two_gpus):
    amd = "GGML_CUDA_CC_OFFSET_AMD"
    one = replace(guard, switch="patches().demo")
    assert one.host() == f"(cc == {amd} + 0x1151 && patches().demo.on)"
    assert one.host("c", counts=True) == f"(c == {amd} + 0x1151 && patches().demo.use())"
    both = replace(two_gpus, switch="patches().demo")
    assert both.host() == f"((cc == {amd} + 0x1151 || cc == {amd} + 0x90a) && patches().demo.on)"
    assert (one.device, one.region) == (guard.device, guard.region)


def test_a_family_is_guarded_whole_from_any_of_its_gpus():
    wanted = GuardMacros(macros=("GGML_USE_HIP",), family="rdna3_5")
    for arch in ("gfx1150", "gfx1151"):
        guard = make_guard(wanted, [load_profile(PROFILES, arch)])
        assert [target.arch for target in guard.targets] == ["gfx1150", "gfx1151", "gfx1152", "gfx1153"]
        assert "defined(__gfx1153__)" in guard.device
        assert "cc == GGML_CUDA_CC_OFFSET_AMD + 0x1153" in guard.host()
    # A GPU of another family is guarded by itself.
    outside = make_guard(wanted, [load_profile(PROFILES, "gfx1103")])
    assert [target.arch for target in outside.targets] == ["gfx1103"]


@pytest.mark.parametrize(
    ("arch", "macro"), [("gfx1151", "__gfx11_generic__"), ("gfx1201", "__gfx12_generic__")]
)
def test_what_is_for_no_gpu_in_particular_can_be_refused(arch, macro):
    profile = load_profile(PROFILES, arch)
    refusing = make_guard(GuardMacros(macros=("GGML_USE_HIP",), generic="error"), [profile])
    assert refusing.generic == f"defined(GGML_USE_HIP) && (defined({macro}) || defined(__SPIRV__))"
    assert make_guard(GuardMacros(macros=("GGML_USE_HIP",)), [profile]).generic is None
    assert replace(refusing, refused=()).generic is None
