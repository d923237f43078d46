"""How fast the GPU can read and multiply, as its profile or the user says.

Vocabulary: a *figure* is a speed with its source; its *kind* is measured, specified, or given on the command
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from patchkit.config.profile_data import ArchProfile
from patchkit.errors import UsageError

FigureKind = Literal["measured", "specified", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value`` in units of ``unit``: GB/s are 10^9 bytes per second, TFLOPS 10^12 operations per second."""

    value: float
    unit: str
    kind: FigureKind
    source: str
    confidence: str

    @property
    def per_second(self) -> float:
        """Bytes or operations per second."""
        return self.value * (1e9 if self.unit == "GB/s" else 1e12)

    def __str__(self) -> str:
        told = "" if self.kind == "given" else f", {self.confidence} confidence: {self.source}"
        return f"{self.value:g} {self.unit} ({self.kind}{told})"

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "value": self.value,
            "unit": self.unit,
            "kind": self.kind,
            "source": self.source,
            "confidence": self.confidence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """One multiplication with its addition counts as two operations."""

    bandwidth: Figure
    compute: Figure


# In the order of preference: what was measured says more about what a kernel can reach.
_BANDWIDTH: tuple[tuple[str, FigureKind], ...] = (
    ("bandwidth_measured_gb_s", "measured"),
    ("bandwidth_gb_s", "specified"),
)
_COMPUTE: tuple[tuple[str, FigureKind], ...] = (("fp16_tflops", "specified"),)


def peaks_of(profile: ArchProfile, *, bandwidth: float | None = None, compute: float | None = None) -> Peaks:
    """The figures of a GPU; ``bandwidth`` (GB/s) and ``compute`` (TFLOPS) replace those of the profile.

    Of a figure that is a range the higher end is taken: the result is a bound.

    Raises:
        FIGURE_MISSING: neither the profile nor the caller has one.
    """
    return Peaks(
        bandwidth=_figure(profile, _BANDWIDTH, "GB/s", bandwidth, "--bandwidth"),
        compute=_figure(profile, _COMPUTE, "TFLOPS", compute, "--tflops"),
    )


def _figure(
    profile: ArchProfile,
    names: tuple[tuple[str, FigureKind], ...],
    unit: str,
    given: float | None,
    option: str,
) -> Figure:
    if given is not None:
        return Figure(value=given, unit=unit, kind="given", source=option, confidence="-")
    for name, kind in names:
        fact = profile.facts.report(name)
        if fact is None or isinstance(fact.value, str):
            continue
        value = max(fact.value) if isinstance(fact.value, tuple) else fact.value
        return Figure(
            value=float(value), unit=unit, kind=kind, source=fact.source, confidence=fact.confidence
        )
    raise UsageError(
        f"the profile of {profile.arch} states no {' and no '.join(name for name, _ in names)}",
        code="FIGURE_MISSING",
        where=profile.where,
        hint=f"add it there with its source, or give it: {option} NUMBER",
    )
