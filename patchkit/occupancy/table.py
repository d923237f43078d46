"""The table of WMMA parameters of one GPU: tuned rows first, the model for the rest, all checked alike.

Vocabulary: the *origin* of a row is ``tuned`` (stated in the profile with its source), ``model``, or
``upstream`` where the model knows nothing of the GPU's matrix instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from patchkit.config.profile_data import ArchProfile, TunedWmma
from patchkit.errors import ConfigError, ErrorGroup
from patchkit.occupancy.model import choose_params, estimate_waves
from patchkit.occupancy.waves import HardwareLimits, limits_of
from patchkit.occupancy.wmma import (
    UPSTREAM,
    VARIANTS,
    Violation,
    WmmaParams,
    WmmaVariant,
    lds_bytes,
    legal_params,
    violations,
)

Origin = Literal["tuned", "model", "upstream"]


class TunedVariantUnknown(ConfigError):
    """A tuned row is for a variant the kernel does not have on HIP."""

    code = "WMMA_NO_VARIANT"


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaRow:
    """One row. ``lds_bytes`` per block is exact; ``waves_estimate``, resident per SIMD, is the model's."""

    variant: WmmaVariant
    params: WmmaParams
    origin: Origin
    lds_bytes: int
    waves_estimate: int
    source: str


def wmma_table(profile: ArchProfile) -> tuple[WmmaRow, ...]:
    """One row for each variant of build 6900 on HIP, in the order of :data:`VARIANTS`.

    Empty for a GPU without matrix instructions: the kernel does not exist there.

    Raises:
        ErrorGroup: tuned rows that break rules, each an :class:`WMMA_ILLEGAL` with the row's place, or
            that fit no variant (:class:`TunedVariantUnknown`).
        NoLegalParameters: a variant for which nothing is legal.
    """
    limits = limits_of(profile)
    if limits.matrix == "none":
        return ()
    tuned = {WmmaVariant(row.head_size, row.ncols, row.acc): row for row in profile.tuned_wmma}
    _check(profile, tuned, limits)
    return tuple(_row(variant, tuned.get(variant), limits) for variant in VARIANTS)


def _row(variant: WmmaVariant, tuned: TunedWmma | None, limits: HardwareLimits) -> WmmaRow:
    origin: Origin
    if tuned is not None:
        origin, params = "tuned", _params(tuned)
        source = f"{tuned.source}; {tuned.measured_on}"
    elif limits.matrix == "wmma":
        choice = choose_params(variant, limits)
        origin, params, source = "model", choice.params, choice.reason
    else:
        origin, params = "upstream", UPSTREAM
        source = f"no model of {limits.matrix} fragments; build 6900 as it is"
    return WmmaRow(
        variant=variant,
        params=params,
        origin=origin,
        lds_bytes=lds_bytes(variant, params),
        waves_estimate=estimate_waves(variant, params, limits),
        source=source,
    )


def _check(profile: ArchProfile, tuned: dict[WmmaVariant, TunedWmma], limits: HardwareLimits) -> None:
    errors: list[ConfigError] = []
    for variant, row in tuned.items():
        if variant not in VARIANTS:
            errors.append(
                TunedVariantUnknown(
                    f"{profile.arch}: the kernel has no variant for {variant}",
                    where=row.where,
                    why="with f32 accumulators head size 256 is compiled for 16 columns only",
                    hint="take the row out",
                )
            )
        elif broken := violations(variant, _params(row), limits):
            errors.append(_illegal(profile.arch, variant, row, broken, limits))
    if errors:
        count = len(errors)
        raise ErrorGroup(f"{profile.arch}: {count} tuned row{'s'[: count > 1]} cannot be used", errors)


def _illegal(
    arch: str, variant: WmmaVariant, row: TunedWmma, broken: tuple[Violation, ...], limits: HardwareLimits
) -> ConfigError:
    legal = legal_params(variant, limits)
    nearest = min(legal, key=lambda params: _distance(params, _params(row)), default=None)
    return ConfigError(
        f"{arch}: the tuned row for {variant} breaks {', '.join(each.rule for each in broken)}",
        code="WMMA_ILLEGAL",
        where=row.where,
        why="; ".join(str(each) for each in broken),
        hint=f"legal and nearest: {nearest}" if nearest else "nothing is legal here: take the row out",
    )


def _distance(params: WmmaParams, other: WmmaParams) -> tuple[float, int, int]:
    """Doublings between two params; the larger stride, then the fewer waves, first among equals."""
    doublings = abs(math.log2(params.kq_stride / other.kq_stride)) + abs(
        math.log2(params.nwarps / other.nwarps)
    )
    return (doublings, -params.kq_stride, params.nwarps)


def _params(row: TunedWmma) -> WmmaParams:
    return WmmaParams(row.kq_stride, row.nwarps, row.min_waves)
