"""The candidate with everything about it that a gate, a build or a measurement may need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.build.toolchain import Toolchain
from patchkit.config.bench_rules import BenchRules
from patchkit.config.kernel_moves import KernelMove
from patchkit.config.profile_data import ArchProfile
from patchkit.config.resource_rules import ResourceRules
from patchkit.edits.guard import Guard
from patchkit.report import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPart:
    """One patch of the candidate: its commit, guard, and the files it changes (``touched``) and adds."""

    id: str
    commit: str
    guard: Guard
    touched: tuple[str, ...]
    new_files: tuple[str, ...]
    resources: ResourceRules = field(default_factory=ResourceRules)
    bench: BenchRules = field(default_factory=BenchRules)
    moves: tuple[KernelMove, ...] = ()

    @property
    def archs(self) -> tuple[str, ...]:
        """The GPUs the patch is live on."""
        return tuple(target.arch for target in self.guard.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One candidate.

    ``baseline`` and ``candidate`` are exported trees, the hashes are those of git; ``base`` is the pin's
    commit. ``archs`` are the GPUs
    the candidate is for, ``profiles`` all that there are. ``authors`` says, per changed file of the
    candidate, which patch each line comes from (None: upstream); index 0 is line 1.
    """

    baseline: Path
    baseline_tree: str
    candidate: Path
    candidate_tree: str
    build: int
    archs: tuple[str, ...]
    patches: tuple[PatchPart, ...]
    profiles: Mapping[str, ArchProfile]
    authors: Mapping[str, tuple[str | None, ...]]
    toolchain: Toolchain | None
    cache_root: Path
    reporter: Reporter
    base: str = ""

    @property
    def changed_files(self) -> tuple[str, ...]:
        """Every file a patch changes or adds, sorted."""
        return tuple(sorted({path for patch in self.patches for path in (*patch.touched, *patch.new_files)}))

    def patches_of(self, path: str, line: int | None = None) -> tuple[str, ...]:
        """The patch a line comes from, or the nearest one within the file; else all that change the file."""
        lines = self.authors.get(path, ())
        if line is not None and lines:
            near = [(abs(at - line), name) for at, name in enumerate(lines, start=1) if name is not None]
            if near:
                return (min(near)[1],)
        return tuple(patch.id for patch in self.patches if path in patch.touched or path in patch.new_files)
