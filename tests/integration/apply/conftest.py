"""Small worlds (see ``demo_world``), fresh ones and one in which apply has run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from demo_world import FOLDER, SOURCE, World, copy_world, make_series, make_upstream


def build_world(root: Path, checkout: Path) -> World:
    world = World(root, checkout)
    files = {
        f"{FOLDER}/demo.cu": SOURCE,
        f"{FOLDER}/common.cuh": "#pragma once\n",
        "README.md": "a small upstream\n",
    }
    make_upstream(world.upstream, {1: files})
    make_series(world, 1, ("gfx1151", "gfx1100"), config=True, last=None)
    return world


@pytest.fixture(scope="session")
def finished_world(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> World:
    """A world in which apply has run once; to be copied or read."""
    world = build_world(tmp_path_factory.mktemp("world"), checkout)
    done = world.run("apply", "--arch", "gfx1151")
    assert done.returncode == 0, done.stderr
    return world


@pytest.fixture(scope="session")
def new_world(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> World:
    """A world in which nothing has run; to be copied."""
    return build_world(tmp_path_factory.mktemp("new") / "world", checkout)


@pytest.fixture
def make_world(new_world: World, tmp_path: Path) -> Callable[[str], World]:
    """Makes a fresh world below the test's folder."""
    return lambda name: copy_world(new_world, tmp_path / name)


@pytest.fixture
def world(make_world: Callable[[str], World]) -> World:
    """One fresh world; nothing has run in it."""
    return make_world("world")
