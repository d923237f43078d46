"""What the compiler made of a candidate: its figures, or the failure; kept as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from patchkit.base.occupancy import HardwareLimits, resident_waves, waves_by_lds
from patchkit.tune.isa import LoopMix


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One compiled instantiation.

    Registers are per lane, ``scratch_bytes`` per lane, ``lds_bytes`` per block, ``waves`` per SIMD as the
    compiler reports them, ``resident`` the same in whole blocks, ``threads`` per block. ``loop`` is what
    one wave does in one turn of the main loop, ``latency`` its cycles by llvm-mca (None: not there).
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
    """The compiler did not make it: the ``code`` of the error, and what it said."""

    code: str
    message: str


Outcome = Figures | Failure
OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)
"""Writes an outcome, and reads it again; ValidationError when it is none of ours."""


def as_launched(outcome: Outcome, launch_lds_bytes: int, limits: HardwareLimits) -> Outcome:
    """The outcome with the LDS that the host adds at launch, and waves counted with it."""
    if isinstance(outcome, Failure) or launch_lds_bytes == 0:
        return outcome
    lds_bytes = outcome.lds_bytes + launch_lds_bytes
    return replace(
        outcome,
        lds_bytes=lds_bytes,
        waves=min(outcome.waves, waves_by_lds(lds_bytes, outcome.threads, limits)),
        resident=resident_waves(outcome.vgprs, lds_bytes, outcome.threads, limits),
    )
