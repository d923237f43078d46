"""What the patches gave where they are known to be right: the lock's nearest pin that each of them is for.

A class needs two sides. The other one comes from the user's clone, where it has that commit, else from the
sources of the pin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchkit.config.lock import Lock, Pin
from patchkit.config.profile_data import ArchProfile
from patchkit.config.series import Series
from patchkit.errors import ErrorGroup, GitError, SourceError
from patchkit.fetch.cache import Cache
from patchkit.fetch.pin import obtain
from patchkit.flow.following import followed_series
from patchkit.flow.plan import Request
from patchkit.flow.rendering import Rendering, render_series
from patchkit.flow.selection import Selected, select_patches
from patchkit.flow.upstream import read_upstream
from patchkit.flow.workspace import Workspace
from patchkit.vcs.clone import Clone, Commit, copy_commit
from patchkit.vcs.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Finds the last renderings; ``used`` names the pins that were compared with, so far."""

    workspace: Workspace
    cache: Cache
    clone: Clone
    lock: Lock
    series: Series
    profiles: tuple[ArchProfile, ...]
    used: list[str] = field(default_factory=list)

    def renderings(self, chosen: Sequence[Selected], build: int, request: Request) -> Mapping[str, Rendering]:
        """By patch. A pin that cannot be had is told, and its patches are compared with nothing."""
        wanted = [each.patch for each in chosen if each.targets]
        found: dict[str, Rendering] = {}
        for pin in sorted(self.lock.pins, key=lambda pin: (abs(pin.build - build), pin.build)):
            if not any(each.id not in found and each.builds.covers(pin.build) for each in wanted):
                continue
            try:
                found = {**self._on(pin, request), **found}
            except (SourceError, GitError, ErrorGroup) as error:
                self.workspace.reporter.warn(
                    f"{pin.name} cannot be had to compare with, so nothing tells whether a place moved: "
                    f"{error.message}"
                )
                continue
            self.used.append(pin.name)
        return found

    def _on(self, pin: Pin, request: Request) -> dict[str, Rendering]:
        reporter = self.workspace.reporter
        with self.cache.hold(reporter) as repository:
            fetched = self._from_clone(pin, repository)
            base = obtain(pin, cache=self.cache, fetched=fetched, reporter=reporter).commit
            series = followed_series(self.series, pin)
            chosen = select_patches(
                series, self.profiles, pin.build, only=(), without=request.without, with_=request.with_
            )
            upstream = read_upstream(repository, base, series.folders)
        rendered = render_series(chosen, upstream, self.workspace.series)
        return {each.patch.id: each for each in rendered if each.placed is not None}

    def _from_clone(self, pin: Pin, repository: Repository) -> str | None:
        """The pin's commit, copied from the clone if that has it whole: then nothing is downloaded."""
        if pin.commit is None or pin.commit_object is None or repository.has_object(f"{pin.tree}^{{tree}}"):
            return None
        commit = Commit(sha=pin.commit, tree=pin.tree, date=pin.committed, raw=pin.commit_object)
        if not self.clone.ask("rev-parse", "--verify", "--quiet", f"{pin.commit}^{{commit}}"):
            return None
        try:
            copy_commit(self.clone, commit, repository)
        except GitError:
            return None
        return pin.commit
