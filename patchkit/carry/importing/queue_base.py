"""Find the base of a queue: the commit that it was made for, as far as the queue shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from patchkit.base.errors import PatchkitError, UsageError
from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import PLAIN
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import make_plan
from patchkit.carry.candidate.target import catalogue_pins
from patchkit.carry.importing.queue_sources import (
    Paths,
    QueueContents,
    QueuedChange,
    is_range,
    read_commits,
    read_files,
)
from patchkit.carry.importing.trees import Trees
from patchkit.carry.lifting.change import Authorship, Changeset, FileChange, MovedHunk
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.onto.pin import AsBuild, build_below, require_build
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.upstream.clone import open_clone
from patchkit.carry.upstream.pin import find_pinned, obtain

_SHORTEST = 7  # digits of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBase:
    """The commit (in the cache) that a queue is placed on, with its tree, its name, and why it was chosen.

    ``also_tried``: the name of another base of the same build that fewer changes apply to.
    """

    commit: str
    tree: str
    build: int
    name: str
    because: str
    also_tried: str | None = None

    def changeset(
        self, files: Sequence[FileChange], by: Authorship, moved: Sequence[MovedHunk] = ()
    ) -> Changeset:
        """A changeset on this base."""
        return Changeset(
            build=self.build,
            base=self.commit,
            name=self.name,
            files=tuple(files),
            by=by,
            because=self.because,
            moved=tuple(moved),
        )


class _Fit(NamedTuple):
    """How many changes of a queue apply to a base, and to how many exact files; larger is better."""

    applied: int
    exact: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFinder:
    """Reads a queue and finds its base. The fields are those of the import request."""

    sources: tuple[str, ...]
    paths: Paths
    repo: Path | None
    upstream: PinWanted
    as_build: AsBuild
    pipeline: Pipeline
    trees: Trees

    def read(self, folder: Path) -> tuple[QueueContents, QueueBase]:
        """The changes, and their base."""
        (first, *more) = self.sources
        if not more and is_range(first):
            return self._of_clone(first)
        contents = read_files(self.sources, self.paths, folder, self.trees.git)
        return contents, self._pin_of(contents)

    def _of_clone(self, revisions: str) -> tuple[QueueContents, QueueBase]:
        clone = open_clone(self.repo or Path.cwd(), self.pipeline.workspace.reporter)
        contents = read_commits(clone, revisions, self.pipeline.repository)
        if contents.base is None:
            raise AssertionError("a range of commits has a base")
        if not contents.changes:
            raise UsageError(f"{revisions} changes nothing", code="IMPORT_NOTHING")
        base, name = contents.base, f"{contents.base.sha[:12]} of {clone.top.name}"
        pins = (*self.pipeline.lock.pins, *self._catalogue())
        build = require_build(build_below(self.as_build, clone, base, pins), name)
        because = f"it is the parent of the commits, and contains upstream {build_name(build)}"
        return contents, QueueBase(commit=base.sha, tree=base.tree, build=build, name=name, because=because)

    def _catalogue(self) -> tuple[Pin, ...]:
        return catalogue_pins(self.pipeline.workspace.series.catalogue)

    def _pins(self) -> tuple[Pin, ...]:
        """The pins of the lock, and the builds of upstreams.toml that it lacks."""
        pins = self.pipeline.lock.pins
        known = {pin.name for pin in pins}
        return (*pins, *(pin for pin in self._catalogue() if pin.name not in known))

    def _pin_of(self, contents: QueueContents) -> QueueBase:
        """The base pin: the named one, else the default pin, else one whose files the diffs were made from.

        The last one is used only if the queue does not apply to the default pin as a whole. Pins of the lock
        that are not cached are fetched for the comparison. A queue that was made on top of the series is
        placed on its patches, see :meth:`_with_series`.
        """
        pins = self._pins()
        if self.upstream is not None:
            pin = replace(self.pipeline.lock, pins=pins).pin(self.upstream)
            return self._best(pin, "named by --upstream", contents)[0]
        if contents.pinned is not None:
            named = next((pin for pin in pins if _names(contents.pinned, pin)), None)
            if named is not None:
                because = f"the queue's upstream.txt names {contents.pinned[:40]}"
                return self._best(named, because, contents)[0]
        usual = self.pipeline.lock.pin(None)
        because = "the default pin of the series; to use another: --upstream"
        default, fit = self._best(usual, because, contents)
        if fit.applied == len(contents.changes):
            return default
        others = (pin for pin in self.pipeline.lock.pins if pin.name != usual.name)
        for pin in sorted(others, key=lambda each: -each.build):
            because = f"its files match the diffs' index lines, and the queue does not apply to {usual.name}"
            try:
                other = self._ground(pin, f"{because}; to use another: --upstream")
            except PatchkitError as error:
                warning = f"could not compare the queue with {pin.name}: {error.message}"
                self.pipeline.workspace.reporter.warn(warning)
                continue
            if self._fit(other, contents).exact == len(contents.changes):
                return other
        return default

    def _best(self, pin: Pin, because: str, contents: QueueContents) -> tuple[QueueBase, _Fit]:
        """The pin, or the pin with the patches of the series if more of the queue fits there."""
        bare = self._ground(pin, because)
        fit = self._fit(bare, contents)
        if fit.exact == len(contents.changes):
            return bare, fit
        top = self._with_series(pin, bare)
        if top is None:
            return bare, fit
        fit_on_top = self._fit(top, contents)
        return (top, fit_on_top) if fit_on_top > fit else (replace(bare, also_tried=top.name), fit)

    def _with_series(self, pin: Pin, bare: QueueBase) -> QueueBase | None:
        """A pin with the plain patches of the series; None if it has none there, or one cannot be placed."""
        workspace = replace(self.pipeline.workspace, reporter=NullReporter())
        request = Request(archs=(PLAIN,), upstream=pin, unlocked=True)
        plan = make_plan(request, workspace, self.pipeline.cache, self.pipeline.lock)
        if plan.errors or not plan.ids:
            return None
        candidate, tree = write_plan(plan, self.pipeline.repository, unlocked=True)
        return replace(
            bare,
            commit=candidate.tip,
            tree=tree,
            name=f"{bare.name} with the patches of the series",
            because=f"{bare.because}; the changes fit there better than on {bare.name} alone",
        )

    def _fit(self, queue_base: QueueBase, contents: QueueContents) -> _Fit:
        """How many of the changes apply in order, and how many to the exact files of their index lines."""
        self.pipeline.workspace.reporter.step(f"trying the changes on {queue_base.name}")
        tree = queue_base.tree
        applied = exact = 0
        for change in contents.changes:
            try:
                placed = self.trees.place(tree, change)
            except PatchkitError:
                continue
            applied += 1
            exact += placed.is_exact
            tree = placed.tree
        return _Fit(applied, exact)

    def _ground(self, pin: Pin, because: str) -> QueueBase:
        pipeline = self.pipeline
        commit = obtain(pin, cache=pipeline.cache, reporter=pipeline.workspace.reporter)
        tree = pipeline.repository.tree_of(commit)
        return QueueBase(commit=commit, tree=tree, build=pin.build, name=pin.name, because=because)

    def nearest(self, change: QueuedChange, queue_base: QueueBase) -> str | None:
        """The nearest cached pin to which a change applies on its own; None if there is none."""
        found = []
        for pin in self._pins():
            commit = find_pinned(self.pipeline.repository, pin)
            if commit is not None and commit != queue_base.commit:
                found.append((abs(pin.build - queue_base.build), pin.name, commit))
        for _, name, commit in sorted(found):
            try:
                self.trees.place(self.pipeline.repository.tree_of(commit), change)
            except PatchkitError:
                continue
            return name
        return None


def _names(word: str, pin: Pin) -> bool:
    """Whether a word of ``upstream.txt`` is a pin's name, its build or its commit."""
    word = word.lower()
    return pin.is_called(word) or (
        len(word) >= _SHORTEST and pin.commit is not None and pin.commit.startswith(word)
    )
