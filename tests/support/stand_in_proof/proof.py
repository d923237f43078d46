"""Whether a header hands the matrix instruction what the guide asks for, and gets A * B + C out.

Each case runs three times over IR that the compiler emitted. The *tracing* run gives every matrix element
bits of its own and replaces the instruction by one that returns C: it shows which element each lane hands
over, and that an accumulator that is stored comes back as it was loaded. The two *numeric* runs, in the
first and in the second wave of a block, use the instruction of :mod:`stand_in_proof.isa` on small
whole numbers and compare memory with the product.

An accumulator must lie as the guide says; for operands see :mod:`stand_in_proof.order`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stand_in_proof.cases import Case, Stored, all_cases, fill_name
from stand_in_proof.interpret import BadAccess, Memory, Multiplication, run
from stand_in_proof.ir import Function
from stand_in_proof.isa import (
    LANES,
    SIZE,
    Copies,
    CopiesDiffer,
    Family,
    Inexact,
    Kind,
    NoValue,
    Wave,
    accumulator_slot,
    encode,
    multiply_add,
)
from stand_in_proof.order import ORDERINGS, Matrix, Ordering, Wrong, ordering_of

_BYTES: dict[Kind, int] = {"half": 2, "float": 4}
_UNTOUCHED = 0xEE  # what D's buffer is filled with
_PADDING = 0x7BFF  # what stands between the lines of A, B and C: no element's bits

# Strides in elements, all different. A line of A or B starts at a multiple of 16 bytes: the interface
# asks for that. C and D may lie anywhere.
_STRIDE_A, _STRIDE_B, _STRIDE_C, _STRIDE_D = 24, 40, 19, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What the header does wrong in one function."""

    function: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was shown: ``functions`` run, ``ordering`` the loosest that a case needs, and what failed."""

    family: Family
    functions: int
    ordering: Ordering
    failures: tuple[Failure, ...]


def prove(functions: Mapping[str, Function], family: Family, *, seed: int = 0) -> Proof:
    """Run all cases of :func:`stand_in_proof.cases.source` as compiled for a GPU of the family.

    ``seed`` chooses the numbers that are multiplied.

    Raises:
        IR_UNSUPPORTED: the compiler emitted something that is not interpreted.
    """
    failures: list[Failure] = []
    loosest: Ordering = "guide"
    runs: dict[str, Callable[[Function], Ordering]] = {}
    for case in all_cases():
        runs[case.name] = _checker(case, family, seed)
    for kind in _BYTES:
        runs[fill_name(kind)] = _filler(kind)
    for name, check in runs.items():
        function = functions.get(name)
        if function is None:
            failures.append(Failure(function=name, what="the compiler emitted no such function"))
            continue
        try:
            ordering = check(function)
        except (BadAccess, CopiesDiffer, NoValue, Inexact, Wrong) as exc:
            failures.append(Failure(function=name, what=str(exc)))
        else:
            loosest = max(loosest, ordering, key=ORDERINGS.index)
    return Proof(family=family, functions=len(runs), ordering=loosest, failures=tuple(failures))


def _checker(case: Case, family: Family, seed: int) -> Callable[[Function], Ordering]:
    def check(function: Function) -> Ordering:
        ordering = _trace(function, case, family)
        copies: Copies = "own" if ordering == "half wave" else "equal"
        for wave in range(2):
            _multiply(function, case, family, copies, random.Random(seed), first_thread=LANES * wave)
        return ordering

    return check


def _filler(kind: Kind) -> Callable[[Function], Ordering]:
    def check(function: Function) -> Ordering:
        memory = Memory()
        bits = encode(kind, -1.5)
        stored = Stored(layout="row", stride=_STRIDE_D)
        value = memory.add(bits.to_bytes(_BYTES[kind], "little"))
        d = memory.add(bytes([_UNTOUCHED]) * (stored.elements * _BYTES[kind]))
        run(function, (value, d, _STRIDE_D), memory, _no_instruction)
        _compare(memory, d, stored, kind, [[bits] * SIZE for _ in range(SIZE)])
        return "guide"

    return check


def _no_instruction(given: Multiplication) -> Wave:
    raise Wrong(f"multiplies ({given.kind}) where nothing is to be multiplied")


def operands_given(function: Function, case: Case) -> tuple[Multiplication, ...]:
    """What a case gives to the instruction, where each matrix element has bits of its own.

    The instruction returns C here, which must come back as D.

    Raises:
        IR_UNSUPPORTED: the compiler emitted something that is not interpreted.
        BadAccess: it reads or writes where it must not.
        Wrong: D is not C, or not multiplied as often as the case says.
    """
    given: list[Multiplication] = []

    def pass_through(one: Multiplication) -> Wave:
        given.append(one)
        return one.c

    a, b, c = _numbered(case.steps)
    _execute(function, case, a, b, c, c, pass_through, first_thread=0)
    if len(given) != case.steps:
        raise Wrong(f"{len(given)} multiplications instead of {case.steps}")
    return tuple(given)


def _trace(function: Function, case: Case, family: Family) -> Ordering:
    """The order of k that the instruction is given; C must be where the guide wants it."""
    a, b, c = _numbered(case.steps)
    found: list[Ordering] = []
    for step, one in enumerate(operands_given(function, case)):
        _check_accumulator(one, case.kind, c, family)
        found.append(ordering_of(one, a[step], b[step], family))
    return max(found, key=ORDERINGS.index)


def _numbered(steps: int) -> tuple[list[Matrix], list[Matrix], Matrix]:
    """A and B of each step, and C, all elements different."""
    matrices = [
        [[1 + (number * SIZE + row) * SIZE + column for column in range(SIZE)] for row in range(SIZE)]
        for number in range(2 * steps + 1)
    ]
    return matrices[:steps], matrices[steps:-1], matrices[-1]


def _check_accumulator(given: Multiplication, kind: Kind, c: Matrix, family: Family) -> None:
    if given.kind != kind:
        raise Wrong(f"multiplies into {given.kind}, not {kind}")
    for row in range(SIZE):
        for column in range(SIZE):
            slot = accumulator_slot(family, kind, row, column, upper=given.upper)
            if given.c[slot.lane][slot.element] != c[row][column]:
                raise Wrong(
                    f"C[{row}][{column}] is not where it belongs: element {slot.element} of lane {slot.lane}"
                )


def _multiply(
    function: Function,
    case: Case,
    family: Family,
    copies: Copies,
    numbers: random.Random,
    *,
    first_thread: int,
) -> None:
    def matrix() -> list[list[int]]:
        return [[numbers.randint(-4, 4) for _ in range(SIZE)] for _ in range(SIZE)]

    def unit(one: Multiplication) -> Wave:
        return multiply_add(family, one.kind, one.a, one.b, one.c, upper=one.upper, copies=copies)

    a = [matrix() for _ in range(case.steps)]
    b = [matrix() for _ in range(case.steps)]
    c = matrix()
    product = [
        [
            c[row][column]
            + sum(a[step][row][k] * b[step][k][column] for step in range(case.steps) for k in range(SIZE))
            for column in range(SIZE)
        ]
        for row in range(SIZE)
    ]
    _execute(
        function,
        case,
        [_bits("half", one) for one in a],
        [_bits("half", one) for one in b],
        _bits(case.kind, c),
        _bits(case.kind, product),
        unit,
        first_thread=first_thread,
    )


def _bits(kind: Kind, matrix: list[list[int]]) -> Matrix:
    return [[encode(kind, number) for number in row] for row in matrix]


def _execute(
    function: Function,
    case: Case,
    a: list[Matrix],
    b: list[Matrix],
    c: Matrix,
    d: Matrix,
    unit: Callable[[Multiplication], Wave],
    *,
    first_thread: int,
) -> None:
    """Run a case over these bits, and demand these in D's buffer, with all else there untouched."""
    of_a, of_b = Stored(layout=case.a, stride=_STRIDE_A), Stored(layout=case.b, stride=_STRIDE_B)
    of_c, of_d = Stored(layout=case.c, stride=_STRIDE_C), Stored(layout=case.d, stride=_STRIDE_D)
    next_a, next_b = SIZE * _STRIDE_A, SIZE * _STRIDE_B
    memory = Memory()
    addresses = (
        memory.add(_laid_out(a, of_a, next_a, _BYTES["half"])),
        memory.add(_laid_out(b, of_b, next_b, _BYTES["half"])),
        memory.add(_laid_out([c], of_c, 0, _BYTES[case.kind])),
        memory.add(bytes([_UNTOUCHED]) * (of_d.elements * _BYTES[case.kind])),
    )
    strides = (_STRIDE_A, _STRIDE_B, _STRIDE_C, _STRIDE_D, next_a, next_b)
    run(function, (*addresses, *strides), memory, unit, first_thread=first_thread)
    _compare(memory, addresses[-1], of_d, case.kind, d)


def _laid_out(matrices: list[Matrix], stored: Stored, following: int, size: int) -> bytes:
    """A buffer that ends with the last element, so that reading past it is noticed."""
    elements = [_PADDING] * ((len(matrices) - 1) * following + stored.elements)
    for number, matrix in enumerate(matrices):
        for row in range(SIZE):
            for column in range(SIZE):
                elements[number * following + stored.index(row, column)] = matrix[row][column]
    return b"".join(bits.to_bytes(size, "little") for bits in elements)


def _compare(memory: Memory, address: int, stored: Stored, kind: Kind, expected: Matrix) -> None:
    size = _BYTES[kind]
    outside = set(range(address, address + stored.elements * size))
    for row in range(SIZE):
        for column in range(SIZE):
            start = address + stored.index(row, column) * size
            if memory.load(start, size) != expected[row][column]:
                raise Wrong(f"D[{row}][{column}] is not what it should be")
            outside -= set(range(start, start + size))
    if memory.written & outside:
        raise Wrong("stores beside the matrix")
