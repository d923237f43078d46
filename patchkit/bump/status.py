"""What there is: the pins of the lock, which of them are cached, and the candidates made so far."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.base.errors import PatchkitError
from patchkit.bump.classify import find_gone, find_replacement
from patchkit.candidate.find import Candidate, is_candidate, read_candidate
from patchkit.candidate.following import followed_series
from patchkit.candidate.workspace import Workspace
from patchkit.edits.tree import UpstreamFiles, read_upstream
from patchkit.series.catalogue import Series, load_series
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import Lock, Pin, Result, load_lock
from patchkit.series.patch import Patch
from patchkit.series.profile import list_profiles, load_profile
from patchkit.series.selection import opted_in
from patchkit.upstream.pin import find_pinned
from patchkit.upstream.refs import list_refs
from patchkit.upstream.repository import Repository, open_repository


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPatch:
    """``age_days`` is None when patch.toml does not say since when; ``builds`` is from its first build on."""

    id: str
    edits: int
    standing: str
    age_days: int | None
    builds: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The carried patches at the default pin; ``bumps`` are those whose reports the cache keeps."""

    build: int
    patches: tuple[CarriedPatch, ...]
    bumps: int
    conflicts: int

    @property
    def edits(self) -> int:
        """Of all carried patches."""
        return sum(patch.edits for patch in self.patches)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "build": self.build,
            "patches": [
                {
                    "id": patch.id,
                    "edits": patch.edits,
                    "upstream": patch.standing,
                    "age_days": patch.age_days,
                    "builds": patch.builds,
                    "warnings": list(patch.warnings),
                }
                for patch in self.patches
            ],
            "edits": self.edits,
            "bumps": self.bumps,
            "conflicts": self.conflicts,
        }


def read_queue(
    lock: Lock, series: Series, repository: Repository | None, reports: Path, today: dt.date
) -> Queue:
    """The queue as it is; reads the sources of the default pin when they are cached. Raises GitError."""
    pin = lock.pin(None)
    series = followed_series(series, pin)
    names = {name for result in lock.results if result.build == pin.build for name in result.patches}
    carried = [patch for patch in series.patches if patch.id in names]
    files = _files(repository, pin, series) if carried else None
    bumps, conflicts = _past(reports)
    return Queue(
        build=pin.build,
        patches=tuple(
            CarriedPatch(
                id=patch.id,
                edits=len(patch.edits),
                standing=patch.standing,
                age_days=_age_days(patch, today),
                builds=pin.build - patch.builds.first,
                warnings=tuple(_warnings(patch, pin, files, today)),
            )
            for patch in carried
        ),
        bumps=bumps,
        conflicts=conflicts,
    )


def _age_days(patch: Patch, today: dt.date) -> int | None:
    begun = patch.upstream.since if patch.upstream is not None else None
    return (today - begun).days if begun is not None else None


def _files(repository: Repository | None, pin: Pin, series: Series) -> UpstreamFiles | None:
    found = find_pinned(repository, pin) if repository is not None else None
    if repository is None or found is None:
        return None
    return read_upstream(repository, found.commit, series.folders)


def _warnings(patch: Patch, pin: Pin, files: UpstreamFiles | None, today: dt.date) -> Iterator[str]:
    merged_in = patch.upstream.merged_in if patch.upstream is not None else None
    if merged_in is not None and merged_in <= pin.build:
        yield f"upstream has it since b{merged_in}, and it is still carried at {pin.name}"
    expired = patch.expires.expired(pin.build, today) if patch.expires is not None else None
    if expired is not None:
        yield expired
    if not patch.builds.covers(pin.build):
        yield f"its builds end before {pin.name}, and it is still carried"
    if files is None:
        return

    def defines(path: str, name: str) -> bool:
        entities = files.upstream_scopes(path).entities
        return any(entity.answers_to(name) for entity in entities if entity.kind != "record")

    gone = find_gone(patch, files.base, files.names, defines)
    if gone:
        yield f"retired: {pin.name} has no {', '.join(map(str, gone))}, and it is still carried"
    replacement = find_replacement(patch, files.base, files.upstream_scopes)
    if replacement is not None:
        place, why = replacement
        yield f"superseded at {place}: {why}; and it is still carried"


def _past(reports: Path) -> tuple[int, int]:
    """How many bumps there were, and conflicts in them; a report that cannot be read counts for nothing.

    A bump that was tried again counts once, with the most conflicts that one of its tries met.
    """
    met: dict[tuple[int, int], int] = {}
    for path in sorted(reports.glob("bump-*.json")) if reports.is_dir() else []:
        try:
            document = json.loads(path.read_text("utf-8"))
            pins = (document["from"]["build"], document["to"]["build"])
            # A patch of several sets of the same GPUs is one conflict.
            found = {
                (*made["archs"], patch["id"])
                for made in document["candidates"]
                for patch in made["patches"]
                if patch["class"] == "conflict"
            }
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if pins[0] != pins[1]:
            met[pins] = max(met.get(pins, 0), len(found))
    return len(met), sum(met.values())


Standing = Literal["recorded", "differs", "not recorded", "on a clone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinStatus:
    """One pin of the lock; ``cached``: its tree is here and was verified."""

    build: int
    commit: str | None
    tree: str
    cached: bool
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultStatus:
    """One result of the lock, and which of its patches are opt-in; None when a GPU has no profile now."""

    result: Result
    with_: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStatus:
    """One candidate and how it stands to the lock; that says nothing of one on a commit of a clone."""

    candidate: Candidate
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything; ``broken`` are candidate branches that patchkit did not make so."""

    series: SeriesDir
    repository: Path
    pins: tuple[PinStatus, ...]
    results: tuple[ResultStatus, ...]
    candidates: tuple[CandidateStatus, ...]
    broken: tuple[PatchkitError, ...]
    queue: Queue

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "series": {"root": str(self.series.root), "origin": self.series.origin},
            "repository": str(self.repository),
            "pins": [
                {
                    "build": pin.build,
                    "commit": pin.commit,
                    "tree": pin.tree,
                    "cached": pin.cached,
                    "default": pin.default,
                }
                for pin in self.pins
            ],
            "results": [
                {
                    "build": row.result.build,
                    "archs": list(row.result.archs),
                    "patches": list(row.result.patches),
                    "with": list(row.with_) if row.with_ is not None else None,
                    "tree": row.result.tree,
                    "commit": row.result.commit,
                }
                for row in self.results
            ],
            "candidates": [
                {
                    "branch": row.candidate.branch,
                    "archs": list(row.candidate.archs),
                    "build": row.candidate.build,
                    "base": row.candidate.base,
                    "tip": row.candidate.tip,
                    "patches": [made.id for made in row.candidate.commits],
                    "lock": row.standing,
                    "clone": row.candidate.made.clone if row.candidate.made is not None else None,
                }
                for row in self.candidates
            ],
            "broken": [
                {"code": error.code, "message": error.message, "why": error.why} for error in self.broken
            ],
            "queue": self.queue.as_json(),
        }


def read_status(workspace: Workspace, today: dt.date) -> Status:
    """Reads the lock, the series and the cache; changes nothing. Raises the errors of lock and series."""
    lock = load_lock(workspace.series.lock)
    path = workspace.cache_root / "upstream.git"
    repository = open_repository(path, workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    candidates: list[CandidateStatus] = []
    broken: list[PatchkitError] = []
    if repository is not None:
        _read_candidates(repository, refs, lock, candidates, broken)
    return Status(
        series=workspace.series,
        repository=path,
        pins=tuple(
            PinStatus(
                build=pin.build,
                commit=pin.commit,
                tree=pin.tree,
                cached=f"refs/patchkit/pin/b{pin.build}" in refs,
                default=pin.build == lock.default,
            )
            for pin in lock.pins
        ),
        results=_read_results(workspace.series, lock),
        candidates=tuple(candidates),
        broken=tuple(broken),
        queue=read_queue(
            lock,
            load_series(workspace.series.patches),
            repository,
            workspace.cache_root / "reports",
            today,
        ),
    )


def _read_results(series: SeriesDir, lock: Lock) -> tuple[ResultStatus, ...]:
    known = set(list_profiles(series.profiles))
    found = []
    for result in lock.results:
        with_ = None
        if known.issuperset(result.archs):
            profiles = [load_profile(series.profiles, arch) for arch in result.archs]
            with_ = opted_in(profiles, result.patches)
        found.append(ResultStatus(result=result, with_=with_))
    return tuple(found)


def _read_candidates(
    repository: Repository,
    refs: dict[str, str],
    lock: Lock,
    candidates: list[CandidateStatus],
    broken: list[PatchkitError],
) -> None:
    for ref in filter(is_candidate, refs):
        try:
            candidate = read_candidate(repository, ref, refs)
        except PatchkitError as error:
            broken.append(error)
        else:
            candidates.append(CandidateStatus(candidate=candidate, standing=_standing(candidate, lock)))


def _standing(candidate: Candidate, lock: Lock) -> Standing:
    if candidate.made is not None and candidate.made.clone is not None:
        return "on a clone"
    patches = tuple(made.id for made in candidate.commits)
    recorded = lock.result(candidate.build, candidate.archs, patches)
    if recorded is None:
        return "not recorded"
    return "recorded" if recorded.commit == candidate.tip else "differs"
