"""For tests whose graphs are in a program of ours: ``test_X.py`` has them in ``X.cpp`` beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import KERNELS, GraphsRan, Program, tree_with, with_hip_graphs, with_switches

from patchkit.toolchain.hip import Toolchain
from patchkit.toolchain.tree import overlay_tree


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


@pytest.fixture(scope="module")
def upstream(program: Program) -> GraphsRan:
    """All scenes with upstream's kernels."""
    return program.run(None)


@pytest.fixture(scope="module")
def switched(request: pytest.FixtureRequest, patched: Path) -> dict[str, bytes]:
    """The files of a module's ``RULES``, in which the variable LEFT_OUT names a rule that does not hold."""
    changed = {}
    for name, rules in request.module.RULES.items():
        file = f"{KERNELS}/{name}"
        switches = {rule.name: rule.switch for rule in rules}
        changed[file] = with_switches((patched / file).read_text("utf-8"), switches)
    return changed


@pytest.fixture(scope="module")
def left_out(patched: Path, switched: dict[str, bytes]) -> Path:
    """The tree with these files."""
    return overlay_tree(patched, switched, "left-out", below=".")


@pytest.fixture(scope="module")
def with_graphs(patched: Path, switched: dict[str, bytes]) -> Path:
    """The same with HIP graphs."""
    return with_hip_graphs(patched, switched)
