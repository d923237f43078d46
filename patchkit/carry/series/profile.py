"""The parts of a GPU profile that concern patches: defaults, tuned values and build options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from patchkit.base.arch import Facts, GpuProfile, check_expected, list_profiles, read_profile
from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.series_folder import PLAIN
from patchkit.base.toml import NOWHERE, NotInFile, Several, TomlTable

PatchDefault = Literal["on", "opt-in", "off"]
WmmaAccumulator = Literal["f16", "f32"]
WmmaColumns = Literal[16, 32]
HeadSize = Literal[64, 80, 96, 112, 128, 256]  # switch of ggml_cuda_flash_attn_ext_wmma_f16, build 6900
_Source = Annotated[str, Field(min_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchChoice(TomlTable):
    """The maintainer's choice whether this GPU gets a patch by default.

    It overrides the patch's claims, unless they report losses on the GPU.
    """

    default: PatchDefault
    why: Annotated[str, Field(min_length=10)]
    source: _Source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row(TomlTable):
    """One row of a tuning table; ``where`` is its location in the profile."""

    source: _Source
    measured_on: Annotated[
        str, Field(min_length=3, description="Hardware, or the compiler that reported the figures")
    ]
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWmma(_Row):
    """Measured parameters of flash_attn_ext_f16 for one variant; they override the model."""

    head_size: HeadSize
    ncols: WmmaColumns
    acc: Annotated[WmmaAccumulator, Field(description="Accumulator of KQ: half or float")]
    kq_stride: Annotated[int, Field(gt=0, description="KV rows per step of the loop")]
    nwarps: Annotated[int, Field(gt=0, description="Waves per block")]
    min_waves: Annotated[
        int, Field(gt=0, description="Second value of __launch_bounds__: waves per SIMD; 1: no cap")
    ]


_Occupancy = Annotated[
    int, Field(gt=0, le=8, description="Second value of __launch_bounds__: waves per SIMD")
]
_Threads = Annotated[int, Field(gt=0, le=512, multiple_of=32)]
_QuantType = Annotated[str, Field(pattern=r"^[A-Z0-9_]+$", description="ggml_type without GGML_TYPE_")]
_FRAGMENT_ROWS = 16  # rows of one matrix fragment, and of one wave's tile (mmq.cuh of build 11549)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTile(_Row):
    """A row for the table of flash_attn_tile (fattn-tile.cuh); the names are upstream's."""

    head_size_k: Annotated[int, Field(gt=0)]
    head_size_v: Annotated[int, Field(gt=0)]
    ncols: Annotated[int, Field(gt=0, description="Query columns per block")]
    nthreads: _Threads
    occupancy: _Occupancy
    nbatch_fa: Annotated[int, Field(gt=0, le=256, multiple_of=32, description="KV rows per step")]
    nbatch_k: Annotated[int, Field(gt=0, le=256, description="Elements of a K row in LDS at once")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmq(_Row):
    """The block of mul_mat_q for one quantization (``Q4_K``), from ``min_j`` columns (J) on."""

    type: _QuantType
    min_j: Annotated[int, Field(gt=0, multiple_of=8)]
    nthreads: _Threads
    occupancy: _Occupancy
    i: Annotated[int, Field(gt=0, multiple_of=32, description="Rows of the weight matrix per block")]

    def __post_init__(self) -> None:
        rows = self.nthreads // 32 * _FRAGMENT_ROWS
        if self.i != rows:
            raise ValueError(
                f"i must be nthreads/32*{_FRAGMENT_ROWS} = {rows}: each wave writes back {_FRAGMENT_ROWS}"
                " rows, and another value corrupts the result without an error"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqBatch(_Row):
    """The largest batch for which a matrix of one quantization (``Q4_K``) uses the vector kernel (MMVQ)."""

    type: _QuantType
    max_batch: Annotated[int, Field(gt=0, le=8, description="MMVQ_MAX_BATCH_SIZE is 8")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqWarps(_Row):
    """Waves per block of the vector kernel for one column (decode)."""

    type: _QuantType
    nwarps: Annotated[int, Field(gt=0, le=8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedValue(_Row):
    """One number that a patch uses by name (``mmq.q6k_columns``): ``values['...']`` in its templates."""

    named_by: ClassVar[str] = "name"
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$")]
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(TomlTable):
    """The tables of tuned parameters."""

    wmma: Several[TunedWmma] = ()
    tile: Several[TunedTile] = ()
    mmq: Several[TunedMmq] = ()
    mmvq_batch: Several[TunedMmvqBatch] = ()
    mmvq_warps: Several[TunedMmvqWarps] = ()
    value: Several[TunedValue] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions(TomlTable):
    """CMake options of a llama.cpp build for this GPU."""

    cmake: Annotated[Mapping[str, str], Field(description="Options that are always set")]
    cmake_with_series: Annotated[
        Mapping[str, str],
        Field(description="Options that are set only if an applied patch has a guard macro of that name"),
    ] = field(default_factory=dict)
    why: Annotated[str, Field(min_length=10)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchProfile(GpuProfile):
    """arch_profiles/gfxNNNN.toml: one GPU."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)
    build: BuildOptions
    patches: Mapping[str, PatchChoice] = field(default_factory=dict)
    tuning: Tuning = field(default_factory=Tuning)

    def cmake_options(self, macros: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
        """CMake cache entries for a build, in order; ``macros`` are those of the applied patches' guards.

        An option of ``cmake_with_series`` is included if a patch has the macro of its name in its guard.
        Patches for the rocWMMA kernel need it compiled; those of later builds do not.
        """
        added = {name: value for name, value in self.build.cmake_with_series.items() if name in macros}
        return tuple({**self.build.cmake, **added}.items())


NO_GPU = ArchProfile(
    arch=PLAIN,
    inherits="",
    note="no GPU: only the plain patches",
    facts=Facts(),
    build=BuildOptions(cmake={}, why="a build for the CPU needs none"),
)
"""The profile used for ``plain``, without a GPU: it has no facts, no options and no file."""


def targets_of(folder: Path) -> tuple[str, ...]:
    """The possible targets of candidates: every GPU that has a profile, and ``plain``."""
    return (*list_profiles(folder), PLAIN)


def load_profile(folder: Path, arch: str) -> ArchProfile:
    """Read the profile of one GPU and the family files it inherits from.

    Raises:
        PROFILE_BAD: two rows for the same thing.
        The errors of :func:`patchkit.base.arch.read_profile`.
    """
    profile, document = read_profile(folder, arch, ArchProfile)
    profile = replace(profile, patches=dict(sorted(profile.patches.items())))
    check_expected(
        arch, document, {("build", "cmake", "GPU_TARGETS"): (profile.build.cmake.get("GPU_TARGETS"), arch)}
    )
    _check_tuning(profile)
    return profile


def load_profiles(folder: Path, archs: Iterable[str]) -> tuple[ArchProfile, ...]:
    """The profiles of a candidate's GPUs, sorted and unique; NO_GPU for ``plain``.

    Raises ARCH_PLAIN_ALONE, and as :func:`load_profile`.
    """
    named = sorted(set(archs))
    if named == [PLAIN]:
        return (NO_GPU,)
    if PLAIN in named:
        gpus = [arch for arch in named if arch != PLAIN]
        raise UsageError(
            f"--arch {PLAIN} and --arch {gpus[0]} contradict each other",
            code="ARCH_PLAIN_ALONE",
            why=f"{PLAIN} selects only the plain patches; a candidate for a GPU includes them",
        )
    return tuple(load_profile(folder, arch) for arch in named)


def _check_tuning(profile: ArchProfile) -> None:
    """Reject two rows for the same thing, in any table."""
    named: dict[tuple[object, ...], Location] = {}
    wmma = [(("head size", r.head_size, r.ncols, "columns", r.acc), r.where) for r in profile.tuning.wmma]
    tile = [
        (("tile", r.head_size_k, r.head_size_v, r.ncols, "columns"), r.where) for r in profile.tuning.tile
    ]
    mmq = [(("mmq of", r.type, "from", r.min_j, "columns"), r.where) for r in profile.tuning.mmq]
    batch = [(("mmvq_batch", r.type), r.where) for r in profile.tuning.mmvq_batch]
    warps = [(("mmvq_warps", r.type), r.where) for r in profile.tuning.mmvq_warps]
    values = [(("value", r.name), r.where) for r in profile.tuning.value]
    for variant, where in (*wmma, *tile, *mmq, *batch, *warps, *values):
        first = named.setdefault(variant, where)
        if first is not where:
            raise ConfigError(
                f"two tuned rows for {' '.join(str(part) for part in variant)}",
                code="PROFILE_BAD",
                where=(where, first),
            )
