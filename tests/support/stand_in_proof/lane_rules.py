"""What each operation computes in one lane, from values alone: no memory, no other lane.

A *value* is the bits of each element, or None where the program has set none (poison). A
*rule* makes the result of an operation, of the given shape, out of the values of its operands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from stand_in_proof.ir import Operation, Shape

Value = tuple[int | None, ...]
Rule = Callable[[Operation, Shape, list[Value]], Value]


def _binary(compute: Callable[[int, int], int]) -> Rule:
    def rule(_operation: Operation, shape: Shape, values: list[Value]) -> Value:
        return tuple(
            None if left is None or right is None else compute(left, right) % (1 << shape.bits)
            for left, right in zip(*values, strict=True)
        )

    return rule


def _compare(holds: Callable[[int, int], bool]) -> Rule:
    return _binary(lambda left, right: int(holds(left, right)))


def _resize(operation: Operation, shape: Shape, values: list[Value]) -> Value:
    del operation
    return tuple(None if one is None else one % (1 << shape.bits) for one in values[0])


def _sign_extend(operation: Operation, shape: Shape, values: list[Value]) -> Value:
    sign = 1 << operation.operands[0].shape.bits - 1
    return tuple(None if one is None else ((one ^ sign) - sign) % (1 << shape.bits) for one in values[0])


def _reinterpret(operation: Operation, shape: Shape, values: list[Value]) -> Value:
    """A bitcast: elements in order, the first in the lowest bits; no value where any bit has none."""
    bits = operation.operands[0].shape.bits
    unit = min(bits, shape.bits)  # all element sizes are powers of two
    pieces = [
        None if one is None else one >> shift & ((1 << unit) - 1)
        for one in values[0]
        for shift in range(0, bits, unit)
    ]
    joined = shape.bits // unit
    return tuple(_join(pieces[i : i + joined], unit) for i in range(0, len(pieces), joined))


def _join(pieces: list[int | None], unit: int) -> int | None:
    total = 0
    for place, piece in enumerate(pieces):
        if piece is None:
            return None
        total |= piece << unit * place
    return total


def _address(operation: Operation, _shape: Shape, values: list[Value]) -> Value:
    (base,), (index,) = values
    if base is None or index is None:
        return (None,)
    bits = operation.operands[1].shape.bits
    signed = index - (1 << bits) if index >> bits - 1 else index
    return (base + signed * operation.scale,)


def _extract(_operation: Operation, _shape: Shape, values: list[Value]) -> Value:
    index = values[1][0]
    return (None,) if index is None else (values[0][index],)


def _insert(_operation: Operation, _shape: Shape, values: list[Value]) -> Value:
    index = values[2][0]
    if index is None:
        return (None,) * len(values[0])
    return (*values[0][:index], values[1][0], *values[0][index + 1 :])


def _shuffle(_operation: Operation, _shape: Shape, values: list[Value]) -> Value:
    both = values[0] + values[1]
    return tuple(None if index is None else both[index] for index in values[2])


def _select(_operation: Operation, shape: Shape, values: list[Value]) -> Value:
    conditions = values[0] * shape.count if len(values[0]) == 1 else values[0]
    return tuple(
        None if condition is None else (yes if condition else no)
        for condition, yes, no in zip(conditions, values[1], values[2], strict=True)
    )


RULES: Mapping[str, Rule] = {
    "add": _binary(operator.add),
    "sub": _binary(operator.sub),
    "mul": _binary(operator.mul),
    "and": _binary(operator.and_),
    "or": _binary(operator.or_),
    "xor": _binary(operator.xor),
    "shl": _binary(operator.lshift),
    "lshr": _binary(operator.rshift),
    "icmp eq": _compare(operator.eq),
    "icmp ne": _compare(operator.ne),
    "icmp ult": _compare(operator.lt),
    "icmp ule": _compare(operator.le),
    "icmp ugt": _compare(operator.gt),
    "icmp uge": _compare(operator.ge),
    "zext": _resize,
    "trunc": _resize,
    "sext": _sign_extend,
    "bitcast": _reinterpret,
    "getelementptr": _address,
    "extractelement": _extract,
    "insertelement": _insert,
    "shufflevector": _shuffle,
    "select": _select,
}
