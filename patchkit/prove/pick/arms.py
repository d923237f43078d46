"""The builds that ``pick`` measures: upstream, all patches, all but one; created and built on demand.

Patches with a run-time switch are turned off in one build instead of being left out of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.commit import write_plan
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.plan import Plan
from patchkit.carry.onto.pin import Onto
from patchkit.carry.onto.plan import place_request
from patchkit.carry.series.switches import turn_off
from patchkit.carry.upstream.cache import open_cache
from patchkit.prove.build import build_tree
from patchkit.prove.pick.decide import Member
from patchkit.prove.pick.factorial import Arm
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.parts import GATE_PROGRAMS, BackendName
from patchkit.toolchain.sides import BuiltSide


@dataclass(slots=True, kw_only=True)
class Arms:
    """``request`` names every candidate patch; ``onto`` is a commit of the user's clone to place them on.

    ``programs`` are built, with ``is_timed`` as in :func:`patchkit.prove.build.build_tree`.
    """

    workspace: Workspace
    request: Request
    onto: Onto | None
    toolchain: Toolchain | None
    programs: tuple[str, ...] = GATE_PROGRAMS
    is_timed: bool = True
    _whole: Plan | None = None
    _subjects: dict[Arm, Subject] = field(default_factory=dict)
    _built: dict[tuple[str, BackendName], BuiltSide] = field(default_factory=dict)

    @property
    def whole(self) -> Plan:
        """The plan of all patches. Raises an ErrorGroup of the edits that could not be placed."""
        if self._whole is None:
            self._whole = place_request(self.request, self.onto, self.workspace)
        return self._whole

    @property
    def members(self) -> tuple[Member, ...]:
        """The patches that can be picked, each with those it needs and those that touch the same kernel."""
        plan = self.whole
        fixing = {one.fault.patch for one in plan.faults}
        touched = {name: frozenset(_touched(plan, name)) for name in self.ids}
        return tuple(
            Member(
                id=name,
                fixes=name in fixing,
                requires=frozenset(_requires(plan, name)),
                touches=frozenset(
                    other for other, theirs in touched.items() if other != name and _overlap(mine, theirs)
                ),
            )
            for name, mine in touched.items()
        )

    @property
    def ids(self) -> Arm:
        """The patches of :attr:`whole` that can be picked: all but the one that adds the switches."""
        return _chosen(self.whole)

    def subject(self, arm: Arm) -> Subject:
        """The trees of an arm; for upstream the subject with all patches, whose baseline it is."""
        if arm not in self._subjects:
            plan = self.whole
            if arm not in ((), self.ids):
                plan = place_request(self._only(arm), self.onto, self.workspace)
            if arm and _chosen(plan) != arm:
                raise AssertionError(f"requested {arm}, placed {plan.ids}")  # never measure another set
            cache = open_cache(self.workspace.cache_root)
            with cache.hold(self.workspace.reporter) as repository:
                candidate, _ = write_plan(plan, repository, unlocked=True)
            self._subjects[arm] = make_subject(self.workspace, repository, candidate, self.toolchain)
        return self._subjects[arm]

    def _only(self, arm: Arm) -> Request:
        """A request for exactly these patches, whether they are on or opt-in for a GPU."""
        return replace(self.request, only=arm, without=(), with_=arm, with_opt_in=False, trust=None)

    def tree_of(self, arm: Arm) -> str:
        """The hash of an arm's tree."""
        subject = self.subject(arm)
        return subject.candidate_tree if arm else subject.baseline_tree

    def build(self, arm: Arm, backend: BackendName) -> BuiltSide:
        """Build an arm, or reuse a build that has its patches and others that can be turned off.

        The environment of its programs turns those off. Raises the errors of
        :func:`patchkit.toolchain.machine.build_side`.
        """
        off = self._off(arm)
        if not off or (self.tree_of(arm), backend) in self._built:
            return self.build_alone(arm, backend)
        built = self.build_alone(self._with(arm, off), backend)
        return replace(built, environment={**built.environment, **turn_off(off)})

    def subject_of_build(self, arm: Arm, backend: BackendName) -> Subject:
        """The trees of what :meth:`build` builds for an arm."""
        off = self._off(arm)
        is_alone = not off or (self.tree_of(arm), backend) in self._built
        return self.subject(arm if is_alone else self._with(arm, off))

    def without(self, patch: str) -> Arm:
        """All patches but one and those that require it."""
        gone = {patch}
        while more := {
            name for name in self.ids if name not in gone and gone & {*_requires(self.whole, name)}
        }:
            gone |= more
        return tuple(name for name in self.ids if name not in gone)

    def _with(self, arm: Arm, off: Arm) -> Arm:
        return tuple(name for name in self.ids if name in (*arm, *off))

    def _off(self, arm: Arm) -> Arm:
        """The patches that the build of an arm has although the arm does not: those with a switch."""
        if not arm:
            return ()
        switches = next((selected.switches for selected, _ in self.whole.steps), None)
        off = {each.patch for each in switches.all} - {*arm} if switches is not None else set()
        while lacking := {name for name in off if not {*_requires(self.whole, name)} <= off.union(arm)}:
            off -= lacking
        return tuple(name for name in self.ids if name in off)

    def build_alone(self, arm: Arm, backend: BackendName) -> BuiltSide:
        """Build exactly an arm, or reuse its build; objects that builds share are compiled once.

        Raises as :meth:`build`.
        """
        key = (self.tree_of(arm), backend)
        if key not in self._built:
            subject = self.subject(arm)
            self._built[key] = build_tree(
                subject,
                subject.candidate if arm else subject.baseline,
                key[0],
                backend,
                self.programs,
                is_timed=self.is_timed,
                in_turns=True,
            )
        return self._built[key]


def _chosen(plan: Plan) -> Arm:
    return tuple(selected.patch.id for selected, _ in plan.steps if selected.patch.switches is None)


def _requires(plan: Plan, name: str) -> Iterable[str]:
    patch = plan.decision.series.patch(name)
    return () if patch is None else (one.patch for one in patch.requires)


Touched = tuple[str, str]  # a file and an entity in it; an empty entity is the whole file


def _touched(plan: Plan, name: str) -> Iterable[Touched]:
    placed = next(each.placed for each in plan.patches if each.id == name)
    if placed is None:
        return
    edited = set()
    for edit in placed.edits:
        edited.add(edit.file)
        yield edit.file, edit.entity
    yield from ((path, "") for path in (*placed.changes, *placed.gone) if path not in edited)


def _overlap(one: frozenset[Touched], other: frozenset[Touched]) -> bool:
    """Whether two patches edit the same function, or one of them a whole file that the other edits too."""
    whole = {path for path, entity in one | other if not entity}
    shared = {path for path, _ in one} & {path for path, _ in other}
    return bool(one & other or whole & shared)
