"""What a GPU is: its architecture by its name, and by its profile facts, each with source and confidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from patchkit.base.digests import sha256
from patchkit.base.errors import ConfigError, Location, UsageError
from patchkit.base.series_folder import PLAIN, is_plain
from patchkit.base.text import near_miss
from patchkit.base.toml import NOWHERE, Document, NotInFile, Several, TomlTable, load_toml, validate

Confidence = Literal["high", "medium", "low"]
MatrixKind = Literal["wmma", "wmma_gfx12", "mfma", "none"]
FactValue = int | float | str | tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """An instruction set that several GPUs share, as far as code depends on it; profiles have all else."""

    name: str
    title: str
    first: int  # the gfx number before minor version and stepping, from which on GPUs have it: 11 of gfx1151
    wave_size: int  # lanes, as compilers assume; LLVM's user guide for AMDGPU, target features by processor
    has_wmma: bool = False
    is_emulated: bool = False


ARCHITECTURES = (
    Architecture(name="gcn", title="GCN and CDNA", first=0, wave_size=64),
    Architecture(name="rdna", title="RDNA and RDNA2", first=10, wave_size=32),
    Architecture(
        name="rdna3", title="RDNA3 and RDNA3.5", first=11, wave_size=32, has_wmma=True, is_emulated=True
    ),
    Architecture(name="rdna4", title="RDNA4", first=12, wave_size=32, has_wmma=True, is_emulated=True),
    Architecture(name="later", title="later than RDNA4", first=13, wave_size=32),
)
_VERSION = re.compile(r"gfx(\d+?)(?:[0-9a-f]{2}|-.*)$")


def architecture_of(gfx: str) -> Architecture:
    """The architecture of a GPU, or of a generic target, by its name; the oldest where that is no gfx id."""
    match = _VERSION.match(gfx)
    number = int(match[1]) if match else 0
    return next(each for each in reversed(ARCHITECTURES) if number >= each.first)


# Speeds are marketing figures or single measurements: good for a table, never a reason to act.
REPORT_ONLY = frozenset({"bandwidth_gb_s", "bandwidth_measured_gb_s", "fp16_tflops", "part"})


class FactNotForDecisions(ConfigError):
    """A decision would rest on a figure that is only good for reports."""

    code = "FACT_NOT_FOR_DECISIONS"


def _ordered(value: float | tuple[float, float]) -> float | tuple[float, float]:
    if isinstance(value, tuple) and not 0 < value[0] < value[1]:
        raise ValueError("a range is [lowest, highest]")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(TomlTable):
    """One figure, where it comes from, and the line of the profile that states it.

    ``value`` is a pair when the figure is a range (lowest, highest).
    """

    value: FactValue
    source: Annotated[
        str, Field(min_length=3, description="Where the value comes from: measurement, page, code line")
    ]
    confidence: Annotated[Confidence, Field(description="low: shown to people, never used to decide")]
    note: str | None = None
    where: NotInFile[Location] = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFact(Fact):
    """A whole number above zero."""

    value: Annotated[int, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFact(Fact):
    """A figure, or a range as [lowest, highest]."""

    value: Annotated[float | Annotated[tuple[float, float], Field(strict=False)], AfterValidator(_ordered)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFact(Fact):
    """A name."""

    value: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFact(Fact):
    """Which matrix instructions the GPU has."""

    value: MatrixKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(TomlTable):
    """All facts a file may state; a profile states its own and inherits the rest from its family."""

    part: Annotated[TextFact | None, Field(description="A product with this GPU")] = None
    compute_units: WholeFact | None = None
    wave_size: Annotated[WholeFact | None, Field(description="Lanes of a wave as HIP compiles for it")] = None
    simds_per_cu: WholeFact | None = None
    vgprs_per_simd: Annotated[WholeFact | None, Field(description="Vector registers per lane of a SIMD")] = (
        None
    )
    vgpr_granule: Annotated[WholeFact | None, Field(description="Registers are given out in multiples")] = (
        None
    )
    max_vgprs_per_wave: Annotated[WholeFact | None, Field(description="Most registers of one lane")] = None
    max_waves_per_simd: WholeFact | None = None
    lds_per_wgp_bytes: Annotated[WholeFact | None, Field(description="LDS of a pair of CUs (RDNA)")] = None
    lds_per_cu_bytes: Annotated[WholeFact | None, Field(description="LDS of one CU (GCN, CDNA)")] = None
    lds_per_workgroup_bytes: WholeFact | None = None
    matrix: MatrixFact | None = None
    l2_mib: WholeFact | None = None
    infinity_cache_mib: WholeFact | None = None
    integrated: Annotated[
        WholeFact | None, Field(description="1 when HIP reports a GPU that shares its memory with the host")
    ] = None
    bandwidth_gb_s: Annotated[SpeedFact | None, Field(description="Memory, as specified")] = None
    bandwidth_measured_gb_s: SpeedFact | None = None
    fp16_tflops: Annotated[SpeedFact | None, Field(description="Dense half precision, peak")] = None
    compute_capability: Annotated[
        WholeFact | None,
        Field(description="What ggml_cuda_parse_id makes of the name, without GGML_CUDA_CC_OFFSET_AMD"),
    ] = None
    device_macro: Annotated[
        TextFact | None, Field(description="Defined by the compiler in the device pass")
    ] = None
    generic_macro: Annotated[
        TextFact | None, Field(description="Defined in the device pass of the generic target that covers it")
    ] = None
    # Of the GPU: its profile's own facts, the rest from its families.
    by_name: NotInFile[Mapping[str, Fact]] = field(default_factory=dict)
    where: NotInFile[Location] = NOWHERE

    def stated(self) -> dict[str, Fact]:
        """The facts of this file."""
        found = ((name, getattr(self, name)) for name in _names())
        return {name: fact for name, fact in found if fact is not None}

    def report(self, name: str) -> Fact | None:
        """The fact as it stands, for showing; None when the profile does not state it."""
        if name not in _names():
            raise AssertionError(f"there is no fact called '{name}'")
        return self.by_name.get(name)

    def require(self, name: str) -> FactValue:
        """The value of a fact that decides something.

        Raises:
            FACT_MISSING: this profile does not state it.
            FactNotForDecisions: low confidence, or a figure that is only for reports.
        """
        fact = self.report(name)
        if fact is None:
            raise ConfigError(
                f"{self.where.path} does not state '{name}'",
                code="FACT_MISSING",
                where=Location(path=self.where.path),
                hint=f"add it under [facts] with its source: {name} = {{ value = ..., source = ... }}",
            )
        if name in REPORT_ONLY or fact.confidence == "low":
            why = f"its confidence is {fact.confidence}: {fact.source}"
            if name in REPORT_ONLY:
                why = "figures of this kind are for reports only"
            raise FactNotForDecisions(
                f"'{name}' cannot decide anything",
                where=fact.where,
                why=why,
                hint="measure it, or find a source that did, and state that in the profile",
            )
        return fact.value

    def require_int(self, name: str) -> int:
        """As :meth:`require`, for a fact that is a whole number."""
        value = self.require(name)
        if not isinstance(value, int):
            raise TypeError(f"'{name}' is {value!r}, not a whole number")
        return value


def _names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Facts) if each.name not in ("by_name", "where"))


# What every profile must state, itself or through its family; one of the two LDS pools as well.
REQUIRED = (
    "part",
    "compute_units",
    "wave_size",
    "simds_per_cu",
    "vgprs_per_simd",
    "vgpr_granule",
    "max_vgprs_per_wave",
    "max_waves_per_simd",
    "lds_per_workgroup_bytes",
    "matrix",
    "compute_capability",
    "device_macro",
)


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
class GpuProfile(TomlTable):
    """arch_profiles/gfxNNNN.toml, as far as it says what the GPU is.

    What else is in the file is the patch manager's: :mod:`patchkit.carry.series.profile` reads it, and
    whoever runs programs on a GPU leaves it alone.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="ignore", strict=True)
    arch: Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]
    inherits: Annotated[_Name, Field(description="A file of families/, without .toml")]
    note: Annotated[
        str, Field(min_length=10, description="What a person must know before trusting the series here")
    ]
    facts: Facts
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


P = TypeVar("P", bound=GpuProfile)

_GENERIC = re.compile(r"gfx\d+(-\d+)*-generic")
_FEATURES = re.compile(r"(gfx[0-9a-f]+)(:[a-z]+[+-])+")


def list_profiles(folder: Path) -> tuple[str, ...]:
    """The archs that have a profile, sorted; none in a plain series, which has no such folder.

    Raises PROFILES_NONE for a folder that has none.
    """
    if is_plain(folder):
        return ()
    archs = tuple(sorted(path.stem for path in folder.glob("gfx*.toml")))
    if not archs:
        raise ConfigError(
            f"{folder} holds no GPU profile",
            code="PROFILES_NONE",
            where=Location(path=str(folder)),
            hint="--series-dir names the folder that holds arch_profiles/",
        )
    return archs


def refuse_gpu(folder: Path, named: str) -> UsageError:
    """The error for a GPU that was named where the series is plain; ``folder`` as above."""
    return UsageError(
        f"{'a GPU' if named == PLAIN else repr(named)} is asked for, and the series in use is a plain one",
        code="ARCH_IN_PLAIN_SERIES",
        where=load_toml(folder.with_name("patches") / "series.toml").locate(("plain",)),
        why="a plain series knows no GPU: each of its patches is for every build",
        hint="leave the GPU out; or take a series that has profiles: env -u PATCHKIT_SERIES patchkit ...",
    )


def load_gpu(folder: Path, arch: str) -> GpuProfile:
    """What the GPU is; raises as :func:`read_profile`."""
    return read_profile(folder, arch, GpuProfile)[0]


def read_profile(folder: Path, arch: str, kind: type[P]) -> tuple[P, Document]:
    """Read the profile of one GPU as a ``kind``, and the family files it inherits from; and its own file.

    Raises:
        ARCH_GENERIC, ARCH_UNKNOWN: the name is not one of :func:`list_profiles`.
        ARCH_IN_PLAIN_SERIES: the series has no profiles.
        PROFILE_FAMILY_UNKNOWN, PROFILE_CYCLE: the files cannot be put together.
        PROFILE_MISMATCH, FACT_MISSING: they can, but the result is no profile.
        ErrorGroup: wrong fields in one file, all of them.
    """
    _check_name(folder, arch)
    document = load_toml(folder / f"{arch}.toml")
    profile = validate(document, kind, what="profile")
    families = _families(folder, document, profile.inherits)
    facts = profile.facts.stated()
    for _, family in families:
        facts = family.facts.stated() | facts
    profile = replace(
        profile,
        facts=replace(profile.facts, by_name=facts),
        families=tuple(family.family for _, family in families),
        relatives={family.family: family.members for _, family in families},
        inputs={
            Path(each.path).relative_to(folder).as_posix(): sha256(each.data)
            for each in (document, *(each for each, _ in families))
        },
    )
    _check_complete(profile)
    check_stated(arch, document, _names_of(profile, arch))
    return profile, document


def _check_name(folder: Path, arch: str) -> None:
    known = list_profiles(folder)
    if arch in known:
        return
    if is_plain(folder):
        raise refuse_gpu(folder, arch)
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


def _check_complete(profile: GpuProfile) -> None:
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


def _names_of(profile: GpuProfile, arch: str) -> dict[tuple[str, ...], tuple[object, object]]:
    """Where the file names the GPU itself: what it says, and what it has to say."""
    return {
        ("arch",): (profile.arch, arch),
        ("facts", "compute_capability"): (
            profile.facts.by_name["compute_capability"].value,
            int(arch.removeprefix("gfx"), 16),  # all that ggml_cuda_parse_id does with an exact id
        ),
        ("facts", "device_macro"): (profile.facts.by_name["device_macro"].value, f"__{arch}__"),
    }


def check_stated(
    arch: str, document: Document, stated: Mapping[tuple[str, ...], tuple[object, object]]
) -> None:
    """The name of a GPU is written in four places; a slip in one would aim a guard at another GPU.

    ``stated``: by the keys of a place, what stands there and what has to. Raises PROFILE_MISMATCH.
    """
    for keys, (value, expected) in stated.items():
        if value != expected:
            raise ConfigError(
                f"{'.'.join(keys)} of {arch} is {value!r}, not {expected!r}",
                code="PROFILE_MISMATCH",
                where=document.locate(keys),
                hint=f"write {expected!r} there",
            )
