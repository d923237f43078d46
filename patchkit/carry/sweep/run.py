"""Classify the series on many pins: a matrix of pins and patches."""

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
class SweepRow:
    """One pin and the class of every patch on it; ``before``: the build that it was compared with.

    ``faults``: known faults of the build, including those that a placed patch fixes.
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
        """The patches that can be placed."""
        return tuple(each.id for each in self.verdicts if each.patch_class in GOOD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A patch became ``patch_class`` between the builds ``good`` and ``bad``, adjacent ones in the sweep.

    ``commit``: upstream's commit, if the two builds are one commit apart.
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
    """The matrix; ``breaks`` are sorted by patch, then by build."""

    json_keys: ClassVar = "archs patches pins=rows breaks"

    archs: tuple[str, ...]
    patches: tuple[str, ...]
    rows: tuple[SweepRow, ...]
    breaks: tuple[Break, ...]

    def count(self, patch_class: PatchClass) -> int:
        """The number of cells with that class."""
        return sum(verdict.patch_class == patch_class for row in self.rows for verdict in row.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One job: consecutive pins, ascending, and the pin before them to compare the first one with."""

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
) -> Sweep:
    """Classify the series on every pin.

    Args:
        workspace: the series, and the cache, to which missing trees are fetched.
        pins: in any order; of several pins with the same name, only one is used.
        archs: the GPUs of one candidate.
        with_: opt-in patches to include.
        jobs: processes on this machine; by default one per core.

    Raises:
        UsageError: no pins.
        PIN_DIFFERS: the lock has another tree for one of the builds.
        SourceError, GitError, CacheError: a tree could not be fetched.
        ErrorGroup, ConfigError: the series cannot be read.
        WORKER_DIED: a worker process died.
    """
    lock = load_lock(workspace.series.lock)
    # The cache keeps one base per build, so use the lock's own pin where it has one. But take `followed` from
    # the corpus: with the lock's new names of functions, moved patches would look clean.
    own = {pin.name: replace(own_pin(lock, pin), followed=pin.followed) for pin in pins}
    ordered = sorted(own.values(), key=lambda pin: pin.build)
    if not ordered:
        raise UsageError(
            "no pins to sweep over",
            hint="widen the range of --from and --to, or give a --corpus FILE",
        )
    series = load_series(workspace.series.patches)
    named = tuple(sorted(set(archs)))
    load_profiles(workspace.series.profiles, named)  # report a wrong name here, not in a worker
    cache = open_cache(workspace.cache_root)
    for pin in ordered:
        obtain(pin, cache=cache, reporter=workspace.reporter)
    workers = jobs or cores()
    size = max(2, math.ceil(len(ordered) / (2 * workers)))
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
    found: dict[str, SweepRow] = {}
    with open_pool("processes", min(workers, len(chunks))) as pool:
        for _, done in run_tasks(
            pool, classify_chunk, chunks, reporter=workspace.reporter, what="sweeping", unit="runs of pins"
        ):
            found |= {row.pin.name: row for row in done}
    for chunk in chunks:
        # A job does not know which functions the job before it followed. If there were any, run it again.
        before = found[chunk.before.name].pin if chunk.before is not None else None
        if before is not None and before != chunk.before:
            found |= {row.pin.name: row for row in classify_chunk(replace(chunk, before=before))}
    rows = tuple(sorted(found.values(), key=lambda row: row.pin.build))
    return Sweep(
        archs=named,
        patches=tuple(patch.id for patch in series.patches),
        rows=rows,
        breaks=_find_breaks(rows),
    )


def classify_chunk(chunk: Chunk) -> tuple[SweepRow, ...]:
    """The rows of one chunk. Runs in its own process, and only reads.

    Raises InternalError, ErrorGroup, GitError, CacheError.
    """
    workspace = chunk.workspace
    series = load_series(workspace.series.patches)
    repository = open_cache(workspace.cache_root).peek(workspace.reporter)
    if repository is None:
        raise InternalError(
            f"no cache at {workspace.cache_root}",
            hint="every worker must be able to read this folder",
        )
    judge = SeriesJudge(workspace=workspace, repository=repository, series=series)
    wish = Wish(with_=chunk.with_)
    last: dict[str, Rendering] = {}
    before = chunk.before
    if before is not None:
        then = judge.decide(before, chunk.archs, wish)
        last = judge.render(then, judge.read(_commit(repository, before)))
    rows: list[SweepRow] = []
    for pin in chunk.pins:
        decision = judge.decide(pin, chunk.archs, wish)
        judged = judge.judge(decision, judge.read(_commit(repository, pin)), last)
        rows.append(
            SweepRow(
                pin=judged.pin,  # with followed functions, which gates need to plan it
                before=before.build if before is not None else None,
                verdicts=judged.verdicts,
                faults=judged.faults,
            )
        )
        last |= judged.last  # keep the last rendering of patches that failed: a later build may fit again
        before = judged.pin
    return tuple(rows)


def _commit(repository: Repository, pin: Pin) -> str:
    found = find_pinned(repository, pin)
    if found is None:
        raise InternalError(
            f"{pin.name} is no longer in {repository.path}",
            hint="run the command again",
        )
    return found


def _find_breaks(rows: Sequence[SweepRow]) -> tuple[Break, ...]:
    """Every change from a good class to another one, by patch."""
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


_CELLS = {"conflict": "CONFLICT", "out of range": "range", "off": "-"}


def text_matrix(sweep: Sweep) -> list[str]:
    """Pins as rows and patches as columns; below, the breaks and details."""
    head = ["pin", *sweep.patches]
    table = [[row.pin.title, *_cells(row)] for row in sweep.rows]
    widths = [max(len(line[column]) for line in [head, *table]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [head, *table]]  # fmt: skip
    return [*lines, "", _counts(sweep), *_details(sweep)]


def markdown_matrix(sweep: Sweep) -> list[str]:
    """The same as a Markdown table, with the details in a fenced block, where markup has no effect."""
    lines = [f"| pin | {' | '.join(sweep.patches)} |", f"|---{'|---' * len(sweep.patches)}|"]
    lines += [f"| {row.pin.title} | {' | '.join(_cells(row))} |" for row in sweep.rows]
    details = [line for line in _details(sweep) if line.strip()]
    runs = [len(run) for line in details for run in re.findall("`+", line)]
    fence = "`" * max(3, *(run + 1 for run in runs)) if runs else "```"
    return [*lines, "", _counts(sweep), *(("", f"{fence}text", *details, fence) if details else ())]


def _cells(row: SweepRow) -> list[str]:
    return [_cell(verdict) for verdict in row.verdicts]


def _cell(verdict: Classified) -> str:
    mark = "*" if verdict.drift else ""
    return _CELLS.get(verdict.patch_class, verdict.patch_class) + mark


def _counts(sweep: Sweep) -> str:
    counts = [f"{count} {name}" for name in PATCH_CLASSES if (count := sweep.count(name))]
    return f"{', '.join(counts)}; range: out of range, -: off, *: the edited function changed"


def _details(sweep: Sweep) -> Iterator[str]:
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
        yield "placed, but differently from the previous pin (--json has every place and change):"
    for row, verdict in changed:
        yield f"  {row.pin.title} {verdict.id}: {verdict.patch_class}: {verdict.reason}"
    for row in sweep.rows:
        seen: set[str] = set()
        for verdict in row.verdicts:
            if verdict.patch_class in {"conflict", "upstreamed", "superseded"}:
                yield ""
                yield from verdict.lines(row.pin.title, seen)
