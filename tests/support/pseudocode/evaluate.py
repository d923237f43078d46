"""Runs pseudocode on one lane's values.

A value is a pattern of bits with a kind and a width. Whole numbers narrower than 32 bits are computed with
32, as in C; when an instruction clamps, they are computed without limit and the assignment to ``D0``
saturates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from pseudocode import floats, syntax
from pseudocode.floats import BF16, BY_TYPE, F16, F32, F64, Format, Rounding

UNLIMITED = 512  # bits of whole numbers while an instruction clamps


@dataclass(frozen=True, slots=True)
class Value:
    """Some bits.

    Kinds: b any, u and i whole numbers, f and bf floats, fp a float of 8 bits (as bf is, where it has 8), p a
    power of two (``bits`` is the exponent), d the word "denormal".
    """

    kind: str
    width: int
    bits: int

    @property
    def number(self) -> int:
        if self.kind == "i" and self.bits >> (self.width - 1):
            return self.bits - (1 << self.width)
        return self.bits

    @property
    def form(self) -> Format:
        if self.kind == "bf":
            return BF16
        if self.kind != "f":
            raise TypeError(f"a value of kind {self.kind} is no float")
        return {16: F16, 32: F32, 64: F64}[self.width]

    @property
    def is_float(self) -> bool:
        return self.kind in {"f", "bf", "fp"}


def whole(number: int, kind: str = "u", width: int = 32) -> Value:
    return Value(kind, width, number & ((1 << width) - 1))


def truth(condition: object) -> Value:
    return Value("u", 1, 1 if condition else 0)


class Memory(Protocol):
    """What ``MEM`` stands for."""

    def read(self, address: int, size: int) -> int: ...
    def write(self, address: int, size: int, bits: int) -> None: ...


class Registers(Protocol):
    """What ``VGPR`` stands for."""

    def read(self, lane: int, register: int) -> int: ...
    def write(self, lane: int, register: int, bits: int) -> None: ...


@dataclass
class Frame:
    """The names that a text may use, and how it is computed."""

    names: dict[str, Value | list[Value] | syntax.Lambda]
    call: Callable[[str, list[Value], Frame], Value]  # another instruction by its name in lower case
    memory: Memory | None = None
    registers: Registers | None = None
    rounding: Mapping[str, Rounding] = field(default_factory=dict)  # by f32, f64 (also f16); else to even
    saturates: bool = False
    forced_rounding: Rounding | None = None

    def rounding_of(self, form: Format) -> Rounding:
        if self.forced_rounding is not None:
            return self.forced_rounding
        return self.rounding.get("f32" if form == F32 else "f64", "even")


class _Stop(Exception):
    """``break``."""


class _Result(Exception):
    """``return``."""

    def __init__(self, value: Value) -> None:
        self.value = value


def run(text: str, frame: Frame) -> None:
    """Runs a text; what it assigns is in ``frame.names`` afterwards."""
    _block(syntax.parse(text), frame)


@cache
def type_of(name: str) -> tuple[str, int]:
    """``f32`` is (f, 32)."""
    match = re.fullmatch(r"(bf|fp|[uifb])(\d+)", name)
    if match is None:
        raise syntax.NotUnderstood(f".{name} is no type")
    return match[1], int(match[2])


def retyped(value: Value, name: str, frame: Frame) -> Value:
    kind, width = type_of(name)
    if frame.saturates and value.width == UNLIMITED:
        return value
    if kind == value.kind == "i":
        return whole(value.number, "i", width)
    return Value(kind, width, value.bits & ((1 << width) - 1))


# Statements


def _block(body: tuple[syntax.Node, ...], frame: Frame) -> None:
    for statement in body:
        _STATEMENTS.get(type(statement), _ignore_value)(statement, frame)


def _ignore_value(statement: syntax.Node, frame: Frame) -> None:
    evaluate(statement, frame)


def _declare(statement: syntax.Declare, frame: Frame) -> None:
    if statement.name in frame.names:
        return  # the text only says what it is given
    blank = Value(statement.kind, statement.width, 0)
    frame.names[statement.name] = blank if statement.count is None else [blank] * statement.count


def _if(statement: syntax.If, frame: Frame) -> None:
    for condition, body in statement.branches:
        if condition is None or evaluate(condition, frame).bits:
            _block(body, frame)
            return


def _for(statement: syntax.For, frame: Frame) -> None:
    first, last = evaluate(statement.first, frame), evaluate(statement.last, frame)
    try:
        for number in range(first.number, last.number + 1):
            frame.names[statement.name] = whole(number, first.kind, max(first.width, 8))
            _block(statement.body, frame)
    except _Stop:
        return


def _break(statement: syntax.Break, frame: Frame) -> None:
    raise _Stop


def _return(statement: syntax.Return, frame: Frame) -> None:
    raise _Result(evaluate(statement.value, frame))


def _lambda(statement: syntax.Lambda, frame: Frame) -> None:
    frame.names[statement.name] = statement


def _assign(statement: syntax.Assign, frame: Frame) -> None:
    value = evaluate(statement.value, frame)
    target = statement.target
    if statement.operator:
        value = _operate(statement.operator, evaluate(target, frame), value, frame)
    if isinstance(target, syntax.Name) and target.name == "ROUND_MODE":
        frame.forced_rounding = _FORCED[value.bits] if value.kind == "round" else None
        return
    if isinstance(target, syntax.Typed) and target.base == syntax.Name("TRAPSTS"):
        return  # no wave sees its exceptions here
    _store(target, value, frame)


def _store(target: syntax.Node, value: Value, frame: Frame) -> None:
    if isinstance(target, syntax.Joined):
        rest = value.bits
        for part in reversed(target.parts):
            width = _width(part)
            _store(part, Value("b", width, rest & ((1 << width) - 1)), frame)
            rest >>= width
        return
    if _is_memory(target):
        _write_memory(target, value, frame)
        return
    if _is_register(target):
        _write_register(target, value, frame)
        return
    _store_variable(target, value, frame)


def _store_variable(target: syntax.Node, value: Value, frame: Frame) -> None:
    if isinstance(target, syntax.Name) and target.name not in _WIDE:
        frame.names[target.name] = value
        return
    if isinstance(target, syntax.Index) and isinstance(target.base, syntax.Name):
        held = frame.names.get(target.base.name)
        if isinstance(held, list):
            position = evaluate(target.at, frame).number
            kind, width = held[position].kind, held[position].width
            held[position] = Value(kind, width, value.bits & ((1 << width) - 1))
            return
    name, low, width, kind = _place(target, frame)
    before = frame.names.get(name, Value("b", 128, 0))
    if not isinstance(before, Value):
        raise TypeError(f"{name} is no single value")
    if width is None:
        width = value.width
    bits = _fitted(value, kind, width, frame)
    mask = ((1 << width) - 1) << low
    full = max(before.width, low + width)
    frame.names[name] = Value(before.kind, full, (before.bits & ~mask) | bits << low)


def _fitted(value: Value, kind: str | None, width: int, frame: Frame) -> int:
    """The bits of a value in a place of some type."""
    if value.is_float and kind in {"f", "bf"} and value.width != width:
        raise TypeError(f"a float of {value.width} bits goes into {width}")
    if frame.saturates and kind in {"u", "i"} and not value.is_float:
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
        return min(max(value.number, low), high) & ((1 << width) - 1)
    if value.kind == "i":
        return value.number & ((1 << width) - 1)
    return value.bits & ((1 << width) - 1)


def _place(target: syntax.Node, frame: Frame) -> tuple[str, int, int | None, str | None]:
    """Which bits of which name: name, lowest bit, width and kind."""
    if isinstance(target, syntax.Name):
        return target.name, 0, None, None
    if isinstance(target, syntax.Typed):
        name, low, _, _ = _place(target.base, frame)
        kind, width = type_of(target.type)
        return name, low, width, kind
    if isinstance(target, syntax.Index):
        name, low, _, _ = _place(target.base, frame)
        return name, low + evaluate(target.at, frame).number, 1, "u"
    if isinstance(target, syntax.Slice):
        name, low, _, kind = _place(target.base, frame)
        high, first = evaluate(target.high, frame).number, evaluate(target.low, frame).number
        return name, low + first, high - first + 1, None if kind == "b" else kind
    raise syntax.NotUnderstood(f"nothing can be assigned to {target}")


def _width(part: syntax.Node) -> int:
    if isinstance(part, syntax.Typed):
        return type_of(part.type)[1]
    raise syntax.NotUnderstood("a part of { } without a type")


# Names that stand for registers: an assignment without a type fills only as many bits as the value has.
_WIDE = frozenset({"D0", "D1", "EXEC", "VCC", "RETURN_DATA", "VDATA", "SDATA"})


def _is_memory(node: syntax.Node) -> bool:
    inner = node.base if isinstance(node, syntax.Typed) else node
    return (
        isinstance(inner, syntax.Index)
        and isinstance(inner.base, syntax.Name)
        and inner.base.name in {"MEM", "LDS"}
    )


def _is_register(node: syntax.Node) -> bool:
    inner = node.base if isinstance(node, syntax.Typed) else node
    return (
        isinstance(inner, syntax.Index)
        and isinstance(inner.base, syntax.Index)
        and inner.base.base == syntax.Name("VGPR")
    )


def _address(node: syntax.Node, frame: Frame) -> tuple[int, str | None]:
    kind = node.type if isinstance(node, syntax.Typed) else None
    inner = node.base if isinstance(node, syntax.Typed) else node
    assert isinstance(inner, syntax.Index)
    return evaluate(inner.at, frame).number, kind


def _write_memory(node: syntax.Node, value: Value, frame: Frame) -> None:
    assert frame.memory is not None
    address, name = _address(node, frame)
    kind, width = type_of(name) if name else (None, 32)
    frame.memory.write(address, width // 8, _fitted(value, kind, width, frame))


def _read_memory(node: syntax.Typed, frame: Frame) -> Value:
    assert frame.memory is not None
    address, name = _address(node, frame)
    assert name is not None
    kind, width = type_of(name)
    return Value(kind, width, frame.memory.read(address, width // 8))


def _register(node: syntax.Node, frame: Frame) -> tuple[int, int]:
    inner = node.base if isinstance(node, syntax.Typed) else node
    assert isinstance(inner, syntax.Index)
    assert isinstance(inner.base, syntax.Index)
    return evaluate(inner.base.at, frame).number, evaluate(inner.at, frame).number


def _write_register(node: syntax.Node, value: Value, frame: Frame) -> None:
    assert frame.registers is not None
    frame.registers.write(*_register(node, frame), value.bits & 0xFFFFFFFF)


_STATEMENTS: dict[type, Callable[..., None]] = {
    syntax.Declare: _declare,
    syntax.If: _if,
    syntax.For: _for,
    syntax.Break: _break,
    syntax.Return: _return,
    syntax.Lambda: _lambda,
    syntax.Assign: _assign,
}


# Expressions


def evaluate(node: syntax.Node, frame: Frame) -> Value:
    return _EXPRESSIONS[type(node)](node, frame)


def _literal(node: syntax.Literal, frame: Frame) -> Value:
    return _constant(node.kind, node.width, node.text)


@cache
def _constant(kind: str, width: int, text: str) -> Value:
    if kind == "f":
        return Value("f", width, floats.from_float(float(text), {16: F16, 32: F32, 64: F64}[width]))
    if kind == "x":
        return whole(int(text, 16), "u", width)
    return whole(int(text), kind, max(width, int(text).bit_length()))


_FORCED: tuple[Rounding, ...] = ("zero", "even")
_CONSTANTS = {
    "INF": Value("f", 64, F64.infinity),
    "NAN": Value("f", 64, F64.nan),
    "PI": Value("f", 64, floats.from_float(math.pi, F64)),
    "DENORM": Value("d", 0, 0),
    "MAX_FLOAT_F32": Value("f", 32, F32.largest),
    "UNDERFLOW_F32": Value("f", 32, 0),
    "OVERFLOW_F32": Value("f", 32, F32.infinity),
    "UNDERFLOW_F64": Value("f", 64, 0),
    "OVERFLOW_F64": Value("f", 64, F64.infinity),
    "ROUND_TOWARD_ZERO": Value("round", 0, 0),
    "ROUND_NEAREST_EVEN": Value("round", 0, 1),
    "ROUND_MODE": Value("mode", 0, 0),
    "WAVE32": truth(condition=True),
    "wave32": truth(condition=True),
    "WAVE64": truth(condition=False),
    "true": truth(condition=True),
    "false": truth(condition=False),
}


def _name(node: syntax.Name, frame: Frame) -> Value:
    held = frame.names.get(node.name)
    if held is None:
        if node.name not in _CONSTANTS:
            raise syntax.NotUnderstood(f"{node.name} is unknown")
        return _CONSTANTS[node.name]
    if not isinstance(held, Value):
        raise TypeError(f"{node.name} is no single value")
    return held


def _typed(node: syntax.Typed, frame: Frame) -> Value:
    if _is_memory(node):
        return _read_memory(node, frame)
    if isinstance(node.base, syntax.Name) and node.base.name in {"INF", "NAN", "DENORM", "WAVE_MODE"}:
        return _special(node.base.name, node.type, frame)
    return retyped(evaluate(node.base, frame), node.type, frame)


def _special(name: str, kind: str, frame: Frame) -> Value:
    if name == "WAVE_MODE":
        held = frame.names["WAVE_MODE." + kind]
        assert isinstance(held, Value)
        return held
    form = BY_TYPE[kind]
    if name == "DENORM":
        return Value("d", form.width, 0)
    return Value("f", form.width, form.infinity if name == "INF" else form.nan)


def _index(node: syntax.Index, frame: Frame) -> Value:
    if _is_register(node):
        assert frame.registers is not None
        return Value("b", 32, frame.registers.read(*_register(node, frame)))
    at = evaluate(node.at, frame).number
    if isinstance(node.base, syntax.Name):
        held = frame.names.get(node.base.name)
        if isinstance(held, list):
            return held[at]
    return Value("u", 1, evaluate(node.base, frame).bits >> at & 1)


def _slice(node: syntax.Slice, frame: Frame) -> Value:
    base = evaluate(node.base, frame)
    high, low = evaluate(node.high, frame).number, evaluate(node.low, frame).number
    kind = base.kind if base.kind in {"u", "b"} else "b"
    if high < low:
        bits = sum((base.bits >> (low - at) & 1) << at for at in range(low - high + 1))
        return Value(kind, low - high + 1, bits)
    width = high - low + 1
    return Value(kind, width, base.bits >> low & ((1 << width) - 1))


def _part(node: syntax.Part, frame: Frame) -> Value:
    start, count = evaluate(node.start, frame).number, evaluate(node.count, frame).number
    return Value("u", count, evaluate(node.base, frame).bits >> start & ((1 << count) - 1))


def _cast(node: syntax.Cast, frame: Frame) -> Value:
    value = evaluate(node.value, frame)
    if node.kind == "f":
        form = {16: F16, 32: F32, 64: F64}[node.width]
        if isinstance(node.value, syntax.Literal) and node.value.kind == "x":
            return Value("f", node.width, value.bits)
        if value.kind == "p":
            return value
        if value.is_float:
            return Value("f", node.width, _converted(value, form, frame))
        return Value("f", node.width, floats.from_integer(value.number, form, frame.rounding_of(form)))
    if frame.saturates and value.width == UNLIMITED:
        return value
    return whole(value.number, node.kind, node.width)


def _converted(value: Value, form: Format, frame: Frame) -> int:
    if value.width == 8:
        return floats.convert(floats.from_byte(value.bits, is_bf8=value.kind == "bf"), F32, form)
    if value.form == form:
        return value.bits
    if floats.is_signalling(value.bits, value.form) and form.width > value.width:
        # Widened to ask what it is: 64'F(S0.f32) must still be a signalling NaN.
        return form.infinity | (value.bits & ((1 << value.form.fraction) - 1)) << (
            form.fraction - value.form.fraction
        )
    return floats.convert(value.bits, value.form, form, frame.rounding_of(form))


def _unary(node: syntax.Unary, frame: Frame) -> Value:
    value = evaluate(node.value, frame)
    if node.operator == "!":
        return truth(not value.bits)
    if node.operator == "~":
        return Value(value.kind, value.width, value.bits ^ ((1 << value.width) - 1))
    if node.operator == "+":
        return value
    if value.is_float:
        return Value(value.kind, value.width, floats.negated(value.bits, value.form))
    return whole(-value.number, "i", UNLIMITED if frame.saturates else max(value.width, 32))


def _binary(node: syntax.Binary, frame: Frame) -> Value:
    if node.operator == "||":
        return truth(evaluate(node.left, frame).bits or evaluate(node.right, frame).bits)
    if node.operator == "&&":
        return truth(evaluate(node.left, frame).bits and evaluate(node.right, frame).bits)
    return _operate(node.operator, evaluate(node.left, frame), evaluate(node.right, frame), frame)


def _operate(operator: str, left: Value, right: Value, frame: Frame) -> Value:
    if operator == "**":
        if not left.is_float or floats.to_float(left.bits, left.form) != 2.0:
            raise syntax.NotUnderstood("a power of what is not 2")
        return Value("p", left.width, right.number)
    if left.is_float or right.is_float:
        return _operate_floats(operator, left, right, frame)
    if operator in _COMPARISONS:
        return truth(_COMPARISONS[operator](left.number, right.number))
    if operator in {"<<", ">>"}:
        return _shift(operator, left, right)
    width = max(left.width, right.width, 32)
    if frame.saturates and operator in "+-*":
        return whole(_WHOLE[operator](left.number, right.number), "i", UNLIMITED)
    kind = "i" if left.kind == right.kind == "i" else "u"
    return whole(_WHOLE[operator](left.number, right.number), kind, width)


def _shift(operator: str, left: Value, right: Value) -> Value:
    if operator == "<<":
        return whole(left.number << right.number, left.kind, max(left.width, 32))
    return whole(left.number >> right.number, left.kind, left.width)


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


def _operate_floats(operator: str, left: Value, right: Value, frame: Frame) -> Value:
    if right.kind == "d":
        return truth(floats.is_denormal(left.bits, left.form) == (operator == "=="))
    if right.kind == "p" or left.kind == "p":
        number, power = (left, right) if right.kind == "p" else (right, left)
        bits = floats.scaled(number.bits, power.bits, number.form, frame.rounding_of(number.form))
        return Value(number.kind, number.width, bits)
    if not (left.is_float and right.is_float) or left.form != right.form:
        raise TypeError(f"{operator} of {left.kind}{left.width} and {right.kind}{right.width}")
    form = left.form
    if operator in _FLOAT_COMPARISONS:
        return truth(_FLOAT_COMPARISONS[operator](left.bits, right.bits, form))
    if operator == "-":
        right = Value(right.kind, right.width, floats.negated(right.bits, form))
    compute = {"+": floats.add, "-": floats.add, "*": floats.multiply, "/": floats.divide}[operator]
    return Value(left.kind, left.width, compute(left.bits, right.bits, form, frame.rounding_of(form)))


_FLOAT_COMPARISONS: dict[str, Callable[[int, int, Format], bool]] = {
    "==": floats.equal,
    "!=": lambda a, b, f: not floats.equal(a, b, f),
    "<>": lambda a, b, f: floats.less(a, b, f) or floats.less(b, a, f),
    "<": floats.less,
    ">": lambda a, b, f: floats.less(b, a, f),
    "<=": lambda a, b, f: floats.less(a, b, f) or floats.equal(a, b, f),
    ">=": lambda a, b, f: floats.less(b, a, f) or floats.equal(a, b, f),
}


def _choice(node: syntax.Choice, frame: Frame) -> Value:
    return evaluate(node.then if evaluate(node.condition, frame).bits else node.otherwise, frame)


def _joined(node: syntax.Joined, frame: Frame) -> Value:
    bits = width = 0
    for part in node.parts:
        value = evaluate(part, frame)
        bits = bits << value.width | value.bits
        width += value.width
    return Value("b", width, bits)


def _call(node: syntax.Call, frame: Frame) -> Value:
    arguments = [evaluate(argument, frame) for argument in node.arguments]
    held = frame.names.get(node.name)
    if isinstance(held, syntax.Lambda):
        return _apply(held, arguments, frame)
    if node.name in _FUNCTIONS:
        return _FUNCTIONS[node.name](frame, *arguments)
    match = re.fullmatch(r"(bf\d+|[uif]\d+)_to_(bf\d+|[uif]\d+|snorm|unorm)", node.name)
    if match is not None:
        return _conversion(match[1], match[2], arguments[0], frame)
    return frame.call(node.name, arguments, frame)


def _apply(function: syntax.Lambda, arguments: list[Value], frame: Frame) -> Value:
    inner = Frame({**frame.names, **dict(zip(function.parameters, arguments, strict=True))}, frame.call)
    inner.names.pop("in", None)
    inner.rounding, inner.forced_rounding = frame.rounding, frame.forced_rounding
    inner.saturates = frame.saturates
    try:
        _block(function.body, inner)
    except _Result as result:
        return result.value
    raise syntax.NotUnderstood(f"{function.name} returns nothing")


def _conversion(source: str, target: str, value: Value, frame: Frame) -> Value:
    kind, width = type_of(source)
    if (value.kind, value.width) != (kind, width) and (kind in {"f", "bf"} or value.is_float):
        raise TypeError(f"{source} of {value.kind}{value.width}")
    if target in {"snorm", "unorm"}:
        return _normalised(value, 32767 if target == "snorm" else 65535, is_signed=target == "snorm")
    to_kind, to_width = type_of(target)
    if to_kind in {"f", "bf"}:
        form = BY_TYPE[target]
        rounding = frame.rounding_of(form)
        if value.is_float:
            return Value(to_kind, to_width, floats.convert(value.bits, value.form, form, rounding))
        return Value(to_kind, to_width, floats.from_integer(value.number, form, rounding))
    low, high = (
        (-(1 << (to_width - 1)), (1 << (to_width - 1)) - 1) if to_kind == "i" else (0, (1 << to_width) - 1)
    )
    if value.is_float:
        return whole(floats.to_integer(value.bits, value.form, low, high), to_kind, to_width)
    return whole(min(max(value.number, low), high), to_kind, to_width)


def _normalised(value: Value, top: int, *, is_signed: bool) -> Value:
    if floats.is_nan(value.bits, value.form):
        return whole(0, "i" if is_signed else "u", 16)
    low = -1.0 if is_signed else 0.0
    number = min(max(floats.to_float(value.bits, value.form), low), 1.0) * top
    return whole(round(number), "i" if is_signed else "u", 16)


def _float_function(compute: Callable[[int, Format], int]) -> Callable[[Frame, Value], Value]:
    return lambda _, value: Value(value.kind, value.width, compute(value.bits, value.form))


def _test(compute: Callable[[int, Format], bool]) -> Callable[[Frame, Value], Value]:
    return lambda _, value: truth(compute(value.bits, value.form))


def _sum(_: Frame, base: Value, offset: Value) -> Value:
    return whole(base.number + offset.number, "u", 64)


def _fma(frame: Frame, a: Value, b: Value, c: Value) -> Value:
    bits = floats.fused(a.bits, b.bits, c.bits, a.form, frame.rounding_of(a.form))
    return Value(a.kind, a.width, bits)


def _fma_scaled(frame: Frame, a: Value, b: Value, c: Value, exponent: Value) -> Value:
    form, rounding = a.form, frame.rounding_of(a.form)
    bits = floats.fused(a.bits, b.bits, c.bits, form, rounding, scale=exponent.number)
    return Value(a.kind, a.width, bits)


def _exact_dot(frame: Frame, a: Value, b: Value, c: Value) -> Value:
    """Of two pairs of 16-bit floats, with an addend, rounded once."""
    source = BF16 if c.kind == "bf" else F16
    low = floats.wide_product(a.bits & 0xFFFF, b.bits & 0xFFFF, source)
    high = floats.wide_product(a.bits >> 16 & 0xFFFF, b.bits >> 16 & 0xFFFF, source)
    total = floats.wide_sum(floats.wide_sum(low, high), floats.exact(c.bits, c.form))
    return Value(c.kind, c.width, floats.rounded(total, c.form, frame.rounding_of(c.form)))


def _exponent(_: Frame, value: Value) -> Value:
    return whole(value.bits >> value.form.fraction & value.form.top, "i", 32)


def _signext(_: Frame, value: Value) -> Value:
    return whole(Value("i", value.width, value.bits).number, "i", 64)


def _signext_from_bit(_: Frame, value: Value, count: Value) -> Value:
    bits = count.number
    if bits >= value.width:
        return value
    number = value.bits & ((1 << bits) - 1)
    if bits and number >> (bits - 1):
        number -= 1 << bits
    return whole(number, "i", value.width)


def _abs(_: Frame, value: Value) -> Value:
    if value.is_float:
        return Value(value.kind, value.width, value.bits & ~value.form.sign)
    return whole(abs(value.number), value.kind, value.width)


def _scaled(frame: Frame, value: Value, exponent: Value) -> Value:
    bits = floats.scaled(value.bits, exponent.number, value.form, frame.rounding_of(value.form))
    return Value(value.kind, value.width, bits)


def _fract(frame: Frame, value: Value) -> Value:
    down = floats.negated(floats.integral(value.bits, value.form, "down"), value.form)
    return Value(value.kind, value.width, floats.add(value.bits, down, value.form))


def _is_even(_: Frame, value: Value) -> Value:
    if floats.is_nan(value.bits, value.form) or floats.is_infinite(value.bits, value.form):
        return truth(condition=False)
    return truth(floats.to_whole(value.bits, value.form, "zero") % 2 == 0)


def _transcendental(compute: Callable[[float], float]) -> Callable[..., Value]:
    def function(_: Frame, *values: Value) -> Value:
        value = values[-1]
        number = floats.to_float(value.bits, value.form)
        return Value(value.kind, value.width, floats.from_float(compute(number), value.form))

    return function


def _power_of_two(number: float) -> float:
    return math.inf if number >= 1024 else 0.0 if number < -1100 else 2.0**number


def _logarithm(number: float) -> float:
    return math.log2(number) if number > 0 else -math.inf if number == 0 else math.nan


def _of_turns(quarters_ahead: int) -> Callable[[float], float]:
    """The sine of an angle in turns, some quarters of a turn further on; exact where it is 0 or 1."""

    def compute(turns: float) -> float:
        if not math.isfinite(turns):
            return math.nan
        quarters = math.remainder(turns, 1.0) * 4
        quadrant = round(quarters)
        angle = (quarters - quadrant) * math.pi / 2
        quadrant += quarters_ahead
        size = math.cos(angle) if quadrant % 2 else math.sin(angle)
        return 0.0 if size == 0 else -size if quadrant % 4 in {2, 3} else size

    return compute


def _lowest_one(_: Frame, value: Value) -> Value:
    return whole((value.bits & -value.bits).bit_length() - 1, "i", 32)


def _mantissa(_: Frame, value: Value) -> Value:
    """Between a half and one."""
    if floats.is_zero(value.bits, value.form):
        return value
    number = floats.exact(value.bits, value.form)
    part = floats.Exact(number.negative, number.count, -number.count.bit_length())
    return Value(value.kind, value.width, floats.rounded(part, value.form))


def _binary_exponent(_: Frame, value: Value) -> Value:
    """The power of two that goes with ``mantissa``; 0 for zero."""
    number = floats.exact(value.bits, value.form)
    return whole(number.count.bit_length() + number.power if number.count else 0, "i", 32)


def _two_over_pi(_: Frame) -> Value:
    """1201 bits of the fraction of 2/pi."""
    places = 1300
    # Machin: pi/4 = 4 atan(1/5) - atan(1/239)
    pi = 4 * (4 * _inverse_tangent(5, places) - _inverse_tangent(239, places))
    return Value("b", 1201, (2 << (places + 1201)) // pi & ((1 << 1201) - 1))


@cache
def _inverse_tangent(of_one_over: int, places: int) -> int:
    total, power, odd, sign = 0, (1 << places) // of_one_over, 1, 1
    while power:
        total += sign * (power // odd)
        power, odd, sign = power // of_one_over**2, odd + 2, -sign
    return total


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    **dict.fromkeys(("CalcDsAddr", "CalcFlatAddr", "CalcGlobalAddr", "CalcScratchAddr"), _sum),
    "fma": _fma,
    "fma_scaled": _fma_scaled,
    "exact_dot": _exact_dot,
    "abs": _abs,
    "sign": _test(floats.is_negative),
    "isNAN": _test(floats.is_nan),
    "isSignalNAN": _test(floats.is_signalling),
    "isQuietNAN": _test(
        lambda bits, form: floats.is_nan(bits, form) and not floats.is_signalling(bits, form)
    ),
    "cvtToQuietNAN": _float_function(lambda bits, form: bits | 1 << (form.fraction - 1)),
    "exponent": _exponent,
    "mantissa": _mantissa,
    "binary_exponent": _binary_exponent,
    "trunc": _float_function(lambda bits, form: floats.integral(bits, form, "zero")),
    "floor": _float_function(lambda bits, form: floats.integral(bits, form, "down")),
    "nearest_even": _float_function(lambda bits, form: floats.integral(bits, form, "even")),
    "fract": _fract,
    "isEven": _is_even,
    "ldexp": _scaled,
    "sqrt": lambda frame, value: Value(
        value.kind, value.width, floats.root(value.bits, value.form, frame.rounding_of(value.form))
    ),
    "pow": _transcendental(_power_of_two),
    "log2": _transcendental(_logarithm),
    "sin_of_turns": _transcendental(_of_turns(0)),
    "cos_of_turns": _transcendental(_of_turns(1)),
    "flushed": _float_function(floats.flushed),
    "signext": _signext,
    "signext_from_bit": _signext_from_bit,
    "s_ff1_i32_b32": _lowest_one,
    "s_ff1_i32_b64": _lowest_one,
    "two_over_pi": _two_over_pi,
    "s_nop": lambda _, value: value,
    "nop": lambda _: truth(condition=False),
}
_EXPRESSIONS: dict[type, Callable[..., Value]] = {
    syntax.Literal: _literal,
    syntax.Name: _name,
    syntax.Typed: _typed,
    syntax.Index: _index,
    syntax.Slice: _slice,
    syntax.Part: _part,
    syntax.Cast: _cast,
    syntax.Call: _call,
    syntax.Unary: _unary,
    syntax.Binary: _binary,
    syntax.Choice: _choice,
    syntax.Joined: _joined,
}
