"""A compiler with its store in the test cache, and the real candidate, ready for the launch gate."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.build.compiler import Compiler, open_compiler
from patchkit.build.toolchain import Toolchain
from patchkit.candidate.apply import run_apply
from patchkit.candidate.find import find_candidate
from patchkit.candidate.plan import Request
from patchkit.candidate.subject import Subject, make_subject
from patchkit.candidate.workspace import Workspace
from patchkit.series.folder import SeriesDir
from patchkit.series.lock import load_lock

ROOT = Path(__file__).resolve().parents[3]
# The target, its nearest relatives, one whose size is a guess, one without matrix units, one with 64 lanes.
_ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1151", "gfx1153", "gfx906")


@pytest.fixture(scope="session")
def recorder_cache(test_cache: Path, warm_cache: Path) -> Path:
    """The cache folder of the gates' tests, so that what they compiled is compiled once."""
    folder = test_cache / "gates"
    with FileLock(test_cache / "gates.lock"):
        if not (folder / "upstream.git").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(warm_cache / "upstream.git", folder / "upstream.git.partial")
            (folder / "upstream.git.partial").rename(folder / "upstream.git")
    return folder


@pytest.fixture(scope="session")
def compiler(hip_toolchain: Toolchain, test_cache: Path) -> Compiler:
    """The toolchain of the tests; small things are compiled anew only when they change."""
    return open_compiler(hip_toolchain, test_cache / "gates", NullReporter())


@pytest.fixture(scope="session")
def series(checkout: Path) -> SeriesDir:
    """The shipped series."""
    return SeriesDir(root=checkout, origin="checkout")


@pytest.fixture(scope="session")
def subject(recorder_cache: Path, hip_toolchain: Toolchain, series: SeriesDir, test_cache: Path) -> Subject:
    """The shipped series' candidate for gfx1151."""
    workspace = Workspace(series=series, cache_root=recorder_cache, reporter=NullReporter())
    with FileLock(test_cache / "gates.lock"):
        run_apply(Request(archs=("gfx1151",), unlocked=True), workspace, checkout=None)
        repository, candidate = find_candidate(workspace, ("gfx1151",), load_lock(series.lock).pin(6900))
        made = make_subject(workspace, repository, candidate, hip_toolchain)
    return replace(made, profiles={arch: made.profiles[arch] for arch in _ARCHS})
