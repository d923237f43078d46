"""Plant kernels that depend on the size of the batch, and see that the gate ``width`` names the batches.

One of them computes right results: it differs in rounding, which gates that compare with the CPU do not see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.gpu.emulated.models import SmallModel
from patchkit.gpu.hardware.operation_widths import WidthCase
from patchkit.prove.build import Machine
from patchkit.prove.gates.base import GateResult
from patchkit.prove.gates.width import WidthEvidence, WidthGate
from patchkit.prove.gates.width_scenes import WIDTHS, Chosen, ModelOf
from patchkit.prove.subject import Subject

ROOT = Path(__file__).resolve().parents[2]
MMVQ = "ggml/src/ggml-cuda/mmvq.cu"
# The waves of a row, which host and device take from the same function: two waves add in another order.
WAVES = "static constexpr __host__ __device__ int calc_nwarps("
LAST = "    return 1;\n}\n"
TWO_WAVES = "    return ncols_dst == 3 ? 2 : 1;\n}\n"
COLUMN = "vx, &y[j*stride_col_y + kby], kbx_offset + i*stride_row_x + kbx, kqs);"
OTHER_COLUMN = COLUMN.replace("y[j*", "y[(ncols_dst == 3 && j == 2 ? 1 : j)*")
CASE = WidthCase(op="MUL_MAT", type="q8_0", rows=64, columns=4096)
MODEL = SmallModel(
    head_size=64, heads=4, kv_heads=1, spread=0.08, widening=3, weights=("Q8_0",), is_filled=True
)
pytestmark = [pytest.mark.hip, pytest.mark.slow]


def run(subject: Subject) -> GateResult:
    """The gate over one matmul and one model."""
    chosen = Chosen(models=(ModelOf(kinds=frozenset({"weights"}), model=MODEL),), cases=((CASE,),))
    return WidthGate(machine=Machine(backend="hip", emulates="gfx1151"), chosen=chosen).run(subject)


def evidence(result: GateResult) -> WidthEvidence:
    """What the gate found."""
    assert isinstance(result.evidence, WidthEvidence), result.summary
    return result.evidence


@pytest.fixture
def planted(upstream: Subject, edited: Callable[..., Subject]) -> Callable[[str, str, str], Subject]:
    """Upstream with other text in mmvq.cu, in the first place after some text."""

    def plant(after: str, old: str, new: str) -> Subject:
        before, found, rest = (upstream.baseline / MMVQ).read_text("utf-8").partition(after)
        assert found
        assert old in rest
        return edited(upstream, {MMVQ: (before + found + rest.replace(old, new, 1)).encode()}, "planted")

    return plant


def test_upstream_compared_with_itself_passes(upstream: Subject) -> None:
    result = run(upstream)
    assert result.verdict == "passed (emulated)", result.problems
    model, matmul = evidence(result).scenes
    assert [one.is_equal for one in matmul.baseline] == [width <= 8 for width in WIDTHS]
    assert matmul.baseline == matmul.candidate
    assert model.baseline == model.candidate
    assert model.drafted is not None
    assert model.drafted[0].tokens == 16


def test_another_order_of_sums_in_batches_of_three_is_found(planted) -> None:
    result = run(planted(WAVES, LAST, TWO_WAVES))
    assert result.verdict == "failed", result.summary
    by_name = {problem.message.partition(":")[0]: problem for problem in result.problems}
    problem = by_name[str(CASE)]
    assert problem.code == "WIDTH_DIFFERS"
    assert "in batches of 3 tokens" in problem.message
    _, matmul = evidence(result).scenes
    assert [new.width for old, new in matmul.pairs if old.is_equal and not new.is_equal] == [3]
    (three,) = (one for one in matmul.candidate if one.width == 3)
    assert 0 < three.nmse < 1e-12  # rounding: no other gate fails


def test_the_column_of_another_token_is_found(planted) -> None:
    result = run(planted("mul_mat_vec_q(", COLUMN, OTHER_COLUMN))
    assert {problem.code for problem in result.problems} >= {"WIDTH_DIFFERS"}
    problem = next(one for one in result.problems if one.message.startswith(str(CASE)))
    assert "in batches of 3 tokens" in problem.message
    assert "place 2 of its batch" in (problem.why or "")
