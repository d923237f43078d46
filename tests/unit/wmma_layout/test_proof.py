"""The checks of the proof themselves, on functions written by hand."""

from __future__ import annotations

import pytest
from stand_in_proof.cases import all_cases, fill_name, function_names, source
from stand_in_proof.ir_text import parse_functions
from stand_in_proof.proof import prove

# A correct fill for gfx12, row by row: lane % 16 is the column, rows follow from lane / 16 * 8 on.
FILL = """\
define void @fill_float(ptr addrspace(1) %0, ptr addrspace(1) %1, i32 %2) {
  %4 = tail call i32 @llvm.amdgcn.workitem.id.x()
  %5 = load float, ptr addrspace(1) %0, align 4
  %6 = and i32 %4, 15
  %7 = lshr i32 %4, 4
  %8 = shl i32 %7, 3
  ROWS
  ret void
}
"""
ROW = """\
  %r{i} = add i32 %8, {i}
  %s{i} = mul i32 %r{i}, %2
  %t{i} = add i32 %s{i}, %6
  %u{i} = getelementptr float, ptr addrspace(1) %1, i32 %t{i}
  store float %5, ptr addrspace(1) %u{i}, align 4
"""

# Each lane a byte of what lies between two rows.
BESIDE = """\
  %p = mul i32 %8, %2
  %q = add i32 %p, 16
  %v = getelementptr float, ptr addrspace(1) %1, i32 %q
  %w = getelementptr i8, ptr addrspace(1) %v, i32 %6
  store i8 0, ptr addrspace(1) %w, align 1
"""


def _fails(rows: str, before: str = FILL) -> str:
    text = before.replace("  ROWS\n", rows)
    proof = prove(parse_functions(text, "f.ll", function_names()), "gfx12")
    return "; ".join(one.what for one in proof.failures if one.function == fill_name("float"))


def _rows(count: int) -> str:
    return "".join(ROW.format(i=i) for i in range(count))


def test_a_right_function_passes() -> None:
    assert not _fails(_rows(8))


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (_rows(7), "D[7][0] is not what it should be"),
        (_rows(8) + ROW.format(i=8).replace("i32 %8, 8", "i32 %8, 7"), "stored twice"),
        (_rows(8).replace("add i32 %8, 7", "add i32 %8, 8"), "stored twice"),
        (_rows(8) + BESIDE, "stores beside the matrix"),
        (
            _rows(8).replace("float %5, ptr addrspace(1) %u3", "float 0.0e+00, ptr addrspace(1) %u3"),
            "D[3][0]",
        ),
    ],
)
def test_a_wrong_function_fails(rows: str, what: str) -> None:
    assert what in _fails(rows)


def test_a_multiplication_in_a_fill_fails() -> None:
    call = (
        "  %c = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16("
        "<8 x half> zeroinitializer, <8 x half> zeroinitializer, <8 x float> zeroinitializer)\n"
    )
    assert "where nothing is to be multiplied" in _fails(call + _rows(8))


def test_what_the_compiler_left_out_fails() -> None:
    proof = prove({}, "gfx11")
    assert {one.function for one in proof.failures} == function_names()
    assert len(proof.failures) == proof.functions == len(all_cases()) + 2


def test_the_source_has_each_function_once() -> None:
    text = source()
    assert all(text.count(f"void {name}(") == 1 for name in function_names())
