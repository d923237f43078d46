"""Judge a series on upstream trees. Used by bump, --onto, sweep, bisect and resolve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchkit.base.upstreams import Upstream
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Decision, Wish, decide
from patchkit.carry.candidate.renames import placed_series
from patchkit.carry.judging.changed import Versions
from patchkit.carry.judging.classes import Classified
from patchkit.carry.judging.classify import Comparison, classify_series
from patchkit.carry.judging.rendering import Rendering, followed_by, last_renderings
from patchkit.carry.placing.tree import UpstreamFiles, read_upstream
from patchkit.carry.series.catalogue import Series
from patchkit.carry.series.fault import FaultHere
from patchkit.carry.series.lock import Followed, FollowedEdit, Pin
from patchkit.carry.series.profile import load_profiles
from patchkit.carry.upstream.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSeries:
    """The verdicts on each patch of a decision on one tree; ``renderings``: the patches that are in.

    ``followed``: functions and edits that are not where patch.toml has them, with their new place.
    """

    decision: Decision
    verdicts: tuple[Classified, ...]
    renderings: tuple[Rendering, ...]
    followed: tuple[Followed | FollowedEdit, ...]

    @property
    def pin(self) -> Pin:
        """The pin, with the new places of functions."""
        return replace(self.decision.pin, followed=self.followed)

    @property
    def last(self) -> dict[str, Rendering]:
        """The renderings by patch, to compare the next tree with."""
        return {each.patch.id: each for each in self.renderings}

    @property
    def faults(self) -> tuple[FaultHere, ...]:
        """Known faults of this build on these GPUs, including those that a placed patch fixes."""
        return self.decision.faults_with(each.selected for each in self.renderings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesJudge:
    """Judges the series of a workspace on trees of ``repository``.

    ``series``: as written in patch.toml, without followed functions. ``trees``: a cache for trees that are
    read more than once; None for no cache.
    """

    workspace: Workspace
    repository: Repository
    series: Series
    trees: dict[str, UpstreamFiles] | None = None

    def decide(self, pin: Pin, archs: Sequence[str], wish: Wish, *, as_recorded: bool = False) -> Decision:
        """Which patches the GPUs get on a pin. Retries what a bump excluded, unless ``as_recorded``."""
        profiles = load_profiles(self.workspace.series.profiles, archs)
        dropped = {each.patch: each.why for each in pin.dropped} if as_recorded else {}
        return decide(self.series, profiles, pin, wish, dropped)

    def read(
        self, commit: str, project: Upstream | None = None, *, shown_as: Upstream | None = None
    ) -> UpstreamFiles:
        """The sources of a commit, without patches.

        ``project`` is that of the commit, None for llama.cpp; ``shown_as`` as for :func:`read_upstream`.
        """
        if self.trees is None:
            read = placed_series(self.series, shown_as or project).read
            return read_upstream(self.repository, commit, read, project, shown_as=shown_as)
        if commit not in self.trees:
            self.trees[commit] = read_upstream(self.repository, commit, self.series.read)
        return self.trees[commit].fresh()

    def render(self, decision: Decision, files: UpstreamFiles) -> dict[str, Rendering]:
        """Rendering of each patch that is in and can be placed, by id, to compare later trees with."""
        named = {edit.file for each in decision.selected for edit in each.patch.edits}
        followed = sorted((named & files.names) - set(files.base))  # an earlier bump followed a renamed file
        if followed:
            files = files.reading(followed)
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
        """Classify every patch of a decision on the tree, compared with its ``last`` rendering.

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
            followed=followed_by(placed_series(self.series, decision.pin.project), renderings),
        )
