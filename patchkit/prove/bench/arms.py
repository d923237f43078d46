"""The builds that ``bench run`` compares: upstream's, for HIP with and without rocWMMA, and the candidate."""

from __future__ import annotations

from dataclasses import dataclass

from patchkit.base.errors import Location, ToolchainError
from patchkit.prove.build import build_sides, build_tree
from patchkit.prove.subject import Subject
from patchkit.toolchain.hip import rocwmma_for
from patchkit.toolchain.parts import BackendName
from patchkit.toolchain.sides import BuiltSide

_PROGRAMS = ("llama-bench",)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchArm:
    """``side`` is ready to run; ``what`` says in words what was built."""

    label: str
    what: str
    side: BuiltSide

    def as_json(self) -> dict[str, str]:
        """What makes two measurements of the label comparable."""
        return {"what": self.what, "tree": self.side.tree, "build": self.side.identity}


def build_arms(subject: Subject, backend: BackendName) -> tuple[BenchArm, ...]:
    """Build what is missing of every arm.

    Raises:
        ROCWMMA_MISSING: upstream has a kernel on rocWMMA, and there is no rocWMMA to measure it with.
        CandidateBuildFailed: the candidate does not build, the baseline does.
        The errors of :func:`patchkit.toolchain.machine.build_side`.
    """
    two_baselines = backend == "hip" and subject.offers_rocwmma
    if two_baselines:
        _check_rocwmma(subject)
    sides = build_sides(subject, backend, _PROGRAMS)
    upstream = f"build {subject.build}"
    candidate = BenchArm(label="candidate", what=f"{upstream} with the patches", side=sides.after)
    if not two_baselines:
        label = "HIP" if backend == "hip" else "baseline"
        return BenchArm(label=label, what=upstream, side=sides.before), candidate
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
        BenchArm(label="HIP", what=f"{upstream} without rocWMMA", side=plain),
        BenchArm(label="rocWMMA", what=f"{upstream} with rocWMMA", side=rocwmma),
        candidate,
    )


def _check_rocwmma(subject: Subject) -> None:
    toolchain = subject.toolchain
    if toolchain is None:
        return  # building says what is missing
    lacking = [arch for arch in subject.archs if not _is_real(subject, arch)]
    if lacking:
        raise ToolchainError(
            f"there is no rocWMMA for {' and '.join(lacking)} to measure with",
            code="ROCWMMA_MISSING",
            where=Location(path=str(toolchain.root)),
            why="patchkit's stand-in header is for compiling and counting, not for speed",
            hint="install rocWMMA of your ROCm (package rocwmma-dev or rocwmma-devel)",
        )


def _is_real(subject: Subject, arch: str) -> bool:
    found = rocwmma_for(subject.toolchain, arch) if subject.toolchain is not None else None
    return found is not None and found.kind != "stand-in"
