"""Data of ``patchkit status``: pins, cached trees, candidates, carried patches, followed remotes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.errors import PatchkitError
from patchkit.base.plain import fields_of, plain
from patchkit.base.series_folder import PLAIN, SeriesDir, is_plain
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Request, load_decision
from patchkit.carry.candidate.find import read_candidate
from patchkit.carry.candidate.inputs import digest_of, hash_inputs
from patchkit.carry.candidate.lock import changed_inputs
from patchkit.carry.candidate.record import (
    Candidate,
    candidate_ref,
    is_candidate,
    shown_path,
)
from patchkit.carry.candidate.renames import faulted_series, followed_series
from patchkit.carry.judging.classes import Gone
from patchkit.carry.judging.preconditions import find_gone, find_replacement
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.remotes.run import Following, fetch_following, read_following
from patchkit.carry.series.catalogue import Series, load_series
from patchkit.carry.series.fault import FaultHere, find_faults
from patchkit.carry.series.lock import Lock, Pin, Result, load_lock
from patchkit.carry.series.patch import Patch
from patchkit.carry.series.profile import load_profiles, targets_of
from patchkit.carry.series.selection import opted_in
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import find_pinned, pin_ref
from patchkit.carry.upstream.refs import list_refs
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPatch:
    """A patch of a result at the default pin. ``upstream``: its upstream status, from patch.toml.

    ``builds``: number of builds since its first one. ``age_days`` is None if patch.toml has no ``since``.
    """

    id: str
    edits: int
    upstream: str
    age_days: int | None
    builds: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The carried patches at the default pin. ``bumps`` and ``conflicts``: from the reports in the cache."""

    json_keys: ClassVar = "build patches bumps conflicts edits"

    build: int
    patches: tuple[CarriedPatch, ...]
    bumps: int
    conflicts: int

    @property
    def edits(self) -> int:
        """The number of edits of all carried patches."""
        return sum(patch.edits for patch in self.patches)


def read_queue(
    lock: Lock,
    series: Series,
    folder: SeriesDir,
    repository: Repository | None,
    reports: Path,
    today: dt.date,
) -> Queue:
    """The carried patches. Reads the sources of the default pin if they are cached. Raises GitError."""
    pin = lock.pin(None)
    series = followed_series(series, pin)
    names = {name for result in lock.results if result.pin == pin.name for name in result.patches}
    carried = [patch.for_build(pin.build) for patch in series.patches if patch.id in names]
    found = find_pinned(repository, pin) if carried and repository is not None else None
    files = None
    if repository is not None and found is not None:
        files = read_upstream(repository, found, series.read)
    gone = dict(_gone(carried, files, folder)) if files is not None else {}
    bumps, conflicts = _past(reports)
    return Queue(
        build=pin.build,
        patches=tuple(
            CarriedPatch(
                id=patch.id,
                edits=len(patch.edits),
                upstream=patch.upstream_text,
                age_days=_age_days(patch, today),
                builds=pin.build - patch.builds.first,
                warnings=tuple(_warnings(patch, pin, files, gone.get(patch.id, ()), today)),
            )
            for patch in carried
        ),
        bumps=bumps,
        conflicts=conflicts,
    )


def _gone(
    carried: Sequence[Patch], files: UpstreamFiles, folder: SeriesDir
) -> Iterator[tuple[str, tuple[Gone, ...]]]:
    """For each patch, what it depends on and upstream lacks, unless an earlier patch adds it.

    Nothing is placed here, so it is enough that the name occurs in a file of an earlier patch. This avoids
    wrong reports of retired patches.
    """
    known: set[Gone] = set()
    texts: list[bytes] = []
    for patch in carried:
        found = tuple(
            each
            for each in find_gone(patch, files)
            if each.what == "option" or each in known or not any(_word(each) in text for text in texts)
        )
        known.update(found)
        texts += [path.read_bytes() for path in (folder.patches / patch.folder).iterdir() if path.is_file()]
        yield patch.id, found


def _word(gone: Gone) -> bytes:
    name = gone.name.partition(" in ")[0].rpartition("::")[2] if gone.what == "function" else gone.name
    return name.encode()


def _age_days(patch: Patch, today: dt.date) -> int | None:
    since = patch.upstream.since if patch.upstream is not None else None
    return (today - since).days if since is not None else None


def _warnings(
    patch: Patch, pin: Pin, files: UpstreamFiles | None, gone: Sequence[Gone], today: dt.date
) -> Iterator[str]:
    merged_in = patch.upstream.merged_in if patch.upstream is not None else None
    if merged_in is not None and merged_in <= pin.build:
        yield f"merged upstream in {build_name(merged_in)}, but still carried at {pin.name}"
    expired = patch.expires.expired(pin.build, today) if patch.expires is not None else None
    if expired is not None:
        yield expired
    if not patch.builds.covers(pin.build):
        yield f"still carried at {pin.name}, which is outside of its build range"
    if files is None:
        return
    if gone:
        yield f"retired: {pin.name} no longer has {', '.join(map(str, gone))}, but the patch is still carried"
    replacement = find_replacement(patch, files)
    if replacement is not None:
        place, why = replacement
        yield f"superseded at {place}: {why}; but the patch is still carried"


def _past(reports: Path) -> tuple[int, int]:
    """The number of past bumps and of conflicts in them; unreadable reports are ignored.

    A bump that was tried several times counts once, with the conflicts of the try that had most.
    """
    met: dict[tuple[int, int], int] = {}
    for path in sorted(reports.glob("bump-*.json")) if reports.is_dir() else []:
        try:
            document = json.loads(path.read_text("utf-8"))
            pins = (document["from"]["build"], document["to"]["build"])
            # The same patch in several variants of the same GPUs is one conflict.
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


LockState = Literal["recorded", "differs", "series changed", "not recorded", "on a clone"]
"""How a candidate stands to the lock; ``series changed``: the series gives another one since it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedResult:
    """A result of the lock with its opt-in patches; ``with_`` is None if one of its GPUs has no profile."""

    json_keys: ClassVar = (
        "pin=result.pin build=result.build archs=result.archs patches=result.patches tree=result.tree "
        "commit=result.commit with_"
    )
    result: Result
    with_: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCandidate:
    """A candidate, and whether the lock records it."""

    json_keys: ClassVar = (
        "branch=made.branch archs=made.archs build=made.build base=made.base tip=made.tip "
        "patches=made.ids lock=standing clone=made.record.clone"
    )
    made: Candidate
    standing: LockState


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFault:
    """A known fault of a candidate's build."""

    json_keys: ClassVar = "branch=made.branch build=made.build patches=made.ids fault"
    made: Candidate
    fault: FaultHere


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All data of ``patchkit status``. ``cached``: builds of pins whose verified trees are in the cache.

    ``broken``: errors of candidate branches that patchkit did not make like that. ``faults``: known faults of
    upstream's builds in the candidates, including those that a patch fixes.
    """

    json_keys: ClassVar = (
        "series repository pins results candidates broken faults queue pulls=following.pulls "
    )

    series: SeriesDir
    repository: Path
    lock: Lock
    cached: frozenset[str]
    results: tuple[LockedResult, ...]
    candidates: tuple[MadeCandidate, ...]
    broken: tuple[PatchkitError, ...]
    faults: tuple[CandidateFault, ...]
    queue: Queue
    following: Following

    @property
    def pins(self) -> list[dict[str, object]]:
        """The pins of the lock, and whether each is cached and the default."""
        return [
            fields_of(pin)
            | {
                "cached": pin.name in self.cached,
                "default": pin.name == self.lock.default,
                "dropped": plain(pin.dropped),
            }
            for pin in self.lock.pins
        ]


def read_status(workspace: Workspace, now: dt.datetime, *, fetch: bool = False) -> Status:
    """Read the lock, the series and the cache; with ``fetch`` also fetch pull requests.

    Without ``fetch`` nothing is changed and no remote is contacted. Raises the errors of lock and series.
    """
    lock = load_lock(workspace.series.lock)
    cache = open_cache(workspace.cache_root)
    repository = cache.peek(workspace.reporter)
    refs = list_refs(repository, "refs") if repository is not None else {}
    candidates: list[MadeCandidate] = []
    broken: list[PatchkitError] = []
    own = candidate_ref((PLAIN,), "") if is_plain(workspace.series.profiles) else ""
    for ref in filter(is_candidate, refs):
        if repository is None:
            break  # then there are no refs; for the type checker
        if not ref.startswith(own):
            continue  # a plain series has no candidates for GPUs; another series made it
        try:
            candidate = read_candidate(repository, ref, refs)
        except PatchkitError as error:
            broken.append(error)
        else:
            candidates.append(MadeCandidate(made=candidate, standing=_standing(candidate, lock, workspace)))
    series = load_series(workspace.series.patches)
    where = (series, lock.pin(None), cache, workspace.reporter)
    return Status(
        series=workspace.series,
        repository=cache.upstream,
        lock=lock,
        cached=frozenset(pin.name for pin in lock.pins if pin_ref(pin) in refs),
        results=tuple(_read_results(series, workspace.series, lock)),
        candidates=tuple(candidates),
        broken=tuple(broken),
        faults=tuple(_read_faults(series, [one.made for one in candidates])),
        queue=read_queue(
            lock, series, workspace.series, repository, workspace.cache_root / "reports", now.date()
        ),
        following=fetch_following(*where, now) if fetch else read_following(*where),
    )


def _read_results(series: Series, folder: SeriesDir, lock: Lock) -> Iterator[LockedResult]:
    known = set(targets_of(folder.profiles))
    for result in lock.results:
        if known.issuperset(result.archs):
            profiles = load_profiles(folder.profiles, result.archs)
            with_ = opted_in(series, profiles, result.patches, result.build)
            yield LockedResult(result=result, with_=with_)
        else:
            yield LockedResult(result=result, with_=None)


def _read_faults(series: Series, candidates: Iterable[Candidate]) -> Iterator[CandidateFault]:
    for made in candidates:
        live = [(patch, made.archs) for patch in made.ids]
        there = faulted_series(series, made.record.faults if made.record is not None else None)
        for found in find_faults(there.faults, made.build, made.archs, live):
            yield CandidateFault(made=made, fault=found)


def _standing(candidate: Candidate, lock: Lock, workspace: Workspace) -> LockState:
    if candidate.record is not None and candidate.record.clone is not None:
        return "on a clone"
    recorded = lock.result(candidate.pin, candidate.archs, candidate.ids)
    if recorded is not None and recorded.commit != candidate.tip:
        return "differs"
    if _is_changed(candidate, recorded, lock, workspace):
        return "series changed"
    return "recorded" if recorded is not None else "not recorded"


def _is_changed(candidate: Candidate, recorded: Result | None, lock: Lock, workspace: Workspace) -> bool:
    """Whether the series gives another candidate now, because of its files or its patches.

    ``recorded``: its result in the lock. A candidate of a bump has no record of how it was made.
    """
    pin = next((each for each in lock.pins if each.name == candidate.pin), None)
    record = candidate.record
    if pin is None or (record is not None and record.series != shown_path(workspace.series.root)):
        return False
    request = Request(archs=candidate.archs, upstream=pin, unlocked=True)
    try:
        if record is not None:
            request = replace(request, only=record.only, with_=record.with_, without=record.without)
        elif recorded is not None:
            profiles = load_profiles(workspace.series.profiles, recorded.archs)
            series = load_series(workspace.series.patches)
            known = [name for name in recorded.patches if series.patch(name) is not None]
            request = replace(request, with_=opted_in(series, profiles, known, recorded.build))
        else:
            return False
        decision = load_decision(request, workspace, lock)
        folders = [each.patch.folder for each in decision.selected if each.targets]
        inputs = hash_inputs(decision.profiles, folders, workspace.series)
    except PatchkitError:
        return True  # for example, a patch is gone
    if decision.ids != candidate.ids:  # or patches were excluded on purpose, and the lock has both
        return record is not None or lock.result(pin.name, candidate.archs, decision.ids) is None
    if recorded is not None:
        return bool(changed_inputs(inputs, recorded.inputs, workspace.series))
    return record is not None and digest_of(inputs) != record.inputs
