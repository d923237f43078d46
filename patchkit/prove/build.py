"""Build baseline and candidate for this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from patchkit.base.errors import GateError, Location, ToolchainError, UsageError
from patchkit.base.upstreams import llama_cpp, load_upstreams
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.candidate.find import check_candidate, find_candidate
from patchkit.carry.candidate.record import Candidate
from patchkit.carry.series.lock import PinWanted, load_lock
from patchkit.gpu.hardware.backend_ops import Choice, Row, Stage, parse_rows, run_mode
from patchkit.gpu.hardware.gpus import detect_gpus, has_amd_driver, has_nvidia_gpu
from patchkit.gpu.hardware.program import RunContext
from patchkit.gpu.hardware.runner import LocalRunner, Runner, SshRunner
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.cmake import BuildFailed
from patchkit.toolchain.hip import Toolchain, find_toolchain
from patchkit.toolchain.machine import Source, build_side
from patchkit.toolchain.parts import GATE_PROGRAMS, BackendName
from patchkit.toolchain.sides import BuiltSide, Workshop

_NO_AMD_GPU = "the kernel reports no AMD GPU"
_DEVICES: dict[BackendName, str] = {"cpu": "CPU", "hip": "ROCm0", "cuda": "CUDA0"}


class CandidateBuildFailed(GateError):
    """The baseline builds and the candidate does not."""

    code = "CANDIDATE_BUILD_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The first device of a backend; ``emulates`` names the GPU that is emulated in place of a real one.

    ``is_fresh``: run programs even if the result of the same run is cached.
    """

    backend: BackendName
    emulates: str | None = None
    is_fresh: bool = False

    @property
    def is_emulated(self) -> bool:
        """Whether GPU code runs on an emulated GPU."""
        return self.emulates is not None

    @property
    def label(self) -> str:
        """The device as messages name it."""
        return f"emulated {self.emulates}" if self.is_emulated else self.device

    @property
    def kind(self) -> str:
        """The suffix of files and folders for this kind of machine."""
        return "emulated" if self.is_emulated else self.backend

    @property
    def device(self) -> str:
        """The name that ggml gives it; programs skip all other devices."""
        return _DEVICES[self.backend]

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU backend, where no code of a GPU patch runs."""
        return self.backend == "cpu"

    def gate_name(self, name: str) -> str:
        """A gate's name on this machine; on the CPU it is a separate gate that proves nothing about a GPU."""
        return f"{name}@cpu" if self.is_cpu else name

    @property
    def not_proven(self) -> tuple[str, ...]:
        """What a run on the CPU or on an emulated GPU does not prove; empty for a GPU."""
        if self.is_emulated:
            return (f"execution on the GPU itself: {self.emulates} was emulated",)
        if not self.is_cpu:
            return ()
        return ("the GPU kernels: no code in ggml/src/ggml-cuda runs on the CPU backend",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both trees, built."""

    before: BuiltSide
    after: BuiltSide

    def is_shared(self, key: str) -> bool:
        """Whether both sides use the part with that key."""
        return all(any(built.part.key == key for built in side.parts) for side in (self.before, self.after))


def build_tree(
    subject: Subject,
    root: Path,
    tree: str,
    backend: BackendName,
    programs: Sequence[str],
    *,
    with_rocwmma: bool | None = None,
    is_timed: bool = True,
    in_turns: bool = False,
) -> BuiltSide:
    """Build one tree of a subject; by default with rocWMMA unless the candidate is built without it.

    ``is_timed``: whether the run time of its programs is measured. ``in_turns``: see
    :class:`patchkit.toolchain.sides.Workshop`.

    Raises the errors of :func:`patchkit.toolchain.machine.build_side`.
    """
    commit = subject.label or subject.base[:9] or subject.baseline_tree[:9]
    return build_side(
        Source(root=root, tree=tree, build=subject.build, commit=commit, has_note=bool(subject.label)),
        backend,
        archs=subject.archs,
        toolchain=subject.toolchain,
        programs=programs,
        workshop=Workshop(cache_root=subject.cache_root, reporter=subject.reporter, in_turns=in_turns),
        with_rocwmma=not subject.is_without_rocwmma if with_rocwmma is None else with_rocwmma,
        is_timed=is_timed,
    )


def build_sides(
    subject: Subject,
    backend: BackendName,
    programs: Sequence[str] = GATE_PROGRAMS,
    *,
    is_timed: bool = True,
) -> Sides:
    """Build both trees, sharing all parts that no patch changes; ``is_timed`` as in :func:`build_tree`.

    Raises:
        CandidateBuildFailed: only the candidate does not build.
        The errors of :func:`patchkit.toolchain.machine.build_side` otherwise.
    """
    how = (backend, tuple(programs), is_timed)
    known: Sides | None = subject.builds.get(how)  # shared by all gates that run programs
    if known is not None and known.before.folder.is_dir() and known.after.folder.is_dir():
        return known
    subject.reporter.step(f"building the baseline for {backend}")
    before = build_tree(
        subject, subject.baseline, subject.baseline_tree, backend, programs, is_timed=is_timed
    )
    subject.reporter.step(f"building the candidate for {backend}")
    try:
        after = build_tree(
            subject, subject.candidate, subject.candidate_tree, backend, programs, is_timed=is_timed
        )
    except BuildFailed as error:
        raise blame_candidate_build(error, subject) from error
    subject.builds[how] = built = Sides(before=before, after=after)
    return built


def use_sides(
    subject: Subject,
    backend: BackendName,
    sides: Sides,
    *,
    is_timed: bool = True,
) -> None:
    """Make :func:`build_sides` with the same arguments return these builds."""
    subject.builds[backend, GATE_PROGRAMS, is_timed] = sides


def check_device(machine: Machine, talk: str, archs: Sequence[str], where: Path) -> None:
    """Check that the GPU reported by the backend is one of the candidate's. Raises DEVICE_MISSING.

    ggml's HIP backend prints ``Device 0: AMD Radeon Graphics, gfx1151 (0x1151), ...`` to stderr; for some
    GPUs the name includes features (``gfx90a:sramecc+:xnack-``).
    """
    if machine.backend != "hip":
        return
    lines = [line.strip() for line in talk.splitlines() if line.strip().startswith("Device ")]
    first = next((line for line in lines if line.startswith("Device 0:")), "")
    if not any(re.search(rf"\b{re.escape(arch)}\b", first) for arch in archs):
        raise ToolchainError(
            f"the GPU here is not {' or '.join(archs)}",
            code="DEVICE_MISSING",
            where=Location(path=str(where)),
            why=first or "the HIP backend reported no device",
            hint="patchkit verify --no-gpu, or run it on the machine with that GPU",
        )


def run_operations(
    stage: Stage,
    machine: Machine,
    archs: Sequence[str],
    choice: Choice,
    *,
    name: str,
    timeout_s: float,
    place: RunContext,
) -> list[Row]:
    """The results of test-backend-ops for some operations on a machine, without unsupported cases.

    Raises DEVICE_MISSING, as :func:`check_device`, and the errors of :func:`run_mode`.
    """
    ran = run_mode(
        stage, "test", name=name, choice=choice, device=machine.device, timeout_s=timeout_s, place=place
    )
    check_device(machine, ran.talk(), archs, ran.stderr)
    return [row for row in parse_rows(ran.text(), where=str(ran.stdout)) if row.is_supported]


def missing_gpu(backend: BackendName) -> str | None:
    """Why a backend can find no GPU on this machine; None if it may find one."""
    if backend == "hip" and not detect_gpus() and not has_amd_driver():
        return _NO_AMD_GPU
    if backend == "cuda" and not has_nvidia_gpu():
        return "found neither a device of NVIDIA's driver nor nvidia-smi"
    return None


def choose_backend(asked: BackendName | None, archs: Sequence[str], runner: Runner, hint: str) -> BackendName:
    """The backend to measure on: the one asked for, else HIP. Checked before anything is built.

    A remote machine is only connected to and assumed to have the GPU. Raises DEVICE_MISSING, with ``hint``,
    if this machine has none, and the errors of :meth:`patchkit.gpu.hardware.runner.SshRunner.connect`.
    """
    if isinstance(runner, SshRunner):
        runner.reporter.step(f"connecting to {runner.name}")
        runner.connect()
    if asked == "cpu" or not isinstance(runner, LocalRunner):
        return asked or "hip"
    why = missing_gpu(asked or "hip")
    if asked == "cuda":
        if why is None:
            return asked
        what = "no NVIDIA GPU"
    else:
        found = detect_gpus()
        if set(found) & set(archs) or (asked == "hip" and not found and why is None):
            return "hip"
        what = f"no {' or '.join(archs)}"
        why = f"the kernel reports {', '.join(found)}" if found else _NO_AMD_GPU
    raise ToolchainError(f"this machine has {what}", code="DEVICE_MISSING", why=why, hint=hint)


def runs_folder(subject: Subject, gate: str, machine: Machine) -> Path:
    """Where the output of a gate's programs is kept, next to its evidence."""
    return subject.cache_root / "evidence" / subject.candidate_tree / f"{gate}-{machine.kind}"


def blame_candidate_build(error: BuildFailed, subject: Subject) -> CandidateBuildFailed:
    """Turn a build error into a finding about the candidate, with the patch that each place belongs to."""
    places = [
        subject.with_patches(replace(found, path=_below(found.path, subject.candidate)))
        for found in error.where
    ]
    blamed = next((place.label for place in places if place.label), None)
    return CandidateBuildFailed(
        f"the candidate does not build but the baseline does: {error.message}",
        where=places,
        why=f"the nearest patch is {blamed}\n{error.why}" if blamed else error.why,
        hint=error.hint,
    )


def _below(path: str, root: Path) -> str:
    """The path within the tree, whether the compiler was given it directly or through the link ``source``."""
    for before in (f"{root}/", "/source/"):
        _, found, rest = path.partition(before)
        if found:
            return rest
    return path.removeprefix("../source/")


# The programs that users want to run; gates need only the first two.
PROGRAMS = (*GATE_PROGRAMS, *llama_cpp().programs.for_users)

# How upstream names its programs. Other CMake targets are not programs, and some do harm: "install" writes to
# the system, "clean" deletes builds. A name that starts with a dash would be an option of cmake.
_PROGRAM = re.compile(r"(?:llama|test)-[A-Za-z0-9_-]{1,60}|rpc-server")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """Both sides, ready to run."""

    json_keys: ClassVar = "ok branch backend build programs baseline candidate"

    branch: str
    backend: BackendName
    build: int
    sides: Sides
    programs: tuple[str, ...]

    ok: ClassVar = True

    @property
    def baseline(self) -> dict[str, object]:
        """How the baseline was built."""
        return self._side(self.sides.before)

    @property
    def candidate(self) -> dict[str, object]:
        """How the candidate was built."""
        return self._side(self.sides.after)

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
                    "shared": self.sides.is_shared(built.part.key),
                }
                for built in side.parts
            ],
        }


def prepare_subject(
    workspace: Workspace,
    archs: Sequence[str],
    upstream: PinWanted,
    backend: BackendName,
    environ: Mapping[str, str],
    wish: Wish | None = None,
) -> tuple[Subject, Candidate]:
    """The candidate with its trees exported, and for HIP with its toolchain.

    With a ``wish`` it must belong to the series in use, and have the patches that the wish names.

    Raises:
        CANDIDATE_MISSING, CANDIDATE_STALE: there is no usable candidate.
        CANDIDATE_STALE: the existing candidate was made from something else.
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
    """Reject names that are not programs of upstream before configuring anything. Raises USAGE_VALUE."""
    described = {name for project in load_upstreams() for name in project.programs.for_users}
    for name in programs:
        if _PROGRAM.fullmatch(name) is None and name not in described:
            raise UsageError(
                f"{name[:60]!r} is not a program of upstream",
                code="USAGE_VALUE",
                why="programs are named llama-NAME or test-NAME, or rpc-server, "
                f"{', '.join(sorted(name for name in described if not name.startswith('llama-')))}",
                hint=f"one of: {', '.join(PROGRAMS)}; or another program of upstream",
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
    """Build both sides in ``<cache>/builds``; parts that were built before are reused.

    Raises:
        USAGE_VALUE: a name is not the name of a program.
        CandidateBuildFailed: the candidate does not build but the baseline does.
        COMPILER_MISSING, LIBRARY_TOOLS_MISSING, CMAKE_CONFIGURE_FAILED, BuildFailed: nothing can be built.
        The errors of :func:`prepare_subject`.
        CacheError: the disk is full or not writable.
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
