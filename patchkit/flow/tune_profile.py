"""What a profile says already of a kernel's settings, in the tuner's words."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.config.profile_data import ArchProfile, TunedWmma
from patchkit.occupancy.wmma import WmmaVariant
from patchkit.tune.family import Family, Setting
from patchkit.tune.mmq import MmqFamily
from patchkit.tune.wmma import WmmaFamily, name_of

COMPILER_ONLY = "compiler for "  # how measured_on begins where no hardware was


def rows_by_variant(profile: ArchProfile) -> dict[str, TunedWmma]:
    """The rows of the rocWMMA kernel by the names of its variants."""
    return {name_of(WmmaVariant(row.head_size, row.ncols, row.acc)): row for row in profile.tuned_wmma}


def profile_settings(family: Family, profile: ArchProfile) -> Mapping[str, Setting]:
    """The settings that the profile has now, by variant; none where a patch leaves upstream's."""
    if isinstance(family, WmmaFamily):
        return {name: _setting(row, bounds=family.bounds) for name, row in rows_by_variant(profile).items()}
    if family.name == "tile":
        rows = {
            f"{row.head_size_k}-{row.ncols}": (row.nthreads, row.occupancy, row.nbatch_fa, row.nbatch_k)
            for row in profile.tuned_tile
            if row.head_size_k == row.head_size_v
        }
        return {variant: rows[variant] for variant in family.variants if variant in rows}
    if isinstance(family, MmqFamily):
        return {
            variant: (block.nthreads, block.occupancy)
            for variant, row in family.rows.items()
            for block in reversed(profile.tuned_mmq)  # the patch takes the first that fits
            if row.columns >= block.min_j
        }
    return {}


def measured_settings(family: Family, profile: ArchProfile) -> dict[str, Setting]:
    """The settings that a profile has from hardware; the others say that a compiler gave the figures."""
    if not isinstance(family, WmmaFamily):
        return {}
    return {
        name: _setting(row, bounds=family.bounds)
        for name, row in rows_by_variant(profile).items()
        if not row.measured_on.startswith(COMPILER_ONLY)
    }


def _setting(row: TunedWmma, *, bounds: bool) -> Setting:
    return (row.kq_stride, row.nwarps, row.min_waves) if bounds else (row.kq_stride, row.nwarps)
