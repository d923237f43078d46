"""For tests whose graphs are in a program of ours: ``test_X.py`` has them in ``X.cpp`` beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import Program, tree_with

from patchkit.toolchain.hip import Toolchain


@pytest.fixture(scope="module")
def program(
    request: pytest.FixtureRequest,
    hip_toolchain: Toolchain,
    gates_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Program:
    """The program of a module of tests, for its ``BUILD``."""
    name = request.path.stem.removeprefix("test_")
    folder = tmp_path_factory.mktemp(name)
    return Program(
        request.path.with_name(f"{name}.cpp"),
        request.module.BUILD,
        toolchain=hip_toolchain,
        gates_cache=gates_cache,
        folder=folder,
    )


@pytest.fixture(scope="module")
def patched(
    request: pytest.FixtureRequest,
    test_cache: Path,
    gates_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The tree of a module's ``BUILD`` with its ``PATCH`` and what it ``NEEDS``, and no other patch."""
    module = request.module
    folder = tmp_path_factory.mktemp("series")
    where = {"test_cache": test_cache, "gates_cache": gates_cache, "folder": folder}
    return tree_with(module.PATCH, module.BUILD, needs=getattr(module, "NEEDS", ()), **where)
