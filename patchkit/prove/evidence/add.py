"""Check evidence files against a series, and add one to it."""

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
from patchkit.prove.evidence.check import Checker, PlacePatches


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchEffect:
    """What a file measures of one patch, and the patch's trust level without and with it."""

    patch: str
    measured: tuple[PatchMeasured, ...]
    validity: Validity
    before: Assessment
    after: Assessment

    @property
    def becomes(self) -> str:
        """The trust level before and after, and a note if the patch is then off by default."""
        levels = [one.level or "nothing" for one in (self.before, self.after)]
        change = levels[0] if levels[0] == levels[1] else f"{levels[0]} -> {levels[1]}"
        ends = self.after.loses and not self.before.loses
        return f"{change}; two machines measured a loss, so it is off by default" if ends else change


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """A file that passed. ``place`` is its place in the series; ``is_new``: it is not in the series yet."""

    file: EvidenceFile
    place: Path
    is_new: bool
    patches: tuple[PatchEffect, ...] = field(default=())


def make_checker(series: SeriesDir, place: PlacePatches | None, today: dt.date) -> Checker:
    """A checker for the series and its evidence. Raises the errors of reading them."""
    profiles = {name: load_profile(series.profiles, name) for name in _archs(series)}
    others = load_evidence_folder(series.evidence)
    return Checker(lock=load_lock(series.lock), profiles=profiles, today=today, place=place, others=others)


def _archs(series: SeriesDir) -> tuple[str, ...]:
    return list_profiles(series.profiles) if series.profiles.is_dir() else ()


def check_file(path: Path, series: SeriesDir, checker: Checker) -> CheckedFile:
    """Check a file. Raises the errors of reading it and of :meth:`Checker.check`."""
    file = load_evidence_file(path)
    checker.check(file, str(path))
    place = series.evidence / file.name
    effects = tuple(effects_of(file, series, checker.lock))
    return CheckedFile(file=file, place=place, is_new=file.name not in checker.others, patches=effects)


def effects_of(file: EvidenceFile, series: SeriesDir, lock: Lock) -> list[PatchEffect]:
    """For each patch that the file measures on its own: the measurements, and what they change."""
    loaded = load_series(series.patches)
    by_patch: dict[str, list[PatchMeasured]] = {}
    for one in measured_of(file):
        by_patch.setdefault(one.patch, []).append(one)
    codes = codes_of(series.patches, {patch.id: patch.folder for patch in loaded.patches})
    mine = claims_of({file.name: file}, lock, codes)
    arch, build = file.machine.arch, lock.pin().build
    found = []
    for name, several in by_patch.items():
        patch = loaded.patch(name)
        known = patch.claims if patch is not None else ()
        before = [claim for claim in known if claim.link != f"evidence/{file.name}"]
        after = [*before, *mine.get(name, ())]
        found.append(
            PatchEffect(
                patch=name,
                measured=tuple(several),
                validity=validity_of(file, name, lock, codes),
                before=assess_claims(before, arch, build, loaded.trust),
                after=assess_claims(after, arch, build, loaded.trust),
            )
        )
    return found


def add_file(path: Path, series: SeriesDir, checker: Checker) -> CheckedFile:
    """Check a file and add it to the series, completely or not at all; an existing one is not changed.

    Raises:
        SERIES_INSTALLED: the series in use is part of the installed patchkit.
        EVIDENCE_REFUSED: its folder evidence/ is a link.
        CacheError: the disk is full or not writable. And as :func:`check_file`.
    """
    refuse_installed(series)
    if series.evidence.is_symlink():  # a pull request could make it a link to anywhere
        raise UsageError(
            "the folder evidence/ of the series is a symbolic link",
            code="EVIDENCE_REFUSED",
            where=Location(path=str(series.evidence)),
            why="the file would be written outside of the series",
            hint="replace the link by a folder",
        )
    found = check_file(path, series, checker)
    if found.is_new:
        write_whole(found.place, found.file.text, "adding evidence to the series", "name another series")
    return found
