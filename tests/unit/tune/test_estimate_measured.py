"""The estimate against the speeds that were measured on a gfx1151: a bound, and close as a ratio.

llama-bench of lhl (strix-halo-testing, llama-cpp-fix-wmma): prompts of 512 tokens at two depths, with
upstream's setting and with (128, 8). What a deeper prompt takes longer is attention, which runs
<64, 32, float> in both models. Layers and heads are the models' (from memory): Llama-3.2-1B has 16 and 32;
of gpt-oss-20b's 24 layers every other one looks at a short window only, so 12 count, with 64 heads.
"""

from __future__ import annotations

import pytest
from strix_halo import CUS, LIMITS

from patchkit.tune.cost import estimate
from patchkit.tune.family import Traits
from patchkit.tune.isa import LoopMix
from patchkit.tune.outcome import Figures

HERTZ, TOKENS = 2.9e9, 512
DEPTHS = (16384, 65536)
# (layers, heads): tokens per second at the two depths with upstream's setting, and with (128, 8)
MEASURED = {
    (16, 32): ((1265.62, 360.24), (2064.78, 706.46)),
    (12, 64): ((669.77, 227.24), (962.98, 426.81)),
}
# What clang 22.1.8 made of the two with patchkit's stand-in header.
BEFORE = Figures(
    vgprs=208,
    spills=0,
    sgpr_spills=0,
    scratch_bytes=0,
    lds_bytes=38400,
    waves=3,
    resident=3,
    threads=128,
    loop=LoopMix(
        instructions=3324,
        matrix=64,
        dot=0,
        valu=2319,
        lds=556,
        lds_bytes=2752,
        loads=208,
        stores=0,
        scratch=0,
        barriers=5,
    ),
    latency=37876,
    seconds=1.0,
)
AFTER = Figures(
    vgprs=215,
    spills=0,
    sgpr_spills=0,
    scratch_bytes=0,
    lds_bytes=22016,
    waves=7,
    resident=6,
    threads=256,
    loop=LoopMix(
        instructions=1019,
        matrix=16,
        dot=0,
        valu=706,
        lds=208,
        lds_bytes=928,
        loads=52,
        stores=0,
        scratch=0,
        barriers=5,
    ),
    latency=7888,
    seconds=1.0,
)


def _measured(speeds: tuple[float, float], layers: int, heads: int) -> float:
    """Cycles of a WGP per KV row and column, at the highest clock."""
    seconds_per_row = (TOKENS / speeds[1] - TOKENS / speeds[0]) / (DEPTHS[1] - DEPTHS[0])
    return seconds_per_row / layers * HERTZ * (CUS / 2) / (TOKENS * heads)


@pytest.mark.parametrize(("model", "speeds"), MEASURED.items(), ids=["Llama-3.2-1B", "gpt-oss-20b"])
def test_the_estimate_is_a_bound_and_its_ratio_is_near_what_was_measured(model, speeds) -> None:
    layers, heads = model
    before, after = (_measured(each, layers, heads) for each in speeds)
    estimated_before = estimate(BEFORE, Traits(threads=128, rows=256, columns=32), LIMITS, CUS).cost
    estimated_after = estimate(AFTER, Traits(threads=256, rows=128, columns=32), LIMITS, CUS).cost
    # docs/records/tune.md: about a third of the measured time, and a gain that is 2 to 7 % too small.
    assert 0.3 < estimated_before / before < 0.4
    assert 0.3 < estimated_after / after < 0.4
    assert estimated_before / estimated_after == pytest.approx(before / after, rel=0.08)


def test_two_models_give_the_same_result_for_the_kernel() -> None:
    """Checks the counts of layers, heads and depths above."""
    (llama, gpt) = (
        [_measured(each, layers, heads) for each in speeds] for (layers, heads), speeds in MEASURED.items()
    )
    assert llama == pytest.approx(gpt, rel=0.08)
