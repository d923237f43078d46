"""Ropes with fewer threads: upstream's numbers, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import Program

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "rope-blocks"


def test_numbers_are_upstreams_without_findings(program: Program, patched: Path) -> None:
    before, after = program.run(None), program.run(patched)
    assert after.scenes == before.scenes
    assert after.launched == before.launched
    assert after.blamed == frozenset()
    assert {"rope_norm", "rope_neox", "rope_multi", "rms_norm_mul_rope_f32"} <= after.launched.keys()
