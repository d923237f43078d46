"""The ordered list that is searched: builds of llama.cpp, and then the patches, one more in each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace

from patchkit.base.arch import list_profiles
from patchkit.base.errors import UsageError
from patchkit.base.upstreams import build_name
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.target import fetch_build
from patchkit.carry.series.lock import load_lock
from patchkit.carry.series.profile import load_profile
from patchkit.carry.sweep.bisect import find_build, label_build
from patchkit.carry.upstream.cache import open_cache
from patchkit.carry.upstream.exported import export_tree
from patchkit.carry.upstream.remote import remote_url
from patchkit.carry.upstream.tags import Tags, list_tags
from patchkit.gpu.emulated.emulated_sides import emulated_side
from patchkit.gpu.emulated.emulator import EmulationOptions
from patchkit.prove.build import Machine, build_tree
from patchkit.prove.gates.sides import emulated_gpu_of
from patchkit.prove.gates.touched import touched_units
from patchkit.prove.pick.arms import Arms
from patchkit.prove.pick.factorial import Arm
from patchkit.prove.subject import Subject
from patchkit.toolchain.sides import BuiltSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One entry of the list. ``identity`` is the commit of a build, or the patches; ``patch`` the new one."""

    name: str
    identity: tuple[str, ...]
    build: int | None = None
    patch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Builds of a git remote, ascending."""

    tags: Tags
    builds: tuple[int, ...]


def find_range(workspace: Workspace, first: str, last: str | None, url: str | None) -> Range:
    """The builds of a remote between two of them; ``last`` None: the lock's default.

    Raises:
        SWEEP_BUILD_UNKNOWN: the remote has no such build, or ``first`` is not before ``last``.
        UsageError, REMOTE_HAS_NO_BUILDS and the others of :func:`list_tags`.
    """
    lock = load_lock(workspace.series.lock)
    root = open_cache(workspace.cache_root).root
    tags = list_tags(remote_url(lock, url), workspace.reporter)
    begin, tags = find_build(first, tags, root, workspace.reporter)
    end, tags = find_build(last or lock.default, tags, root, workspace.reporter)
    if begin >= end:
        raise UsageError(
            f"{label_build(begin, tags)} is not before {label_build(end, tags)}",
            code="SWEEP_BUILD_UNKNOWN",
            hint="--good must be an earlier build than the bad one (--upstream)",
        )
    return Range(tags=tags, builds=tags.between(begin, end))


@dataclass(slots=True, kw_only=True)
class Steps:
    """All candidates of a search, which it builds.

    ``builds`` None: only patches. ``arms`` has the patches, on the last build; without ``has_patches`` only
    that build. ``has_switches``: patches with a run-time switch are turned off in one build instead of being
    left out of another.
    """

    workspace: Workspace
    arms: Arms
    machine: Machine
    builds: Range | None
    has_patches: bool
    has_switches: bool
    programs: tuple[str, ...]
    _subjects: dict[int, Subject] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Step, ...]:
        """The list, in order. The last build without patches is part of both halves."""
        return (*self._build_steps(), *self._patch_steps())

    def _build_steps(self) -> Iterator[Step]:
        if self.builds is None:
            yield Step(name=f"{self._base} without patches", identity=())
            return
        for number in self.builds.builds:
            yield Step(name=build_name(number), identity=(self.builds.tags.builds[number],), build=number)

    def _patch_steps(self) -> Iterator[Step]:
        if not self.has_patches:
            return
        ids = self.arms.ids
        for count, patch in enumerate(ids, start=1):
            yield Step(name=f"{self._base} + {patch}", identity=ids[:count], patch=patch)

    @property
    def _base(self) -> str:
        return self.arms.whole.pin.name

    def arm_of(self, step: Step) -> Arm:
        """The patches of a step of the second half."""
        return step.identity if step.patch is not None else ()

    def tree_of(self, step: Step) -> str:
        """The hash of a step's tree."""
        if step.build is not None:
            return self._subject(step.build).baseline_tree
        return self.arms.tree_of(self.arm_of(step))

    @contextmanager
    def ready(self, step: Step) -> Iterator[BuiltSide]:
        """A step, built, for the duration of the context. Raises the errors of building and placing."""
        if step.build is not None:
            subject = self._subject(step.build)
            with self._emulated(subject, self._build_upstream(subject)) as side:
                yield side
            return
        with self._ready_arm(self.arm_of(step)) as side:
            yield side

    def tree_without(self, patch: str) -> str:
        """The hash of the tree with all patches but one and those that require it."""
        return self.arms.tree_of(self.arms.without(patch))

    def ready_without(self, patch: str) -> AbstractContextManager[BuiltSide]:
        """All patches but one and those that require it, as :meth:`ready`."""
        return self._ready_arm(self.arms.without(patch))

    @contextmanager
    def _ready_arm(self, arm: Arm) -> Iterator[BuiltSide]:
        backend = "cpu" if self.machine.is_emulated else self.machine.backend
        built = self.arms.build(arm, backend) if self.has_switches else self.arms.build_alone(arm, backend)
        subject = self.arms.subject_of_build(arm, backend) if self.has_switches else self.arms.subject(arm)
        if not arm:
            subject = replace(subject, candidate=subject.baseline, candidate_tree=subject.baseline_tree)
        with self._emulated(subject, built) as side:
            yield side

    def _build_upstream(self, subject: Subject) -> BuiltSide:
        return build_tree(
            subject,
            subject.candidate,
            subject.candidate_tree,
            "cpu" if self.machine.is_emulated else self.machine.backend,
            self.programs,
            is_timed=self.arms.is_timed,
            in_turns=True,
        )

    @contextmanager
    def _emulated(self, subject: Subject, built: BuiltSide) -> Iterator[BuiltSide]:
        if self.machine.emulates is None:
            yield built
            return
        gpu, compiler = emulated_gpu_of(subject, self.machine.emulates)
        with emulated_side(
            built,
            subject.trees[1],
            gpu,
            compiler,
            EmulationOptions(),
            rocwmma=not subject.is_without_rocwmma,
            fresh=self.machine.is_fresh,
            whole=touched_units(subject),
        ) as ready:
            yield replace(ready.built, environment={**ready.built.environment, **built.environment})

    def _subject(self, build: int) -> Subject:
        """An upstream build as a subject without patches."""
        if build in self._subjects:
            return self._subjects[build]
        if self.builds is None:
            raise AssertionError(f"{build_name(build)} is not in the list")
        workspace = self.workspace
        cache = open_cache(workspace.cache_root)
        with cache.hold(workspace.reporter) as repository:
            lock = load_lock(workspace.series.lock)
            _, commit = fetch_build(lock, cache, repository, self.builds.tags, build)
        tree = export_tree(repository, commit, workspace.cache_root / "trees")
        folder = workspace.series.profiles
        self._subjects[build] = Subject(
            baseline=tree.root,
            baseline_tree=tree.tree,
            candidate=tree.root,
            candidate_tree=tree.tree,
            build=build,
            archs=self.arms.request.archs,
            patches=(),
            profiles={arch: load_profile(folder, arch) for arch in list_profiles(folder)},
            profiles_folder=folder,
            authors={},
            toolchain=self.arms.toolchain,
            cache_root=workspace.cache_root,
            reporter=workspace.reporter,
            base=self.builds.tags.builds[build],
        )
        return self._subjects[build]
