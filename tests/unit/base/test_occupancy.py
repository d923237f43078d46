"""Waves per SIMD, compared with the compiler's remarks for each class of GPU."""

from __future__ import annotations

import pytest

from patchkit.base.occupancy import (
    reported_waves,
    resident_blocks,
    resident_waves,
    waves_by_lds,
    waves_by_vgprs,
)

# Occupancy printed by clang 22 for a kernel forced to 96, 128, 168, 192 and 256 registers.
BY_VGPRS = {
    "gfx1100": (16, 10, 9, 8, 5),
    "gfx1101": (16, 10, 9, 8, 5),
    "gfx1151": (16, 10, 9, 8, 5),
    "gfx1200": (16, 10, 9, 8, 5),
    "gfx1201": (16, 10, 9, 8, 5),
    "gfx1030": (10, 8, 5, 5, 4),
    "gfx1102": (10, 8, 5, 5, 4),
    "gfx1103": (10, 8, 5, 5, 4),
    "gfx1150": (10, 8, 5, 5, 4),
    "gfx1152": (10, 8, 5, 5, 4),
    "gfx1153": (10, 8, 5, 5, 4),
    "gfx90a": (5, 4, 3, 2, 2),
    "gfx942": (5, 4, 3, 2, 2),
    "gfx950": (5, 4, 3, 2, 2),
    "gfx906": (2, 2, 1, 1, 1),
    "gfx908": (2, 2, 1, 1, 1),
}


@pytest.mark.parametrize("arch", BY_VGPRS)
def test_waves_by_registers(limits, arch) -> None:
    assert tuple(waves_by_vgprs(n, limits[arch]) for n in (96, 128, 168, 192, 256)) == BY_VGPRS[arch]


def test_few_registers_leave_the_limit_of_waves(limits) -> None:
    assert [waves_by_vgprs(n, limits["gfx1151"]) for n in (0, 1, 96, 97)] == [16, 16, 16, 12]
    assert waves_by_vgprs(1, limits["gfx906"]) == 10
    assert waves_by_vgprs(1, limits["gfx90a"]) == 8


@pytest.mark.parametrize(("lds", "waves"), [(0, 16), (8192, 16), (32768, 8), (65536, 4), (65537, 0)])
def test_waves_by_lds_of_blocks_with_256_threads(limits, lds, waves) -> None:
    assert waves_by_lds(lds, 256, limits["gfx1151"]) == waves


def test_lds_of_one_compute_unit(limits) -> None:
    assert waves_by_lds(32768, 256, limits["gfx90a"]) == 2
    assert waves_by_lds(65537, 256, limits["gfx942"]) == 0
    assert waves_by_lds(65537, 256, limits["gfx950"]) == 2


def test_resident_waves_count_whole_blocks(limits) -> None:
    # 213 registers leave 7 waves on each of 4 SIMDs; blocks of 8 waves take two on each.
    gpu = limits["gfx1151"]
    assert reported_waves(213, 22016, 256, gpu) == 7
    assert resident_blocks(213, 22016, 256, gpu) == 3
    assert resident_waves(213, 22016, 256, gpu) == 6
    assert resident_blocks(213, 70000, 256, gpu) == 0
    assert resident_blocks(96, 0, 128, gpu) == 16


def test_limits_come_from_the_profile(limits) -> None:
    gpu = limits["gfx1151"]
    assert (gpu.matrix, gpu.wave_size, gpu.simds_per_pool, gpu.lds_pool_bytes) == ("wmma", 32, 4, 131072)
    assert (limits["gfx950"].simds_per_pool, limits["gfx950"].lds_pool_bytes) == (4, 163840)
    assert {arch for arch, each in limits.items() if each.matrix == "none"} == {"gfx906", "gfx1030"}
