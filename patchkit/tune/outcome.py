"""The outcome of compiling a candidate: its figures, or the failure; stored as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from patchkit.base.occupancy import HardwareLimits, resident_waves, waves_by_lds
from patchkit.tune.isa import LoopMix


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one compiled instantiation.

    Registers and ``scratch_bytes`` are per lane, ``lds_bytes`` and ``threads`` per block. ``waves`` is waves
    per SIMD as reported by the compiler, ``resident`` the same for whole blocks. ``loop`` is for one wave and
    one iteration of the main loop, ``latency`` its cycles by llvm-mca (None without llvm-mca).
    """

    vgprs: int
    spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    waves: int
    resident: int
    threads: int
    loop: LoopMix
    latency: int | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A candidate that did not compile: the error's ``code`` and ``message``."""

    code: str
    message: str


Outcome = Figures | Failure
OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
"""Serializes outcomes; raises ValidationError for other JSON."""


def with_launch_lds(outcome: Outcome, launch_lds_bytes: int, limits: HardwareLimits) -> Outcome:
    """The outcome with the dynamic LDS of the launch, and waves recomputed for it."""
    if isinstance(outcome, Failure) or launch_lds_bytes == 0:
        return outcome
    lds_bytes = outcome.lds_bytes + launch_lds_bytes
    return replace(
        outcome,
        lds_bytes=lds_bytes,
        waves=min(outcome.waves, waves_by_lds(lds_bytes, outcome.threads, limits)),
        resident=resident_waves(outcome.vgprs, lds_bytes, outcome.threads, limits),
    )
