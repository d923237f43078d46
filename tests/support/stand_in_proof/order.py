"""In which order of k the operands of a matrix instruction were handed over.

The *order of k* is the k of the matrix that stands where the guide has k 0, 1, ... 15. The
instruction adds up over all k, so that any order will do that is the same for every line of A and of B.
"""

from __future__ import annotations

from typing import Literal

from stand_in_proof.interpret import Multiplication
from stand_in_proof.isa import SIZE, Family, Wave, operand_slots

# "guide": the guide's own. "wave": another, one for the wave, which is right by the guide. "half wave": on
# gfx11, one for each half wave, which is right if a half wave reads its own copies only; the guide does
# not say that it does, rocWMMA relies on it.
Ordering = Literal["guide", "wave", "half wave"]

ORDERINGS: tuple[Ordering, ...] = ("guide", "wave", "half wave")  # from the strictest on

Matrix = list[list[int]]  # bits by row and column

_IDENTITY = tuple(range(SIZE))


class Wrong(ValueError):
    """A check of the proof failed; the text is for the report."""


def ordering_of(given: Multiplication, a: Matrix, b: Matrix, family: Family) -> Ordering:
    """The order of k in what an instruction was given, where ``a`` and ``b`` have bits of their own each.

    Raises:
        Wrong: lines are mixed up, or A and B do not agree on an order of k.
    """
    half_waves = 2 if family == "gfx11" else 1
    orders = []
    for copy in range(half_waves):
        found = set()
        for name, wave, matrix in (("A", given.a, a), ("B", given.b, b)):
            for line in range(SIZE):
                content = matrix[line] if name == "A" else [row[line] for row in matrix]
                found.add(_order_in(name, wave, line, content, family, copy))
        if len(found) != 1:
            raise Wrong("lines of A and B stand in different orders of k")
        (order,) = found
        if sorted(order) != list(_IDENTITY):
            raise Wrong(f"the order of k is {order}, in which some appear twice")
        orders.append(order)
    if len(set(orders)) > 1:
        return "half wave"
    return "guide" if orders[0] == _IDENTITY else "wave"


def _order_in(
    name: str, wave: Wave, line: int, content: list[int], family: Family, copy: int
) -> tuple[int, ...]:
    where = {bits: k for k, bits in enumerate(content)}
    order = []
    for k in range(SIZE):
        slot = operand_slots(family, line, k)[copy]
        bits = wave[slot.lane][slot.element]
        if bits is None or bits not in where:
            raise Wrong(f"element {slot.element} of lane {slot.lane} is of no or another line of {name}")
        order.append(where[bits])
    return tuple(order)
