"""Facts of a GPU, each with its source and confidence, and which of them may decide something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from patchkit.base.errors import ConfigError, Location
from patchkit.base.toml import NOWHERE, NotInFile, TomlTable

Confidence = Literal["high", "medium", "low"]
MatrixKind = Literal["wmma", "wmma_gfx12", "mfma", "none"]
FactValue = int | float | str | tuple[float, float]

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
