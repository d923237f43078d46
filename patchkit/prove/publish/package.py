"""The candidate's programs as a wheel or a tar archive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from patchkit.base.files import file_sha256
from patchkit.base.verdict import OFF_HARDWARE
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.decision import Wish
from patchkit.carry.series.lock import PinWanted
from patchkit.prove.build import PROGRAMS, build_sides, check_programs, prepare_subject
from patchkit.prove.verify.run import NOTHING
from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.package import PackageContents, check_folder, make_archive, make_wheel
from patchkit.toolchain.parts import BackendName

Format = Literal["wheel", "tar"]
"""How programs are packaged: for pip, or to be unpacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReport:
    """The package; ``proof`` summarises in one line what verify found for this candidate."""

    json_keys: ClassVar = "ok file format sha256 size_bytes programs proof needs"

    file: Path
    format: Format
    sha256: str
    size_bytes: int
    programs: tuple[str, ...]
    proof: str
    needs: str

    ok: ClassVar = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRequest:
    """What to package, and into which folder."""

    archs: tuple[str, ...]
    upstream: PinWanted
    wish: Wish
    backend: BackendName
    programs: tuple[str, ...] = PROGRAMS
    format: Format = "wheel"
    out: Path


def run_package(request: PackageRequest, workspace: Workspace, environ: Mapping[str, str]) -> PackageReport:
    """Build what is missing and write the package.

    Raises:
        ToolchainError: scikit-build-core failed.
        The errors of :func:`patchkit.prove.build.run_build`.
        CacheError: the disk is full or not writable.
    """
    backend, programs, out = request.backend, request.programs, request.out
    check_programs(programs)
    check_folder(out)
    subject, candidate = prepare_subject(
        workspace, request.archs, request.upstream, backend, environ, request.wish
    )
    sides = build_sides(subject, backend, programs)
    evidence = workspace.cache_root / "evidence" / subject.candidate_tree
    proof = _proof(evidence / "report.json") if candidate.commits else NOTHING
    gpus = "-".join(candidate.archs)
    contents = PackageContents(
        name=f"llama-cpp-{gpus}",
        version=f"{candidate.build}+{backend}.{subject.candidate_tree[:12]}",
        summary=f"llama.cpp build {candidate.build} with patchkit's patches for {gpus}; {proof}",
        programs=programs,
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
    workspace.reporter.step(f"packaging {contents.name} {contents.version}")
    if request.format == "tar":
        file = make_archive(sides.after, contents, out)
    else:
        file = make_wheel(sides.after, contents, out, workspace.reporter)
    return PackageReport(
        file=file,
        format=request.format,
        sha256=file_sha256(file),
        size_bytes=file.stat().st_size,
        programs=programs,
        proof=proof,
        needs=contents.information["needs"],
    )


def _needs(backend: BackendName, toolchain: Toolchain | None) -> str:
    """What the machine must provide because the package does not contain it."""
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
