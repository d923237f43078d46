"""An estimate of the kernel's registers, and the params it favours.

Vocabulary: a *fragment* is a 16x16 tile of a matrix spread over the lanes of a wave: 8 registers per
lane for halves on gfx11 with 32 lanes; fragments *held* live through the loop, fragments *in flight*
are loads the compiler starts early because it unrolls the loops over K and V.

The numbers come from compiling every variant for gfx1151 with clang 22 (tests hold the table). They
are a model: where a measured row exists, the profile's tuned table states it and wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.errors import ConfigError, Location
from patchkit.occupancy.waves import HardwareLimits, resident_blocks, resident_waves
from patchkit.occupancy.wmma import UPSTREAM, WmmaParams, WmmaVariant, lds_bytes, legal_params, vkq_stride

_FRAGMENT = 16
_FRAGMENT_VGPRS = 8  # 16 halves per lane on gfx11: both halves of the wave hold a copy

# Fitted to the 77 compiled rows with upstream's four waves, or eight at head size 64.
_BASE_VGPRS = 160
_HELD_WEIGHT = 0.35  # Q is partly loaded again from LDS instead of being held
_FLIGHT_WEIGHT = 0.5
_FLIGHT_LIMIT = 128  # beyond 16 fragments the compiler stops starting loads early

_WIDE_HEAD_SIZE = 64
_WIDE_NWARPS = 8


class NoLegalParameters(ConfigError):
    """No parameters of the WMMA kernel are legal on this GPU."""

    code = "WMMA_NO_PARAMETERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the model favours; ``vgprs`` and ``waves`` (resident, per SIMD) are estimates."""

    params: WmmaParams
    vgprs: int
    waves: int
    reason: str


def estimate_vgprs(variant: WmmaVariant, params: WmmaParams, limits: HardwareLimits) -> int:
    """Registers per lane the kernel would like; an estimate. Above the cap of 256 it spills.

    160 for addresses, softmax and per-column state, 0.35 of the registers of Q and the VKQ
    accumulators, half of those of the K rows one wave loads per step, up to 128. Against the compiler
    on gfx1151 (VGPRs + spilled) over the rows it was fitted to: mean error 28, largest 95. Rows with
    other waves per block are worse (they are never chosen by :func:`choose_params`).

    Only meaningful for gfx11 fragments (``limits.matrix == "wmma"``).
    """
    del limits  # one fragment layout is known; the parameter is where another would come in
    column_tiles = variant.ncols // _FRAGMENT
    q = variant.head_size // _FRAGMENT * column_tiles * _FRAGMENT_VGPRS
    vkq = variant.head_size // vkq_stride(variant, params) * column_tiles * _FRAGMENT_VGPRS
    k_rows = params.kq_stride // (_FRAGMENT * params.nwarps)
    in_flight = k_rows * variant.head_size // _FRAGMENT * _FRAGMENT_VGPRS
    estimate = _BASE_VGPRS + _HELD_WEIGHT * (q + vkq) + _FLIGHT_WEIGHT * min(in_flight, _FLIGHT_LIMIT)
    return round(estimate)


def estimate_waves(variant: WmmaVariant, params: WmmaParams, limits: HardwareLimits) -> int:
    """Resident waves per SIMD at the estimated registers (spilling beyond the cap) and the exact LDS."""
    vgprs = min(estimate_vgprs(variant, params, limits), limits.max_vgprs_per_wave)
    threads = params.nwarps * limits.wave_size
    return resident_waves(vgprs, lds_bytes(variant, params), threads, limits)


def candidate_params(variant: WmmaVariant, limits: HardwareLimits) -> tuple[WmmaParams, ...]:
    """Legal params the model may choose: upstream's waves per block, and eight at head size 64.

    More waves raise LDS at head sizes 80, 96 and 112 (R grows) and spill at 128 and 256; with fewer
    than four the compiled kernels spill at nearly every head size.
    """
    return tuple(
        params
        for params in legal_params(variant, limits)
        if params.nwarps == UPSTREAM.nwarps
        or (variant.head_size == _WIDE_HEAD_SIZE and params.nwarps == _WIDE_NWARPS)
    )


def choose_params(variant: WmmaVariant, limits: HardwareLimits, *, min_waves: int = 1) -> Choice:
    """The params with the most resident waves by the model, never fewer than upstream's.

    Among equals: the larger stride (fewer barriers and less LDS traffic per KV row), then upstream's
    waves per block. ``min_waves`` is passed through: values below 6 cap no register on GPUs with 1536.

    Raises:
        NoLegalParameters: nothing is legal on this GPU.
    """
    candidates = candidate_params(variant, limits)
    if not candidates:
        raise NoLegalParameters(
            f"no legal parameters for {variant} on {limits.arch}",
            where=Location(path=f"{limits.arch}.toml"),
            why=f"LDS per work group is {limits.lds_per_workgroup_bytes} bytes",
            hint="state a tuned row for this variant, or take wmma-tile-params off for this GPU",
        )

    def rank(params: WmmaParams) -> tuple[int, int, bool]:
        return (_waves_in_pool(variant, params, limits), params.kq_stride, params.nwarps == UPSTREAM.nwarps)

    best = max(candidates, key=rank)
    waves = estimate_waves(variant, best, limits)
    before = estimate_waves(variant, UPSTREAM, limits)
    reason = f"{waves} waves per SIMD by the model, upstream's parameters {before}"
    if best == UPSTREAM:
        reason = f"upstream's parameters: nothing holds more than {waves} waves per SIMD by the model"
    return Choice(
        params=WmmaParams(best.kq_stride, best.nwarps, min_waves),
        vgprs=estimate_vgprs(variant, best, limits),
        waves=waves,
        reason=reason,
    )


def _waves_in_pool(variant: WmmaVariant, params: WmmaParams, limits: HardwareLimits) -> int:
    vgprs = min(estimate_vgprs(variant, params, limits), limits.max_vgprs_per_wave)
    threads = params.nwarps * limits.wave_size
    return resident_blocks(vgprs, lds_bytes(variant, params), threads, limits) * params.nwarps
