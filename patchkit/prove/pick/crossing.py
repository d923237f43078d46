"""Which builds a round runs, so that one run tells of several patches.

Left out one by one, k patches need k + 1 runs a round, and each is seen in two of them. Patches that have
nothing to do with each other can be left out in all combinations instead: every two runs that differ by one
patch alone are a value of its effect, so with four patches sixteen runs hold eight values of each. It costs
builds.

Patches that touch one kernel, or need one another, stay beside each other: of those one at a time is left
out, for what one brings may hang on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

Arm = tuple[str, ...]
"""The patches of a build, in the order of the series; none: upstream."""
Cluster = tuple[str, ...]
Group = tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """``outs``: what leaves ``context`` when a patch is left out, itself and those that need it.

    Of a cluster at most one patch is left out at a time; those of a group's clusters are left out in all
    combinations, and one group at a time.
    """

    context: Arm
    outs: Mapping[str, frozenset[str]]
    groups: tuple[Group, ...]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The builds of a round, each once."""
        found = {self.context: None}
        for group in self.groups:
            found |= dict.fromkeys(self._without(left) for left in product(*map(_levels, group)))
        return tuple(found)

    def pairs(self, name: str) -> Iterator[tuple[Arm, Arm]]:
        """Every two builds of a round that differ by this patch alone: without it, and with it."""
        group = next(group for group in self.groups if any(name in cluster for cluster in group))
        others = [_levels(cluster) for cluster in group if name not in cluster]
        for left in product(*others):
            yield self._without((name, *left)), self._without(left)

    def only(self, names: frozenset[str]) -> Crossing:
        """Fewer patches, the builds of the others not needed any more; no build is new."""
        groups = []
        for group in self.groups:
            clusters = (tuple(name for name in cluster if name in names) for cluster in group)
            groups.append(tuple(cluster for cluster in clusters if cluster))
        return Crossing(
            context=self.context, outs=self.outs, groups=tuple(group for group in groups if group)
        )

    def one_by_one(self) -> Crossing:
        """The fewest builds: each patch is left out of the whole."""
        clusters = tuple((cluster,) for group in self.groups for cluster in group)
        return Crossing(context=self.context, outs=self.outs, groups=clusters)

    def _without(self, left: Sequence[str | None]) -> Arm:
        out = frozenset[str]().union(*(self.outs[name] for name in left if name is not None))
        return tuple(name for name in self.context if name not in out)


def cross(
    context: Arm, outs: Mapping[str, frozenset[str]], touches: Mapping[str, frozenset[str]], most: int
) -> Crossing:
    """Patches crossed as far as ``most`` builds allow; one by one where even that takes more.

    ``touches``: of every patch of the context those whose kernel it touches. Groups are joined where that
    saves most: the runs that a value of a patch takes, summed over the patches.
    """
    groups: list[Group] = [(cluster,) for cluster in _clusters(outs, touches)]
    while len(groups) > 1:
        joined = [_joined(groups, one, other) for one, other in combinations(range(len(groups)), 2)]
        allowed = [each for each in joined if _runs(each) <= most]
        best = min(allowed, key=_runs_per_value, default=None)
        if best is None or _runs_per_value(best) >= _runs_per_value(groups):
            break
        groups = best
    return Crossing(context=context, outs=outs, groups=tuple(groups))


def _clusters(outs: Mapping[str, frozenset[str]], touches: Mapping[str, frozenset[str]]) -> Iterator[Cluster]:
    """Patches that hang together, directly or by way of another one."""
    near = {name: out.union(*(touches.get(each, frozenset()) for each in out)) for name, out in outs.items()}
    left = list(outs)
    while left:
        cluster = [left.pop(0)]
        for one in cluster:  # grows while it is walked
            hanging = [each for each in left if near[one] & outs[each] or near[each] & outs[one]]
            cluster += hanging
            left = [each for each in left if each not in hanging]
        yield tuple(name for name in outs if name in cluster)


def _levels(cluster: Cluster) -> tuple[str | None, ...]:
    return (None, *cluster)


def _joined(groups: Sequence[Group], one: int, other: int) -> list[Group]:
    rest = [group for number, group in enumerate(groups) if number not in {one, other}]
    return [groups[one] + groups[other], *rest]


def _size(group: Group) -> int:
    return math.prod(len(cluster) + 1 for cluster in group)


def _runs(groups: Sequence[Group]) -> int:
    return 1 + sum(_size(group) - 1 for group in groups)


def _runs_per_value(groups: Sequence[Group]) -> float:
    """Summed over the patches."""
    values = ((len(cluster), _size(group) / (len(cluster) + 1)) for group in groups for cluster in group)
    return _runs(groups) * sum(patches / of_each for patches, of_each in values)
