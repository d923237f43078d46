"""The table of WMMA parameters of one GPU: tuned rows if the profile has them, else upstream's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from patchkit.base.errors import ConfigError, ErrorGroup
from patchkit.base.occupancy import HardwareLimits, limits_of
from patchkit.carry.series.profile import ArchProfile, TunedWmma

Accumulator = Literal["f16", "f32"]

KV_PADDING = 256  # FATTN_KQ_STRIDE, fattn-common.cuh
_FRAGMENT = 16  # frag_m and frag_n; the kernel's 32x8 shape is not compiled for HIP
_PAD = 8  # halves or floats added to each row against bank conflicts: D_padded, kqs_padded
_HALF_BYTES = 2
_MAX_THREADS = 1024


@dataclass(frozen=True, slots=True, order=True)
class WmmaVariant:
    """One instantiation. ``acc`` is KQ_acc_t: f16 for half, f32 for float."""

    head_size: int
    ncols: int
    acc: Accumulator

    @property
    def acc_bytes(self) -> int:
        """Size of KQ_acc_t in bytes, by which the table's C++ code distinguishes the two types."""
        return {"f16": 2, "f32": 4}[self.acc]

    def __str__(self) -> str:
        return f"head size {self.head_size}, {self.ncols} columns, {self.acc}"


@dataclass(frozen=True, slots=True, order=True)
class WmmaParams:
    """The parameters of one variant. ``min_waves`` is per SIMD; 1 puts no constraint on the compiler."""

    kq_stride: int
    nwarps: int
    min_waves: int = 1

    def __post_init__(self) -> None:
        if self.kq_stride < 1 or self.nwarps < 1:
            raise ValueError(f"stride and waves must be at least 1: {self}")

    def __str__(self) -> str:
        return f"kq_stride {self.kq_stride}, nwarps {self.nwarps}, min_waves {self.min_waves}"


UPSTREAM = WmmaParams(kq_stride=256, nwarps=4, min_waves=1)

# The switches of ggml_cuda_flash_attn_ext_wmma_f16 on HIP; with f32, head size 256 has 16 columns only.
VARIANTS: tuple[WmmaVariant, ...] = tuple(
    WmmaVariant(head_size, ncols, acc)
    for head_size in (64, 80, 96, 112, 128, 256)
    for ncols in (16, 32)
    for acc in ("f16", "f32")
    if (head_size, ncols, acc) != (256, 32, "f32")
)


def vkq_stride(variant: WmmaVariant, params: WmmaParams) -> int:
    """VKQ rows calculated in parallel: get_VKQ_stride."""
    fragments = variant.head_size // _FRAGMENT
    power_of_2 = fragments & -fragments
    return min(power_of_2, params.nwarps) * _FRAGMENT


def vkq_ratio(variant: WmmaVariant, params: WmmaParams) -> int:
    """Waves that share the same VKQ rows: VKQ_ratio, R in the rules."""
    return _FRAGMENT * params.nwarps // vkq_stride(variant, params)


def lds_bytes(variant: WmmaVariant, params: WmmaParams) -> int:
    """LDS of one block: the buffer for KQ and then for the parts of VKQ, and the VKQ accumulator."""
    halves_per_value = 2 if variant.acc == "f32" else 1
    kq = variant.ncols * (params.kq_stride + _PAD) * halves_per_value
    vkq = variant.ncols * (variant.head_size + _PAD)
    return (max(kq, vkq_ratio(variant, params) * vkq) + vkq) * _HALF_BYTES


def violations(variant: WmmaVariant, params: WmmaParams, limits: HardwareLimits) -> dict[str, str]:
    """The rules that the params break for this variant on this GPU, with explanations, in rule order."""
    stride, warps = params.kq_stride, params.nwarps
    rows = _FRAGMENT * warps
    shared = _FRAGMENT * vkq_ratio(variant, params)
    lanes = 2 * limits.wave_size
    threads = warps * limits.wave_size
    lds = lds_bytes(variant, params)
    ratio = vkq_ratio(variant, params)
    rules = (
        ("C1", stride % rows == 0, f"kq_stride {stride} is not a multiple of 16*nwarps = {rows}"),
        ("C2", stride % shared == 0, f"kq_stride {stride} is not a multiple of 16*{ratio} = {shared}"),
        ("C3", stride % lanes == 0, f"kq_stride {stride} is not a multiple of 2*{limits.wave_size} lanes"),
        ("C4", KV_PADDING % stride == 0, f"kq_stride {stride} does not divide the KV padding {KV_PADDING}"),
        ("C6", variant.ncols % warps == 0, f"{variant.ncols} columns are not a multiple of nwarps {warps}"),
        ("C7", threads <= _MAX_THREADS, f"{threads} threads per block are more than {_MAX_THREADS}"),
        (
            "C8",
            lds <= limits.lds_per_workgroup_bytes,
            f"{lds} bytes of LDS are more than {limits.lds_per_workgroup_bytes}",
        ),
        ("C9", ratio <= warps, f"{ratio} waves share VKQ rows, more than nwarps {warps}"),
        (
            "M1",
            1 <= params.min_waves <= limits.max_waves_per_simd,
            f"min_waves {params.min_waves} is not between 1 and {limits.max_waves_per_simd}",
        ),
    )
    return {rule: how for rule, holds, how in rules if not holds}


def legal_params(variant: WmmaVariant, limits: HardwareLimits) -> tuple[WmmaParams, ...]:
    """All params with ``min_waves`` 1 that break no rule, sorted by stride, then waves per block."""
    divisors = [2**n for n in range(KV_PADDING.bit_length())]
    candidates = (WmmaParams(stride, warps) for stride in divisors for warps in divisors)
    return tuple(sorted(each for each in candidates if not violations(variant, each, limits)))


Origin = Literal["tuned", "upstream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaRow:
    """One row, and the origin of its params: the profile or build 6900.

    Templates read the numbers by the names that they have in upstream's kernel.
    """

    variant: WmmaVariant
    params: WmmaParams
    origin: Origin

    head_size = property(lambda row: row.variant.head_size)
    ncols = property(lambda row: row.variant.ncols)
    acc_bytes = property(lambda row: row.variant.acc_bytes)
    kq_stride = property(lambda row: row.params.kq_stride)
    nwarps = property(lambda row: row.params.nwarps)
    min_waves = property(lambda row: row.params.min_waves)


def wmma_table(profile: ArchProfile) -> tuple[WmmaRow, ...]:
    """One row for each variant of build 6900 on HIP, in the order of :data:`VARIANTS`.

    Empty for a GPU without matrix instructions, which has no such kernel.

    Raises:
        ErrorGroup: tuned rows that break rules (WMMA_ILLEGAL) or match no variant (WMMA_ILLEGAL), each
            with its place.
    """
    limits = limits_of(profile)
    if limits.matrix == "none":
        return ()
    tuned = {WmmaVariant(row.head_size, row.ncols, row.acc): row for row in profile.tuning.wmma}
    _check(profile, tuned, limits)
    return tuple(_row(variant, tuned.get(variant)) for variant in VARIANTS)


def _row(variant: WmmaVariant, tuned: TunedWmma | None) -> WmmaRow:
    if tuned is not None:
        return WmmaRow(variant=variant, params=_params(tuned), origin="tuned")
    return WmmaRow(variant=variant, params=UPSTREAM, origin="upstream")


def _check(profile: ArchProfile, tuned: dict[WmmaVariant, TunedWmma], limits: HardwareLimits) -> None:
    errors: list[ConfigError] = []
    for variant, row in tuned.items():
        if variant not in VARIANTS:
            errors.append(
                ConfigError(
                    f"{profile.arch}: the kernel has no variant for {variant}",
                    code="WMMA_ILLEGAL",
                    where=row.where,
                    why="with f32 accumulators head size 256 is compiled for 16 columns only",
                    hint="remove the row",
                )
            )
        elif broken := violations(variant, _params(row), limits):
            errors.append(_illegal(profile.arch, variant, row, broken, limits))
    if errors:
        count = len(errors)
        raise ErrorGroup(f"{profile.arch}: {count} tuned row{'s'[: count > 1]} cannot be used", errors)


def _illegal(
    arch: str, variant: WmmaVariant, row: TunedWmma, broken: Mapping[str, str], limits: HardwareLimits
) -> ConfigError:
    legal = legal_params(variant, limits)
    nearest = min(legal, key=lambda params: _distance(params, _params(row)), default=None)
    return ConfigError(
        f"{arch}: the tuned row for {variant} breaks {', '.join(broken)}",
        code="WMMA_ILLEGAL",
        where=row.where,
        why="; ".join(f"{rule}: {how}" for rule, how in broken.items()),
        hint=f"the nearest legal values: {nearest}" if nearest else "nothing is legal here: remove the row",
    )


def _distance(params: WmmaParams, other: WmmaParams) -> tuple[float, int, int]:
    """The number of doublings between two params; ties prefer the larger stride, then fewer waves."""
    doublings = abs(math.log2(params.kq_stride / other.kq_stride)) + abs(
        math.log2(params.nwarps / other.nwarps)
    )
    return (doublings, -params.kq_stride, params.nwarps)


def _params(row: TunedWmma) -> WmmaParams:
    return WmmaParams(row.kq_stride, row.nwarps, row.min_waves)
