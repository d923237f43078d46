"""The matrix instructions of RDNA3, whose published text is one line: D = A * B + C, all 16x16.

Lane ``l`` holds row ``l % 16`` of A and column ``l % 16`` of B, in both halves of the wave alike; of C and
D it holds column ``l % 16``, rows ``l // 16``, ``l // 16 + 2``, ... (RDNA3 guide, 7.9). EXEC is ignored.
The order and rounding of the sum are not published: what is computed here is exact and rounded once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pseudocode import floats
from pseudocode.assembly import Instruction
from pseudocode.floats import BF16, F16, F32, Exact, Format

if TYPE_CHECKING:
    from pseudocode.wave import Operand, Wave

SIZE = 16


@dataclass(frozen=True)
class Shape:
    """What the elements of a matrix instruction are."""

    operand: Format | int  # of A and B: a float's format, or how many bits a whole number has
    accumulator: Format | None  # None: 32-bit whole numbers


SHAPES = {
    "v_wmma_f32_16x16x16_f16": Shape(F16, F32),
    "v_wmma_f32_16x16x16_bf16": Shape(BF16, F32),
    "v_wmma_f16_16x16x16_f16": Shape(F16, F16),
    "v_wmma_bf16_16x16x16_bf16": Shape(BF16, BF16),
    "v_wmma_i32_16x16x16_iu8": Shape(8, None),
    "v_wmma_i32_16x16x16_iu4": Shape(4, None),
}


def run(wave: Wave, instruction: Instruction) -> None:
    for number, lane, bits, half in results(wave, instruction):
        if half is None:
            wave.v[number][lane] = bits
        else:
            kept = wave.v[number][lane] & (0xFFFF << 16 * (1 - half))
            wave.v[number][lane] = kept | bits << 16 * half


def results(wave: Wave, instruction: Instruction) -> list[tuple[int, int, int, int | None]]:
    """Register, lane, bits and half of every element of D."""
    from pseudocode.wave import read_operand

    shape = SHAPES[instruction.mnemonic]
    target, *sources = (read_operand(operand) for operand in instruction.operands)
    a, b = (_lines(wave, instruction, shape, number, sources[number]) for number in (0, 1))
    found: list[tuple[int, int, int, int | None]] = []
    is_narrow = shape.accumulator is not None and shape.accumulator.width == 16
    half = instruction.bits("op_sel", 0, 3)[2] if is_narrow else None
    for lane in range(2 * SIZE):
        for element in range(SIZE // 2):
            row = 2 * element + lane // SIZE
            addend = _addend(wave, instruction, sources[2], element, lane, half)
            bits = _element(shape, a[row], b[lane % SIZE], addend, clamps="clamp" in instruction.flags)
            found.append((target.number + element, lane, bits, half))
    return found


def rounding_bounds(wave: Wave, instruction: Instruction) -> dict[tuple[int, int], list[float]]:
    """By register and lowest bit, for each lane: how far a sum of rounded parts may be from the exact one."""
    from pseudocode.wave import read_operand

    shape = SHAPES[instruction.mnemonic]
    assert isinstance(shape.operand, Format)
    assert shape.accumulator is not None
    target, *sources = (read_operand(operand) for operand in instruction.operands)
    a, b = (_lines(wave, instruction, shape, number, sources[number]) for number in (0, 1))
    rows, columns = (
        [[abs(_fraction(bits, shape.operand)) for bits in line] for line in lines] for lines in (a, b)
    )
    half = instruction.bits("op_sel", 0, 3)[2] if shape.accumulator.width == 16 else None
    unit = Fraction(1, 1 << shape.accumulator.fraction)
    found: dict[tuple[int, int], list[float]] = {}
    for element in range(SIZE // 2):
        lanes = []
        for lane in range(2 * SIZE):
            addend = abs(
                _fraction(_addend(wave, instruction, sources[2], element, lane, half), shape.accumulator)
            )
            products = zip(rows[2 * element + lane // SIZE], columns[lane % SIZE], strict=True)
            largest = sum((x * y for x, y in products), addend)
            lanes.append(0.0 if _is_exact(largest, shape.accumulator) else float(largest * unit * 9))
        found[target.number + element, 16 * (half or 0)] = lanes
    return found


def _is_exact(largest: Fraction, form: Format) -> bool:
    """Whether whole numbers of that size are summed without rounding; others never count as such here."""
    return largest.denominator == 1 and largest < 1 << form.fraction


def _lines(
    wave: Wave, instruction: Instruction, shape: Shape, number: int, operand: Operand
) -> list[list[int]]:
    """Rows of A or columns of B, each of 16 elements: bits of floats, values of whole numbers."""
    width = shape.operand if isinstance(shape.operand, int) else 16
    low, high = (instruction.bits(name, 0, 3)[number] for name in ("neg_lo", "neg_hi"))
    found = []
    for lane in range(SIZE):
        bits = wave.read_vector(operand.number, lane, SIZE * width // 32)
        line = [bits >> width * k & ((1 << width) - 1) for k in range(SIZE)]
        if isinstance(shape.operand, int):
            line = [k - (1 << width) if low and k >> (width - 1) else k for k in line]
        else:
            line = [k ^ (high if at % 2 else low) << 15 for at, k in enumerate(line)]
        found.append(line)
    return found


def _addend(
    wave: Wave, instruction: Instruction, operand: Operand, element: int, lane: int, half: int | None
) -> int:
    from pseudocode.wave import constant_bits

    kind = re.sub(r"v_wmma_(\w+?)_.*", r"\1", instruction.mnemonic)
    if operand.kind == "v":
        bits = wave.v[operand.number + element][lane]
        bits = bits if half is None else bits >> 16 * half & 0xFFFF
    else:
        bits = constant_bits(operand, kind)
    if kind == "i32":
        return bits - (1 << 32) if bits >> 31 else bits
    sign = 1 << (15 if half is not None else 31)
    if instruction.bits("neg_hi", 0, 3)[2]:
        bits &= ~sign
    return bits ^ sign if instruction.bits("neg_lo", 0, 3)[2] else bits


def _element(shape: Shape, row: list[int], column: list[int], addend: int, *, clamps: bool) -> int:
    if shape.accumulator is None:
        total = sum(x * y for x, y in zip(row, column, strict=True)) + addend
        if clamps:
            total = min(max(total, -(1 << 31)), (1 << 31) - 1)
        return total & 0xFFFFFFFF
    assert isinstance(shape.operand, Format)
    return sum_of_products(row, column, addend, shape.operand, shape.accumulator)


def sum_of_products(row: list[int], column: list[int], addend: int, source: Format, target: Format) -> int:
    """Of finite numbers: exact, rounded once."""
    total = _fraction(addend, target)
    for x, y in zip(row, column, strict=True):
        total += _fraction(x, source) * _fraction(y, source)
    count, denominator = abs(total.numerator), total.denominator
    return floats.rounded(Exact(total < 0, count, 1 - denominator.bit_length()), target)


def _fraction(bits: int, form: Format) -> Fraction:
    value = floats.exact(bits, form)
    return Fraction(value.signed) * Fraction(2) ** value.power
