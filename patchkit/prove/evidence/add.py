"""Checking evidence files against a series, and putting one into it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.base.arch import list_profiles
from patchkit.base.errors import Location, UsageError
from patchkit.base.evidence import EvidenceFile, load_evidence_file, load_evidence_folder
from patchkit.base.files import write_whole
from patchkit.base.series_folder import SeriesDir, refuse_installed
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock, load_lock
from patchkit.carry.series.measured import (
    PatchMeasured,
    Validity,
    claims_of,
    codes_of,
    measured_of,
    validity_of,
)
from patchkit.carry.series.profile import load_profile
from patchkit.carry.series.trust import Assessment, assess_claims
from patchkit.prove.evidence.check import Checker, Made


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSaid:
    """What a file says of one patch, and what all that is known comes to without it and with it."""

    patch: str
    measured: tuple[PatchMeasured, ...]
    validity: Validity
    before: Assessment
    after: Assessment

    @property
    def becomes(self) -> str:
        """The level before and after, and a default that ends."""
        levels = [one.level or "nothing" for one in (self.before, self.after)]
        told = levels[0] if levels[0] == levels[1] else f"{levels[0]} -> {levels[1]}"
        ends = self.after.loses and not self.before.loses
        return f"{told}; two lost, so that it is off by default" if ends else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A file that passed. ``place`` is its place in the series; ``is_new``: it is not there yet."""

    file: EvidenceFile
    place: Path
    is_new: bool
    patches: tuple[PatchSaid, ...] = field(default=())


def make_checker(series: SeriesDir, made: Made | None, today: dt.date) -> Checker:
    """What files are held against: the series and its evidence. Raises the errors of reading them."""
    profiles = {name: load_profile(series.profiles, name) for name in _archs(series)}
    others = load_evidence_folder(series.evidence)
    return Checker(lock=load_lock(series.lock), profiles=profiles, today=today, made=made, others=others)


def _archs(series: SeriesDir) -> tuple[str, ...]:
    return list_profiles(series.profiles) if series.profiles.is_dir() else ()


def check_file(path: Path, series: SeriesDir, checker: Checker) -> Checked:
    """Check a file; raises what reading and :meth:`Checker.check` raise."""
    file = load_evidence_file(path)
    checker.check(file, str(path))
    place = series.evidence / file.name
    said = tuple(said_of(file, series, checker.lock))
    return Checked(file=file, place=place, is_new=file.name not in checker.others, patches=said)


def said_of(file: EvidenceFile, series: SeriesDir, lock: Lock) -> list[PatchSaid]:
    """Of each patch that the file speaks of alone: what it says, and what that changes."""
    loaded = load_series(series.patches)
    by_patch: dict[str, list[PatchMeasured]] = {}
    for one in measured_of(file):
        by_patch.setdefault(one.patch, []).append(one)
    codes = codes_of(series.patches, {patch.id: patch.folder for patch in loaded.patches})
    mine = claims_of({file.name: file}, lock, codes)
    arch, build = file.machine.arch, lock.default
    found = []
    for name, several in by_patch.items():
        patch = loaded.patch(name)
        known = patch.claims if patch is not None else ()
        before = [claim for claim in known if claim.link != f"evidence/{file.name}"]
        after = [*before, *mine.get(name, ())]
        found.append(
            PatchSaid(
                patch=name,
                measured=tuple(several),
                validity=validity_of(file, name, lock, codes),
                before=assess_claims(before, arch, build, loaded.trust),
                after=assess_claims(after, arch, build, loaded.trust),
            )
        )
    return found


def add_file(path: Path, series: SeriesDir, checker: Checker) -> Checked:
    """Check a file and put it into the series, whole or not at all; one that is there stays as it is.

    Raises:
        SERIES_INSTALLED: the series in use is the installed patchkit's own.
        EVIDENCE_FILE_REFUSED: its folder evidence/ is a link to somewhere else.
        CacheError: the disk refused. And as :func:`check_file`.
    """
    refuse_installed(series)
    if series.evidence.is_symlink():  # a pull request could have made it one, to anywhere
        raise UsageError(
            "the folder evidence/ of the series is a symbolic link",
            code="EVIDENCE_FILE_REFUSED",
            where=Location(path=str(series.evidence)),
            why="what is added there would be written somewhere else",
            hint="make it a folder of the series",
        )
    found = check_file(path, series, checker)
    if found.is_new:
        write_whole(found.place, found.file.text, "adding evidence to the series", "name another series")
    return found
