"""``build``: baseline and candidate, compiled for this machine.

Vocabulary: as in :mod:`patchkit.build.sides`. What no patch changes is built once and serves both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchkit.build.machine import GATE_PROGRAMS
from patchkit.build.parts import BackendName
from patchkit.build.sides import BuiltSide
from patchkit.build.toolchain import Toolchain, find_toolchain
from patchkit.config.lock import PinWanted, load_lock
from patchkit.errors import UsageError
from patchkit.flow.candidates import Candidate, check_candidate, find_candidate
from patchkit.flow.records import Wish
from patchkit.flow.subject import make_subject
from patchkit.flow.workspace import Workspace
from patchkit.gates.hardware import Sides, build_sides
from patchkit.gates.subject import Subject

# What a user wants to run; the gates need only the first two.
PROGRAMS = (*GATE_PROGRAMS, "llama-cli", "llama-server", "llama-perplexity")

# As upstream names its programs. Its CMake has targets that are none, and some of them do harm: "install"
# writes to the system, "clean" throws builds away; and what begins with a dash is an option of cmake.
_PROGRAM = re.compile(r"(?:llama|test)-[A-Za-z0-9_-]{1,60}|rpc-server")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """Both sides, ready to run."""

    branch: str
    backend: BackendName
    build: int
    sides: Sides
    programs: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "ok": True,
            "branch": self.branch,
            "backend": self.backend,
            "build": self.build,
            "programs": list(self.programs),
            "baseline": self._side(self.sides.before),
            "candidate": self._side(self.sides.after),
        }

    def _side(self, side: BuiltSide) -> dict[str, object]:
        return {
            "tree": side.tree,
            "folder": str(side.folder),
            "parts": [
                {
                    "part": built.part.name,
                    "folder": str(built.folder),
                    "log": str(built.log),
                    "seconds": built.seconds,
                    "ccache": built.uses_ccache,
                    "shared": self.is_shared(built.part.key),
                }
                for built in side.parts
            ],
        }

    def is_shared(self, key: str) -> bool:
        """Whether both sides have the part."""
        return all(any(built.part.key == key for built in side.parts) for side in self._both)

    @property
    def _both(self) -> tuple[BuiltSide, BuiltSide]:
        return self.sides.before, self.sides.after


def prepare_subject(
    workspace: Workspace,
    archs: Sequence[str],
    upstream: PinWanted,
    backend: BackendName,
    environ: Mapping[str, str],
    wish: Wish | None = None,
) -> tuple[Subject, Candidate]:
    """The candidate with its trees exported; for HIP with the toolchain to compile with.

    With a ``wish`` it must be of the series in use, and have the patches that the wish names.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_BROKEN, CANDIDATE_PATCH_UNKNOWN: there is nothing to build.
        CANDIDATE_OTHER_SERIES: the one there is was made of something else.
        ToolchainMissing: no HIP compiler.
    """
    pin = load_lock(workspace.series.lock).pin(upstream)
    repository, candidate = find_candidate(workspace, archs, pin)
    if wish is not None:
        check_candidate(workspace, candidate, pin, wish)
    toolchain: Toolchain | None = None
    if backend == "hip":
        toolchain = find_toolchain(workspace.cache_root, environ, workspace.reporter)
    return make_subject(workspace, repository, candidate, toolchain), candidate


def check_programs(programs: Sequence[str]) -> None:
    """Refuse what is not the name of a program, before anything is configured. Raises PROGRAM_REFUSED."""
    for name in programs:
        if _PROGRAM.fullmatch(name) is None:
            raise UsageError(
                f"--program {name[:60]!r} is no program of upstream",
                code="PROGRAM_REFUSED",
                why="they are called llama-NAME or test-NAME, or rpc-server",
                hint=f"--program takes one of: {', '.join(PROGRAMS)}; or another of upstream's",
            )


def run_build(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    backend: BackendName,
    programs: Sequence[str] = PROGRAMS,
    environ: Mapping[str, str],
    wish: Wish | None = None,
) -> BuildReport:
    """Build both sides in ``<cache>/builds``; a second time only what is missing.

    Raises:
        PROGRAM_REFUSED: a name is not one of a program.
        CandidateBuildFailed: the candidate does not build, the baseline does.
        COMPILER_MISSING, LIBRARY_TOOLS_MISSING, CMAKE_CONFIGURE_FAILED, BuildFailed: nothing can be built.
        The errors of :func:`prepare_subject`.
        CacheError: the disk refused.
    """
    check_programs(programs)
    subject, candidate = prepare_subject(workspace, archs, upstream, backend, environ, wish)
    sides = build_sides(subject, backend, programs)
    return BuildReport(
        branch=candidate.branch,
        backend=backend,
        build=candidate.build,
        sides=sides,
        programs=tuple(programs),
    )
