"""Functions run lane by lane; what a program must not do is refused with its place."""

from __future__ import annotations

import pytest
from refusing import refused
from stand_in_proof.interpret import BadAccess, Memory, Multiplication, run
from stand_in_proof.ir_text import parse_functions
from stand_in_proof.isa import LANES, Wave

# Each lane's own place in an output of 32-bit numbers, in %9.
PLACE = (
    "%7 = tail call i32 @llvm.amdgcn.workitem.id.x()",
    "%8 = and i32 %7, 31",
    "%9 = getelementptr inbounds i32, ptr addrspace(1) %1, i32 %8",
)


def _never(given: Multiplication) -> Wave:
    raise AssertionError(given)


def _run(*lines: str, given: bytes = b"", unit=_never, first_thread: int = 0) -> list[int]:
    """The 32 numbers stored after running these lines over an input (%0) and an output (%1)."""
    body = "\n".join(f"  {line}" for line in lines)
    text = f"define void @f(ptr %0, ptr %1) {{\n{body}\n  ret void\n}}\n"
    memory = Memory()
    arguments = (memory.add(given), memory.add(bytes(4 * LANES)))
    run(parse_functions(text, "f.ll", {"f"})["f"], arguments, memory, unit, first_thread=first_thread)
    return [memory.load(arguments[1] + 4 * lane, 4) for lane in range(LANES)]


def _store(*lines: str, **more) -> list[int]:
    return _run(*PLACE, *lines, "store i32 %20, ptr addrspace(1) %9, align 4", **more)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%20 = add i32 %8, -1", lambda lane: (lane - 1) % 2**32),
        ("%20 = sub i32 0, %8", lambda lane: -lane % 2**32),
        ("%20 = mul i32 %8, %8", lambda lane: lane * lane),
        ("%20 = shl i32 %8, 30", lambda lane: lane << 30 & 0xFFFFFFFF),
        ("%20 = lshr i32 %8, 4", lambda lane: lane >> 4),
        ("%20 = or disjoint i32 %8, 64", lambda lane: lane | 64),
        ("%20 = xor i32 %8, 5", lambda lane: lane ^ 5),
        ("%20 = tail call i32 @llvm.amdgcn.ds.swizzle(i32 %8, i32 16415)", lambda lane: lane ^ 16),
        ("%20 = tail call i32 @llvm.amdgcn.ds.swizzle(i32 %8, i32 31)", lambda lane: lane),
        ("%20 = tail call i32 @llvm.amdgcn.ds.swizzle(i32 %8, i32 96)", lambda _: 3),
    ],
)
def test_lanes_compute_each_for_itself(line: str, expected) -> None:
    assert _store(line) == [expected(lane) for lane in range(LANES)]


def test_lanes_of_a_later_wave_count_on() -> None:
    assert _store("%20 = lshr i32 %7, 5", first_thread=64) == [2] * LANES


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [("eq", [3]), ("ult", [0, 1, 2]), ("ule", [0, 1, 2, 3]), ("ugt", range(4, 32)), ("uge", range(3, 32))],
)
def test_lanes_choose(predicate: str, expected) -> None:
    stored = _store(f"%10 = icmp {predicate} i32 %8, 3", "%20 = select i1 %10, i32 1, i32 0")
    assert [lane for lane, one in enumerate(stored) if one] == list(expected)


def test_sizes_change() -> None:
    stored = _store("%10 = trunc i32 %8 to i4", "%11 = sext i4 %10 to i32", "%20 = add i32 %11, 100")
    assert stored[:16] == [100 + (lane if lane < 8 else lane - 16) for lane in range(16)]


def test_vectors_are_taken_apart_and_put_together() -> None:
    stored = _store(
        "%10 = load <4 x i16>, ptr %0, align 8",
        "%11 = shufflevector <4 x i16> %10, <4 x i16> poison, <2 x i32> <i32 3, i32 1>",
        "%12 = insertelement <2 x i16> %11, i16 9, i64 1",
        "%20 = bitcast <2 x i16> %12 to i32",
        given=b"\1\0\2\0\3\0\4\0",
    )
    assert stored == [9 << 16 | 4] * LANES


def test_a_bitcast_takes_apart_too() -> None:
    stored = _store(
        "%10 = load i32, ptr %0, align 4",
        "%11 = bitcast i32 %10 to <2 x i16>",
        "%12 = extractelement <2 x i16> %11, i64 1",
        "%20 = zext i16 %12 to i32",
        given=b"\1\0\2\0",
    )
    assert stored == [2] * LANES


def test_the_matrix_unit_gets_what_the_lanes_hold() -> None:
    seen: list[Multiplication] = []

    def unit(given: Multiplication) -> Wave:
        seen.append(given)
        return [[lane] * 16 for lane in range(LANES)]

    call = "@llvm.amdgcn.wmma.f16.16x16x16.f16.v16f16.v16f16"
    stored = _store(
        f"%10 = call <16 x half> {call}(<16 x half> splat (half 0xH0001), <16 x half> zeroinitializer, "
        "<16 x half> poison, i1 true)",
        "%11 = extractelement <16 x half> %10, i64 3",
        "%12 = bitcast half %11 to i16",
        "%20 = zext i16 %12 to i32",
        unit=unit,
    )
    assert stored == list(range(LANES))
    (given,) = seen
    assert (given.kind, given.upper, given.a[5], given.c[5]) == ("half", True, (1,) * 16, (None,) * 16)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["%20 = load i32, ptr %0, align 4"], "load outside of the buffer"),
        (["%10 = getelementptr i8, ptr %0, i64 -1", "%20 = load i8, ptr %10, align 1"], "load outside"),
        (["%10 = getelementptr i8, ptr %0, i64 1", "%20 = load i16, ptr %10, align 2"], "not aligned to 2"),
        (["%10 = getelementptr i8, ptr %0, i64 poison", "%20 = load i8, ptr %10, align 1"], "not aligned"),
        (["store i32 poison, ptr %1, align 4"], "lane 0 stores what has no value"),
        (["store i32 0, ptr %1, align 4"], "lane 1: store stored twice"),
        (["store i32 0, ptr %0, align 4"], "lane 0: store outside"),
        (
            [
                "%10 = insertelement <2 x i16> poison, i16 1, i64 0",
                "%20 = bitcast <2 x i16> %10 to i32",
                "store i32 %20, ptr %1, align 4",
            ],
            "stores what has no value",
        ),
    ],
)
def test_bad_accesses_are_refused(lines: list[str], message: str) -> None:
    with pytest.raises(BadAccess, match=message) as caught:
        _run(*lines, given=b"\0\0")
    assert str(caught.value.where[0]) == f"f.ll:{1 + len(lines)}"


@pytest.mark.parametrize(
    "line",
    [
        "%20 = tail call i32 @llvm.amdgcn.permlanex16(i32 %8, i32 %8)",
        "%20 = tail call i32 @llvm.amdgcn.ds.swizzle(i32 %8, i32 32768)",
    ],
)
def test_unknown_calls_are_refused(line: str) -> None:
    with refused("IR_UNSUPPORTED") as caught:
        _store(line)
    assert str(caught.value.where[0]) == "f.ll:5"


def test_arguments_must_match() -> None:
    function = parse_functions("define void @f(ptr %0) {\n  ret void\n}\n", "f.ll", {"f"})["f"]
    with pytest.raises(ValueError, match="takes 1 arguments, not 0"):
        run(function, (), Memory(), _never)
