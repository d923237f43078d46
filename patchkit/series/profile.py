"""Profiles: what patchkit knows about one GPU, from its file and the files of its family."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.series.facts import REQUIRED, Fact, Facts, FactsModel
from patchkit.series.toml import Document, TomlModel, load_toml, near_miss, validate

PatchDefault = Literal["on", "opt-in", "off"]
WmmaAccumulator = Literal["f16", "f32"]
WmmaColumns = Literal[16, 32]
_HeadSize = Literal[64, 80, 96, 112, 128, 256]  # switch of ggml_cuda_flash_attn_ext_wmma_f16, build 6900

_ARCH = r"^gfx[0-9a-f]{3,4}$"
_NAME = r"^[a-z0-9_]+$"


class PatchChoiceModel(TomlModel):
    """Whether a patch is part of the series of this GPU when nobody asks."""

    default: PatchDefault
    why: str = Field(min_length=10)
    source: str = Field(min_length=3)


class WmmaRowModel(TomlModel):
    """Parameters of flash_attn_ext_f16 that were measured for one variant; they win over the model."""

    head_size: _HeadSize
    ncols: WmmaColumns
    acc: WmmaAccumulator = Field(description="Accumulator of KQ: half or float")
    kq_stride: int = Field(gt=0, description="KV rows per step of the loop")
    nwarps: int = Field(gt=0, description="Waves per block")
    min_waves: int = Field(gt=0, description="Second value of __launch_bounds__: waves per SIMD; 1: no cap")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3, description="Hardware, or the compiler that gave the figures")


_QuantType = Annotated[str, Field(pattern=r"^[A-Z0-9_]+$", description="ggml_type without GGML_TYPE_")]
_FRAGMENT_ROWS = 16  # rows of one matrix fragment, and of one wave's tile (mmq.cuh of build 11549)


class TileRowModel(TomlModel):
    """A row for the table of flash_attn_tile (fattn-tile.cuh); the names are upstream's."""

    head_size_k: int = Field(gt=0)
    head_size_v: int = Field(gt=0)
    ncols: int = Field(gt=0, description="Query columns per block")
    nthreads: int = Field(gt=0, le=512, multiple_of=32)
    occupancy: int = Field(gt=0, le=8, description="Second value of __launch_bounds__: waves per SIMD")
    nbatch_fa: int = Field(gt=0, le=256, multiple_of=32, description="KV rows per step")
    nbatch_k: int = Field(gt=0, le=256, description="Elements of a K row in LDS at once")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class MmqRowModel(TomlModel):
    """The block of mul_mat_q for every quantization, where J, its columns, is at least ``min_j``."""

    min_j: int = Field(gt=0, multiple_of=8)
    nthreads: int = Field(gt=0, le=512, multiple_of=32)
    occupancy: int = Field(gt=0, le=8, description="Second value of __launch_bounds__: waves per SIMD")
    i: int = Field(gt=0, multiple_of=32, description="Rows of the weight matrix per block")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)

    @model_validator(mode="after")
    def _every_wave_writes_its_rows(self) -> Self:
        rows = self.nthreads // 32 * _FRAGMENT_ROWS
        if self.i != rows:
            raise ValueError(
                f"i must be nthreads/32*{_FRAGMENT_ROWS} = {rows}: each wave writes back {_FRAGMENT_ROWS}"
                " rows, and another value corrupts the result without an error"
            )
        return self


class MmvqBatchModel(TomlModel):
    """Up to how many columns a matrix of one quantization takes the vector kernel (MMVQ)."""

    type: _QuantType
    max_batch: int = Field(gt=0, le=8, description="MMVQ_MAX_BATCH_SIZE is 8")
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class MmvqWarpsModel(TomlModel):
    """Waves per block of the vector kernel for one column (decode)."""

    type: _QuantType
    nwarps: int = Field(gt=0, le=8)
    source: str = Field(min_length=3)
    measured_on: str = Field(min_length=3)


class TuningModel(TomlModel):
    """Explicit parameter tables."""

    wmma: tuple[WmmaRowModel, ...] = Field(default=(), strict=False)
    tile: tuple[TileRowModel, ...] = Field(default=(), strict=False)
    mmq: tuple[MmqRowModel, ...] = Field(default=(), strict=False)
    mmvq_batch: tuple[MmvqBatchModel, ...] = Field(default=(), strict=False)
    mmvq_warps: tuple[MmvqWarpsModel, ...] = Field(default=(), strict=False)


class BuildModel(TomlModel):
    """CMake options of a llama.cpp build for this GPU."""

    cmake: dict[str, str] = Field(description="Always")
    cmake_with_series: dict[str, str] = Field(
        default_factory=dict,
        description="Each option that is also a macro in the guard of an applied patch, in addition",
    )
    why: str = Field(min_length=10)


class FamilyModel(TomlModel):
    """arch_profiles/families/NAME.toml: what several GPUs share."""

    family: str = Field(pattern=_NAME)
    inherits: str | None = Field(default=None, pattern=_NAME)
    note: str | None = None
    facts: FactsModel


class ProfileModel(TomlModel):
    """arch_profiles/gfxNNNN.toml: one GPU."""

    arch: str = Field(pattern=_ARCH)
    inherits: str = Field(pattern=_NAME, description="A file of families/, without .toml")
    note: str = Field(min_length=10, description="What a person must know before trusting the series here")
    facts: FactsModel
    build: BuildModel
    patches: dict[str, PatchChoiceModel] = Field(default_factory=dict)
    tuning: TuningModel = Field(default_factory=TuningModel)


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


Row = TypeVar("Row")

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
    model = validate(document, ProfileModel, what="profile")
    documents = [document]
    by_name = _facts_of(document, model.facts)
    families: list[str] = []
    for family_document, family in _families(folder, document, model.inherits):
        families.append(family.family)
        documents.append(family_document)
        by_name = _facts_of(family_document, family.facts) | by_name
    profile = ArchProfile(
        arch=model.arch,
        families=tuple(families),
        note=model.note,
        facts=Facts(profile=document.path, by_name=by_name),
        patches={
            name: PatchChoice(patch=name, where=document.locate(("patches", name)), **choice.model_dump())
            for name, choice in sorted(model.patches.items())
        },
        tuned_wmma=_rows(document, "wmma", model.tuning.wmma, TunedWmma),
        tuned_tile=_rows(document, "tile", model.tuning.tile, TunedTile),
        tuned_mmq=_rows(document, "mmq", model.tuning.mmq, TunedMmq),
        tuned_mmvq_batch=_rows(document, "mmvq_batch", model.tuning.mmvq_batch, TunedMmvqBatch),
        tuned_mmvq_warps=_rows(document, "mmvq_warps", model.tuning.mmvq_warps, TunedMmvqWarps),
        cmake=tuple(model.build.cmake.items()),
        cmake_with_series=tuple(model.build.cmake_with_series.items()),
        build_why=model.build.why,
        inputs=tuple(_input(folder, each) for each in documents),
        where=document.locate(),
    )
    _check_complete(profile)
    _check_agreement(profile, arch, document)
    _check_tuning(profile)
    return profile


def load_profiles(folder: Path, archs: Iterable[str]) -> tuple[ArchProfile, ...]:
    """The profiles of a candidate's GPUs, sorted, each once; raises as :func:`load_profile`."""
    return tuple(load_profile(folder, arch) for arch in sorted(set(archs)))


def _rows(
    document: Document, table: str, rows: Sequence[TomlModel], kind: Callable[..., Row]
) -> tuple[Row, ...]:
    """The rows of ``[[tuning.<table>]]``, each with its line."""
    return tuple(
        kind(where=document.locate(("tuning", table, index)), **row.model_dump())
        for index, row in enumerate(rows)
    )


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


def _families(folder: Path, document: Document, inherits: str | None) -> list[tuple[Document, FamilyModel]]:
    found: list[tuple[Document, FamilyModel]] = []
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
        family = validate(document, FamilyModel, what="family")
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


def _facts_of(document: Document, facts: FactsModel) -> dict[str, Fact]:
    return {
        name: Fact(
            name=name,
            value=stated.value,
            source=stated.source,
            confidence=stated.confidence,
            note=stated.note,
            where=document.locate(("facts", name)),
        )
        for name in FactsModel.model_fields
        if (stated := getattr(facts, name)) is not None
    }


def _input(folder: Path, document: Document) -> ProfileInput:
    path = Path(document.path).relative_to(folder).as_posix()
    return ProfileInput(path=path, sha256=hashlib.sha256(document.data).hexdigest())


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
        ("build", "cmake", "GPU_TARGETS"): (dict(profile.cmake).get("GPU_TARGETS"), arch),
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
    wmma = [(("head size", r.head_size, r.ncols, "columns", r.acc), r.where) for r in profile.tuned_wmma]
    tile = [(("tile", r.head_size_k, r.head_size_v, r.ncols, "columns"), r.where) for r in profile.tuned_tile]
    mmq = [(("mmq from", r.min_j, "columns"), r.where) for r in profile.tuned_mmq]
    batch = [(("mmvq_batch", r.type), r.where) for r in profile.tuned_mmvq_batch]
    warps = [(("mmvq_warps", r.type), r.where) for r in profile.tuned_mmvq_warps]
    for variant, where in (*wmma, *tile, *mmq, *batch, *warps):
        first = named.setdefault(variant, where)
        if first is not where:
            raise ConfigError(
                f"two tuned rows for {' '.join(str(part) for part in variant)}",
                code="PROFILE_DUPLICATE_TUNING",
                where=(where, first),
                hint="keep one of them",
            )
