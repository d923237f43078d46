"""A compiler with its store in the test cache, and the real candidate, ready for the launch gate."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_subject import subject_for

from patchkit.base.reporter import NullReporter
from patchkit.base.series_folder import SeriesDir
from patchkit.prove.subject import Subject
from patchkit.toolchain.compiler import Compiler, open_compiler
from patchkit.toolchain.hip import Toolchain

ROOT = Path(__file__).resolve().parents[3]
# The target, its nearest relatives, one whose size is a guess, one without matrix units, one with 64 lanes.
_ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1151", "gfx1153", "gfx906")


@pytest.fixture(scope="session")
def compiler(hip_toolchain: Toolchain, gates_cache: Path) -> Compiler:
    """The toolchain of the tests; small things are compiled anew only when they change."""
    return open_compiler(hip_toolchain, gates_cache, NullReporter())


@pytest.fixture(scope="session")
def series(checkout: Path) -> SeriesDir:
    """The shipped series."""
    return SeriesDir(root=checkout, origin="checkout")


@pytest.fixture(scope="session")
def subject(gates_cache: Path, hip_toolchain: Toolchain, series: SeriesDir) -> Subject:
    """The shipped series' candidate for gfx1151."""
    return subject_for(series, gates_cache, hip_toolchain, _ARCHS)
