"""Occupancy: waves per SIMD as limited by registers and LDS."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.base.arch import GpuProfile, MatrixKind

_CUS_PER_WGP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLimits:
    """The limits on resident waves. Registers are per lane, sizes in bytes.

    An LDS pool is that of a WGP (RDNA) or of a CU (GCN, CDNA); ``simds_per_pool`` SIMDs share it.
    """

    arch: str
    matrix: MatrixKind
    wave_size: int
    simds_per_pool: int
    vgprs_per_simd: int
    vgpr_granule: int
    max_vgprs_per_wave: int
    max_waves_per_simd: int
    lds_pool_bytes: int
    lds_per_workgroup_bytes: int


def limits_of(profile: GpuProfile) -> HardwareLimits:
    """The limits that a profile states; missing facts are not guessed. Raises as :meth:`Facts.require`."""
    facts = profile.facts
    per_wgp = facts.report("lds_per_wgp_bytes") is not None
    simds_per_cu = facts.require_int("simds_per_cu")
    matrix: MatrixKind
    match facts.require("matrix"):
        case "wmma" | "wmma_gfx12" | "mfma" as matrix:
            pass
        case _:
            matrix = "none"
    return HardwareLimits(
        arch=profile.arch,
        matrix=matrix,
        wave_size=facts.require_int("wave_size"),
        simds_per_pool=simds_per_cu * (_CUS_PER_WGP if per_wgp else 1),
        vgprs_per_simd=facts.require_int("vgprs_per_simd"),
        vgpr_granule=facts.require_int("vgpr_granule"),
        max_vgprs_per_wave=facts.require_int("max_vgprs_per_wave"),
        max_waves_per_simd=facts.require_int("max_waves_per_simd"),
        lds_pool_bytes=facts.require_int("lds_per_wgp_bytes" if per_wgp else "lds_per_cu_bytes"),
        lds_per_workgroup_bytes=facts.require_int("lds_per_workgroup_bytes"),
    )


def waves_by_vgprs(vgprs: int, limits: HardwareLimits) -> int:
    """Waves per SIMD that the register file allows, for a kernel with ``vgprs`` VGPRs per lane."""
    given = _round_up(max(vgprs, 1), limits.vgpr_granule)
    return min(limits.max_waves_per_simd, limits.vgprs_per_simd // given)


def waves_by_lds(lds_bytes: int, threads_per_block: int, limits: HardwareLimits) -> int:
    """Waves per SIMD that LDS allows, on the SIMD with the most (rounded up, as the compiler does).

    0 if a single block does not fit.
    """
    if lds_bytes > limits.lds_per_workgroup_bytes:
        return 0
    if lds_bytes == 0:
        return limits.max_waves_per_simd
    waves = limits.lds_pool_bytes // lds_bytes * _waves_per_block(threads_per_block, limits)
    return min(limits.max_waves_per_simd, -(-waves // limits.simds_per_pool))


def reported_waves(vgprs: int, lds_bytes: int, threads_per_block: int, limits: HardwareLimits) -> int:
    """Occupancy as in the compiler's resource remark, in waves per SIMD."""
    return min(waves_by_vgprs(vgprs, limits), waves_by_lds(lds_bytes, threads_per_block, limits))


def resident_blocks(vgprs: int, lds_bytes: int, threads_per_block: int, limits: HardwareLimits) -> int:
    """Whole blocks that fit into one pool at once, with waves spread evenly over its SIMDs."""
    if lds_bytes > limits.lds_per_workgroup_bytes:
        return 0
    waves = waves_by_vgprs(vgprs, limits) * limits.simds_per_pool
    blocks = waves // _waves_per_block(threads_per_block, limits)
    return min(blocks, limits.lds_pool_bytes // lds_bytes) if lds_bytes else blocks


def resident_waves(vgprs: int, lds_bytes: int, threads_per_block: int, limits: HardwareLimits) -> int:
    """Waves per SIMD that whole blocks give, rounded down.

    For example, with blocks of two waves per SIMD, seven reported waves are six resident ones.
    """
    blocks = resident_blocks(vgprs, lds_bytes, threads_per_block, limits)
    return blocks * _waves_per_block(threads_per_block, limits) // limits.simds_per_pool


def _waves_per_block(threads: int, limits: HardwareLimits) -> int:
    return -(-threads // limits.wave_size)


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
