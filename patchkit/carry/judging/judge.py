"""Judging a series on trees of upstream: what a bump, --onto, a sweep, a bisection and resolve all do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Wish, decide
from patchkit.carry.judging.changed import Versions
from patchkit.carry.judging.classes import Classified
from patchkit.carry.judging.classify import Comparison, classify_series
from patchkit.carry.judging.rendering import Rendering, followed_by, last_renderings
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Followed, Pin
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSeries:
    """What became of each patch of a decision on a tree of upstream; ``renderings`` are those that are in.

    ``followed`` says where functions are that patch.toml has elsewhere.
    """

    decision: Decision
    verdicts: tuple[Classified, ...]
    renderings: tuple[Rendering, ...]
    followed: tuple[Followed, ...]

    @property
    def pin(self) -> Pin:
        """The pin, with the functions where they were found."""
        return replace(self.decision.pin, followed=self.followed)

    @property
    def last(self) -> dict[str, Rendering]:
        """The renderings by patch, for the next tree to be compared with."""
        return {each.patch.id: each for each in self.renderings}

    @property
    def faults(self) -> tuple[FaultHere, ...]:
        """What is known to be wrong in this build on these GPUs, mended by a patch that is in or not."""
        return self.decision.faults_with(each.selected for each in self.renderings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesJudge:
    """Judges the series of a workspace on trees that ``repository`` has.

    ``series`` is as patch.toml has it. ``trees``: where what is read is kept, if it is read more than once.
    """

    workspace: Workspace
    repository: Repository
    series: Series
    trees: dict[str, UpstreamFiles] | None = None

    def decide(self, pin: Pin, archs: Sequence[str], wish: Wish, *, as_recorded: bool = False) -> Decision:
        """What GPUs get on a pin. What a bump left out there is tried again, but for ``as_recorded``."""
        profiles = load_profiles(self.workspace.series.profiles, archs)
        left_out = {each.patch: each.why for each in pin.left_out} if as_recorded else {}
        return decide(self.series, profiles, pin, wish, left_out)

    def read(self, commit: str) -> UpstreamFiles:
        """The sources of a commit, without any patch."""
        if self.trees is None:
            return read_upstream(self.repository, commit, self.series.read)
        if commit not in self.trees:
            self.trees[commit] = read_upstream(self.repository, commit, self.series.read)
        return self.trees[commit].fresh()

    def render(self, decision: Decision, files: UpstreamFiles) -> dict[str, Rendering]:
        """Each patch that is in and can be placed, by id: what later trees are compared with."""
        return last_renderings(decision.selected, files, self.workspace.series)

    def judge(
        self,
        decision: Decision,
        files: UpstreamFiles,
        last: Mapping[str, Rendering],
        *,
        is_pin: bool = True,
        pulls: Mapping[str, tuple[Versions, ...]] | None = None,
    ) -> JudgedSeries:
        """Class every patch of a decision on the tree, compared with its ``last`` rendering.

        ``is_pin`` and ``pulls`` as in :class:`patchkit.carry.judging.classify.Comparison`. Raises GitError
        and CacheError, never because of a patch.
        """
        verdicts, renderings = classify_series(
            Comparison(
                workspace=self.workspace,
                build=decision.pin.build,
                chosen=decision.selected,
                files=files,
                last=last,
                is_pin=is_pin,
                pulls=pulls or {},
            )
        )
        return JudgedSeries(
            decision=decision,
            verdicts=verdicts,
            renderings=renderings,
            followed=followed_by(self.series, renderings),
        )
