"""The second value of ``__launch_bounds__``, which HIP makes the least waves per SIMD.

A bound that the largest kernel meets anyway changes nothing: with 256 registers per lane at most, a SIMD
of 1536 holds 6 waves of 240 or fewer, so the values 1 to 5 compile to one code (compiled for gfx1151 with
clang 22). Only the values that can change a kernel are worth compiling.
"""

from __future__ import annotations

from patchkit.occupancy.waves import HardwareLimits, waves_by_vgprs

_MOST = 8  # upstream's tables assert it


def binding_bounds(limits: HardwareLimits, base: int) -> tuple[int, ...]:
    """Upstream's ``base``, and the bounds that a kernel of the most registers does not meet."""
    free = waves_by_vgprs(limits.max_vgprs_per_wave, limits)
    return tuple(sorted({base, *range(free + 1, _MOST + 1)}))
