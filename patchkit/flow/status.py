"""What there is: the pins of the lock, which of them are cached, and the candidates made so far.

Vocabulary: a candidate is *recorded* when the lock names exactly this commit for its GPUs and patches,
*differs* when it names another, and is *not recorded* when it names none.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchkit.config.lock import Lock, Result, load_lock
from patchkit.config.profile import list_profiles, load_profile
from patchkit.config.series import load_series
from patchkit.errors import PatchkitError
from patchkit.flow.candidates import Candidate, is_candidate, read_candidate
from patchkit.flow.queue import Queue, read_queue
from patchkit.flow.selection import opted_in
from patchkit.flow.workspace import Workspace
from patchkit.series_dir import SeriesDir
from patchkit.vcs.refs import list_refs
from patchkit.vcs.repository import Repository, open_repository

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
