"""Random operands that meet the edges.

Zeros, denormals, infinities, NaNs, ties, extremes, counts beyond a width.
"""

from __future__ import annotations

from random import Random

from pseudocode import floats
from pseudocode.evaluate import type_of
from pseudocode.floats import BY_TYPE, F16, Exact, Format

_SMALL = (0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 2.0, 3.0, 0.25, 255.0, 256.0, 2.0**-14, 2.0**-24, 2.0**-25)
_LARGE = (32767.0, 32768.0, 65504.0, 65519.0, 65520.0, 8388607.5, 8388609.0)
_HUGE = (2.0**31, 2.0**31 - 128, 2.0**32, 2.0**32 - 256, 2.0**63)
_WHOLE = (0, 1, 2, -1, -2, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000)


def special_floats(form: Format) -> list[int]:
    positive = [
        1,
        2,
        (1 << form.fraction) - 1,  # the largest denormal
        1 << form.fraction,  # the smallest normal
        form.largest,
        form.infinity,
        form.nan,
        form.infinity | 1,  # signalling
        floats.from_float(0.5, form) - 1,
        floats.from_float(1.0, form) - 1,
        floats.from_float(1.0, form) + 1,
        floats.from_float(2.0**form.fraction, form) + 1,  # odd, where halves end
        *(floats.from_float(number, form) for number in (*_SMALL, *_LARGE, *_HUGE)),
    ]
    return [*positive, *(bits | form.sign for bits in positive)]


def float_bits(random: Random, form: Format) -> int:
    choice = random.random()
    if choice < 0.25:
        return random.choice(special_floats(form))
    sign = random.getrandbits(1) << (form.width - 1)
    if choice < 0.5:
        return sign | random.getrandbits(form.width - 1)
    fraction = random.getrandbits(form.fraction)
    if choice < 0.7:  # halfway between two numbers of a narrower format, or of whole numbers
        places = random.randrange(1, form.fraction + 1)
        fraction = fraction >> places << places | 1 << (places - 1)
    return sign | _middling_exponent(random, form) << form.fraction | fraction


def plain_float(random: Random, form: Format) -> int:
    """A number of ordinary size, so that sums of products stay far from the edges."""
    sign = random.getrandbits(1) << (form.width - 1)
    exponent = form.bias + random.randrange(-4, 5)
    return sign | exponent << form.fraction | random.getrandbits(form.fraction)


def _middling_exponent(random: Random, form: Format) -> int:
    spread = min(form.bias - 1, 34)
    return form.bias + random.randrange(-spread, spread + 1)


def whole_bits(random: Random, width: int) -> int:
    mask = (1 << width) - 1
    choice = random.random()
    if choice < 0.2:
        return random.choice((*_WHOLE, mask >> 1, (mask >> 1) + 1)) & mask
    if choice < 0.4:
        return random.randrange(-72, 73) & mask
    if choice < 0.5:
        return (1 << random.randrange(width)) - random.getrandbits(1) & mask
    if choice < 0.6:
        return random.getrandbits(random.randrange(1, width + 1))
    return random.getrandbits(width)


def pattern(random: Random, kind: str) -> int:
    """The bits of a value of some type, 32 or 64 of them; both halves of a register are filled."""
    letter, width = type_of(kind)
    if kind in BY_TYPE:
        form = BY_TYPE[kind]
        if width == 16:
            return float_bits(random, form) | float_bits(random, form) << 16
        return float_bits(random, form)
    if letter in {"u", "i", "b"} and width == 16:
        return whole_bits(random, 16) | whole_bits(random, 16) << 16
    return whole_bits(random, 64 if width > 32 else 32)


def near_cancelling(random: Random, left: int, right: int, form: Format) -> int:
    """An addend that leaves little of ``left * right``, or one that its rounding hangs on."""
    product = floats.multiply(left, right, form)
    if floats.is_nan(product, form) or floats.is_infinite(product, form):
        return product ^ form.sign
    if random.random() < 0.6:
        return floats.negated(product, form) + random.choice((-1, 0, 0, 1)) & (1 << form.width) - 1
    value = floats.exact(product, form)
    half = Exact(
        bool(random.getrandbits(1)), 1, value.power - random.randrange(3) if value.count else form.lowest
    )
    return floats.rounded(half, form)


def rounded_twice(random: Random) -> tuple[int, int, int]:
    """f16 numbers whose ``a * b + c`` comes out wrong when it is rounded to f32 first."""
    places = random.randrange(-8, 4)
    left = random.randrange(-4, 5)
    offset = random.choice((1, 1, 2, 3)) * 2.0**-10
    a = floats.from_float((1 + offset) * 2.0**left, F16)
    b = floats.from_float((1 - offset) * 2.0 ** (places - left), F16)
    c = (F16.bias + places + 11) << F16.fraction | random.getrandbits(F16.fraction)
    return a | random.getrandbits(1) << 15, b | random.getrandbits(1) << 15, c | random.getrandbits(1) << 15
