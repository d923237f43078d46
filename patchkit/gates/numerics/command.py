"""Measuring the patched kernel's numbers on an NVIDIA GPU, here or on a machine without patchkit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.base.errors import PatchkitError
from patchkit.base.files import write_whole
from patchkit.candidate.find import find_candidate
from patchkit.candidate.subject import Subject, make_subject
from patchkit.candidate.workspace import Workspace
from patchkit.gates.base import GateResult
from patchkit.gates.numerics.bundle import make_bundle
from patchkit.gates.numerics.gate import judge_bundle, run_bundle
from patchkit.gates.numerics.manifest import Manifest
from patchkit.series.lock import PinWanted, load_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """``result`` is the gate's answer, ``evidence`` the file it was written to."""

    result: GateResult
    evidence: Path

    @property
    def problems(self) -> tuple[PatchkitError, ...]:
        """What speaks against the candidate, or against the measurement."""
        return self.result.problems

    def as_json(self) -> dict[str, object]:
        """Plain data, the evidence included."""
        return {
            "ok": self.result.verdict == "passed",
            **self.result.as_json(),
            "evidence_file": str(self.evidence),
        }


def build_numerics(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    folder: Path,
    all_legal: bool,
    isolation: bool,
) -> Manifest:
    """Write the bundle of a candidate; raises what finding the candidate and making a bundle raise."""
    subject = _subject(workspace, archs, upstream)
    workspace.reporter.step(f"writing the bundle to {folder}")
    return make_bundle(subject, folder, all_legal=all_legal, isolation=isolation)


def run_numerics_bundle(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    folder: Path,
    environ: Mapping[str, str],
) -> Measurement:
    """Build and run a bundle on this machine, then judge it."""
    subject = _subject(workspace, archs, upstream)
    run_bundle(folder, subject, environ)
    return _judged(workspace, subject, folder)


def judge_numerics_bundle(
    workspace: Workspace, *, archs: Sequence[str], upstream: PinWanted, folder: Path
) -> Measurement:
    """Judge the results that a bundle brought back from another machine."""
    return _judged(workspace, _subject(workspace, archs, upstream), folder)


def _subject(workspace: Workspace, archs: Sequence[str], upstream: PinWanted) -> Subject:
    pin = load_lock(workspace.series.lock).pin(upstream)
    repository, candidate = find_candidate(workspace, archs, pin)
    return make_subject(workspace, repository, candidate, None)


def _judged(workspace: Workspace, subject: Subject, folder: Path) -> Measurement:
    result = judge_bundle(folder, subject)
    path = workspace.cache_root / "evidence" / subject.candidate_tree / "numerics.json"
    write_whole(path, json.dumps(result.as_json(), indent=1) + "\n", "writing evidence")
    return Measurement(result=result, evidence=path)
