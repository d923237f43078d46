"""Let upstream's own code end the program in single cases, and see that gates go on without these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from refusing import refused

from patchkit.base.text import counted
from patchkit.prove.build import Machine
from patchkit.prove.gates.backend_ops import BackendOpsEvidence, BackendOpsGate
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.sanitize import SanitizeEvidence, SanitizeGate
from patchkit.prove.subject import Subject
from patchkit.toolchain.tree import overlay_tree

SOFT_MAX = "ggml/src/ggml-cuda/softmax.cu"
EMULATED = Machine(backend="hip", emulates="gfx1151")
_WIDTH = "    const int64_t ne00 = src0->ne[0];\n\n    float scale "
_CASES = r"ne=\[(16,2|32,2|1023,15),"
pytestmark = [pytest.mark.hip, pytest.mark.slow]


@pytest.fixture
def aborting(shipped: Subject, edited: Callable[..., Subject]) -> Callable[..., Subject]:
    """A subject whose host code ends the program at rows of these widths, on each side."""

    def make(*, baseline: int, candidate: tuple[int, ...]) -> Subject:
        def planted(widths: tuple[int, ...]) -> dict[str, bytes]:
            text = (shipped.baseline / SOFT_MAX).read_text("utf-8")
            assert text.count(_WIDTH) == 1
            traps = "".join(f"    GGML_ASSERT(ne00 != {width});\n" for width in widths)
            return {SOFT_MAX: text.replace(_WIDTH, _WIDTH.replace("\n\n", f"\n{traps}\n")).encode()}

        root = overlay_tree(shipped.baseline, planted((baseline,)), "whole", below=".")
        before = replace(shipped, baseline=root, baseline_tree=root.name)
        return edited(before, planted(candidate), "fattn-keep-gqa-tiles")

    return make


def _of_width(result: GateResult, width: int) -> list[str]:
    assert isinstance(result.evidence, (BackendOpsEvidence, SanitizeEvidence)), result.problems
    cases = [one for one in result.evidence.aborting if f"ne=[{width}," in one.case]
    assert len(cases) == len(result.evidence.aborting) > 0
    assert all("GGML_ASSERT(ne00 != " in (one.why or "") for one in cases)
    return [one.case for one in cases]


@pytest.mark.parametrize("gate", [BackendOpsGate, SanitizeGate])
def test_a_case_that_ends_the_baseline_is_left_out_and_told(gate, aborting: Callable[..., Subject]) -> None:
    run = gate(machine=EMULATED, ops=("SOFT_MAX",), pattern=_CASES, is_sample=True).run
    result = run(aborting(baseline=16, candidate=(16,)))
    assert result.verdict == "passed (emulated)", result.problems
    left_out = _of_width(result, 16)
    told = [text for text in result.not_run if "the baseline aborts, for example in" in text]
    cases = counted(len(left_out), "case")
    assert told == [f"SOFT_MAX ({cases}): the baseline aborts, for example in {left_out[0]}"]
    found = result.evidence
    if isinstance(found, BackendOpsEvidence):
        assert found.tests_run == found.tests_passed == found.baseline_tests_passed > 0
    else:
        assert found.candidate.launches == found.baseline.launches > 0
        assert found.candidate.cases == found.baseline.cases > 0
        assert found.baseline.cut_short == 0


def test_a_case_that_ends_the_candidate_alone_fails_and_is_named(aborting: Callable[..., Subject]) -> None:
    gate = BackendOpsGate(machine=EMULATED, ops=("SOFT_MAX",), pattern=_CASES, is_sample=True)
    result = gate.run(aborting(baseline=16, candidate=(16, 32)))
    (problem,) = result.problems
    assert (result.verdict, problem.code) == ("failed", "BACKEND_OPS_BROKEN")
    assert "only on the candidate" in problem.message
    assert "in case SOFT_MAX(type=f32,ne=[32,2," in problem.message
    assert "GGML_ASSERT(ne00 != 32)" in (problem.why or "")


def test_a_baseline_that_ends_in_every_case_is_no_baseline(aborting: Callable[..., Subject]) -> None:
    gate = BackendOpsGate(machine=EMULATED, ops=("SOFT_MAX",), pattern=r"ne=\[16,2,", is_sample=True)
    with refused("PROGRAM_CRASHED", match=r"in case SOFT_MAX\(type=f32,ne=\[16,2,"):
        gate.run(aborting(baseline=16, candidate=()))
