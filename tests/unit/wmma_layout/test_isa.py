"""The model of the matrix instruction agrees with AMD's own listing, and with itself."""

from __future__ import annotations

import hashlib
import itertools
import random

import pytest
from stand_in_proof.isa import (
    LANES,
    SIZE,
    CopiesDiffer,
    Family,
    Inexact,
    Kind,
    NoValue,
    Slot,
    accumulator_slot,
    accumulator_width,
    decode,
    encode,
    multiply_add,
    operand_slots,
    operand_width,
)

FAMILIES: tuple[Family, ...] = ("gfx11", "gfx12")
KINDS: tuple[Kind, ...] = ("half", "float")
PLACES = tuple(itertools.product(range(SIZE), range(SIZE)))

# sha256 (first 16 digits) of what AMD's matrix instruction calculator prints with --register-layout --csv,
# at the commit that isa.py names, one line for each element, as _listing writes them.
CALCULATOR = {
    ("gfx11", "half", "A"): "f0bbcddb989ca2f3",
    ("gfx11", "half", "B"): "ffbd478d0f5a6240",
    ("gfx11", "half", "C"): "ea2b2219fbc56688",
    ("gfx11", "half", "D"): "d8efae04b3dda881",
    ("gfx11", "float", "A"): "f0bbcddb989ca2f3",
    ("gfx11", "float", "B"): "ffbd478d0f5a6240",
    ("gfx11", "float", "C"): "14e80382610f13fb",
    ("gfx11", "float", "D"): "15a9fa99d106c767",
    ("gfx12", "half", "A"): "2cf02f5073b2bce7",
    ("gfx12", "half", "B"): "d2180d736b004a4f",
    ("gfx12", "half", "C"): "9b9eb37ca7eca70b",
    ("gfx12", "half", "D"): "719701744b460b49",
    ("gfx12", "float", "A"): "2cf02f5073b2bce7",
    ("gfx12", "float", "B"): "d2180d736b004a4f",
    ("gfx12", "float", "C"): "84c8fa0e4438af80",
    ("gfx12", "float", "D"): "45df8440ea6ac69a",
}


def _slots(family: Family, kind: Kind, matrix: str, row: int, column: int) -> tuple[Slot, ...]:
    if matrix == "A":
        return operand_slots(family, row, column)
    if matrix == "B":
        return operand_slots(family, column, row)
    return (accumulator_slot(family, kind, row, column),)


def _listing(family: Family, kind: Kind, matrix: str) -> str:
    """Lines such as ``A 0 1 v0{0}.1 v0{16}.1``: row, column, register, lane, which 16 bits of it."""

    def written(slot: Slot) -> str:
        if kind == "float" and matrix in "CD":
            return f"v{slot.element}{{{slot.lane}}}"
        return f"v{slot.element // 2}{{{slot.lane}}}.{slot.element % 2}"

    return "\n".join(
        f"{matrix} {row} {column} " + " ".join(map(written, _slots(family, kind, matrix, row, column)))
        for row, column in PLACES
    )


@pytest.mark.parametrize(("family", "kind", "matrix"), CALCULATOR)
def test_each_element_lies_where_amds_calculator_says(family: Family, kind: Kind, matrix: str) -> None:
    digest = hashlib.sha256(_listing(family, kind, matrix).encode()).hexdigest()
    assert digest[:16] == CALCULATOR[family, kind, matrix]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_operand_fills_its_registers(family: Family) -> None:
    slots = [slot for line, k in PLACES for slot in operand_slots(family, line, k)]
    assert sorted(slots) == [
        Slot(lane, element) for lane in range(LANES) for element in range(operand_width(family))
    ]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_accumulator_fills_its_registers(family: Family, kind: Kind, upper: bool) -> None:
    slots = sorted(accumulator_slot(family, kind, *place, upper=upper) for place in PLACES)
    every = range(accumulator_width(family, kind))
    if family == "gfx11" and kind == "half":
        every = every[int(upper) :: 2]
    assert slots == [Slot(lane, element) for lane in range(LANES) for element in every]


def _wave(family: Family, matrix: list[list[int]], *, lines_are_rows: bool) -> list[list[int | None]]:
    wave: list[list[int | None]] = [[None] * operand_width(family) for _ in range(LANES)]
    for line, k in PLACES:
        number = matrix[line][k] if lines_are_rows else matrix[k][line]
        for slot in operand_slots(family, line, k):
            wave[slot.lane][slot.element] = encode("half", number)
    return wave


def _operands(
    family: Family, kind: Kind
) -> tuple[list[list[int]], tuple[list[list[int | None]], list[list[int | None]], list[list[int | None]]]]:
    numbers = random.Random(3)
    a, b, c = ([[numbers.randint(-4, 4) for _ in range(SIZE)] for _ in range(SIZE)] for _ in range(3))
    sums: list[list[int | None]] = [[None] * accumulator_width(family, kind) for _ in range(LANES)]
    for row, column in PLACES:
        slot = accumulator_slot(family, kind, row, column)
        sums[slot.lane][slot.element] = encode(kind, c[row][column])
    product = [
        [c[row][column] + sum(a[row][k] * b[k][column] for k in range(SIZE)) for column in range(SIZE)]
        for row in range(SIZE)
    ]
    waves = (_wave(family, a, lines_are_rows=True), _wave(family, b, lines_are_rows=False), sums)
    return product, waves


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_instruction_multiplies(family: Family, kind: Kind) -> None:
    product, (a, b, c) = _operands(family, kind)
    result = multiply_add(family, kind, a, b, c)
    for row, column in PLACES:
        slot = accumulator_slot(family, kind, row, column)
        assert decode(kind, result[slot.lane][slot.element]) == product[row][column]


def test_halves_of_registers_that_no_result_fills_have_no_value() -> None:
    _, (a, b, c) = _operands("gfx11", "half")
    result = multiply_add("gfx11", "half", a, b, c)
    assert all(lane[1::2] == [None] * 8 and None not in lane[::2] for lane in result)


def test_copies_that_differ_are_refused_unless_a_half_wave_reads_its_own() -> None:
    product, (a, b, c) = _operands("gfx11", "float")
    for wave in (a, b):  # lanes 16-31 in another order of k, the same in A and B
        wave[SIZE:] = [lane[8:] + lane[:8] for lane in wave[SIZE:]]
    with pytest.raises(CopiesDiffer, match="lanes 0 and 16 hold different parts of A"):
        multiply_add("gfx11", "float", a, b, c)
    result = multiply_add("gfx11", "float", a, b, c, copies="own")
    assert decode("float", result[16][0]) == product[1][0]
    b[SIZE] = b[0]
    assert multiply_add("gfx11", "float", a, b, c, copies="own") != result


def test_a_register_without_a_value_is_refused() -> None:
    _, (a, b, c) = _operands("gfx12", "half")
    b[31][7] = None
    with pytest.raises(NoValue, match="B: element 7 of lane 31"):
        multiply_add("gfx12", "half", a, b, c)


@pytest.mark.parametrize(("kind", "number"), [("half", 2049.0), ("half", 1e6), ("float", 2.0**24 + 1)])
def test_a_number_without_bits_of_its_own_is_refused(kind: Kind, number: float) -> None:
    with pytest.raises(Inexact):
        encode(kind, number)
