"""What the series holds: its patches, its GPUs, its pins, and which patch is for which GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from patchkit.base.errors import ErrorGroup, PatchkitError
from patchkit.series.catalogue import load_series
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import Lock, load_lock
from patchkit.series.patch import Patch
from patchkit.series.profile import ArchProfile, PatchDefault, list_profiles, load_profile

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The whole series: ``patches`` in order, ``profiles`` by name."""

    patches: tuple[Patch, ...]
    profiles: tuple[ArchProfile, ...]
    lock: Lock

    def standing(self, patch: str, arch: str) -> str:
        """``on``, ``opt-in`` or ``off``."""
        (profile,) = (profile for profile in self.profiles if profile.arch == arch)
        choice = profile.patches.get(patch)
        return choice.default if choice is not None else "off"

    def count(self, default: PatchDefault, arch: str) -> int:
        """How many patches for the default build a GPU has on, opt-in or off."""
        of_build = [patch for patch in self.patches if patch.builds.covers(self.lock.default)]
        return sum(self.standing(patch.id, arch) == default for patch in of_build)


def archs_with_patches(series: SeriesDir) -> tuple[str, ...]:
    """The GPUs that have at least one patch on at the default build, sorted.

    Raises the errors of the lock, the series and the profiles.
    """
    build = load_lock(series.lock).default
    of_build = {patch.id for patch in load_series(series.patches).patches if patch.builds.covers(build)}
    profiles = [load_profile(series.profiles, name) for name in list_profiles(series.profiles)]
    return tuple(profile.arch for profile in profiles if of_build & set(profile.patches_by_default("on")))


def load_catalogue(series: SeriesDir) -> Catalogue:
    """Everything the series says.

    Raises an ErrorGroup of all that is wrong in any of its files.
    """
    errors: list[PatchkitError] = []
    lock = _collect(errors, partial(load_lock, series.lock))
    loaded = _collect(errors, partial(load_series, series.patches))
    names = _collect(errors, partial(list_profiles, series.profiles)) or ()
    profiles = [_collect(errors, partial(load_profile, series.profiles, name)) for name in names]
    if errors or lock is None or loaded is None:
        raise ErrorGroup("the series is not in order", errors)
    return Catalogue(
        patches=loaded.patches,
        profiles=tuple(profile for profile in profiles if profile is not None),
        lock=lock,
    )


def _collect(errors: list[PatchkitError], load: Callable[[], _T]) -> _T | None:
    try:
        return load()
    except PatchkitError as error:
        errors.append(error)
        return None
