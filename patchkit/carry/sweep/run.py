"""The series on many pins: what becomes of each patch on each of them, as a matrix."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from patchkit.base.errors import InternalError, UsageError
from patchkit.base.jobs import cores, open_pool, run_tasks
from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.target import own_pin
from patchkit.carry.judging.classes import GOOD, PATCH_CLASSES, Classified, PatchClass, UpstreamCommit
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Pin, load_lock
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.pin import find_pinned, obtain
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pin and the class of every patch on it; ``before`` is the build it was compared with.

    ``faults``: what is known to be wrong there, mended by what is placed or not.
    """

    json_keys: ClassVar = (
        "build=pin.build releases=pin.releases commit=pin.commit tree=pin.tree compared_with=before "
        "patches=verdicts faults"
    )

    pin: Pin
    before: int | None
    verdicts: tuple[Classified, ...]
    faults: tuple[FaultHere, ...] = ()

    @property
    def placed(self) -> tuple[str, ...]:
        """The patches that are in."""
        return tuple(each.id for each in self.verdicts if each.patch_class in GOOD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Between ``good`` and ``bad`` (builds, neighbours in the sweep) a patch became ``patch_class``.

    ``commit`` is upstream's when the two builds are one commit apart.
    """

    json_keys: ClassVar = "patch good bad class=patch_class reason upstream_commit=commit"

    patch: str
    good: int
    bad: int
    patch_class: PatchClass
    reason: str
    commit: UpstreamCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The matrix; ``breaks`` are by patch, in order of builds."""

    json_keys: ClassVar = "archs patches pins=rows breaks"

    archs: tuple[str, ...]
    patches: tuple[str, ...]
    rows: tuple[Row, ...]
    breaks: tuple[Break, ...]

    def count(self, patch_class: PatchClass) -> int:
        """How many cells have that class."""
        return sum(verdict.patch_class == patch_class for row in self.rows for verdict in row.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One job: neighbouring pins, ascending, and the one in front of them to compare the first with."""

    workspace: Workspace
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
    load_profiles(workspace.series.profiles, named)  # a wrong name is told here, not by a worker
    cache = open_cache(workspace.cache_root)
    for pin in ordered:
        obtain(pin, cache=cache, reporter=workspace.reporter)
    workers = jobs or cores()
    size = max(2, math.ceil(len(ordered) / (2 * workers))) if scheduler is None else 2
    quiet = Workspace(series=workspace.series, cache_root=cache.root, reporter=NullReporter())
    chunks = [
        Chunk(
            workspace=quiet,
            archs=named,
            with_=tuple(with_),
            before=ordered[first - 1] if first else None,
            pins=tuple(ordered[first : first + size]),
        )
        for first in range(0, len(ordered), size)
    ]
    found: dict[int, Row] = {}
    with open_pool(scheduler, kind="processes", workers=min(workers, len(chunks))) as pool:
        for _, done in run_tasks(
            pool, classify_chunk, chunks, reporter=workspace.reporter, what="sweeping", unit="runs of pins"
        ):
            found |= {row.pin.build: row for row in done}
    for chunk in chunks:
        # A job does not see what the one before it followed: where that was something, it is done again.
        before = found[chunk.before.build].pin if chunk.before is not None else None
        if before is not None and before != chunk.before:
            found |= {row.pin.build: row for row in classify_chunk(replace(chunk, before=before))}
    rows = tuple(row for _, row in sorted(found.items()))
    return Sweep(
        archs=named,
        patches=tuple(patch.id for patch in series.patches),
        rows=rows,
        breaks=_find_breaks(rows),
    )


def classify_chunk(chunk: Chunk) -> tuple[Row, ...]:
    """The rows of one chunk; runs in a process of its own, and only reads.

    Raises SWEEP_PIN_VANISHED, ErrorGroup, GitError, CacheError.
    """
    workspace = chunk.workspace
    series = load_series(workspace.series.patches)
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    if repository is None:
        raise InternalError(
            f"there is no cache at {workspace.cache_root}",
            code="SWEEP_PIN_VANISHED",
            hint="workers need the same folders",
        )
    judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
    wish = Wish(with_=chunk.with_)
    last: dict[str, Rendering] = {}
    before = chunk.before
    if before is not None:
        then = judge.decide(before, chunk.archs, wish)
        last = judge.render(then, judge.read(_commit(repository, before)))
    rows: list[Row] = []
    for pin in chunk.pins:
        decision = judge.decide(pin, chunk.archs, wish)
        judged = judge.judge(decision, judge.read(_commit(repository, pin)), last)
        rows.append(
            Row(
                pin=judged.pin,  # with the functions where they were found, so that gates can plan it
                before=before.build if before is not None else None,
                verdicts=judged.verdicts,
                faults=judged.faults,
            )
        )
        last |= judged.last  # what is not in now keeps its last rendering: it may come back
        before = judged.pin
    return tuple(rows)


def _commit(repository: Repository, pin: Pin) -> str:
    found = find_pinned(repository, pin)
    if found is None:
        raise InternalError(
            f"{pin.name} is not in {repository.path}", code="SWEEP_PIN_VANISHED", hint="run the command again"
        )
    return found


def _find_breaks(rows: Sequence[Row]) -> tuple[Break, ...]:
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


_CELLS = {"conflict": "CONFLICT", "out of era": "era", "off": "-"}


def text_matrix(sweep: Sweep) -> list[str]:
    """Pins as rows, patches as columns; below, the breaks and what a person has to look at."""
    head = ["pin", *sweep.patches]
    table = [[row.pin.title, *_cells(row)] for row in sweep.rows]
    widths = [max(len(line[column]) for line in [head, *table]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, *table]]  # fmt: skip
    return [*lines, "", _counts(sweep), *_behind(sweep)]


def markdown_matrix(sweep: Sweep) -> list[str]:
    """The same as a table of Markdown; what is behind it is a block of text, in which no mark-up counts."""
    lines = [f"| pin | {' | '.join(sweep.patches)} |", f"|---{'|---' * len(sweep.patches)}|"]
    lines += [f"| {row.pin.title} | {' | '.join(_cells(row))} |" for row in sweep.rows]
    behind = [line for line in _behind(sweep) if line.strip()]
    runs = [len(run) for line in behind for run in re.findall("`+", line)]
    fence = "`" * max(3, *(run + 1 for run in runs)) if runs else "```"
    return [*lines, "", _counts(sweep), *(("", f"{fence}text", *behind, fence) if behind else ())]


def _cells(row: Row) -> list[str]:
    return [_cell(verdict) for verdict in row.verdicts]


def _cell(verdict: Classified) -> str:
    mark = "*" if verdict.drift else ""
    return _CELLS.get(verdict.patch_class, verdict.patch_class) + mark


def _counts(sweep: Sweep) -> str:
    counts = [f"{count} {name}" for name in PATCH_CLASSES if (count := sweep.count(name))]
    return f"{', '.join(counts)}; era: out of its declared builds, -: off, *: the edited function changed"


def _behind(sweep: Sweep) -> Iterator[str]:
    titles = {row.pin.build: row.pin.title for row in sweep.rows}
    for each in sweep.breaks:
        by = f" by {each.commit}" if each.commit is not None else ""
        good, bad = titles[each.good], titles[each.bad]
        yield f"{each.patch}: good until {good}, {each.patch_class} at {bad}{by}: {each.reason}"
    faults = [(row, fault) for row in sweep.rows for fault in row.faults]
    if faults:
        yield ""
        yield "known faults of upstream's builds:"
    for row, fault in faults:
        yield f"  {row.pin.title} {fault.state()}"
    changed = [(row, verdict) for row in sweep.rows for verdict in row.verdicts
               if verdict.patch_class in GOOD and (verdict.moves or verdict.drift)]  # fmt: skip
    if changed:
        yield ""
        yield "placed, but not as on the pin before (each place and change: --json):"
    for row, verdict in changed:
        yield f"  {row.pin.title} {verdict.id}: {verdict.patch_class}: {verdict.reason}"
    for row in sweep.rows:
        for verdict in row.verdicts:
            if verdict.patch_class in {"conflict", "upstreamed", "superseded"}:
                yield ""
                yield from verdict.lines(row.pin.title)
