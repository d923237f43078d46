"""The matrix instructions, whose published text is one line: D = A * B + C, all 16x16.

Lane ``l`` holds row ``l % 16`` of A and column ``l % 16`` of B. On RDNA3 both halves of the wave do so alike;
of C and D it holds column ``l % 16``, rows ``l // 16``, ``l // 16 + 2``, ... (guide, 7.9). On RDNA4 each half
of the wave holds half of a row or column, and of C and D eight rows one after the other (guide, 7.12). EXEC
is ignored.
The order and rounding of the sum are not published: what is computed here is exact and rounded once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pseudocode import floats
from pseudocode.assembly import Instruction
from pseudocode.floats import BF16, F16, F32, Exact, Format

if TYPE_CHECKING:
    from pseudocode.wave import Operand, Wave

SIZE = 16
BY_NAME = {"fp8": Format(4, 3), "bf8": Format(5, 2)}


@dataclass(frozen=True)
class Shape:
    """What the elements of a matrix instruction are."""

    a: Format | int  # of its elements: a float's format, or how many bits a whole number has
    b: Format | int
    sum: Format | None  # None: 32-bit whole numbers
    depth: int = 16  # columns of A
    is_split: bool = False  # between the halves of the wave, as on RDNA4

    @property
    def registers(self) -> int:
        """Of A or B."""
        width = self.a if isinstance(self.a, int) else self.a.width
        return self.depth * width // (64 if self.is_split else 32)

    @property
    def sums(self) -> int:
        """Registers of C or D."""
        return 4 if self.is_split and self.is_narrow else 8

    @property
    def is_narrow(self) -> bool:
        """Whether a sum has 16 bits."""
        return self.sum is not None and self.sum.width == 16

    def place(self, element: int, lane: int, half: int) -> tuple[int, int, int | None]:
        """Row, register and half of an element of C or D; on RDNA3 ``half`` is that of all of them."""
        if not self.is_split:
            return 2 * element + lane // SIZE, element, half if self.is_narrow else None
        row = SIZE // 2 * (lane // SIZE) + element
        return (row, element // 2, element % 2) if self.is_narrow else (row, element, None)


_OF_BOTH = {
    "v_wmma_f32_16x16x16_f16": Shape(F16, F16, F32),
    "v_wmma_f32_16x16x16_bf16": Shape(BF16, BF16, F32),
    "v_wmma_f16_16x16x16_f16": Shape(F16, F16, F16),
    "v_wmma_bf16_16x16x16_bf16": Shape(BF16, BF16, BF16),
    "v_wmma_i32_16x16x16_iu8": Shape(8, 8, None),
    "v_wmma_i32_16x16x16_iu4": Shape(4, 4, None),
}
SHAPES = {
    "rdna3": _OF_BOTH,
    "rdna4": {
        **{name: replace(shape, is_split=True) for name, shape in _OF_BOTH.items()},
        **{
            f"v_wmma_f32_16x16x16_{a}_{b}": Shape(BY_NAME[a], BY_NAME[b], F32, is_split=True)
            for a in BY_NAME
            for b in BY_NAME
        },
        "v_wmma_i32_16x16x32_iu4": Shape(4, 4, None, depth=32, is_split=True),
    },
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

    shape = SHAPES[wave.architecture][instruction.mnemonic]
    target, *sources = (read_operand(operand) for operand in instruction.operands)
    a, b = (_lines(wave, instruction, shape, number, sources[number]) for number in (0, 1))
    found: list[tuple[int, int, int, int | None]] = []
    for lane in range(2 * SIZE):
        for element in range(SIZE // 2):
            row, register, half = shape.place(element, lane, instruction.bits("op_sel", 0, 3)[2])
            addend = _addend(wave, instruction, sources[2], register, lane, half)
            bits = _element(shape, a[row], b[lane % SIZE], addend, clamps="clamp" in instruction.flags)
            found.append((target.number + register, lane, bits, half))
    return found


def rounding_bounds(wave: Wave, instruction: Instruction) -> dict[tuple[int, int], list[float]]:
    """By register and lowest bit, for each lane: how far a sum of rounded parts may be from the exact one."""
    from pseudocode.wave import read_operand

    shape = SHAPES[wave.architecture][instruction.mnemonic]
    assert shape.sum is not None
    target, *sources = (read_operand(operand) for operand in instruction.operands)
    a, b = (_lines(wave, instruction, shape, number, sources[number]) for number in (0, 1))
    rows, columns = (
        [[abs(_fraction(bits, form)) for bits in line] for line in lines]
        for lines, form in ((a, shape.a), (b, shape.b))
        if isinstance(form, Format)
    )
    unit = Fraction(1, 1 << shape.sum.fraction)
    found: dict[tuple[int, int], list[float]] = {}
    for element in range(SIZE // 2):
        lanes = []
        for lane in range(2 * SIZE):
            row, register, half = shape.place(element, lane, instruction.bits("op_sel", 0, 3)[2])
            addend = abs(_fraction(_addend(wave, instruction, sources[2], register, lane, half), shape.sum))
            products = zip(rows[row], columns[lane % SIZE], strict=True)
            largest = sum((x * y for x, y in products), addend)
            lanes.append(0.0 if _is_exact(largest, shape.sum) else float(largest * unit * 9))
        found[target.number + register, 16 * (half or 0)] = lanes
    return found


def _is_exact(largest: Fraction, form: Format) -> bool:
    """Whether whole numbers of that size are summed without rounding; others never count as such here."""
    return largest.denominator == 1 and largest < 1 << form.fraction


def _lines(
    wave: Wave, instruction: Instruction, shape: Shape, number: int, operand: Operand
) -> list[list[int]]:
    """Rows of A or columns of B, each of 16 elements: bits of floats, values of whole numbers."""
    form = (shape.a, shape.b)[number]
    width = form if isinstance(form, int) else form.width
    low, high = (instruction.bits(name, 0, 3)[number] for name in ("neg_lo", "neg_hi"))
    found = []
    for lane in range(SIZE):
        bits = wave.read_vector(operand.number, lane, shape.registers)
        if shape.is_split:
            bits |= wave.read_vector(operand.number, lane + SIZE, shape.registers) << 32 * shape.registers
        line = [bits >> width * k & ((1 << width) - 1) for k in range(shape.depth)]
        if isinstance(form, int):
            line = [k - (1 << width) if low and k >> (width - 1) else k for k in line]
        else:
            line = [k ^ (high if at % 2 else low) << (width - 1) for at, k in enumerate(line)]
        found.append(line)
    return found


def _addend(
    wave: Wave, instruction: Instruction, operand: Operand, register: int, lane: int, half: int | None
) -> int:
    from pseudocode.wave import constant_bits

    kind = re.sub(r"v_wmma_(\w+?)_.*", r"\1", instruction.mnemonic)
    if operand.kind == "v":
        bits = wave.v[operand.number + register][lane]
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
    if shape.sum is None:
        total = sum(x * y for x, y in zip(row, column, strict=True)) + addend
        if clamps:
            total = min(max(total, -(1 << 31)), (1 << 31) - 1)
        return total & 0xFFFFFFFF
    assert isinstance(shape.a, Format)
    assert isinstance(shape.b, Format)
    total = _fraction(addend, shape.sum)
    for x, y in zip(row, column, strict=True):
        total += _fraction(x, shape.a) * _fraction(y, shape.b)
    count, denominator = abs(total.numerator), total.denominator
    return floats.rounded(Exact(total < 0, count, 1 - denominator.bit_length()), shape.sum)


def _fraction(bits: int, form: Format) -> Fraction:
    value = floats.exact(bits, form)
    return Fraction(value.signed) * Fraction(2) ** value.power
