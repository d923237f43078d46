"""What a queue of patches is placed on: the commit that it was made for, as far as the queue itself tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.base.errors import PatchkitError, UsageError
from patchkit.base.upstreams import build_name
from patchkit.carry.candidate.target import catalogue_pins
from patchkit.carry.importing.queue_sources import (
    Paths,
    QueuedChange,
    Reading,
    is_range,
    read_commits,
    read_files,
)
from patchkit.carry.importing.standing import Trees
from patchkit.carry.lifting.change import Authorship, Changeset, FileChange, MovedHunk
from patchkit.carry.lifting.pipeline import Pipeline
from patchkit.carry.onto.pin import AsBuild, build_below, require_build
from patchkit.carry.series.lock import Pin, PinWanted
from patchkit.carry.upstream.clone import open_clone
from patchkit.carry.upstream.pin import find_pinned, obtain

_SHORTEST = 7  # digits of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a queue is placed on: a commit of the cache with its tree, what it is called, and why that."""

    commit: str
    tree: str
    build: int
    name: str
    because: str

    def changeset(
        self, files: Sequence[FileChange], by: Authorship, moved: Sequence[MovedHunk] = ()
    ) -> Changeset:
        """What becomes of files of that commit."""
        return Changeset(
            build=self.build,
            base=self.commit,
            name=self.name,
            files=tuple(files),
            by=by,
            because=self.because,
            moved=tuple(moved),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Reads a queue, and finds what it is placed on; the fields as in a request to import one."""

    sources: tuple[str, ...]
    paths: Paths
    repo: Path | None
    upstream: PinWanted
    as_build: AsBuild
    pipeline: Pipeline
    trees: Trees

    def read(self, folder: Path) -> tuple[Reading, Ground]:
        """The changes, and the tree below them."""
        (first, *more) = self.sources
        if not more and is_range(first):
            return self._of_clone(first)
        reading = read_files(self.sources, self.paths, folder, self.trees.git)
        return reading, self._pin_of(reading)

    def _of_clone(self, revisions: str) -> tuple[Reading, Ground]:
        clone = open_clone(self.repo or Path.cwd(), self.pipeline.workspace.reporter)
        reading = read_commits(clone, revisions, self.pipeline.repository)
        if reading.base is None:
            raise AssertionError("commits stand on one")
        if not reading.changes:
            raise UsageError(f"{revisions} changes nothing", code="IMPORT_EMPTY")
        base, name = reading.base, f"{reading.base.sha[:12]} of {clone.top.name}"
        pins = (*self.pipeline.lock.pins, *self._catalogue())
        build = require_build(build_below(self.as_build, clone, base, pins), name)
        because = f"the commits stand on it; upstream {build_name(build)} is in it"
        return reading, Ground(commit=base.sha, tree=base.tree, build=build, name=name, because=because)

    def _catalogue(self) -> tuple[Pin, ...]:
        return catalogue_pins(self.pipeline.workspace.series.catalogue)

    def _pins(self) -> tuple[Pin, ...]:
        """Those of the lock, and the builds of upstreams.toml that it lacks."""
        pins = self.pipeline.lock.pins
        known = {pin.build for pin in pins}
        return (*pins, *(pin for pin in self._catalogue() if pin.build not in known))

    def _pin_of(self, reading: Reading) -> Ground:
        """The pin that was named, else that of the series, or the one of whose files the queue is made.

        The latter only where the series' own does not take all of it. What is cached does not matter: a pin
        of the lock that is compared is fetched.
        """
        pins = self._pins()
        if self.upstream is not None:
            pin = replace(self.pipeline.lock, pins=pins).pin(self.upstream)
            return self._ground(pin, "--upstream names it")
        if reading.pinned is not None:
            named = next((pin for pin in pins if _names(reading.pinned, pin)), None)
            if named is not None:
                return self._ground(named, f"the queue's upstream.txt names {reading.pinned[:40]}")
        default = self._ground(
            self.pipeline.lock.pin(None), "it is the pin of the series; --upstream names another"
        )
        if self._takes(default, reading, is_exact=False):
            return default
        others = (pin for pin in self.pipeline.lock.pins if pin.name != default.name)
        for pin in sorted(others, key=lambda each: -each.build):
            because = f"each file is the one that an index line names, and not all applies to {default.name}"
            try:
                other = self._ground(pin, f"{because}; --upstream names another")
            except PatchkitError as error:
                warning = f"{pin.name} was not compared with the queue: {error.message}"
                self.pipeline.workspace.reporter.warn(warning)
                continue
            if self._takes(other, reading, is_exact=True):
                return other
        return default

    def _takes(self, ground: Ground, reading: Reading, *, is_exact: bool) -> bool:
        """Whether all changes apply, one on the other; ``is_exact``: to the very files that they name."""
        self.pipeline.workspace.reporter.step(f"trying the changes on {ground.name}")
        tree = ground.tree
        for change in reading.changes:
            try:
                placed = self.trees.place(tree, change)
            except PatchkitError:
                return False
            if is_exact and not placed.is_exact:
                return False
            tree = placed.tree
        return True

    def _ground(self, pin: Pin, because: str) -> Ground:
        pipeline = self.pipeline
        commit = obtain(pin, cache=pipeline.cache, reporter=pipeline.workspace.reporter)
        tree = pipeline.repository.tree_of(commit)
        return Ground(commit=commit, tree=tree, build=pin.build, name=pin.name, because=because)

    def nearest(self, change: QueuedChange, ground: Ground) -> str | None:
        """A cached pin to which a change applies by itself, the nearest one; None where there is none."""
        found = []
        for pin in self._pins():
            commit = find_pinned(self.pipeline.repository, pin)
            if commit is not None and commit != ground.commit:
                found.append((abs(pin.build - ground.build), pin.name, commit))
        for _, name, commit in sorted(found):
            try:
                self.trees.place(self.pipeline.repository.tree_of(commit), change)
            except PatchkitError:
                continue
            return name
        return None


def _names(word: str, pin: Pin) -> bool:
    """Whether a word of a queue is a pin's build or commit."""
    word = word.lower()
    return word in (pin.name, str(pin.build)) or (
        len(word) >= _SHORTEST and pin.commit is not None and pin.commit.startswith(word)
    )
