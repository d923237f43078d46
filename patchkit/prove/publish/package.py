"""The candidate's programs as a wheel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from patchkit.base.files import file_sha256
from patchkit.base.verdict import OFF_HARDWARE
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.series.lock import PinWanted
from patchkit.prove.build import PROGRAMS, build_sides, check_programs, prepare_subject
from patchkit.prove.verify.run import NOTHING
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.parts import BackendName
from patchkit.toolchain.wheel import WheelContents, check_folder, make_wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReport:
    """The wheel; ``proof`` summarises in one line what verify found for this candidate."""

    json_keys: ClassVar = "ok wheel sha256 size_bytes programs proof"

    wheel: Path
    sha256: str
    size_bytes: int
    programs: tuple[str, ...]
    proof: str

    ok: ClassVar = True


def run_package(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    backend: BackendName,
    programs: Sequence[str] = PROGRAMS,
    out: Path,
    environ: Mapping[str, str],
    wish: Wish | None = None,
) -> PackageReport:
    """Build what is missing and create the wheel in ``out``.

    Raises:
        WHEEL_NOT_MADE: scikit-build-core failed.
        The errors of :func:`patchkit.prove.build.run_build`.
        CacheError: the disk is full or not writable.
    """
    check_programs(programs)
    check_folder(out)
    subject, candidate = prepare_subject(workspace, archs, upstream, backend, environ, wish)
    sides = build_sides(subject, backend, programs)
    evidence = workspace.cache_root / "evidence" / subject.candidate_tree
    proof = _proof(evidence / "report.json") if candidate.commits else NOTHING
    gpus = "-".join(candidate.archs)
    contents = WheelContents(
        name=f"llama-cpp-{gpus}",
        version=f"{candidate.build}+{backend}.{subject.candidate_tree[:12]}",
        summary=f"llama.cpp build {candidate.build} with patchkit's patches for {gpus}; {proof}",
        programs=tuple(programs),
        licence=subject.candidate / "LICENSE",
        information={
            "build": str(candidate.build),
            "for": f"{' '.join(candidate.archs)} ({backend})",
            "needs": _needs(backend, subject.toolchain),
            "upstream": candidate.base,
            "candidate": candidate.tip,
            "tree": subject.candidate_tree,
            "proof": proof,
        },
    )
    workspace.reporter.step(f"creating the wheel {contents.name} {contents.version}")
    wheel = make_wheel(sides.after, contents, out, workspace.reporter)
    return PackageReport(
        wheel=wheel,
        sha256=file_sha256(wheel),
        size_bytes=wheel.stat().st_size,
        programs=tuple(programs),
        proof=proof,
    )


def _needs(backend: BackendName, toolchain: Toolchain | None) -> str:
    """What the machine must provide because the wheel does not contain it."""
    if backend == "hip" and toolchain is not None:
        version = toolchain.hip_version
        return f"the HIP runtime and hipBLAS of ROCm {version.split('.')[0]} (built with HIP {version})"
    return "the driver and the libraries of CUDA" if backend == "cuda" else "nothing else"


def _proof(report: Path) -> str:
    """The gates that the last verify of this tree passed."""
    try:
        gates = json.loads(report.read_text("utf-8"))["gates"]
        passed = [gate["gate"] for gate in gates if gate["verdict"] == "passed"]
        passed += [
            f"{gate['gate']} {gate['verdict'].removeprefix('passed ')}"
            for gate in gates
            if gate["verdict"] in OFF_HARDWARE
        ]
        failed = [gate["gate"] for gate in gates if gate["verdict"] == "failed"]
    except (OSError, ValueError, KeyError, TypeError):
        return "not verified"
    if failed:
        return f"FAILED: {', '.join(failed)}"
    return f"gates passed: {', '.join(passed)}" if passed else "not verified"
