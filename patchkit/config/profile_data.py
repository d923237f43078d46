"""A GPU's profile as data, after its files were read and put together by :mod:`patchkit.config.profile`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from patchkit.config.facts import Facts
from patchkit.config.profile_model import PatchDefault, WmmaAccumulator
from patchkit.errors import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchChoice:
    """Whether a patch belongs to the series of this GPU by default, and why."""

    patch: str
    default: PatchDefault
    why: str
    source: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWmma:
    """Explicit parameters of one variant of the WMMA attention kernel; ``where`` is the row."""

    head_size: int
    ncols: int
    acc: WmmaAccumulator
    kq_stride: int
    nwarps: int
    min_waves: int
    source: str
    measured_on: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTile:
    """A row for upstream's table of the TILE attention kernel."""

    head_size_k: int
    head_size_v: int
    ncols: int
    nthreads: int
    occupancy: int
    nbatch_fa: int
    nbatch_k: int
    source: str
    measured_on: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmq:
    """The block of the quantized matrix kernel where it has at least ``min_j`` columns."""

    min_j: int
    nthreads: int
    occupancy: int
    i: int
    source: str
    measured_on: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqBatch:
    """The most columns with which a matrix of ``type`` (``Q4_K``) takes the vector kernel."""

    type: str
    max_batch: int
    source: str
    measured_on: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqWarps:
    """Waves per block of the vector kernel for one column of a matrix of ``type``."""

    type: str
    nwarps: int
    source: str
    measured_on: str
    where: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileInput:
    """A file the profile was made from: path below the profiles folder, sha256 of its bytes."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchProfile:
    """One GPU. ``families`` goes from the nearest to the root; ``inputs`` lists every file read."""

    arch: str
    families: tuple[str, ...]
    note: str
    facts: Facts
    patches: Mapping[str, PatchChoice]
    tuned_wmma: tuple[TunedWmma, ...]
    tuned_tile: tuple[TunedTile, ...]
    tuned_mmq: tuple[TunedMmq, ...]
    tuned_mmvq_batch: tuple[TunedMmvqBatch, ...]
    tuned_mmvq_warps: tuple[TunedMmvqWarps, ...]
    cmake: tuple[tuple[str, str], ...]
    cmake_with_series: tuple[tuple[str, str], ...]
    build_why: str
    inputs: tuple[ProfileInput, ...]
    where: Location

    @property
    def compute_capability(self) -> int:
        """As upstream's host code computes it, without the AMD offset: 0x1151 for gfx1151."""
        return self.facts.require_int("compute_capability")

    @property
    def device_macro(self) -> str:
        """The macro of the device pass: ``__gfx1151__``."""
        return str(self.facts.require("device_macro"))

    def patches_by_default(self, default: PatchDefault) -> tuple[str, ...]:
        """Ids of the patches with that default, sorted."""
        return tuple(sorted(name for name, choice in self.patches.items() if choice.default == default))

    def cmake_options(self, macros: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
        """CMake cache entries for a build, in order; ``macros`` are those of the applied patches' guards.

        An option of ``cmake_with_series`` counts when a patch asks for the macro of its name: patches for
        the rocWMMA kernel need it compiled, those of later builds do not.
        """
        options = dict(self.cmake)
        options.update((name, value) for name, value in self.cmake_with_series if name in macros)
        return tuple(options.items())
