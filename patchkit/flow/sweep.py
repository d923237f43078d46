"""The series on many upstreams at once: a matrix of patches and pins. Reads only, but for the cache.

Vocabulary: a *row* is one pin with the class of every patch on it; each pin is compared with the one
before it, as a bump from one to the other would. A *chunk* is a run of neighbouring pins that one job
takes, so that each last rendering is made once. A *break* is where a patch leaves the good classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.classify.model import GOOD, Classified, PatchClass, UpstreamCommit
from patchkit.config.lock import Pin, load_lock
from patchkit.config.profile import load_profile
from patchkit.config.series import Series, load_series
from patchkit.errors import InternalError, UsageError
from patchkit.fetch.cache import open_cache
from patchkit.fetch.pin import find_pinned, obtain
from patchkit.flow.bump_target import own_pin
from patchkit.flow.classifying import Comparison, classify_series
from patchkit.flow.following import followed_by, select_on
from patchkit.flow.rendering import Rendering, render_series
from patchkit.flow.selection import Selected
from patchkit.flow.upstream import read_upstream
from patchkit.flow.workspace import Workspace
from patchkit.report import NullReporter
from patchkit.series_dir import SeriesDir
from patchkit.tasks.pool import cores, open_pool, run_tasks
from patchkit.vcs.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pin and the class of every patch on it; ``before`` is the build it was compared with."""

    pin: Pin
    before: int | None
    verdicts: tuple[Classified, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Between ``good`` and ``bad`` (builds, neighbours in the sweep) a patch became ``patch_class``.

    ``commit`` is upstream's when the two builds are one commit apart.
    """

    patch: str
    good: int
    bad: int
    patch_class: PatchClass
    reason: str
    commit: UpstreamCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The matrix; ``breaks`` are by patch, in order of builds."""

    archs: tuple[str, ...]
    patches: tuple[str, ...]
    rows: tuple[Row, ...]
    breaks: tuple[Break, ...]

    def count(self, patch_class: PatchClass) -> int:
        """How many cells have that class."""
        return sum(verdict.patch_class == patch_class for row in self.rows for verdict in row.verdicts)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "archs": list(self.archs),
            "patches": list(self.patches),
            "pins": [
                {
                    "build": row.pin.build,
                    "commit": row.pin.commit,
                    "tree": row.pin.tree,
                    "compared_with": row.before,
                    "patches": [verdict.as_json() for verdict in row.verdicts],
                }
                for row in self.rows
            ],
            "breaks": [
                {
                    "patch": each.patch,
                    "good": each.good,
                    "bad": each.bad,
                    "class": each.patch_class,
                    "reason": each.reason,
                    "upstream_commit": str(each.commit) if each.commit is not None else None,
                }
                for each in self.breaks
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One job: neighbouring pins, ascending, and the one in front of them to compare the first with."""

    series: SeriesDir
    cache_root: Path
    archs: tuple[str, ...]
    with_: tuple[str, ...]
    before: Pin | None
    pins: tuple[Pin, ...]


def run_sweep(
    workspace: Workspace,
    pins: Sequence[Pin],
    *,
    archs: Sequence[str],
    with_: Sequence[str] = (),
    jobs: int | None = None,
    scheduler: str | None = None,
) -> Sweep:
    """Classify the series on every pin.

    Args:
        workspace: the series, and the cache that gets the trees it lacks.
        pins: in any order; one of a build counts.
        archs: the GPUs of one candidate.
        with_: opt-in patches to take in.
        jobs: processes of this machine, by default one per core.
        scheduler: address of a Dask scheduler whose workers see the same folders.

    Raises:
        SWEEP_EMPTY: no pins.
        PIN_DIFFERS: the lock has another tree under one of the builds.
        SourceError, GitError, CacheError: a tree could not be had.
        ErrorGroup, ConfigError: the series cannot be read.
        SCHEDULER_UNREACHABLE and its kind, WORKER_LOST.
    """
    lock = load_lock(workspace.series.lock)
    # The cache keeps one base for a build: the lock's own, so that a sweep moves nothing of it. What was
    # followed is the corpus's to say: with the lock's new name for a function, what moved would look clean.
    own = {pin.build: replace(own_pin(lock, pin), followed=pin.followed) for pin in pins}
    ordered = sorted(own.values(), key=lambda pin: pin.build)
    if not ordered:
        raise UsageError(
            "there is no pin to sweep over",
            code="SWEEP_EMPTY",
            hint="widen --from and --to, or name --corpus FILE",
        )
    series = load_series(workspace.series.patches)
    named = tuple(sorted(set(archs)))
    for arch in named:
        load_profile(workspace.series.profiles, arch)  # a wrong name is told here, not by a worker
    cache = open_cache(workspace.cache_root)
    for pin in ordered:
        obtain(pin, cache=cache, reporter=workspace.reporter)
    workers = jobs or cores()
    size = max(2, math.ceil(len(ordered) / (2 * workers))) if scheduler is None else 2
    chunks = _chunks(workspace, ordered, size, named, tuple(with_))
    rows: list[Row] = []
    with open_pool(scheduler, kind="processes", workers=min(workers, len(chunks))) as pool:
        for _, done in run_tasks(
            pool, classify_chunk, chunks, reporter=workspace.reporter, what="sweeping", unit="runs of pins"
        ):
            rows += done
    rows = _joined(chunks, rows)
    return Sweep(
        archs=named,
        patches=tuple(patch.id for patch in series.patches),
        rows=tuple(rows),
        breaks=find_breaks(rows),
    )


def _joined(chunks: Sequence[Chunk], rows: Sequence[Row]) -> list[Row]:
    """All rows by build, as one job for all of them would give them.

    A job does not see what the one before it followed: where that was something, it is done again.
    """
    found = {row.pin.build: row for row in rows}
    for chunk in chunks:
        before = found[chunk.before.build].pin if chunk.before is not None else None
        if before is not None and before != chunk.before:
            found |= {row.pin.build: row for row in classify_chunk(replace(chunk, before=before))}
    return [row for _, row in sorted(found.items())]


def _chunks(
    workspace: Workspace, pins: Sequence[Pin], size: int, archs: tuple[str, ...], with_: tuple[str, ...]
) -> list[Chunk]:
    return [
        Chunk(
            series=workspace.series,
            cache_root=open_cache(workspace.cache_root).root,
            archs=archs,
            with_=with_,
            before=pins[first - 1] if first else None,
            pins=tuple(pins[first : first + size]),
        )
        for first in range(0, len(pins), size)
    ]


def classify_chunk(chunk: Chunk) -> tuple[Row, ...]:
    """The rows of one chunk; runs in a process of its own, and only reads.

    Raises SWEEP_PIN_VANISHED, ErrorGroup, GitError, CacheError.
    """
    series = load_series(chunk.series.patches)
    repository = open_cache(chunk.cache_root).peek(NullReporter())
    if repository is None:
        raise InternalError(
            f"there is no cache at {chunk.cache_root}",
            code="SWEEP_PIN_VANISHED",
            hint="workers need the same folders",
        )
    choose = _chooser(chunk, series)
    last: dict[str, Rendering] = {}
    before = chunk.before
    if before is not None:
        files = read_upstream(repository, _commit(repository, before), series.folders)
        made = render_series(choose(before), files, chunk.series)
        last = {each.patch.id: each for each in made if each.placed is not None}
    rows: list[Row] = []
    for pin in chunk.pins:
        files = read_upstream(repository, _commit(repository, pin), series.folders)
        verdicts, renderings = classify_series(
            Comparison(
                series=chunk.series,
                build=pin.build,
                chosen=choose(pin),
                files=files,
                last=last,
                reporter=NullReporter(),
            )
        )
        pin = replace(pin, followed=followed_by(series, renderings))  # noqa: PLW2901 - so that gates can plan it
        rows.append(Row(pin=pin, before=before.build if before is not None else None, verdicts=verdicts))
        # What is not in now keeps its last rendering: it may come back.
        last = last | {each.patch.id: each for each in renderings}
        before = pin
    return tuple(rows)


def _chooser(chunk: Chunk, series: Series) -> Callable[[Pin], tuple[Selected, ...]]:
    profiles = tuple(load_profile(chunk.series.profiles, arch) for arch in chunk.archs)
    return lambda pin: select_on(series, profiles, pin, chunk.with_)


def _commit(repository: Repository, pin: Pin) -> str:
    found = find_pinned(repository, pin)
    if found is None:
        raise InternalError(
            f"{pin.name} is not in {repository.path}", code="SWEEP_PIN_VANISHED", hint="run the command again"
        )
    return found.commit


def find_breaks(rows: Sequence[Row]) -> tuple[Break, ...]:
    """Every step from a good class to another, by patch."""
    found: list[Break] = []
    for left, right in itertools.pairwise(rows):
        classes = {verdict.id: verdict.patch_class for verdict in left.verdicts}
        found += [
            Break(
                patch=verdict.id,
                good=left.pin.build,
                bad=right.pin.build,
                patch_class=verdict.patch_class,
                reason=verdict.reason,
            )
            for verdict in right.verdicts
            if classes[verdict.id] in GOOD and verdict.patch_class not in GOOD
        ]
    return tuple(sorted(found, key=lambda each: (each.patch, each.bad)))


def pins_of(path: Path) -> tuple[Pin, ...]:
    """The pins of a file in the form of a lock. Raises the errors of reading one."""
    return load_lock(path).pins
