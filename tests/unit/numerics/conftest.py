"""The recorded results of an NVIDIA H200, unpacked; each test gets a copy of its own."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from patchkit.gates.numerics import judge

RECORD = Path(__file__).with_name("recorded") / "h200-b6900.tar.xz"


@pytest.fixture(scope="session", autouse=True)
def read_once() -> Iterator[None]:
    """The judge reads megabytes of outputs, of which a test changes one: what was read of a text is kept."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("parse_ops", "parse_check", "parse_perf"):
            patch.setattr(judge, name, cache(getattr(judge, name)))
        yield


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as it was brought back; read only."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORD) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def bundle(recorded: Path, tmp_path: Path) -> Path:
    """A copy that may be broken."""
    return shutil.copytree(recorded, tmp_path / "bundle")
