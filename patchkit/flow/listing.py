"""What the series holds: its patches, its GPUs, and which patch is for which GPU.

Vocabulary: the *catalogue* is everything the series folder says, checked in one pass; a patch is *on*,
*opt-in* or *off* for a GPU as that GPU's profile says, and off where it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from patchkit.config.lock import Lock, load_lock
from patchkit.config.manifest import Patch, parse_patch
from patchkit.config.profile import ArchProfile, list_profiles, load_profile
from patchkit.config.toml import load_toml
from patchkit.errors import ConfigError, ErrorGroup, Location, PatchkitError
from patchkit.series_dir import SeriesDir

__all__ = ["Catalogue", "DuplicatePatch", "PatchFolderBad", "archs_with_patches", "load_catalogue"]

_T = TypeVar("_T")

_FOLDER = re.compile(r"(?P<number>[0-9]{4})-(?P<topic>[a-z0-9]+(-[a-z0-9]+)*)")


class PatchFolderBad(ConfigError):
    """A folder with a patch.toml is not named NNNN-topic."""

    code = "PATCH_FOLDER_BAD"


class DuplicatePatch(ConfigError):
    """Two folders hold a patch of the same id or number."""

    code = "PATCH_DUPLICATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The whole series: ``patches`` by number, ``profiles`` by name."""

    patches: tuple[Patch, ...]
    profiles: tuple[ArchProfile, ...]
    lock: Lock

    def standing(self, patch: str, arch: str) -> str:
        """``on``, ``opt-in`` or ``off``."""
        (profile,) = (profile for profile in self.profiles if profile.arch == arch)
        choice = profile.patches.get(patch)
        return choice.default if choice is not None else "off"


def archs_with_patches(series: SeriesDir) -> tuple[str, ...]:
    """The GPUs that have at least one patch on, sorted. Raises the errors of the profiles."""
    names = list_profiles(series.profiles)
    return tuple(name for name in names if load_profile(series.profiles, name).patches_by_default("on"))


def load_catalogue(series: SeriesDir) -> Catalogue:
    """Everything the series says.

    Raises an ErrorGroup of all that is wrong in any of its files.
    """
    errors: list[PatchkitError] = []
    lock = _collect(errors, lambda: load_lock(series.lock))
    patches = [_collect(errors, lambda f=folder: _load_patch(f)) for folder in _patch_folders(series)]
    names = _collect(errors, lambda: list_profiles(series.profiles)) or ()
    profiles = [_collect(errors, lambda n=name: load_profile(series.profiles, n)) for name in names]
    found = tuple(patch for patch in patches if patch is not None)
    errors += _duplicates(found)
    if errors or lock is None:
        raise ErrorGroup("the series is not in order", errors)
    return Catalogue(
        patches=found, profiles=tuple(profile for profile in profiles if profile is not None), lock=lock
    )


def _collect(errors: list[PatchkitError], load: Callable[[], _T]) -> _T | None:
    try:
        return load()
    except PatchkitError as error:
        errors.append(error)
        return None


def _patch_folders(series: SeriesDir) -> list[Path]:
    return sorted(path.parent for path in series.patches.glob("*/patch.toml"))


def _load_patch(folder: Path) -> Patch:
    name = _FOLDER.fullmatch(folder.name)
    if name is None:
        raise PatchFolderBad(
            f"'{folder.name}' is not the name of a patch folder",
            where=Location(path=str(folder)),
            why="the four digits give the order",
            hint="name it like 0005-topic",
        )
    document = load_toml(folder / "patch.toml")
    return parse_patch(document, folder=folder.name, number=int(name["number"]))


def _duplicates(patches: tuple[Patch, ...]) -> list[PatchkitError]:
    errors: list[PatchkitError] = []
    for index, patch in enumerate(patches):
        for earlier in patches[:index]:
            what = "id" if patch.id == earlier.id else "number" if patch.number == earlier.number else None
            if what is not None:
                errors.append(
                    DuplicatePatch(
                        f"two patches have the same {what}: {earlier.folder} and {patch.folder}",
                        where=(patch.where, earlier.where),
                        hint="rename one of them",
                    )
                )
    return errors
