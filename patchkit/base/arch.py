"""GPU architectures by gfx id, and the facts of a GPU profile, each with its source and confidence."""

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
    """Properties of an instruction set that patchkit's code depends on; everything else is in profiles."""

    name: str
    title: str
    first: int  # lowest major version with this instruction set; the major version of gfx1151 is 11
    wave_size: int  # lanes, compiler default; LLVM's user guide for AMDGPU, target features by processor
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
    """The architecture of a gfx id or generic target; the oldest one if ``gfx`` is neither."""
    match = _VERSION.match(gfx)
    number = int(match[1]) if match else 0
    return next(each for each in reversed(ARCHITECTURES) if number >= each.first)


# Speeds are marketing figures or single measurements: fit for a report, not for a decision.
REPORT_ONLY = frozenset({"bandwidth_gb_s", "bandwidth_measured_gb_s", "fp16_tflops", "part"})


class FactNotForDecisions(ConfigError):
    """A decision needs a fact that is only fit for reports."""


def _ordered(value: float | tuple[float, float]) -> float | tuple[float, float]:
    if isinstance(value, tuple) and not 0 < value[0] < value[1]:
        raise ValueError("a range is [lowest, highest]")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(TomlTable):
    """One value, its source, and its line in the profile.

    A range is a pair (lowest, highest).
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
    """A positive integer."""

    value: Annotated[int, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFact(Fact):
    """A number, or a range as [lowest, highest]."""

    value: Annotated[float | Annotated[tuple[float, float], Field(strict=False)], AfterValidator(_ordered)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFact(Fact):
    """A name."""

    value: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFact(Fact):
    """The kind of matrix instructions that the GPU has."""

    value: MatrixKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(TomlTable):
    """The facts of a profile or family file; a profile inherits what it does not state from its family."""

    part: Annotated[TextFact | None, Field(description="A product with this GPU")] = None
    compute_units: WholeFact | None = None
    wave_size: Annotated[WholeFact | None, Field(description="Lanes per wave that HIP compiles for")] = None
    simds_per_cu: WholeFact | None = None
    vgprs_per_simd: Annotated[WholeFact | None, Field(description="Vector registers per lane of a SIMD")] = (
        None
    )
    vgpr_granule: Annotated[
        WholeFact | None, Field(description="VGPRs are allocated in multiples of this")
    ] = None
    max_vgprs_per_wave: Annotated[WholeFact | None, Field(description="Most VGPRs per lane")] = None
    max_waves_per_simd: WholeFact | None = None
    lds_per_wgp_bytes: Annotated[WholeFact | None, Field(description="LDS of a WGP, two CUs (RDNA)")] = None
    lds_per_cu_bytes: Annotated[WholeFact | None, Field(description="LDS of one CU (GCN, CDNA)")] = None
    lds_per_workgroup_bytes: WholeFact | None = None
    matrix: MatrixFact | None = None
    l2_mib: WholeFact | None = None
    infinity_cache_mib: WholeFact | None = None
    integrated: Annotated[
        WholeFact | None, Field(description="1 if HIP reports a GPU that shares memory with the host")
    ] = None
    bandwidth_gb_s: Annotated[SpeedFact | None, Field(description="Memory bandwidth, as specified")] = None
    bandwidth_measured_gb_s: SpeedFact | None = None
    fp16_tflops: Annotated[SpeedFact | None, Field(description="Peak dense FP16 throughput")] = None
    compute_capability: Annotated[
        WholeFact | None,
        Field(description="ggml_cuda_parse_id of the gfx id, without GGML_CUDA_CC_OFFSET_AMD"),
    ] = None
    device_macro: Annotated[
        TextFact | None, Field(description="Macro that the compiler defines in the device pass")
    ] = None
    generic_macro: Annotated[
        TextFact | None,
        Field(description="Macro defined in the device pass of the generic target that covers the GPU"),
    ] = None
    # All facts of the GPU: those of its profile, the rest inherited from its families.
    by_name: NotInFile[Mapping[str, Fact]] = field(default_factory=dict)
    where: NotInFile[Location] = NOWHERE

    def stated(self) -> dict[str, Fact]:
        """The facts that this file states itself."""
        found = ((name, getattr(self, name)) for name in _names())
        return {name: fact for name, fact in found if fact is not None}

    def report(self, name: str) -> Fact | None:
        """A fact for display, whatever its confidence; None if the profile does not state it."""
        if name not in _names():
            raise AssertionError(f"unknown fact '{name}'")
        return self.by_name.get(name)

    def require(self, name: str) -> FactValue:
        """The value of a fact that a decision depends on.

        Raises:
            FACT_MISSING: the profile does not state it.
            FactNotForDecisions: it has low confidence, or is only fit for reports.
        """
        fact = self.report(name)
        if fact is None:
            raise ConfigError(
                f"{self.where.path} has no fact '{name}'",
                code="FACT_MISSING",
                where=Location(path=self.where.path),
                hint=f"add it under [facts] with its source: {name} = {{ value = ..., source = ... }}",
            )
        if name in REPORT_ONLY or fact.confidence == "low":
            why = f"its confidence is {fact.confidence}: {fact.source}"
            if name in REPORT_ONLY:
                why = "speeds and product names are for reports only"
            raise FactNotForDecisions(
                f"a decision cannot depend on '{name}'",
                where=fact.where,
                why=why,
                hint="measure the value or find a source that did, and update the profile",
            )
        return fact.value

    def require_int(self, name: str) -> int:
        """As :meth:`require`, for an integer."""
        value = self.require(name)
        if not isinstance(value, int):
            raise TypeError(f"'{name}' is {value!r}, not an integer")
        return value


def _names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(Facts) if each.name not in ("by_name", "where"))


# Facts that every profile states or inherits, besides one of the two LDS sizes.
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
    """Facts that several GPUs share: arch_profiles/families/NAME.toml."""

    family: _Name
    inherits: _Name | None = None
    note: str | None = None
    members: Annotated[
        Several[Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]],
        Field(description="All GPUs of the family: those on which a patch guarded by the family is live"),
    ] = ()
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProfile(TomlTable):
    """The part of arch_profiles/gfxNNNN.toml that describes the GPU.

    The other keys are for the patch manager (:mod:`patchkit.carry.series.profile`) and ignored here.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="ignore", strict=True)
    arch: Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]
    inherits: Annotated[_Name, Field(description="Family: the name of a file in families/, without .toml")]
    note: Annotated[
        str, Field(min_length=10, description="What users must know before trusting the series on this GPU")
    ]
    facts: Facts
    families: NotInFile[tuple[str, ...]] = ()  # from the nearest to the root
    # The member GPUs of each family; empty for a family that does not list them.
    relatives: NotInFile[Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    # sha256 of every file read, by its path below the profiles folder: the profile, then the nearest family.
    inputs: NotInFile[Mapping[str, str]] = field(default_factory=dict)
    where: NotInFile[Location] = NOWHERE

    @property
    def compute_capability(self) -> int:
        """Compute capability in upstream's host code, without the AMD offset: 0x1151 for gfx1151."""
        return self.facts.require_int("compute_capability")

    @property
    def device_macro(self) -> str:
        """The macro that the compiler defines in the device pass: ``__gfx1151__``."""
        return str(self.facts.require("device_macro"))


P = TypeVar("P", bound=GpuProfile)

_GENERIC = re.compile(r"gfx\d+(-\d+)*-generic")
_FEATURES = re.compile(r"(gfx[0-9a-f]+)(:[a-z]+[+-])+")


def list_profiles(folder: Path) -> tuple[str, ...]:
    """The gfx ids of all profiles in ``folder``, sorted; none for a plain series, which has no such folder.

    Raises PROFILES_NONE if the folder has no profile.
    """
    if is_plain(folder):
        return ()
    archs = tuple(sorted(path.stem for path in folder.glob("gfx*.toml")))
    if not archs:
        raise ConfigError(
            f"no GPU profile in {folder}",
            code="PROFILES_NONE",
            where=Location(path=str(folder)),
            hint="set --series-dir to the folder that contains arch_profiles/",
        )
    return archs


def plain_series_error(folder: Path, named: str) -> UsageError:
    """The error for a GPU named with a plain series; ``folder`` as in :func:`list_profiles`."""
    return UsageError(
        f"{'a GPU' if named == PLAIN else repr(named)} is named, but the series in use is plain",
        code="ARCH_IN_PLAIN_SERIES",
        where=load_toml(folder.with_name("patches") / "series.toml").locate(("plain",)),
        why="such a series has no GPU profiles: each of its patches is for every backend",
        hint="omit the GPU, or use a series that has profiles: env -u PATCHKIT_SERIES patchkit ...",
    )


def load_gpu(folder: Path, arch: str) -> GpuProfile:
    """The description of one GPU; raises as :func:`read_profile`."""
    return read_profile(folder, arch, GpuProfile)[0]


def read_profile(folder: Path, arch: str, kind: type[P]) -> tuple[P, Document]:
    """Read the profile of one GPU, with the facts it inherits, as a ``kind``; also return its document.

    Raises:
        ARCH_GENERIC, ARCH_UNKNOWN: ``arch`` is not one of :func:`list_profiles`.
        ARCH_IN_PLAIN_SERIES: the series has no profiles.
        PROFILE_BAD: the chain of families is broken.
        PROFILE_BAD, FACT_MISSING: the combined profile contradicts the gfx id, or lacks a fact.
        ErrorGroup: all invalid fields of one file.
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
    check_expected(arch, document, _names_of(profile, arch))
    return profile, document


def _check_name(folder: Path, arch: str) -> None:
    known = list_profiles(folder)
    if arch in known:
        return
    if is_plain(folder):
        raise plain_series_error(folder, arch)
    if _GENERIC.fullmatch(arch):
        raise UsageError(
            f"{arch} is a generic target; patchkit supports exact gfx ids only",
            code="ARCH_GENERIC",
            why="one code object would run on GPUs with different register files, while the host chooses "
            "its tables by the exact id, so host and device disagree (NaN on gfx1152, llama.cpp issue 25620)",
            hint=f"name each GPU, for example: --arch {known[0]}",
        )
    features = _FEATURES.fullmatch(arch)
    # All names, because gfx ids differ in one digit: the nearest one is a guess.
    hint = f"omit the feature suffix: --arch {features[1]}" if features else f"known: {', '.join(known)}"
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
                code="PROFILE_BAD",
                where=where,
                why=" -> ".join([*seen, inherits]),
                hint="remove one 'inherits'",
            )
        path = folder / "families" / f"{inherits}.toml"
        if not path.is_file():
            names = sorted(each.stem for each in (folder / "families").glob("*.toml"))
            raise ConfigError(
                f"unknown family '{inherits}'",
                code="PROFILE_BAD",
                where=where,
                hint=near_miss(inherits, names) or f"known: {', '.join(names)}",
            )
        document = load_toml(path)
        family = validate(document, Family, what="family")
        if family.family != inherits:
            raise ConfigError(
                f"the file of family '{inherits}' has family = '{family.family}'",
                code="PROFILE_BAD",
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
            f"{profile.arch}: missing from the profile and its family: {', '.join(missing)}",
            code="FACT_MISSING",
            where=profile.where,
            hint="add each under [facts] with value, source and confidence",
        )


def _names_of(profile: GpuProfile, arch: str) -> dict[tuple[str, ...], tuple[object, object]]:
    """The values in the file that follow from the gfx id: by key, the stated and the expected value."""
    return {
        ("arch",): (profile.arch, arch),
        ("facts", "compute_capability"): (
            profile.facts.by_name["compute_capability"].value,
            int(arch.removeprefix("gfx"), 16),  # as ggml_cuda_parse_id does for an exact id
        ),
        ("facts", "device_macro"): (profile.facts.by_name["device_macro"].value, f"__{arch}__"),
    }


def check_expected(
    arch: str, document: Document, stated: Mapping[tuple[str, ...], tuple[object, object]]
) -> None:
    """Check the values that follow from the gfx id; a typo would make a guard match another GPU.

    ``stated``: by key path, the stated and the expected value. Raises PROFILE_BAD.
    """
    for keys, (value, expected) in stated.items():
        if value != expected:
            raise ConfigError(
                f"{'.'.join(keys)} of {arch} is {value!r}, not {expected!r}",
                code="PROFILE_BAD",
                where=document.locate(keys),
                hint=f"change it to {expected!r}",
            )
