"""The names that templates may use, and their values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.base.errors import ConfigError, Location
from patchkit.base.occupancy import HardwareLimits, limits_of
from patchkit.carry.placing.guard import Guard, GuardedGpu
from patchkit.carry.placing.wmma import WmmaRow, wmma_table
from patchkit.carry.series.patch import GuardMacros
from patchkit.carry.series.profile import (
    NO_GPU,
    ArchProfile,
    TunedMmq,
    TunedMmvqBatch,
    TunedMmvqWarps,
    TunedTile,
)
from patchkit.carry.series.switches import Switch, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchView:
    """One target: its ``name`` (gfx1151), device ``macro``, host condition (``only``) and tuned rows."""

    name: str
    macro: str
    only: Guard
    tile: tuple[TunedTile, ...]
    mmq: tuple[TunedMmq, ...]
    mmvq_batch: tuple[TunedMmvqBatch, ...]
    mmvq_warps: tuple[TunedMmvqWarps, ...]

    def host(self, cc: str = "cc", *, counts: bool = False) -> str:
        """As :meth:`Guard.host`, for this GPU alone."""
        return self.only.host(cc, counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WmmaTableView:
    """All rows of one target; ``warp_size`` in lanes, ``lds_limit`` in bytes per block."""

    arch: str
    note: str
    warp_size: int
    lds_limit: int
    rows: tuple[WmmaRow, ...]


def make_guard(wanted: GuardMacros | Literal["none"], targets: Sequence[ArchProfile]) -> Guard:
    """The guard of a patch for its targets and, with ``family``, for all of that family; sorted by gfx id."""
    found = {profile.arch: _target(profile) for profile in targets if profile is not NO_GPU}
    if wanted == "none":
        return Guard(macros=(), targets=tuple(sorted(found.values())))
    generic: set[str] = set()
    for profile in targets:
        for arch in profile.relatives.get(wanted.family or "", ()):
            found.setdefault(arch, GuardedGpu.named(arch))
        macro = profile.facts.report("generic_macro") if wanted.generic is not None else None
        generic |= {str(macro.value)} if macro is not None else set()
    return Guard(
        macros=wanted.macros,
        targets=tuple(sorted(found.values())),
        refused=(*sorted(generic), "__SPIRV__") if wanted.generic is not None else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchView:
    """The run-time switch of the patch: ``ran`` is the C++ statement that counts a use of its code.

    Empty if the candidate has no switches.
    """

    ran: str


NO_SWITCHES = Switches(header="", all=(), fixed=())


def make_context(
    guard: Guard,
    targets: Sequence[ArchProfile],
    names: Collection[str] = (),
    *,
    switch: Switch | None = None,
    switches: Switches | None = None,
) -> dict[str, object]:
    """All names that a template may use.

    ``names`` are those that the patch declares. The table of the WMMA kernel is only computed if it is among
    them, because not every GPU has one. ``switch`` is that of the patch, ``switches`` are all of the
    candidate. Raises the errors of profile facts that may not be used for decisions.
    """
    ordered = sorted((each for each in targets if each is not NO_GPU), key=lambda profile: profile.arch)
    archs = tuple(_arch(guard, profile) for profile in ordered)
    wmma = tuple(_wmma(profile) for profile in ordered) if "wmma" in names else ()
    values = _values(ordered) if "values" in names else {}
    return {
        "archs": archs,
        "guard": guard,
        "switch": SwitchView(ran=switch.ran if switch is not None else ""),
        "switches": switches or NO_SWITCHES,
        "values": values,
        "wmma": wmma,
    }


def _values(profiles: Sequence[ArchProfile]) -> dict[str, int | float]:
    """The tuned numbers that all of the profiles have, by name; raises PROFILE_BAD."""
    found: dict[str, tuple[int | float, Location]] = {}
    for profile in profiles:
        for row in profile.tuning.value:
            value, where = found.setdefault(row.name, (row.value, row.where))
            if value != row.value:
                raise ConfigError(
                    f"'{row.name}' is {value} for one GPU and {row.value} for another GPU of the same patch",
                    code="PROFILE_BAD",
                    where=[where, row.where],
                    hint="split the patch, or give the GPUs the same value",
                )
    every = [{row.name for row in profile.tuning.value} for profile in profiles]
    return {name: value for name, (value, _) in found.items() if all(name in names for names in every)}


def _arch(guard: Guard, profile: ArchProfile) -> ArchView:
    return ArchView(
        name=profile.arch,
        macro=profile.device_macro,
        only=Guard(macros=guard.macros, targets=(_target(profile),), switch=guard.switch),
        tile=profile.tuning.tile,
        # Largest bound first, because the templates use the first row that fits.
        mmq=tuple(sorted(profile.tuning.mmq, key=lambda row: -row.min_j)),
        mmvq_batch=profile.tuning.mmvq_batch,
        mmvq_warps=profile.tuning.mmvq_warps,
    )


def _target(profile: ArchProfile) -> GuardedGpu:
    return GuardedGpu(arch=profile.arch, macro=profile.device_macro, cc=profile.compute_capability)


def _wmma(profile: ArchProfile) -> WmmaTableView:
    limits = limits_of(profile)
    return WmmaTableView(
        arch=profile.arch,
        note=_note(limits),
        warp_size=limits.wave_size,
        lds_limit=limits.lds_per_workgroup_bytes,
        rows=wmma_table(profile),
    )


def _note(limits: HardwareLimits) -> str:
    return (
        f"{limits.vgprs_per_simd} VGPRs per SIMD lane in steps of {limits.vgpr_granule}, "
        f"{limits.lds_pool_bytes // 1024} KiB of LDS shared by its blocks, wave{limits.wave_size}"
    )
