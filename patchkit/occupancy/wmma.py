"""The parameters of llama.cpp's WMMA attention kernel (flash_attn_ext_f16) and the rules they must obey.

Vocabulary: a *variant* is one instantiation: head size D, columns of Q per block, type of the KQ
accumulator; *params* are what a table may choose for it: KV rows per step S, waves per block N, and
the least waves per SIMD told to the compiler; a *violation* is a rule the params break.

The rules are facts about the kernel of build 6900 and keep the names under which they were found:

====  =====================================================================================
C1    S is a multiple of 16 N: each wave writes 16 rows per step, or it writes beyond LDS
C2    S is a multiple of 16 R: the waves that share VKQ rows split the KV rows evenly
C3    S is a multiple of 2 W: the softmax gives each lane whole values, two at a time with f16. The
      f16 arrays are compiled with f32 too (a plain if on the type), so S = W does not compile there
C4    S divides 256: the KV cache is padded to 256 rows and the kernel has no bounds check
C6    N divides the columns: each wave owns whole columns in the softmax
C7    N waves are at most 1024 threads
C8    one block's LDS is within the work group's limit
C9    R is at most N
M1    the least waves per SIMD is between 1 and what a SIMD can hold
====  =====================================================================================

R is the number of waves that work on the same VKQ rows, W the lanes of a wave. C5 (D at most S) is
no rule here: upstream asserts it, but test-backend-ops passes with S = 64 at D = 128 and 256 once the
assertion is out (run on the same kernel compiled for an NVIDIA GPU), so the algorithm does not need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.occupancy.waves import HardwareLimits

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

    def __str__(self) -> str:
        return f"head size {self.head_size}, {self.ncols} columns, {self.acc}"


@dataclass(frozen=True, slots=True, order=True)
class WmmaParams:
    """What a table chooses. ``min_waves`` is per SIMD; 1 asks nothing of the compiler."""

    kq_stride: int
    nwarps: int
    min_waves: int = 1

    def __post_init__(self) -> None:
        if self.kq_stride < 1 or self.nwarps < 1:
            raise ValueError(f"stride and waves are counted from 1: {self}")

    def __str__(self) -> str:
        return f"kq_stride {self.kq_stride}, nwarps {self.nwarps}, min_waves {self.min_waves}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule: its id, and what it says with the numbers put in."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


UPSTREAM = WmmaParams(kq_stride=256, nwarps=4, min_waves=1)

# The switches of ggml_cuda_flash_attn_ext_wmma_f16 on HIP: with f32, head size 256 has 16 columns only.
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
    """LDS of one block: the buffer that holds KQ and then the parts of VKQ, and the VKQ accumulator."""
    halves_per_value = 2 if variant.acc == "f32" else 1
    kq = variant.ncols * (params.kq_stride + _PAD) * halves_per_value
    vkq = variant.ncols * (variant.head_size + _PAD)
    return (max(kq, vkq_ratio(variant, params) * vkq) + vkq) * _HALF_BYTES


def violations(variant: WmmaVariant, params: WmmaParams, limits: HardwareLimits) -> tuple[Violation, ...]:
    """Every rule the params break for this variant on this GPU, in the order of the rules."""
    stride, warps = params.kq_stride, params.nwarps
    rows = _FRAGMENT * warps
    shared = _FRAGMENT * vkq_ratio(variant, params)
    lanes = 2 * limits.wave_size
    threads = warps * limits.wave_size
    lds = lds_bytes(variant, params)
    ratio = vkq_ratio(variant, params)
    rules = (
        ("C1", stride % rows == 0, f"kq_stride {stride} is no multiple of 16*nwarps = {rows}"),
        ("C2", stride % shared == 0, f"kq_stride {stride} is no multiple of 16*{ratio} = {shared}"),
        ("C3", stride % lanes == 0, f"kq_stride {stride} is no multiple of 2*{limits.wave_size} lanes"),
        ("C4", KV_PADDING % stride == 0, f"kq_stride {stride} does not divide the KV padding {KV_PADDING}"),
        ("C6", variant.ncols % warps == 0, f"{variant.ncols} columns are no multiple of nwarps {warps}"),
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
    return tuple(Violation(rule=rule, text=text) for rule, holds, text in rules if not holds)


def legal_params(variant: WmmaVariant, limits: HardwareLimits) -> tuple[WmmaParams, ...]:
    """All params with ``min_waves`` 1 that break no rule, sorted by stride, then waves per block."""
    divisors = [2**n for n in range(KV_PADDING.bit_length())]
    candidates = (WmmaParams(stride, warps) for stride in divisors for warps in divisors)
    return tuple(sorted(each for each in candidates if not violations(variant, each, limits)))
