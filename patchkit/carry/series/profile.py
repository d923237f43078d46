"""Profiles: what patchkit knows about one GPU, from its file and the files of its family."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from patchkit.base.arch import REQUIRED, Facts
from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.text import near_miss
from patchkit.base.toml import (
    NOWHERE,
    Document,
    NotInFile,
    Several,
    TomlTable,
    load_toml,
    validate,
)

PatchDefault = Literal["on", "opt-in", "off"]
WmmaAccumulator = Literal["f16", "f32"]
WmmaColumns = Literal[16, 32]
HeadSize = Literal[64, 80, 96, 112, 128, 256]  # switch of ggml_cuda_flash_attn_ext_wmma_f16, build 6900
_Source = Annotated[str, Field(min_length=3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchChoice(TomlTable):
    """Whether a patch is part of the series of this GPU when nobody asks."""

    default: PatchDefault
    why: Annotated[str, Field(min_length=10)]
    source: _Source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row(TomlTable):
    """One row of a tuning table; ``where`` is its place in the profile."""

    source: _Source
    measured_on: Annotated[
        str, Field(min_length=3, description="Hardware, or the compiler that gave the figures")
    ]
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedWmma(_Row):
    """Parameters of flash_attn_ext_f16 that were measured for one variant; they win over the model."""

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
    """The block of mul_mat_q for one quantization (``Q4_K``), where J, its columns, is at least ``min_j``."""

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
class TunedMmqBatch(_Row):
    """Up to how many columns a dense matrix of one quantization takes MMQ, and no BLAS library."""

    type: _QuantType
    max_batch: Annotated[int, Field(gt=0, description="Columns of activations: tokens of a micro-batch")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqBatch(_Row):
    """Up to how many columns a matrix of one quantization (``Q4_K``) takes the vector kernel (MMVQ)."""

    type: _QuantType
    max_batch: Annotated[int, Field(gt=0, le=8, description="MMVQ_MAX_BATCH_SIZE is 8")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMmvqWarps(_Row):
    """Waves per block of the vector kernel for one column (decode)."""

    type: _QuantType
    nwarps: Annotated[int, Field(gt=0, le=8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedValue(_Row):
    """One number that a patch asks for by name (``mmq.q6k_columns``): ``values['...']`` in its templates."""

    named_by: ClassVar[str] = "name"
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$")]
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(TomlTable):
    """Explicit parameter tables."""

    wmma: Several[TunedWmma] = ()
    tile: Several[TunedTile] = ()
    mmq: Several[TunedMmq] = ()
    mmq_batch: Several[TunedMmqBatch] = ()
    mmvq_batch: Several[TunedMmvqBatch] = ()
    mmvq_warps: Several[TunedMmvqWarps] = ()
    value: Several[TunedValue] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions(TomlTable):
    """CMake options of a llama.cpp build for this GPU."""

    cmake: Annotated[Mapping[str, str], Field(description="Always")]
    cmake_with_series: Annotated[
        Mapping[str, str],
        Field(description="Each option that is also a macro in the guard of an applied patch, in addition"),
    ] = field(default_factory=dict)
    why: Annotated[str, Field(min_length=10)]


_Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(TomlTable):
    """arch_profiles/families/NAME.toml: what several GPUs share."""

    family: _Name
    inherits: _Name | None = None
    note: str | None = None
    members: Annotated[
        Several[Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]],
        Field(description="All its GPUs: what a patch guarded by this family is live on"),
    ] = ()
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchProfile(TomlTable):
    """arch_profiles/gfxNNNN.toml: one GPU."""

    arch: Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]
    inherits: Annotated[_Name, Field(description="A file of families/, without .toml")]
    note: Annotated[
        str, Field(min_length=10, description="What a person must know before trusting the series here")
    ]
    facts: Facts
    build: BuildOptions
    patches: Mapping[str, PatchChoice] = field(default_factory=dict)
    tuning: Tuning = field(default_factory=Tuning)
    families: NotInFile[tuple[str, ...]] = ()  # from the nearest to the root
    # All GPUs of each of them that names its members.
    relatives: NotInFile[Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    # sha256 of every file read, by its path below the profiles folder; the nearest first.
    inputs: NotInFile[Mapping[str, str]] = field(default_factory=dict)
    where: NotInFile[Location] = NOWHERE

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
        added = {name: value for name, value in self.build.cmake_with_series.items() if name in macros}
        return tuple({**self.build.cmake, **added}.items())


_GENERIC = re.compile(r"gfx\d+(-\d+)*-generic")
_FEATURES = re.compile(r"(gfx[0-9a-f]+)(:[a-z]+[+-])+")


def list_profiles(folder: Path) -> tuple[str, ...]:
    """The archs that have a profile, sorted. PROFILES_NONE when there is none."""
    archs = tuple(sorted(path.stem for path in folder.glob("gfx*.toml")))
    if not archs:
        raise ConfigError(
            f"{folder} holds no GPU profile",
            code="PROFILES_NONE",
            where=Location(path=str(folder)),
            hint="--series-dir names the folder that holds arch_profiles/",
        )
    return archs


def load_profile(folder: Path, arch: str) -> ArchProfile:
    """Read the profile of one GPU and the family files it inherits from.

    Raises:
        ARCH_GENERIC, ARCH_UNKNOWN: the name is not one of :func:`list_profiles`.
        PROFILE_FAMILY_UNKNOWN, PROFILE_CYCLE: the files cannot be put together.
        PROFILE_MISMATCH, PROFILE_DUPLICATE_TUNING, FACT_MISSING: they can, but the result is no profile.
        ErrorGroup: wrong fields in one file, all of them.
    """
    _check_name(folder, arch)
    document = load_toml(folder / f"{arch}.toml")
    profile = validate(document, ArchProfile, what="profile")
    families = _families(folder, document, profile.inherits)
    facts = profile.facts.stated()
    for _, family in families:
        facts = family.facts.stated() | facts
    profile = replace(
        profile,
        facts=replace(profile.facts, by_name=facts),
        patches=dict(sorted(profile.patches.items())),
        families=tuple(family.family for _, family in families),
        relatives={family.family: family.members for _, family in families},
        inputs={
            Path(each.path).relative_to(folder).as_posix(): hashlib.sha256(each.data).hexdigest()
            for each in (document, *(each for each, _ in families))
        },
    )
    _check_complete(profile)
    _check_agreement(profile, arch, document)
    _check_tuning(profile)
    return profile


def load_profiles(folder: Path, archs: Iterable[str]) -> tuple[ArchProfile, ...]:
    """The profiles of a candidate's GPUs, sorted, each once; raises as :func:`load_profile`."""
    return tuple(load_profile(folder, arch) for arch in sorted(set(archs)))


def _check_name(folder: Path, arch: str) -> None:
    known = list_profiles(folder)
    if arch in known:
        return
    if _GENERIC.fullmatch(arch):
        raise UsageError(
            f"{arch} is a generic target; patchkit patches exact gfx ids only",
            code="ARCH_GENERIC",
            why="one code object would run on GPUs with different register files, while the host picks "
            "its tables by the exact id: host and device disagree (NaN on gfx1152, llama.cpp issue 25620)",
            hint=f"name the GPUs one by one, for example: --arch {known[0]}",
        )
    features = _FEATURES.fullmatch(arch)
    if features:
        hint = f"leave the feature suffix out: --arch {features[1]}"
    else:
        hint = near_miss(arch, known) or f"known: {', '.join(known)}"
    raise UsageError(
        f"no profile for '{arch}'", code="ARCH_UNKNOWN", where=Location(path=str(folder)), hint=hint
    )


def _families(folder: Path, document: Document, inherits: str | None) -> list[tuple[Document, Family]]:
    found: list[tuple[Document, Family]] = []
    seen: list[str] = []
    while inherits is not None:
        where = document.locate(("inherits",))
        if inherits in seen:
            raise ConfigError(
                f"family '{inherits}' inherits from itself",
                code="PROFILE_CYCLE",
                where=where,
                why=" -> ".join([*seen, inherits]),
                hint="take one 'inherits' out",
            )
        path = folder / "families" / f"{inherits}.toml"
        if not path.is_file():
            names = sorted(each.stem for each in (folder / "families").glob("*.toml"))
            raise ConfigError(
                f"there is no family '{inherits}'",
                code="PROFILE_FAMILY_UNKNOWN",
                where=where,
                hint=near_miss(inherits, names) or f"known: {', '.join(names)}",
            )
        document = load_toml(path)
        family = validate(document, Family, what="family")
        if family.family != inherits:
            raise ConfigError(
                f"the file of family '{inherits}' says it is '{family.family}'",
                code="PROFILE_MISMATCH",
                where=document.locate(("family",)),
                hint=f"write: family = '{inherits}'",
            )
        seen.append(inherits)
        found.append((document, family))
        inherits = family.inherits
    return found


def _check_complete(profile: ArchProfile) -> None:
    missing = [name for name in REQUIRED if name not in profile.facts.by_name]
    if not {"lds_per_wgp_bytes", "lds_per_cu_bytes"} & set(profile.facts.by_name):
        missing.append("lds_per_wgp_bytes or lds_per_cu_bytes")
    if missing:
        raise ConfigError(
            f"{profile.arch}: neither the profile nor its family states: {', '.join(missing)}",
            code="FACT_MISSING",
            where=profile.where,
            hint="state each under [facts] with value, source and confidence",
        )


def _check_agreement(profile: ArchProfile, arch: str, document: Document) -> None:
    """The name of a GPU is written in four places; a slip in one would aim a guard at another GPU."""
    stated = {
        ("arch",): (profile.arch, arch),
        ("facts", "compute_capability"): (
            profile.facts.by_name["compute_capability"].value,
            int(arch.removeprefix("gfx"), 16),  # all that ggml_cuda_parse_id does with an exact id
        ),
        ("facts", "device_macro"): (profile.facts.by_name["device_macro"].value, f"__{arch}__"),
        ("build", "cmake", "GPU_TARGETS"): (profile.build.cmake.get("GPU_TARGETS"), arch),
    }
    for keys, (value, expected) in stated.items():
        if value != expected:
            raise ConfigError(
                f"{'.'.join(keys)} of {arch} is {value!r}, not {expected!r}",
                code="PROFILE_MISMATCH",
                where=document.locate(keys),
                hint=f"write {expected!r} there",
            )


def _check_tuning(profile: ArchProfile) -> None:
    """No two rows for the same thing, in any table."""
    named: dict[tuple[object, ...], Location] = {}
    wmma = [(("head size", r.head_size, r.ncols, "columns", r.acc), r.where) for r in profile.tuning.wmma]
    tile = [
        (("tile", r.head_size_k, r.head_size_v, r.ncols, "columns"), r.where) for r in profile.tuning.tile
    ]
    mmq = [(("mmq of", r.type, "from", r.min_j, "columns"), r.where) for r in profile.tuning.mmq]
    mmq_batch = [(("mmq_batch", r.type), r.where) for r in profile.tuning.mmq_batch]
    batch = [(("mmvq_batch", r.type), r.where) for r in profile.tuning.mmvq_batch]
    warps = [(("mmvq_warps", r.type), r.where) for r in profile.tuning.mmvq_warps]
    values = [(("value", r.name), r.where) for r in profile.tuning.value]
    for variant, where in (*wmma, *tile, *mmq, *mmq_batch, *batch, *warps, *values):
        first = named.setdefault(variant, where)
        if first is not where:
            raise ConfigError(
                f"two tuned rows for {' '.join(str(part) for part in variant)}",
                code="PROFILE_DUPLICATE_TUNING",
                where=(where, first),
                hint="keep one of them",
            )
