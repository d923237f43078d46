"""Floating point numbers as bit patterns, computed with whole numbers: exact, then rounded once.

No use is made of the host's floating point unit but for the transcendental functions, whose results
are only promised to a unit in the last place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Rounding = Literal["even", "up", "down", "zero"]


@dataclass(frozen=True)
class Format:
    """A binary format of IEEE 754 (or bfloat16): how many bits exponent and fraction have."""

    exponent: int
    fraction: int

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def top(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return self.top << self.fraction

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.fraction - 1)

    @property
    def largest(self) -> int:
        return self.infinity - 1

    @property
    def lowest(self) -> int:
        """The power of two of the last bit of denormal numbers."""
        return 1 - self.bias - self.fraction


F16 = Format(5, 10)
BF16 = Format(8, 7)
F32 = Format(8, 23)
F64 = Format(11, 52)
BY_TYPE = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


@dataclass(frozen=True)
class Exact:
    """``(-1)**negative * count * 2**power``."""

    negative: bool
    count: int
    power: int

    @property
    def signed(self) -> int:
        return -self.count if self.negative else self.count


def is_nan(bits: int, form: Format) -> bool:
    return bits & ~form.sign > form.infinity


def is_signalling(bits: int, form: Format) -> bool:
    return is_nan(bits, form) and not bits >> (form.fraction - 1) & 1


def is_infinite(bits: int, form: Format) -> bool:
    return bits & ~form.sign == form.infinity


def is_zero(bits: int, form: Format) -> bool:
    return not bits & ~form.sign


def is_denormal(bits: int, form: Format) -> bool:
    return 0 < bits & ~form.sign < 1 << form.fraction


def is_negative(bits: int, form: Format) -> bool:
    return bool(bits & form.sign)


def flushed(bits: int, form: Format) -> int:
    """Zero of the same sign in place of a denormal number."""
    return bits & form.sign if is_denormal(bits, form) else bits


def exact(bits: int, form: Format) -> Exact:
    """The value of a finite number."""
    field = bits >> form.fraction & form.top
    fraction = bits & ((1 << form.fraction) - 1)
    if field:
        return Exact(is_negative(bits, form), fraction | 1 << form.fraction, form.lowest + field - 1)
    return Exact(is_negative(bits, form), fraction, form.lowest)


def rounded(value: Exact, form: Format, rounding: Rounding = "even", *, rest: bool = False) -> int:
    """The nearest number of a format; ``rest`` says that a little is missing from ``count``."""
    sign = form.sign if value.negative else 0
    count, power = value.count, value.power
    if not count and not rest:
        return sign
    if rest:  # the little stands below every bit that decides
        count, power = count << 2 | 1, power - 2
    last = max(count.bit_length() - 1 + power - form.fraction, form.lowest)
    if last > power:
        kept, lost, half = _split(count, last - power)
        away = {"even": lost > half or (lost == half and kept & 1), "zero": False}.get(
            rounding, bool(lost) and (rounding == "down") == value.negative
        )
        kept += bool(away)
    else:
        kept = count << (power - last)
    if kept >> (form.fraction + 1):
        kept, last = kept >> 1, last + 1
    if not kept >> form.fraction:
        return sign | kept  # denormal; its exponent field is 0
    field = last - form.lowest + 1
    if field >= form.top:
        toward = rounding in {"even", "down" if value.negative else "up"}
        return sign | (form.infinity if toward else form.largest)
    return sign | field << form.fraction | (kept & ((1 << form.fraction) - 1))


def _split(count: int, places: int) -> tuple[int, int, int]:
    """What stays of a whole number that loses its last bits, what is lost, and half of what could be."""
    return count >> places, count & ((1 << places) - 1), 1 << (places - 1)


def add(left: int, right: int, form: Format, rounding: Rounding = "even") -> int:
    if is_nan(left, form) or is_nan(right, form):
        return form.nan
    if is_infinite(left, form) or is_infinite(right, form):
        if is_infinite(left, form) and is_infinite(right, form) and left != right:
            return form.nan
        return left if is_infinite(left, form) else right
    return rounded(_sum(exact(left, form), exact(right, form), rounding), form, rounding)


def _sum(left: Exact, right: Exact, rounding: Rounding) -> Exact:
    power = min(left.power, right.power)
    total = (left.signed << (left.power - power)) + (right.signed << (right.power - power))
    if total:
        return Exact(total < 0, abs(total), power)
    if left.negative == right.negative:
        return Exact(left.negative, 0, power)
    return Exact(rounding == "down", 0, power)


def wide_product(left: int, right: int, form: Format) -> Exact:
    """Of finite numbers, not rounded."""
    a, b = exact(left, form), exact(right, form)
    return Exact(a.negative != b.negative, a.count * b.count, a.power + b.power)


def wide_sum(left: Exact, right: Exact) -> Exact:
    return _sum(left, right, "even")


def negated(bits: int, form: Format) -> int:
    return bits ^ form.sign


def multiply(left: int, right: int, form: Format, rounding: Rounding = "even") -> int:
    sign = (left ^ right) & form.sign
    if is_nan(left, form) or is_nan(right, form):
        return form.nan
    if is_infinite(left, form) or is_infinite(right, form):
        return form.nan if is_zero(left, form) or is_zero(right, form) else sign | form.infinity
    a, b = exact(left, form), exact(right, form)
    return rounded(Exact(bool(sign), a.count * b.count, a.power + b.power), form, rounding)


def fused(
    left: int, right: int, addend: int, form: Format, rounding: Rounding = "even", *, scale: int = 0
) -> int:
    """``(left * right + addend) * 2**scale``, rounded once."""
    if is_nan(left, form) or is_nan(right, form) or is_nan(addend, form):
        return form.nan
    if any(is_infinite(bits, form) for bits in (left, right, addend)):
        product = multiply(left, right, form)
        if is_infinite(product, form) and not (is_infinite(left, form) or is_infinite(right, form)):
            return addend  # the product is only too large for the format
        return add(product, addend, form)
    a, b = exact(left, form), exact(right, form)
    product_exact = Exact(a.negative != b.negative, a.count * b.count, a.power + b.power)
    total = _sum(product_exact, exact(addend, form), rounding)
    return rounded(Exact(total.negative, total.count, total.power + scale), form, rounding)


def divide(left: int, right: int, form: Format, rounding: Rounding = "even") -> int:
    sign = (left ^ right) & form.sign
    if is_nan(left, form) or is_nan(right, form):
        return form.nan
    if is_infinite(left, form) or is_zero(right, form):
        both = is_infinite(right, form) if is_infinite(left, form) else is_zero(left, form)
        return form.nan if both else sign | form.infinity
    if is_infinite(right, form):
        return sign
    a, b = exact(left, form), exact(right, form)
    places = 2 * form.fraction + 8 + max(0, b.count.bit_length() - a.count.bit_length())
    quotient, rest = divmod(a.count << places, b.count)
    value = Exact(bool(sign), quotient, a.power - b.power - places)
    return rounded(value, form, rounding, rest=bool(rest))


def root(bits: int, form: Format, rounding: Rounding = "even") -> int:
    if is_nan(bits, form) or is_zero(bits, form):
        return form.nan if is_nan(bits, form) else bits
    if is_negative(bits, form):
        return form.nan
    if is_infinite(bits, form):
        return bits
    value = exact(bits, form)
    places = 2 * (form.fraction + 8) + (value.power & 1)
    scaled = value.count << places
    result = math.isqrt(scaled)
    power = (value.power - places) // 2
    return rounded(Exact(negative=False, count=result, power=power), form, rounding, rest=result**2 != scaled)


def scaled(bits: int, exponent: int, form: Format, rounding: Rounding = "even") -> int:
    """The number times a power of two, rounded once."""
    exponent = max(-5000, min(exponent, 5000))  # beyond what any format holds
    if is_nan(bits, form) or is_infinite(bits, form):
        return form.nan if is_nan(bits, form) else bits
    value = exact(bits, form)
    return rounded(Exact(value.negative, value.count, value.power + exponent), form, rounding)


def convert(bits: int, source: Format, target: Format, rounding: Rounding = "even") -> int:
    if is_nan(bits, source):
        return target.nan
    if is_infinite(bits, source):
        return target.infinity | (target.sign if is_negative(bits, source) else 0)
    return rounded(exact(bits, source), target, rounding)


def from_integer(number: int, form: Format, rounding: Rounding = "even") -> int:
    return rounded(Exact(number < 0, abs(number), 0), form, rounding)


def to_integer(bits: int, form: Format, low: int, high: int) -> int:
    """Towards zero; NaN is 0, what does not fit is the nearest that does."""
    if is_nan(bits, form):
        return 0
    if is_infinite(bits, form):
        return low if is_negative(bits, form) else high
    whole = to_whole(bits, form, "zero")
    return min(max(whole, low), high)


def to_whole(bits: int, form: Format, rounding: Rounding) -> int:
    """A finite number rounded to a whole number."""
    value = exact(bits, form)
    if value.power >= 0:
        return value.signed << value.power
    kept, lost, half = _split(value.count, -value.power)
    away = {"even": lost > half or (lost == half and kept & 1), "zero": False}.get(
        rounding, bool(lost) and (rounding == "down") == value.negative
    )
    kept += bool(away)
    return -kept if value.negative else kept


def integral(bits: int, form: Format, rounding: Rounding) -> int:
    """The number rounded to a whole number, which keeps its sign also when it is zero."""
    if is_nan(bits, form) or is_infinite(bits, form):
        return form.nan if is_nan(bits, form) else bits
    whole = to_whole(bits, form, rounding)
    return rounded(Exact(is_negative(bits, form), abs(whole), 0), form)


def less(left: int, right: int, form: Format) -> bool:
    if is_nan(left, form) or is_nan(right, form):
        return False
    return _ordered(left, form) < _ordered(right, form)


def equal(left: int, right: int, form: Format) -> bool:
    if is_nan(left, form) or is_nan(right, form):
        return False
    return _ordered(left, form) == _ordered(right, form)


def _ordered(bits: int, form: Format) -> int:
    """Whole numbers in the order of the values; both zeros are 0."""
    size = bits & ~form.sign
    return -size if is_negative(bits, form) else size


def steps_between(left: int, right: int, form: Format) -> int:
    """How many numbers of the format one must pass to get from one to the other."""
    return abs(_ordered(left, form) - _ordered(right, form))


def to_float(bits: int, form: Format) -> float:
    """As a Python float, which holds every number of these formats."""
    if is_nan(bits, form):
        return math.nan
    if is_infinite(bits, form):
        return -math.inf if is_negative(bits, form) else math.inf
    value = exact(bits, form)
    return math.copysign(math.ldexp(value.count, value.power), -1.0 if value.negative else 1.0)


def from_float(number: float, form: Format, rounding: Rounding = "even") -> int:
    if math.isnan(number):
        return form.nan
    if math.isinf(number):
        return form.infinity | (form.sign if number < 0 else 0)
    count, denominator = number.as_integer_ratio()
    negative = math.copysign(1.0, number) < 0
    return rounded(Exact(negative, abs(count), 1 - denominator.bit_length()), form, rounding)


def from_byte(bits: int, *, is_bf8: bool) -> int:
    """An f32 of the same value."""
    if is_bf8:
        return convert(bits << 8, F16, F32)
    if bits & 0x7F == 0x7F:
        return F32.nan | (bits & 0x80) << 24
    # Its exponent counts from 8 lower than that of a half, which has one bit more.
    return scaled(convert((bits & 0x80) << 8 | (bits & 0x7F) << 7, F16, F32), 8, F32)
