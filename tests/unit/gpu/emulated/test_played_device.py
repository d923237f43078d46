"""The GPU that the stub runtime claims to be."""

from __future__ import annotations

import pytest

from patchkit.base.arch import FactNotForDecisions
from patchkit.carry.series.profile import load_profile
from patchkit.gpu.emulated.device import device_of, device_text


def test_gfx1151_is_played_as_rocm_reports_it(checkout):
    device = device_of(load_profile(checkout / "arch_profiles", "gfx1151"))
    # 20 multiprocessors: WGPs, two compute units each; four SIMDs share one.
    assert (device.multiprocessors, device.simds_per_multiprocessor) == (20, 4)
    assert device.integrated == 1  # llama.cpp PR 24233; elsewhere nobody wrote down what the device says
    assert (device.vgprs_per_simd, device.vgpr_granule, device.wave_size) == (1536, 24, 32)
    assert device.lds_per_block == 65536


def test_a_gpu_without_wgps_counts_compute_units(checkout):
    device = device_of(load_profile(checkout / "arch_profiles", "gfx906"))
    assert (device.multiprocessors, device.simds_per_multiprocessor, device.wave_size) == (60, 4, 64)
    assert device.integrated == 0


def test_the_device_file_has_one_line_per_field(checkout):
    text = device_text(device_of(load_profile(checkout / "arch_profiles", "gfx1151")))
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    assert lines["arch"] == "gfx1151"
    assert lines["name"] == "Radeon 8060S"
    assert lines["max_vgprs_per_wave"] == "256"


def test_a_number_of_compute_units_that_nobody_vouches_for_is_used_only_on_request(checkout):
    profile = load_profile(checkout / "arch_profiles", "gfx1153")
    fact = profile.facts.report("compute_units")
    assert fact is not None
    assert fact.confidence == "low", "take another GPU for this test"
    with pytest.raises(FactNotForDecisions):
        device_of(profile)
    assert device_of(profile, guess_units=True).multiprocessors == fact.value // 2
    known = load_profile(checkout / "arch_profiles", "gfx1151")
    assert device_of(known, guess_units=True) == device_of(known)
