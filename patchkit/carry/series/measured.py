"""Turn the evidence files of a series into claims about its patches, from which their trust is derived.

A measurement is a claim about a patch if two of the measured builds differ in this patch alone. It counts as
long as the lock still has the patch as it was measured. A machine has one vote, however many files it sends.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.digests import key_of
from patchkit.base.errors import Location
from patchkit.base.evidence import EvidenceFile, MeasuredTest, MeasuredVerdict, load_evidence_folder
from patchkit.base.files import disk_errors, file_sha256
from patchkit.base.series_folder import SeriesDir, is_no_template
from patchkit.base.toml import load_toml
from patchkit.carry.series.lock import Lock, Result, load_lock
from patchkit.carry.series.trust import Claim, Says


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMeasured:
    """One verdict of a file about one patch: ``test`` with the patch compared to ``test`` without it."""

    json_keys: ClassVar = (
        "file=file.name who=file.who day=file.day build=file.build machine=file.machine "
        "model=test.model test=test.name verdict"
    )

    patch: str
    file: EvidenceFile
    test: MeasuredTest
    verdict: MeasuredVerdict

    @property
    def text(self) -> str:
        """For example ``pp512@d0 +10.2 % (+9.8 to +10.9 %), faster``."""
        one = self.verdict
        return f"{self.test.name} {one.change:+.1%} ({one.low:+.1%} to {one.high:+.1%}), {one.verdict}"


def measured_of(file: EvidenceFile) -> Iterator[PatchMeasured]:
    """Every verdict that is about a single patch."""
    sets = {arm.name: set(arm.patches) for arm in file.arms}
    for verdict in file.verdicts:
        differing = sets[verdict.of] - sets[verdict.against]
        if len(differing) == 1:
            (patch,) = differing
            yield PatchMeasured(patch=patch, file=file, test=file.tests[verdict.test], verdict=verdict)


def measured_in(series: SeriesDir, folders: Mapping[str, str]) -> tuple[PatchMeasured, ...]:
    """The verdicts of a series' evidence files that still apply to its patches; ``folders`` by patch.

    Raises the errors of reading the files and the lock.
    """
    files = load_evidence_folder(series.evidence)
    if not files:
        return ()
    lock = load_lock(series.lock)
    codes = codes_of(series.patches, folders)
    return tuple(
        one
        for file in files.values()
        for one in measured_of(file)
        if validity_of(file, one.patch, lock, codes).counts
    )


def claims_of(
    files: Mapping[str, EvidenceFile], lock: Lock, codes: Mapping[str, str]
) -> dict[str, tuple[Claim, ...]]:
    """The claims of all files, by patch; ``codes`` as of :func:`codes_of`."""
    found: dict[str, list[Claim]] = {}
    for file in files.values():
        by_patch: dict[str, list[PatchMeasured]] = {}
        for one in measured_of(file):
            by_patch.setdefault(one.patch, []).append(one)
        for patch, several in by_patch.items():
            claim = _claim(file, several, validity_of(file, patch, lock, codes))
            if claim is not None:
                found.setdefault(patch, []).append(claim)
    return {patch: tuple(claims) for patch, claims in found.items()}


def _claim(file: EvidenceFile, several: Sequence[PatchMeasured], valid: Validity) -> Claim | None:
    """The claim that a file makes about one patch; None if it is unclear or no longer valid."""
    says = _says([one.verdict for one in several])
    if says is None or not valid.counts or not file.machine.arch.startswith("gfx"):
        return None
    shown = [one.text for one in several if one.verdict.verdict in ("faster", "slower")]
    machine = file.machine
    versions = [f"ROCm {machine.rocm}" if machine.rocm else "", machine.compiler or ""]
    day: dt.date | None = None
    with suppress(ValueError):
        day = dt.date.fromisoformat(file.day)
    return Claim(
        archs=(machine.arch,),
        kind="hardware",
        says=says,
        who=file.who,
        link=f"evidence/{file.name}",
        figure="; ".join(shown[:_SHOWN]) or f"{len(several)} comparisons, all the same",
        on=day,
        build=file.build,
        last_build=valid.last_build,
        note=", ".join(filter(None, versions)) or None,
        where=Location(path=f"evidence/{file.name}"),
    )


_SHOWN = 6  # figures in one line


def _says(verdicts: Sequence[MeasuredVerdict]) -> Says | None:
    """The effect of a patch on one machine over all its tests; None: unclear.

    It is a gain only if no test is slower or probably slower. An unclear verdict whose whole interval is
    below zero, so that only the noise keeps it from being a loss, makes it mixed.
    """
    words = {one.verdict for one in verdicts}
    leans = any(one.verdict == "unclear" and one.high < 0 for one in verdicts)
    if "faster" in words and ("slower" in words or leans):
        return "mixed"
    if "slower" in words:
        return "loss"
    if "faster" in words:
        return "gain"
    return "same" if words == {"same"} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Whether a file's measurements of a patch still apply, up to which build (None: no end), and why not."""

    counts: bool
    last_build: int | None = None
    why: str = ""


def validity_of(file: EvidenceFile, patch: str, lock: Lock, codes: Mapping[str, str]) -> Validity:
    """Whether the patch is still the one that was measured, that is, whether it writes the same code.

    The lock records what a patch writes. For a patch that is not in the lock, for example one that is off
    because of its losses, the patch's files are compared instead.
    """
    measured = {arm.patches[patch] for arm in file.arms if patch in arm.patches}
    builds: dict[int, bool] = {}
    for result in lock.results:
        if patch in result.patches and file.machine.arch in result.archs:
            is_same = digest_of_rendered(result, patch) in measured
            builds[result.build] = builds.get(result.build, False) or is_same
    if not builds:
        is_same = file.codes.get(patch) == codes.get(patch) is not None
        why = "" if is_same else "the patch has changed since, and the lock does not record what it writes"
        return Validity(counts=is_same, why=why)
    if builds.get(file.build, True) is False or not any(builds.values()):
        return Validity(counts=False, why="the patch writes different code now")
    later = [build for build, is_same in builds.items() if build > file.build and not is_same]
    last = None if not later else max([file.build, *(b for b in builds if builds[b] and b < min(later))])
    return Validity(counts=True, last_build=last)


# The keys of patch.toml that determine what is written; the rest is prose or input of gates.
_CODE = ("guard", "context", "alias", "edit", "file", "remove", "rename", "mode")


def code_digest(folder: Path) -> str:
    """sha256 over the parts of a patch that determine its code: keys of its patch.toml, and its templates.

    Raises ConfigError, CacheError.
    """
    table = load_toml(folder / "patch.toml").table
    code = {key: table[key] for key in _CODE if key in table}
    state = hashlib.sha256(json.dumps(code, sort_keys=True, default=str).encode())
    with disk_errors(folder, "reading a patch"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != "patch.toml" and not is_no_template(path, folder):
                state.update(f"\0{path.relative_to(folder).as_posix()} {file_sha256(path)}".encode())
    return state.hexdigest()


def codes_of(patches: Path, folders: Mapping[str, str]) -> dict[str, str]:
    """The code digests of patches by id; ``folders`` are their folder names in ``patches``."""
    return {patch: code_digest(patches / folder) for patch, folder in folders.items()}


def digest_of_rendered(result: Result, patch: str) -> str:
    """sha256 over the code that a patch writes, by edit and file, as recorded in the lock."""
    rendered = {name: sha256 for name, sha256 in result.rendered.items() if name.partition("/")[0] == patch}
    return key_of(rendered)
