"""Which builds to run in a round, so that one run gives values for several patches.

If k patches are left out one by one, a round needs k + 1 runs, and each patch appears in two of them.
Independent patches can be left out in all combinations instead: every two runs that differ by one patch give
a value of its effect, so with four patches sixteen runs give eight values of each. The cost is more builds.

Patches that touch the same kernel or need one another form a cluster. Only one of them is left out at a time,
because the gain of one may depend on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

Arm = tuple[str, ...]
"""The patches of a build, in the order of the series; empty: upstream."""
Cluster = tuple[str, ...]
ClusterGroup = tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialDesign:
    """``outs``: what leaves ``context`` when a patch is left out, namely itself and the patches that need it.

    At most one patch of a cluster is left out at a time. The clusters of a group are left out in all
    combinations, and only one group at a time.
    """

    context: Arm
    outs: Mapping[str, frozenset[str]]
    groups: tuple[ClusterGroup, ...]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The builds of a round, each once."""
        found = {self.context: None}
        for group in self.groups:
            found |= dict.fromkeys(self._without(left) for left in product(*map(_levels, group)))
        return tuple(found)

    def pairs(self, name: str) -> Iterator[tuple[Arm, Arm]]:
        """All pairs of builds of a round that differ only by this patch: without it, and with it."""
        group = next(group for group in self.groups if any(name in cluster for cluster in group))
        others = [_levels(cluster) for cluster in group if name not in cluster]
        for left in product(*others):
            yield self._without((name, *left)), self._without(left)

    def only(self, names: frozenset[str]) -> FactorialDesign:
        """A design of fewer patches, without the builds of the others; it needs no new build."""
        groups = []
        for group in self.groups:
            clusters = (tuple(name for name in cluster if name in names) for cluster in group)
            groups.append(tuple(cluster for cluster in clusters if cluster))
        return FactorialDesign(
            context=self.context, outs=self.outs, groups=tuple(group for group in groups if group)
        )

    def one_by_one(self) -> FactorialDesign:
        """The design with the fewest builds: each patch is left out of the whole context."""
        clusters = tuple((cluster,) for group in self.groups for cluster in group)
        return FactorialDesign(context=self.context, outs=self.outs, groups=clusters)

    def _without(self, left: Sequence[str | None]) -> Arm:
        out = frozenset[str]().union(*(self.outs[name] for name in left if name is not None))
        return tuple(name for name in self.context if name not in out)


def design_round(
    context: Arm, outs: Mapping[str, frozenset[str]], touches: Mapping[str, frozenset[str]], most: int
) -> FactorialDesign:
    """Combine patches as far as ``most`` builds allow, or one by one if even that needs more.

    ``touches`` maps each patch of the context to those that touch the same kernel. Groups are joined where
    that saves most: runs per value of a patch, summed over the patches.
    """
    groups: list[ClusterGroup] = [(cluster,) for cluster in _clusters(outs, touches)]
    while len(groups) > 1:
        joined = [_joined(groups, one, other) for one, other in combinations(range(len(groups)), 2)]
        allowed = [each for each in joined if _runs(each) <= most]
        best = min(allowed, key=_runs_per_value, default=None)
        if best is None or _runs_per_value(best) >= _runs_per_value(groups):
            break
        groups = best
    return FactorialDesign(context=context, outs=outs, groups=tuple(groups))


def _clusters(outs: Mapping[str, frozenset[str]], touches: Mapping[str, frozenset[str]]) -> Iterator[Cluster]:
    """Patches that depend on each other, directly or through another one."""
    near = {name: out.union(*(touches.get(each, frozenset()) for each in out)) for name, out in outs.items()}
    left = list(outs)
    while left:
        cluster = [left.pop(0)]
        for one in cluster:  # grows during the loop
            linked = [each for each in left if near[one] & outs[each] or near[each] & outs[one]]
            cluster += linked
            left = [each for each in left if each not in linked]
        yield tuple(name for name in outs if name in cluster)


def _levels(cluster: Cluster) -> tuple[str | None, ...]:
    return (None, *cluster)


def _joined(groups: Sequence[ClusterGroup], one: int, other: int) -> list[ClusterGroup]:
    rest = [group for number, group in enumerate(groups) if number not in {one, other}]
    return [groups[one] + groups[other], *rest]


def _size(group: ClusterGroup) -> int:
    return math.prod(len(cluster) + 1 for cluster in group)


def _runs(groups: Sequence[ClusterGroup]) -> int:
    return 1 + sum(_size(group) - 1 for group in groups)


def _runs_per_value(groups: Sequence[ClusterGroup]) -> float:
    """The runs per value of a patch, summed over the patches."""
    values = ((len(cluster), _size(group) / (len(cluster) + 1)) for group in groups for cluster in group)
    return _runs(groups) * sum(patches / of_each for patches, of_each in values)
