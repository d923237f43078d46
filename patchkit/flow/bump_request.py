"""What a bump is asked for, and whether that can be: looked at before anything is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchkit.config.lock import Lock, Pin
from patchkit.config.profile import load_profile
from patchkit.config.series import load_series
from patchkit.errors import UsageError
from patchkit.flow.following import select_on
from patchkit.series_dir import SeriesDir

__all__ = ["BumpRequest", "arch_sets", "check_series"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpRequest:
    """``archs`` empty: every set of GPUs that the lock records a result for at its default pin."""

    to: str = "latest"
    archs: tuple[str, ...] = ()
    with_: tuple[str, ...] = ()
    source: Literal["auto", "git", "sdist"] = "auto"
    upstream_url: str | None = None
    verify: bool = True
    keep_default: bool = False


def arch_sets(request: BumpRequest, lock: Lock) -> tuple[tuple[str, ...], ...]:
    """The sets of GPUs to make a candidate for, each sorted. Raises UsageError when there is none."""
    if request.archs:
        return (tuple(sorted(set(request.archs))),)
    recorded = {result.archs for result in lock.results if result.build == lock.default}
    if not recorded:
        raise UsageError(
            "the lock records no candidate at its default pin, so there is nothing to take along",
            hint="name the GPU: patchkit bump --arch gfx1151",
        )
    return tuple(sorted(recorded))


def check_series(request: BumpRequest, folder: SeriesDir, sets: Sequence[tuple[str, ...]], old: Pin) -> None:
    """Read everything once before anything is fetched, so that what is wrong with it is told at once.

    Raises the errors of reading series and profiles, UnknownPatch, and PatchPairSplit.
    """
    series = load_series(folder.patches)
    for archs in sets:
        profiles = tuple(load_profile(folder.profiles, arch) for arch in archs)
        select_on(series, profiles, old, request.with_)
