"""Occupancy is monotone on every GPU."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from patchkit.base.occupancy import (
    HardwareLimits,
    reported_waves,
    resident_waves,
    waves_by_lds,
    waves_by_vgprs,
)

GPUS = st.builds(
    HardwareLimits,
    arch=st.just("gfx1199"),
    matrix=st.just("wmma"),
    wave_size=st.sampled_from([32, 64]),
    simds_per_pool=st.sampled_from([2, 4]),
    vgprs_per_simd=st.sampled_from([256, 512, 1024, 1536, 2048]),
    vgpr_granule=st.sampled_from([4, 8, 16, 24]),
    max_vgprs_per_wave=st.sampled_from([128, 256]),
    max_waves_per_simd=st.integers(1, 20),
    lds_pool_bytes=st.sampled_from([65536, 131072, 163840]),
    lds_per_workgroup_bytes=st.sampled_from([8192, 32768, 65536]),
)
VGPRS = st.integers(0, 256)
LDS = st.integers(0, 70000)
THREADS = st.sampled_from([32, 64, 96, 128, 256, 512, 1024])


@given(GPUS, VGPRS, VGPRS)
def test_more_registers_never_mean_more_waves(gpu, one, other) -> None:
    assert waves_by_vgprs(max(one, other), gpu) <= waves_by_vgprs(min(one, other), gpu)


@given(GPUS, LDS, LDS, THREADS)
def test_more_lds_never_means_more_waves(gpu, one, other, threads) -> None:
    assert waves_by_lds(max(one, other), threads, gpu) <= waves_by_lds(min(one, other), threads, gpu)


@given(GPUS, VGPRS, LDS, THREADS)
def test_resident_waves_never_exceed_what_the_compiler_reports(gpu, vgprs, lds, threads) -> None:
    assert 0 <= resident_waves(vgprs, lds, threads, gpu) <= reported_waves(vgprs, lds, threads, gpu)


@given(GPUS, VGPRS, LDS, THREADS)
def test_a_larger_register_file_never_holds_fewer_waves(gpu, vgprs, lds, threads) -> None:
    larger = dataclasses.replace(gpu, vgprs_per_simd=2 * gpu.vgprs_per_simd)
    assert resident_waves(vgprs, lds, threads, gpu) <= resident_waves(vgprs, lds, threads, larger)
