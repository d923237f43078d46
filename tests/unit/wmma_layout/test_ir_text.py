"""LLVM IR is read as written, and what is not understood is refused with its place."""

from __future__ import annotations

import struct

import pytest
from refusing import refused
from stand_in_proof.ir import Constant, Operand, Operation, Shape
from stand_in_proof.ir_text import parse_functions

HEAD = "define protected void @f(ptr addrspace(1) noundef readonly captures(none) %0, i32 noundef %1)"


def _parse(*lines: str, before: str = "") -> tuple[Operation, ...]:
    text = "\n".join((before, f"{HEAD} local_unnamed_addr #0 {{", *(f"  {line}" for line in lines), "}"))
    return parse_functions(text, "f.ll", {"f"})["f"].operations


def _one(line: str, **more: str) -> Operation:
    (operation,) = _parse(line, **more)
    return operation


def test_parameters_carry_their_registers() -> None:
    function = parse_functions(f"{HEAD} #0 {{\n  ret void\n}}\n", "f.ll", {"f"})["f"]
    assert function.parameters == (Operand(Shape(64), "%0"), Operand(Shape(32), "%1"))


def test_only_what_is_asked_for_is_read() -> None:
    text = f"define void @g() {{\n  br label %2\n}}\n{HEAD} {{\n  ret void\n}}\n"
    assert set(parse_functions(text, "f.ll", {"f", "h"})) == {"f"}


def test_a_load_has_a_shape_and_an_alignment() -> None:
    load = _one("%5 = load <4 x i32>, ptr addrspace(1) %0, align 16, !tbaa !11")
    assert (load.name, load.result, load.shape, load.align) == ("load", "%5", Shape(32, 4), 16)
    assert load.operands == (Operand(Shape(64), "%0"),)
    assert load.line == 3


def test_a_store_has_two_operands() -> None:
    store = _one("store <2 x half> %4, ptr addrspace(1) %0, align 2, !tbaa !9")
    assert store.operands == (Operand(Shape(16, 2), "%4"), Operand(Shape(64), "%0"))
    assert store.align == 2


@pytest.mark.parametrize(
    ("element", "scale"), [("half", 2), ("i8", 1), ("<8 x half>", 16), ("%struct.__half", 2)]
)
def test_an_index_counts_elements(element: str, scale: int) -> None:
    named = "%struct.__half = type { %union.anon }\n%union.anon = type { half }"
    address = _one(f"%5 = getelementptr inbounds nuw {element}, ptr %0, i64 -3", before=named)
    assert address.scale == scale
    assert address.operands[1].value == Constant(((1 << 64) - 3,))


@pytest.mark.parametrize(
    ("line", "name", "shape"),
    [
        ("%5 = add nuw nsw i32 %1, 7", "add", Shape(32)),
        ("%5 = or disjoint i32 %1, 7", "or", Shape(32)),
        ("%5 = zext nneg i32 %1 to i64", "zext", Shape(64)),
        ("%5 = bitcast <8 x half> %1 to <4 x i32>", "bitcast", Shape(32, 4)),
        ("%5 = icmp samesign ugt i32 %1, 15", "icmp ugt", Shape(1)),
        ("%5 = select i1 %1, <2 x i32> %2, <2 x i32> %3", "select", Shape(32, 2)),
        ("%5 = extractelement <4 x i32> %1, i64 0", "extractelement", Shape(32)),
        ("%5 = insertelement <4 x i32> poison, i32 %1, i64 0", "insertelement", Shape(32, 4)),
        (
            "%5 = shufflevector <2 x i8> %1, <2 x i8> poison, <4 x i32> <i32 0, i32 poison, i32 1, i32 3>",
            "shufflevector",
            Shape(8, 4),
        ),
        (
            "%5 = tail call contract noundef <8 x half> @g.v8f16(<8 x half> %1, i1 false)",
            "g.v8f16",
            Shape(16, 8),
        ),
        ("%5 = call range(i32 0, 9) i32 @g(i32 noundef range(i32 0, 4) %1)", "g", Shape(32)),
        (
            "%5 = tail call i32 @llvm.amdgcn.workitem.id.x(), !range !4",
            "llvm.amdgcn.workitem.id.x",
            Shape(32),
        ),
    ],
)
def test_results_have_shapes(line: str, name: str, shape: Shape) -> None:
    operation = _one(line)
    assert (operation.name, operation.result, operation.shape) == (name, "%5", shape)


@pytest.mark.parametrize(
    ("written", "elements"),
    [
        ("<2 x i16> <i16 1, i16 poison>", (1, None)),
        ("<2 x i16> zeroinitializer", (0, 0)),
        ("<2 x half> splat (half 0xH3C00)", (0x3C00, 0x3C00)),
        ("float 1.500000e+00", (0x3FC00000,)),
        ("float 0x3FB99999A0000000", (int.from_bytes(struct.pack("<f", 0.1), "little"),)),
        ("i1 true", (1,)),
        ("i8 undef", (None,)),
    ],
)
def test_constants_are_bits(written: str, elements: tuple[int | None, ...]) -> None:
    store = _one(f"store {written}, ptr %0, align 1")
    assert store.operands[0].value == Constant(elements)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("br label %2", "'br'"),
        ("%5 = phi i32 [ 0, %1 ], [ %6, %7 ]", "'phi'"),
        ("%5 = getelementptr [4 x i8], ptr %0, i64 0, i64 1", "'['"),
        ("%5 = getelementptr i8, ptr %0, i64 0, i64 1", "several indices"),
        ("%5 = load %struct.two, ptr %0, align 4", "'%struct.two'"),
        ("%5 = fadd float %1, %2", "'fadd'"),
        ("store float ?, ptr %0, align 4", "the value '?'"),
        ("%5 = call @g", "the type '@g'"),
        ("ret i32 0", "'i32' where 'void' should stand"),
    ],
)
def test_what_is_not_understood_is_refused(line: str, what: str) -> None:
    with refused("IR_UNSUPPORTED") as caught:
        _parse("%4 = add i32 %1, 1", line, before="%struct.two = type { half, half }")
    assert what in caught.value.message
    assert line in caught.value.message
    assert str(caught.value.where[0]) == "f.ll:4"
