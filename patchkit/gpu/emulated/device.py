"""The GPU that the stub runtime reports, derived from its profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from patchkit.base.arch import GpuProfile
from patchkit.base.occupancy import limits_of

# HIP reports WGPs on RDNA: 20 for the 40 compute units of gfx1151 (ROCm 6.4, torch multi_processor_count).
_CUS_PER_WGP = 2

# Large enough for every case: this is only address space, pages are allocated when they are written.
MEMORY_BYTES = 128 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedDevice:
    """The contents of the device file (native/runtime/recorder.hpp). Registers per lane, sizes in bytes.

    ``integrated``: 1 for a GPU that shares memory with the host and reports that.
    """

    arch: str
    name: str
    wave_size: int
    multiprocessors: int
    simds_per_multiprocessor: int
    max_waves_per_simd: int
    vgprs_per_simd: int
    vgpr_granule: int
    max_vgprs_per_wave: int
    lds_per_block: int
    memory_bytes: int = MEMORY_BYTES
    integrated: int = 0


def device_of(profile: GpuProfile, *, guess_units: bool = False) -> EmulatedDevice:
    """The device of a profile. Raises what :meth:`Facts.require` raises if a fact is missing.

    With ``guess_units``, a compute unit count of low confidence is accepted. It determines grid sizes,
    equally
    on both sides: good enough to compare two sides, but not to predict what the real GPU launches.
    """
    limits = limits_of(profile)
    guessed = profile.facts.report("compute_units")
    if guess_units and guessed is not None and isinstance(guessed.value, int):
        units = guessed.value
    else:
        units = profile.facts.require_int("compute_units")
    per_wgp = profile.facts.report("lds_per_wgp_bytes") is not None
    part = profile.facts.report("part")
    return EmulatedDevice(
        arch=profile.arch,
        name=str(part.value) if part is not None else profile.arch,
        wave_size=limits.wave_size,
        multiprocessors=units // _CUS_PER_WGP if per_wgp else units,
        simds_per_multiprocessor=limits.simds_per_pool,
        max_waves_per_simd=limits.max_waves_per_simd,
        vgprs_per_simd=limits.vgprs_per_simd,
        vgpr_granule=limits.vgpr_granule,
        max_vgprs_per_wave=limits.max_vgprs_per_wave,
        lds_per_block=limits.lds_per_workgroup_bytes,
        integrated=profile.facts.require_int("integrated") if profile.facts.report("integrated") else 0,
    )


def device_text(device: EmulatedDevice) -> str:
    """The text of the device file: one ``name value`` line per field."""
    return "".join(f"{name} {value}\n" for name, value in asdict(device).items())
