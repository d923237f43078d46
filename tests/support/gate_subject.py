"""The candidate of a series for gfx1151, ready for gates that compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.apply import run_apply
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.find import find_candidate
from patchkit.prove.subject import Subject, make_subject
from patchkit.toolchain.hip import Toolchain

ARCH = "gfx1151"


def subject_for(
    series: SeriesDir, cache: Path, toolchain: Toolchain, archs: Sequence[str], *, upstream: str = "b6900"
) -> Subject:
    """Apply the series in the cache that tests of gates share; ``archs`` are the GPUs that gates see."""
    workspace = Workspace(series=series, cache_root=cache, reporter=NullReporter())
    with FileLock(cache.with_name("gates.lock")):  # other tests move the branch
        run_apply(Request(archs=(ARCH,), upstream=upstream, unlocked=True), workspace, checkout=None)
        repository, candidate = find_candidate(workspace, (ARCH,), upstream)
        subject = make_subject(workspace, repository, candidate, toolchain)
    return replace(subject, profiles={arch: subject.profiles[arch] for arch in archs})
