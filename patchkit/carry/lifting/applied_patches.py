"""Find the patches of the series that a commit has, so that a new patch on top of it can require them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from patchkit.base.reporter import NullReporter
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.judging.judge import SeriesJudge
from patchkit.carry.judging.rendering import Rendering
from patchkit.carry.judging.requirements import PatchStack
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import load_series
from patchkit.carry.series.lock import Lock
from patchkit.carry.upstream.pin import find_pinned
from patchkit.carry.upstream.repository import Repository


def applied_stack(
    base: str,
    build: int,
    paths: Collection[str],
    archs: Sequence[str],
    workspace: Workspace,
    repository: Repository,
    lock: Lock,
) -> PatchStack:
    """The patches of the series that the commit ``base`` has on top of its ``build``.

    These are the first patches of the series that give exactly the files ``paths`` of that commit. None if
    the commit is the build itself, or if its files have other changes. ``archs``: the GPUs of the candidate.

    Raises GitError and CacheError, and the errors of a series that cannot be read.
    """
    series = load_series(workspace.series.patches)
    files = read_upstream(repository, base, (*series.read, *sorted(paths)))
    stack = PatchStack(base=files, series=workspace.series, reporter=workspace.reporter)
    pin = next((each for each in lock.pins if each.build == build), None)
    below = find_pinned(repository, pin) if pin is not None else None
    if pin is None or below is None or repository.tree_of(below) == repository.tree_of(base):
        return stack
    quiet = replace(workspace, reporter=NullReporter())
    judge = SeriesJudge(workspace=quiet, repository=repository, series=series)
    start = read_upstream(repository, below, (*series.read, *sorted(paths)))
    wanted = {path: files.read(path) for path in paths}
    for wish in (Wish(), Wish(with_opt_in=True)):
        decision = judge.decide(pin, archs, wish, as_recorded=True)
        renderings = list(judge.render(decision, start.fresh()).values())
        count = _count(renderings, start, wanted)
        if count:
            stack.base = start
            for rendering in renderings[:count]:
                stack.add(rendering, (each.patch for each in rendering.patch.requires))
            break
    return stack


def _count(renderings: Sequence[Rendering], start: UpstreamFiles, wanted: dict[str, bytes | None]) -> int:
    """How many patches, at most, give the wanted files; 0 if no number of them does."""
    files, found = start.fresh(), 0
    for number, rendering in enumerate(renderings, 1):
        placed = rendering.placed
        if placed is not None:
            files.write(placed.changes, placed.gone, placed.modes)
        if all(files.read(path) == data for path, data in wanted.items()):
            found = number
    return found
