"""Hardware facts: values with a source and a confidence, and who may lean on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, field_validator

from patchkit.base.errors import ConfigError, Location
from patchkit.series.toml import TomlModel, near_miss

Confidence = Literal["high", "medium", "low"]
MatrixKind = Literal["wmma", "wmma_gfx12", "mfma", "none"]
FactValue = int | float | str | tuple[float, float]

# Speeds are marketing figures or single measurements: good for a table, never a reason to act.
REPORT_ONLY = frozenset({"bandwidth_gb_s", "bandwidth_measured_gb_s", "fp16_tflops", "part"})


class FactNotForDecisions(ConfigError):
    """A decision would rest on a figure that is only good for reports."""

    code = "FACT_NOT_FOR_DECISIONS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure, where it comes from, and the line of the profile that states it.

    ``value`` is a pair when the figure is a range (lowest, highest).
    """

    name: str
    value: FactValue
    source: str
    confidence: Confidence
    where: Location
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of one GPU, its family's included. ``profile`` is the path of its file."""

    profile: str
    by_name: Mapping[str, Fact] = field(default_factory=dict)

    def report(self, name: str) -> Fact | None:
        """The fact as it stands, for showing; None when the profile does not state it.

        Raises:
            FACT_UNKNOWN: no profile can have a fact of that name.
        """
        if name not in FactsModel.model_fields:
            raise ConfigError(
                f"there is no fact called '{name}'",
                code="FACT_UNKNOWN",
                where=Location(path=self.profile),
                hint=near_miss(name, FactsModel.model_fields),
            )
        return self.by_name.get(name)

    def require(self, name: str) -> FactValue:
        """The value of a fact that decides something.

        Raises:
            FACT_UNKNOWN: no profile can have a fact of that name.
            FACT_MISSING: this profile does not state it.
            FactNotForDecisions: low confidence, or a figure that is only for reports.
        """
        fact = self.report(name)
        if fact is None:
            raise ConfigError(
                f"{self.profile} does not state '{name}'",
                code="FACT_MISSING",
                where=Location(path=self.profile),
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
        """As :meth:`require`, for a fact that is a whole number; FACT_NOT_A_NUMBER when it is not."""
        value = self.require(name)
        if not isinstance(value, int):
            raise ConfigError(
                f"'{name}' is {value!r}, not a whole number",
                code="FACT_NOT_A_NUMBER",
                where=self.by_name[name].where,
            )
        return value


class _Sourced(TomlModel):
    source: str = Field(min_length=3, description="Where the value comes from: measurement, page, code line")
    confidence: Confidence = Field(description="low: shown to people, never used to decide")
    note: str | None = None


class WholeFact(_Sourced):
    """A whole number above zero."""

    value: int = Field(gt=0)


class SpeedFact(_Sourced):
    """A figure, or a range as [lowest, highest]."""

    value: float | Annotated[tuple[float, float], Field(strict=False)]

    @field_validator("value")
    @classmethod
    def _ordered(cls, value: float | tuple[float, float]) -> float | tuple[float, float]:
        if isinstance(value, tuple) and not 0 < value[0] < value[1]:
            raise ValueError("a range is [lowest, highest]")
        return value


class TextFact(_Sourced):
    """A name."""

    value: str = Field(min_length=1)


class MatrixFact(_Sourced):
    """Which matrix instructions the GPU has."""

    value: MatrixKind


class FactsModel(TomlModel):
    """All facts a file may state; a profile states its own and inherits the rest from its family."""

    part: TextFact | None = Field(default=None, description="A product with this GPU")
    compute_units: WholeFact | None = None
    wave_size: WholeFact | None = Field(default=None, description="Lanes of a wave as HIP compiles for it")
    simds_per_cu: WholeFact | None = None
    vgprs_per_simd: WholeFact | None = Field(default=None, description="Vector registers per lane of a SIMD")
    vgpr_granule: WholeFact | None = Field(default=None, description="Registers are given out in multiples")
    max_vgprs_per_wave: WholeFact | None = Field(default=None, description="Most registers of one lane")
    max_waves_per_simd: WholeFact | None = None
    lds_per_wgp_bytes: WholeFact | None = Field(default=None, description="LDS of a pair of CUs (RDNA)")
    lds_per_cu_bytes: WholeFact | None = Field(default=None, description="LDS of one CU (GCN, CDNA)")
    lds_per_workgroup_bytes: WholeFact | None = None
    matrix: MatrixFact | None = None
    l2_mib: WholeFact | None = None
    infinity_cache_mib: WholeFact | None = None
    bandwidth_gb_s: SpeedFact | None = Field(default=None, description="Memory, as specified")
    bandwidth_measured_gb_s: SpeedFact | None = None
    fp16_tflops: SpeedFact | None = Field(default=None, description="Dense half precision, peak")
    compute_capability: WholeFact | None = Field(
        default=None, description="What ggml_cuda_parse_id makes of the name, without GGML_CUDA_CC_OFFSET_AMD"
    )
    device_macro: TextFact | None = Field(
        default=None, description="Defined by the compiler in the device pass"
    )


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
