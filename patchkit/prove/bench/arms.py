"""The builds that ``bench run`` compares: upstream (for HIP with and without rocWMMA) and the candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchkit.base.errors import Location, ToolchainError, UsageError
from patchkit.base.reporter import Reporter
from patchkit.base.upstreams import llama_cpp
from patchkit.carry.series.switches import switches_of, turn_off
from patchkit.gpu.emulated.models import SmallModel, model_file
from patchkit.gpu.hardware.bench.measure import Arm
from patchkit.gpu.hardware.bench.rounds import BASELINE, CANDIDATE
from patchkit.prove.build import Machine, build_sides, build_tree
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import rocwmma_for
from patchkit.toolchain.parts import BackendName
from patchkit.toolchain.sides import BuiltSide

_PROGRAMS = (llama_cpp().programs.bench,)
# Four layers as wide as those of a 1B model: attention at depth is a realistic share, and the file is 0.2 GB.
_GPU_MODEL = SmallModel(head_size=64, heads=32, kv_heads=8, layers=4)
_CPU_MODEL = SmallModel(head_size=64)


class UnknownSwitch(UsageError):
    """A patch has no run-time switch in this candidate."""

    code = "USAGE_VALUE"


def small_model(machine: Machine, cache_root: Path, reporter: Reporter) -> Path:
    """The model to measure if the user gives none; it is large enough to see a loss. Raises CacheError."""
    return model_file(_CPU_MODEL if machine.is_cpu else _GPU_MODEL, cache_root, reporter)


def build_arms(subject: Subject, backend: BackendName, off: Sequence[str] = ()) -> tuple[Arm, ...]:
    """Build all arms that are not built yet.

    ``off``: patches, each of which is turned off in one more arm, which is the candidate's build.

    Raises:
        UnknownSwitch: a patch of ``off`` cannot be turned off.
        ROCWMMA_MISSING: upstream has a rocWMMA kernel, but there is no rocWMMA to measure it with.
        CandidateBuildFailed: the candidate does not build but the baseline does.
        The errors of :func:`patchkit.toolchain.machine.build_side`.
    """
    _check_switches(subject, off)
    two_baselines = backend == "hip" and subject.offers_rocwmma
    if two_baselines:
        _check_rocwmma(subject)
    sides = build_sides(subject, backend, _PROGRAMS)
    upstream = f"build {subject.build}"
    candidate = _arm(CANDIDATE, f"{upstream} with the patches", sides.after)
    others = tuple(_without(candidate, patch) for patch in off)
    if not two_baselines:
        label = "HIP" if backend == "hip" else BASELINE
        return _arm(label, upstream, sides.before), candidate, *others
    other = "with" if subject.is_without_rocwmma else "without"
    subject.reporter.step(f"building the baseline {other} rocWMMA")
    built = build_tree(
        subject,
        subject.baseline,
        subject.baseline_tree,
        backend,
        _PROGRAMS,
        with_rocwmma=subject.is_without_rocwmma,
    )
    plain, rocwmma = (sides.before, built) if subject.is_without_rocwmma else (built, sides.before)
    return (
        _arm("HIP", f"{upstream} without rocWMMA", plain),
        _arm("rocWMMA", f"{upstream} with rocWMMA", rocwmma),
        candidate,
        *others,
    )


def _without(candidate: Arm, patch: str) -> Arm:
    return replace(
        candidate,
        label=f"without-{patch}",
        what=f"{candidate.what}, {patch} turned off",
        env=turn_off([patch]),
    )


def _check_switches(subject: Subject, off: Sequence[str]) -> None:
    switches = switches_of([part.patch for part in subject.patches])
    known = [each.patch for each in switches.all] if switches is not None else []
    for patch in off:
        if patch not in known:
            raise UnknownSwitch(
                f"'{patch}' cannot be turned off in this candidate",
                why=f"patches with a run-time switch: {', '.join(known) or 'none'}",
                hint=f"leave it out instead: patchkit apply --without {patch}",
            )


def _arm(label: str, what: str, side: BuiltSide) -> Arm:
    return Arm(label=label, folder=side.folder, tree=side.tree, build=side.identity, what=what)


def _check_rocwmma(subject: Subject) -> None:
    toolchain = subject.toolchain
    if toolchain is None:
        return  # building reports what is missing
    lacking = [arch for arch in subject.archs if not _is_real(subject, arch)]
    if lacking:
        raise ToolchainError(
            f"measuring requires rocWMMA, but none was found for {' and '.join(lacking)}",
            code="ROCWMMA_MISSING",
            where=Location(path=str(toolchain.root)),
            why="patchkit's stand-in header is for compiling and counting resources, not for measuring speed",
            hint="install the rocWMMA of your ROCm (package rocwmma-dev or rocwmma-devel)",
        )


def _is_real(subject: Subject, arch: str) -> bool:
    found = rocwmma_for(subject.toolchain, arch) if subject.toolchain is not None else None
    return found is not None and found.kind != "stand-in"
