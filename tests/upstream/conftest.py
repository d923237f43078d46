"""The program of scenes, and trees with patches of kernels, for the tests that run one on the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_scenes import SceneTrees

from patchkit.toolchain.hip import Toolchain


@pytest.fixture(scope="session")
def scene_trees(
    hip_toolchain: Toolchain, test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> SceneTrees:
    """Trees with patches, and the program, compiled when it is first run."""
    folder = tmp_path_factory.mktemp("scenes")
    return SceneTrees(hip_toolchain, test_cache=test_cache, gates_cache=gates_cache, folder=folder)
