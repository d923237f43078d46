"""The matrix instruction as AMD's guides describe it: which lane holds which element, and what it computes.

An *operand* is A or B, an *accumulator* C or D; all are 16x16. The *line* of an operand
element is its row in A, its column in B. A *slot* is a lane and the number of an element within the
vector that the compiler's builtin takes from that lane (element ``2 * v`` is the lower half of register
``v`` where elements have 16 bits). A *half wave* is lanes 0-15 or 16-31.

Sources: "RDNA3" and "RDNA3.5" Instruction Set Architecture guides, section 7.9 (Wave Matrix Multiply
Accumulate); "RDNA4" guide, section 7.12. The same in a form that programs can read, from which the
digests in the tests were made: AMD's matrix instruction calculator (ROCm/amd_matrix_instruction_calculator,
commit 2ef91896bcdc). Only V_WMMA_F16_16X16X16_F16 and V_WMMA_F32_16X16X16_F16 in wave32 are modelled.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LANES = 32
SIZE = 16  # rows, columns and k of every matrix

Family = Literal["gfx11", "gfx12"]
Kind = Literal["half", "float"]  # what the accumulator's elements are

# How strictly gfx11's two copies of an operand are taken: the guide demands that they are equal. A half
# wave that reads its own copy only (as rocWMMA relies on) may find them in an order of k of its own.
Copies = Literal["equal", "own"]

# One operand: for each lane, the bits of its elements; None where the program left no value.
Wave = Sequence[Sequence[int | None]]


class CopiesDiffer(ValueError):
    """Lanes 0-15 and 16-31 do not hold the same operand, which gfx11 demands."""


class NoValue(ValueError):
    """The instruction reads a register that the program did not set."""


class Inexact(ValueError):
    """A sum does not fit the accumulator; the numbers of a proof are chosen so that all do."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """Lane (0-31) and number of the element within the lane's vector."""

    lane: int
    element: int


def operand_slots(family: Family, line: int, k: int) -> tuple[Slot, ...]:
    """Where an operand element lies; on gfx11 twice, once for each half wave.

    gfx11: lanes ``line`` and ``line + 16`` hold the whole line in order of k.
    gfx12: each half wave holds half of k, in runs of four: 0-3 and 8-11, 4-7 and 12-15.
    """
    if family == "gfx11":
        return (Slot(line, k), Slot(line + SIZE, k))
    run, within = divmod(k, 4)
    return (Slot(line + SIZE * (run % 2), 4 * (run // 2) + within),)


def operand_width(family: Family) -> int:
    """Elements that each lane holds of an operand."""
    return SIZE if family == "gfx11" else SIZE // 2


def accumulator_slot(family: Family, kind: Kind, row: int, column: int, *, upper: bool = False) -> Slot:
    """Where an accumulator element lies; ``upper`` is gfx11's OPSEL for 16-bit accumulators.

    gfx11: rows alternate between the half waves, and 16-bit elements take a register each, of which they
    fill one half. gfx12: lanes 0-15 hold rows 0-7, lanes 16-31 rows 8-15, 16-bit elements packed.
    """
    if family == "gfx12":
        return Slot(column + SIZE * (row // 8), row % 8)
    element = row // 2
    if kind == "half":
        element = 2 * element + int(upper)
    return Slot(column + SIZE * (row % 2), element)


def accumulator_width(family: Family, kind: Kind) -> int:
    """Elements that each lane's accumulator vector has, unused halves of registers included."""
    return SIZE if family == "gfx11" and kind == "half" else SIZE // 2


def decode(kind: Kind, bits: int) -> float:
    """The number that IEEE half or single precision bits stand for."""
    raw = bits.to_bytes(2 if kind == "half" else 4, "little")
    (number,) = struct.unpack("<e" if kind == "half" else "<f", raw)
    return float(number)


def encode(kind: Kind, number: float) -> int:
    """The bits of a number; raises :class:`Inexact` when it has none of its own."""
    try:
        raw = struct.pack("<e" if kind == "half" else "<f", number)
    except OverflowError as exc:
        raise Inexact(f"{number} is too large for a {kind}") from exc
    bits = int.from_bytes(raw, "little")
    if decode(kind, bits) != number:
        raise Inexact(f"{number} is not a {kind}")
    return bits


def multiply_add(
    family: Family, kind: Kind, a: Wave, b: Wave, c: Wave, *, upper: bool = False, copies: Copies = "equal"
) -> list[list[int | None]]:
    """``D = A * B + C`` as the instruction computes it, in registers.

    Halves of registers that a 16-bit result does not fill come out as None: the guide lets no program
    count on them.

    Raises:
        CopiesDiffer: gfx11 operands of the half waves differ, with ``copies="equal"``.
        NoValue: an element that takes part is None.
        Inexact: a sum has no exact value in the accumulator.
    """
    if family == "gfx11" and copies == "equal":
        for name, operand in (("A", a), ("B", b)):
            for lane in range(SIZE):
                if list(operand[lane]) != list(operand[lane + SIZE]):
                    raise CopiesDiffer(f"lanes {lane} and {lane + SIZE} hold different parts of {name}")
    result: list[list[int | None]] = [[None] * accumulator_width(family, kind) for _ in range(LANES)]
    for row in range(SIZE):
        for column in range(SIZE):
            slot = accumulator_slot(family, kind, row, column, upper=upper)
            half_wave = slot.lane // SIZE
            total = decode(kind, _value(c, slot, "C"))
            for k in range(SIZE):
                left = _own(operand_slots(family, row, k), half_wave)
                right = _own(operand_slots(family, column, k), half_wave)
                total += decode("half", _value(a, left, "A")) * decode("half", _value(b, right, "B"))
            result[slot.lane][slot.element] = encode(kind, total)
    return result


def _own(slots: tuple[Slot, ...], half_wave: int) -> Slot:
    """The copy in the half wave that computes; there is one slot only where nothing is copied."""
    return slots[half_wave] if len(slots) > 1 else slots[0]


def _value(wave: Wave, slot: Slot, name: str) -> int:
    bits = wave[slot.lane][slot.element]
    if bits is None:
        raise NoValue(f"{name}: element {slot.element} of lane {slot.lane} has no value")
    return bits
