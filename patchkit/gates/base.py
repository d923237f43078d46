"""What a gate is, what it looks at, and what it answers.

Vocabulary: a *gate* is one check; its *verdict* is passed, failed or not run, and not run is never
passed; the *subject* is the candidate with everything about it that a gate may need; *evidence* is plain
data that lets a person redo the check. The *baseline* is the pin the candidate stands on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from patchkit.build.toolchain import Toolchain
from patchkit.config.bench_rules import BenchRules
from patchkit.config.kernel_moves import KernelMove
from patchkit.config.profile_data import ArchProfile
from patchkit.config.resource_rules import ResourceRules
from patchkit.edits.guard import Guard
from patchkit.errors import PatchkitError
from patchkit.report import Reporter

Verdict = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What one gate found.

    ``summary`` is one line; ``lines`` are the rows a person reads below it. ``evidence`` is JSON-able.
    ``not_run`` names what was not proven, each with its reason.
    """

    gate: str
    verdict: Verdict
    summary: str
    problems: tuple[PatchkitError, ...] = ()
    evidence: dict[str, object] = field(default_factory=dict)
    not_run: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Plain data, the evidence included."""
        return {
            "gate": self.gate,
            "verdict": self.verdict,
            "summary": self.summary,
            "problems": [
                {
                    "code": problem.code,
                    "message": problem.message,
                    "where": [str(place) for place in problem.where],
                    "places": [asdict(place) for place in problem.where],
                    "why": problem.why,
                    "hint": problem.hint,
                }
                for problem in self.problems
            ],
            "not_run": list(self.not_run),
            "lines": list(self.lines),
            "evidence": self.evidence,
        }


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


class Gate(Protocol):
    """One check. ``run`` raises only when the check itself was impossible (no compiler, disk full)."""

    @property
    def name(self) -> str:
        """The name it goes by on the command line."""
        ...

    def run(self, subject: Subject) -> GateResult:
        """Look at the subject."""
        ...
