"""Make a kernel of a candidate do its work several times, and see that the gate ``speed`` says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from patchkit.carry.series.promises import SpeedRules, SpeedShape
from patchkit.prove.build import Machine
from patchkit.prove.gates.speed import SpeedEvidence, SpeedGate
from patchkit.prove.subject import Subject

MMVQ = "ggml/src/ggml-cuda/mmvq.cu"
LOOP = "    for (int kbx = tid / (qi/vdr); kbx < blocks_per_row_x; kbx += blocks_per_iter) {"
TWICE, FIVE_TIMES = (f"    for (int again = 0; again < {times}; ++again)\n{LOOP}" for times in (2, 5))
# The first runs the kernel that is changed, the next another one, the last one that the model cannot judge.
SHAPES = (
    SpeedShape(type="q4_K", rows=4096, columns=4096, tokens=8),
    SpeedShape(type="f16", rows=4096, columns=4096, tokens=1),
    SpeedShape(head_size=128, heads=32, kv_heads=8, kv=1024, tokens=512),
)
pytestmark = [pytest.mark.hip, pytest.mark.slow, pytest.mark.hours]


@pytest.mark.parametrize(
    ("kernel", "verdict", "judgements"),
    [
        ("", "passed (modelled)", ["same", "same", "not judged"]),
        (TWICE, "passed (modelled)", ["unclear", "same", "not judged"]),  # the model errs by as much
        (FIVE_TIMES, "failed", ["slower", "same", "not judged"]),
    ],
    ids=["unchanged", "twice", "five times"],
)
def test_a_kernel_that_works_again_is_never_the_same_and_slower_beyond_the_error(
    shipped: Subject, edited: Callable[..., Subject], kernel: str, verdict: str, judgements: list[str]
) -> None:
    text = (shipped.candidate / MMVQ).read_text("utf-8")
    assert LOOP in text
    subject = edited(shipped, {MMVQ: text.replace(LOOP, kernel or LOOP, 1).encode()}, "fattn-keep-gqa-tiles")
    parts = tuple(
        replace(part, patch=replace(part.patch, speed=SpeedRules(shapes=SHAPES, why="a test")))
        if part.id == "fattn-keep-gqa-tiles"
        else replace(part, patch=replace(part.patch, speed=None))
        for part in subject.patches
    )
    result = SpeedGate(machine=Machine(backend="hip", emulates="gfx1151")).run(
        replace(subject, patches=parts)
    )
    assert result.verdict == verdict, result.problems
    assert isinstance(result.evidence, SpeedEvidence)
    assert [one.judgement for one in result.evidence.shapes] == judgements
    assert [problem.code for problem in result.problems] == ["SPEED_SLOWER"] * (verdict == "failed")
    slow, same, _ = result.evidence.shapes
    assert same.change == 0
    assert any("attention, head size 128" in line and "error is unknown" in line for line in result.not_run)
    others = [part.id for part in subject.patches if part.id != "fattn-keep-gqa-tiles"]
    assert [line.partition(":")[0] for line in result.not_run if "names no shapes" in line] == others
    if kernel:
        assert slow.change is not None
        assert slow.change < -0.3
        assert "mul_mat_vec_q" in str(slow.kernels)
    for problem in result.problems:
        assert "--upstream b6900 --type q4_K --rows 4096 --columns 4096 --tokens 8;" in (problem.hint or "")
