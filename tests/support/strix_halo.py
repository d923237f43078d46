"""The limits of gfx1151 as its profile has them on 2026-11-21, and the loop of a kernel for it.

Tests of the tuner's arithmetic rest on these and not on the profile, whose change must not move them.
"""

from __future__ import annotations

from patchkit.base.occupancy import HardwareLimits
from patchkit.tune.isa import LoopMix

__all__ = ["CUS", "LIMITS", "LOOP"]

CUS = 40
LIMITS = HardwareLimits(
    arch="gfx1151",
    matrix="wmma",
    wave_size=32,
    simds_per_pool=4,
    vgprs_per_simd=1536,
    vgpr_granule=24,
    max_vgprs_per_wave=256,
    max_waves_per_simd=16,
    lds_pool_bytes=131072,
    lds_per_workgroup_bytes=65536,
)
LOOP = LoopMix(
    instructions=600,
    matrix=8,
    dot=0,
    valu=400,
    lds=100,
    lds_bytes=500,
    loads=40,
    stores=0,
    scratch=0,
    barriers=5,
)
