"""``patchkit init``: make your own series, as a copy of the one in use or as an empty plain series."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import Location, UsageError
from patchkit.base.files import disk_errors, usable_place, working_folder
from patchkit.base.series_folder import TEXTS, SeriesDir, is_plain
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.listing import load_catalogue
from patchkit.carry.candidate.target import catalogue_pins, find_target_pin
from patchkit.carry.placing.templates import written_text
from patchkit.carry.series.lock import Lock, Pin, load_lock, write_lock
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.cache import open_cache

_DOING = "making the series"
_KEPT = frozenset({".git", ".gitignore", ".gitattributes", "README.md", "LICENSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSeries:
    """The new series. ``recorded``: the results that were copied into its lock, by name.

    ``plain``: it has no GPUs, and starts without patches.
    """

    folder: Path
    build: int
    archs: tuple[str, ...]
    patches: tuple[str, ...]
    recorded: tuple[str, ...]
    in_git: bool
    plain: bool


def make_own_series(
    folder: Path, archs: Sequence[str], upstream: str | None, workspace: Workspace
) -> OwnSeries:
    """Copy the series of the workspace to ``folder``, all or nothing.

    The default pin of its lock is ``upstream``: a pin of the lock or a build of upstreams.toml; None for the
    newest pin with a result for ``archs``. The lock keeps the results for ``archs`` at that pin, and all
    earlier pins.

    Raises:
        SERIES_FOLDER_TAKEN, PLACE_UNUSABLE: ``folder`` cannot be used.
        PIN_UNKNOWN, and the errors of reading series, lock and profiles.
        CacheError: a disk error.
    """
    source = workspace.series
    folder = usable_place(folder, kept=source.folders)
    there = _refuse_non_empty(folder)
    catalogue = load_catalogue(source)
    profiles = load_profiles(source.profiles, archs)
    names = tuple(profile.arch for profile in profiles)
    lock = _own_lock(catalogue.lock, names, upstream, source)

    def unneeded(place: str, names: list[str]) -> list[str]:
        """Texts that patchkit renders from its own copy in any series."""
        return [name for name in names if Path(place) == source.templates and name == TEXTS]

    with _moved_into_place(folder) as staging:
        for part in source.folders:
            if part.is_dir():
                shutil.copytree(part, staging / part.name, ignore=unneeded)
        write_lock(SeriesDir(root=staging, origin="named").lock, lock)
    return OwnSeries(
        folder=folder,
        build=lock.pin().build,
        archs=names,
        patches=tuple(patch.id for patch in catalogue.patches),
        recorded=tuple(f"{result.name}: {', '.join(result.patches)}" for result in lock.results),
        in_git=".git" in there,
        plain=is_plain(source.profiles),
    )


def make_plain_series(
    folder: Path, upstream: str | None, upstream_url: str | None, workspace: Workspace
) -> OwnSeries:
    """Make a plain series without patches in ``folder``, all or nothing.

    Its lock has one pin: ``upstream``, which may be any build of the git remote; None for the newest pin of
    the series in use.

    Raises:
        SERIES_FOLDER_TAKEN, PLACE_UNUSABLE: ``folder`` cannot be used.
        The errors of :func:`patchkit.carry.candidate.target.find_target_pin`.
        CacheError: a disk error.
    """
    source = workspace.series
    folder = usable_place(folder, kept=source.folders)
    there = _refuse_non_empty(folder)
    lock = load_lock(source.lock)
    newest = max(lock.pins, key=lambda pin: pin.build)
    if upstream is None and upstream_url is None:
        pin = newest
    else:
        pin = find_target_pin(
            upstream or "latest",
            lock=lock,
            catalogue=source.catalogue,
            source="auto",
            upstream_url=upstream_url,
            cache=open_cache(workspace.cache_root),
            reporter=workspace.reporter,
        )
    with _moved_into_place(folder) as staging:
        patches = staging / "patches"
        patches.mkdir()
        (patches / "series.toml").write_text(written_text("plain-series.toml.jinja"), encoding="utf-8")
        for name in (source.catalogue.name, *(path.name for path in source.patches.glob("*.schema.json"))):
            if (source.patches / name).is_file():
                shutil.copyfile(source.patches / name, patches / name)
        own = Lock(version=2, default=pin.name, pins=(pin,))
        write_lock(SeriesDir(root=staging, origin="named").lock, own)
    return OwnSeries(
        folder=folder,
        build=pin.build,
        archs=(),
        patches=(),
        recorded=(),
        in_git=".git" in there,
        plain=True,
    )


@contextmanager
def _moved_into_place(folder: Path) -> Iterator[Path]:
    """A temporary folder next to ``folder``; its content is moved there if the context ends without error."""
    with working_folder(folder.parent, f".{folder.name}.patchkit-", _DOING) as staging:
        with disk_errors(folder, _DOING):
            yield staging
        with disk_errors(folder, _DOING):
            folder.mkdir(exist_ok=True)
            # patches/ last: until then the folder is not recognised as a series.
            for name in sorted((path.name for path in staging.iterdir()), key=lambda name: name == "patches"):
                (staging / name).rename(folder / name)


def _refuse_non_empty(folder: Path) -> frozenset[str]:
    """The names in ``folder``; raises SERIES_FOLDER_TAKEN if it has other files than a new repository."""
    with disk_errors(folder, _DOING):
        if not folder.exists():
            return frozenset()
        there = frozenset(each.name for each in (folder.iterdir() if folder.is_dir() else (folder,)))
    others = sorted(there - _KEPT)
    if others:
        raise UsageError(
            f"{folder} is not empty",
            code="SERIES_FOLDER_TAKEN",
            where=Location(path=str(folder / others[0])),
            why="a series needs a new folder, or a git repository with no other files than "
            + ", ".join(sorted(_KEPT - {".git"})),
            hint="choose another folder, for example: patchkit init my-series",
        )
    return there


def _own_lock(lock: Lock, archs: Sequence[str], upstream: str | None, source: SeriesDir) -> Lock:
    of_archs = [each for each in lock.results if not archs or set(each.archs) <= set(archs)]
    known = catalogue_pins(source.catalogue)
    if upstream is None:
        newest = max(of_archs, key=lambda each: each.build, default=None)
        pin = lock.pin(newest.pin) if newest else max(lock.pins, key=lambda each: each.build)
    else:
        pin = _pin_of(lock, known, upstream)
    earlier = [each for each in lock.pins if each.build < pin.build]
    return replace(
        lock,
        default=pin.name,
        pins=(*earlier, pin),
        results=tuple(each for each in of_archs if each.pin == pin.name),
    )


def _pin_of(lock: Lock, known: Sequence[Pin], upstream: str) -> Pin:
    found = next((pin for pin in known if pin.is_called(upstream.strip().lower())), None)
    in_lock = [pin.name for pin in lock.pins]
    return lock.pin(upstream) if found is None or found.name in in_lock else found
