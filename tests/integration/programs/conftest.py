"""Baseline and candidate built for the CPU in the test cache, and candidates with planted errors."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.base.workspace import Workspace
from patchkit.carry.candidate.apply import run_apply
from patchkit.carry.candidate.decision import Request
from patchkit.carry.candidate.find import find_candidate
from patchkit.carry.series.lock import load_lock
from patchkit.prove.subject import Subject, make_subject

CPU_OPS = "ggml/src/ggml-cpu/ops.cpp"


@pytest.fixture(scope="session")
def cpu_cache(test_cache: Path, warm_cache: Path) -> Path:
    """A cache folder that keeps its builds from run to run."""
    folder = test_cache / "cpu"
    with FileLock(test_cache / "cpu.lock"):
        if not (folder / "upstream.git").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(warm_cache / "upstream.git", folder / "upstream.git.partial")
            (folder / "upstream.git.partial").rename(folder / "upstream.git")
    return folder


@pytest.fixture(scope="session")
def cpu_subject(cpu_cache: Path, test_cache: Path, checkout: Path) -> Subject:
    """The shipped series' candidate for gfx1151; no toolchain for GPUs is needed."""
    series = SeriesDir(root=checkout, origin="checkout")
    workspace = Workspace(series=series, cache_root=cpu_cache, reporter=NullReporter())
    with FileLock(test_cache / "cpu.lock"):
        run_apply(Request(archs=("gfx1151",), upstream="b6900", unlocked=True), workspace, checkout=None)
        repository, candidate = find_candidate(workspace, ("gfx1151",), load_lock(series.lock).pin("b6900"))
        return make_subject(workspace, repository, candidate, None)


@pytest.fixture
def plant(cpu_subject: Subject, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Subject]:
    """Makes a candidate in which one text, of the CPU backend's operations, reads differently."""

    def make(old: str, new: str, file: str = CPU_OPS) -> Subject:
        root = tmp_path / "planted"
        shutil.copytree(cpu_subject.candidate, root, symlinks=True, copy_function=_link_or_copy)
        path = root / file
        text = path.read_text("utf-8")
        assert text.count(old) == 1
        path.unlink()
        path.write_text(text.replace(old, new), "utf-8")
        lines = path.read_text("utf-8").splitlines()
        authors = tuple("planted" if new.strip() in line else None for line in lines)
        # A gate keeps its evidence by the tree's name, and two workers plant at once (CI, 2026-11-22).
        tree = f"planted-{uuid.uuid4().hex}"
        request.addfinalizer(
            lambda: shutil.rmtree(cpu_subject.cache_root / "evidence" / tree, ignore_errors=True)
        )
        return replace(cpu_subject, candidate=root, candidate_tree=tree, authors={file: authors})

    return make


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        return shutil.copy2(source, target)
    return target
