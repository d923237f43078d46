"""Ropes with fewer threads: upstream's numbers, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import GraphsRan, Program, tree_with

from patchkit.toolchain.hip import Toolchain

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549


@pytest.fixture(scope="module")
def ran(
    hip_toolchain: Toolchain, test_cache: Path, gates_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GraphsRan, GraphsRan]:
    """The program with upstream's tree, and with the patch and no other."""
    folder = tmp_path_factory.mktemp("ropes")
    tree = tree_with("rope-blocks", BUILD, test_cache=test_cache, gates_cache=gates_cache, folder=folder)
    source = Path(__file__).with_name("rope_blocks.cpp")
    program = Program(source, BUILD, toolchain=hip_toolchain, gates_cache=gates_cache, folder=folder)
    return program.run(None), program.run(tree)


def test_numbers_are_upstreams_without_findings(ran: tuple[GraphsRan, GraphsRan]) -> None:
    before, after = ran
    assert after.scenes == before.scenes
    assert after.launched == before.launched
    assert after.blamed == frozenset()
    assert {"rope_norm", "rope_neox", "rope_multi", "rms_norm_mul_rope_f32"} <= after.launched.keys()
