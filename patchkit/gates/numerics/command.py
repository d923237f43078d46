"""Measuring the patched kernel's numbers on an NVIDIA GPU, here or on a machine without patchkit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchkit.base.files import write_whole
from patchkit.candidate.find import find_candidate
from patchkit.candidate.subject import Subject, make_subject
from patchkit.candidate.workspace import Workspace
from patchkit.gates.base import GateResult
from patchkit.gates.numerics.bundle import make_bundle
from patchkit.gates.numerics.gate import judge_bundle, run_bundle
from patchkit.gates.numerics.manifest import Manifest
from patchkit.series.lock import PinWanted


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


def measure_numerics(
    workspace: Workspace,
    *,
    archs: Sequence[str],
    upstream: PinWanted,
    folder: Path,
    run_in: Mapping[str, str] | None,
) -> tuple[GateResult, Path]:
    """What the results in a bundle prove, and the file of evidence that was written.

    ``run_in`` is the environment to build and run it in on this machine first; None: the results are those
    that it brought back. Raises what running and judging a bundle raise.
    """
    subject = _subject(workspace, archs, upstream)
    if run_in is not None:
        run_bundle(folder, subject, run_in)
    result = judge_bundle(folder, subject)
    path = workspace.cache_root / "evidence" / subject.candidate_tree / "numerics.json"
    write_whole(path, json.dumps(result.as_json(), indent=1) + "\n", "writing evidence")
    return result, path


def _subject(workspace: Workspace, archs: Sequence[str], upstream: PinWanted) -> Subject:
    repository, candidate = find_candidate(workspace, archs, upstream)
    return make_subject(workspace, repository, candidate, None)
