"""The candidate of this checkout for the default build, ready for gates on the emulated GPU."""

from __future__ import annotations

import os
from pathlib import Path

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace, default_cache_root
from patchkit.prove.build import prepare_subject
from patchkit.prove.subject import Subject

ROOT = Path(__file__).resolve().parents[1]


def emulated_candidate(arch: str) -> Subject:
    """The candidate that ``patchkit apply`` made for a GPU. Raises CANDIDATE_MISSING, CANDIDATE_STALE."""
    workspace = Workspace(
        series=SeriesDir(root=ROOT, origin="checkout"),
        cache_root=default_cache_root(),
        reporter=NullReporter(),
    )
    subject, _ = prepare_subject(workspace, (arch,), None, "hip", os.environ)
    return subject
