"""The sum over the experts of a token gives upstream's numbers to the last bit, in shapes of many kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graphs import Program

pytestmark = [pytest.mark.upstream, pytest.mark.network, pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]
BUILD = 11549
PATCH = "moe-reduction-columns"
_NOT_FUSED = {"one-expert", "sixteen-experts"}


def test_every_sum_is_upstreams_to_the_last_bit(program: Program, patched: Path) -> None:
    upstream, after = program.run(None), program.run(patched)
    assert after.scenes == upstream.scenes
    assert len(set(after.scenes.values())) == len(after.scenes)
    fused = len(after.scenes.keys() - _NOT_FUSED)
    assert upstream.launched["moe_weighted_reduction_f32"] == fused
    assert after.launched["moe_reduction_columns"] == fused
    assert after.launched["moe_weighted_reduction_f32"] == 0
    assert after.blamed == frozenset()
