"""Gate ``cpu-build``: files changed by plain patches build for the CPU, with upstream's CMake.

Guarded GPU code is not checked here because none of it runs on a CPU.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from patchkit.base.errors import Location, ToolchainError
from patchkit.base.text import counted
from patchkit.base.upstreams import upstream_of
from patchkit.prove.build import CandidateBuildFailed, blame_candidate_build
from patchkit.prove.gates.base import Evidence, GateResult, Many, RunSetup
from patchkit.prove.subject import Subject
from patchkit.toolchain.cmake import BuildFailed, NotConfigured
from patchkit.toolchain.ctests import open_tests
from patchkit.toolchain.machine import Source
from patchkit.toolchain.sides import Workshop

NAME = "cpu-build"
NOT_FOR_THE_CPU = "no unguarded patch changes what is built for the CPU"
_GPU_FOLDERS = ("src/ggml-cuda", "src/ggml-hip", "src/ggml-musa")  # in ggml's own repository
_TARGET = re.compile(r"set\s*\(\s*TARGET\s+([A-Za-z0-9_-]+)\s*\)")
_NO_TOOLS = ("COMPILER_MISSING", "LIBRARY_TOOLS_MISSING")


class CpuBuildEvidence(Evidence):
    """The targets that were built, and the files that they were built for."""

    files: Many[str]
    targets: Many[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuBuildGate:
    """Builds only those targets of upstream that contain a changed file."""

    name: str = NAME

    @classmethod
    def make(cls, setup: RunSetup) -> CpuBuildGate:
        """The gate of a run."""
        del setup
        return cls()

    def run(self, subject: Subject) -> GateResult:
        """Build the candidate, and the baseline if that fails. Raises the errors of building the baseline."""
        files = host_files(subject)
        targets = targets_of(subject, files)
        if not targets:
            why = NOT_FOR_THE_CPU if not files else "only upstream's tests change: gate cpu-tests builds them"
            return GateResult(gate=NAME, verdict="not run", summary=why)
        workshop = Workshop(cache_root=subject.cache_root, reporter=subject.reporter)
        subject.reporter.step(f"building {', '.join(targets)} for the CPU")
        try:
            after = open_tests(source_of(subject, candidate=True), workshop)
            after.build(targets)
        except ToolchainError as error:
            return ended_by_tool(NAME, error, subject, workshop)
        unread = find_unread(files, after.read_by_compilers(), subject)
        many = counted(len(files) - len(unread), "changed file")
        summary = f"{', '.join(targets)} built for the CPU, with {many}"
        return GateResult(
            gate=NAME,
            verdict="passed" if len(unread) < len(files) else "not run",
            summary=summary if len(unread) < len(files) else "the CPU build reads none of the changed files",
            evidence=CpuBuildEvidence(files=files, targets=targets),
            not_run=tuple(f"{path}: no compiler read it" for path in unread),
        )


def find_unread(files: Sequence[str], seen: Collection[str], subject: Subject) -> tuple[str, ...]:
    """Those of the files that exist in the candidate and that neither a compiler nor CMake has read."""
    return tuple(
        path
        for path in files
        if path not in seen and not _is_of_cmake(path) and (subject.candidate / path).is_file()
    )


def _is_of_cmake(path: str) -> bool:
    return path.endswith((".cmake", ".in", "CMakeLists.txt"))


def ended_by_tool(gate: str, error: ToolchainError, subject: Subject, workshop: Workshop) -> GateResult:
    """The result of a gate after building the candidate failed: not run without tools, else failed.

    Failed only if the baseline builds. Raises errors that are not caused by the candidate.
    """
    if error.code in _NO_TOOLS:
        why = f"{error.message} ({error.hint})"
        return GateResult(gate=gate, verdict="not run", summary=why, not_run=("all of it",))
    if not isinstance(error, BuildFailed | NotConfigured):
        raise error
    files = host_files(subject)
    # The baseline lacks tests that the patches add to upstream's.
    open_tests(source_of(subject, candidate=False), workshop).build(targets_of(subject, files))
    if isinstance(error, BuildFailed):
        return GateResult.ended_by(gate, blame_candidate_build(error, subject))
    failed = CandidateBuildFailed(
        f"the candidate does not build but the baseline does: {error.message}",
        where=[
            Location(path=path, label=", ".join(subject.patches_of(path)) or None)
            for path in files
            if _is_of_cmake(path) or not (subject.candidate / path).is_file()
        ]
        or error.where,
        why=error.why,
        hint=f"CMake's full output: {error.where[0]}" if error.where else error.hint,
    )
    return GateResult.ended_by(gate, failed)


def host_files(subject: Subject) -> tuple[str, ...]:
    """Files changed or added by plain patches that CMake or the CPU build reads, sorted."""
    files = {path for part in subject.plain for path in (*part.touched, *part.new_files)}
    upstream = upstream_of(subject.baseline)
    kernels = tuple(f"{upstream.ggml_path(folder)}/" for folder in _GPU_FOLDERS)
    return tuple(
        sorted(
            path
            for path in files
            if path.partition("/")[0] in upstream.folders.programs and not path.startswith(kernels)
        )
    )


def targets_of(subject: Subject, files: Sequence[str]) -> tuple[str, ...]:
    """The targets of upstream's build that contain the files, sorted."""
    upstream = upstream_of(subject.baseline)
    folders, targets = upstream.folders, upstream.targets
    found = set()
    for path in files:
        first, *rest = path.split("/")
        if first == folders.tests:
            continue
        tool = _named_in(subject, f"{first}/{rest[0]}") if first == folders.tools and len(rest) > 1 else None
        common = targets.common or targets.library
        found.add(targets.of(path) or tool or _named_in(subject, common) or common)
    return tuple(sorted(found))


def _named_in(subject: Subject, folder: str) -> str | None:
    """The last target in the CMakeLists.txt of a folder: it links those before it."""
    manifest = subject.candidate / folder / "CMakeLists.txt"
    named = _TARGET.findall(manifest.read_text("utf-8", "replace")) if manifest.is_file() else []
    return named[-1] if named else None


def source_of(subject: Subject, *, candidate: bool) -> Source:
    """One side of a subject as a source to build."""
    return Source(
        root=subject.candidate if candidate else subject.baseline,
        tree=subject.candidate_tree if candidate else subject.baseline_tree,
        build=subject.build,
        commit=subject.base[:9] or subject.baseline_tree[:9],
    )
