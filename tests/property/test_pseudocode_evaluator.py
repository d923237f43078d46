"""The evaluator of AMD's pseudocode, judged by IEEE 754 and by the host's floating point unit."""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pseudocode import floats, syntax
from pseudocode.assembly import parse_line
from pseudocode.comparison import compare
from pseudocode.corrections import CORRECTIONS, corrected
from pseudocode.floats import F16, F32, F64, Exact, Format
from pseudocode.lane_cases import DIVISION_F32, DIVISION_F64
from pseudocode.patterns import float_bits
from pseudocode.published import load_pseudocode
from pseudocode.wave import LANES, Wave, find_text

PACKED = {F16: "<e", F32: "<f", F64: "<d"}
bits16, bits32, bits64 = (st.integers(0, (1 << width) - 1) for width in (16, 32, 64))


def value_of(bits: int, form: Format) -> float:
    return struct.unpack(PACKED[form], bits.to_bytes(form.width // 8, "little"))[0]


def bits_of(value: float, form: Format) -> int:
    return int.from_bytes(struct.pack(PACKED[form], value), "little")


def same(left: int, right: int, form: Format) -> bool:
    return left == right or (floats.is_nan(left, form) and floats.is_nan(right, form))


@given(bits64, bits64)
def test_sums_and_products_are_those_of_the_host(a: int, b: int) -> None:
    x, y = value_of(a, F64), value_of(b, F64)

    assert same(floats.add(a, b, F64), bits_of(x + y, F64), F64)
    assert same(floats.multiply(a, b, F64), bits_of(x * y, F64), F64)
    if y:
        assert same(floats.divide(a, b, F64), bits_of(x / y, F64), F64)
    if x >= 0:
        assert same(floats.root(a, F64), bits_of(math.sqrt(x), F64), F64)


@given(bits32, bits32)
def test_single_precision_is_what_double_precision_rounds_to(a: int, b: int) -> None:
    """Which is right for one sum, product or quotient: 53 bits are more than twice 24."""
    x, y = value_of(a, F32), value_of(b, F32)

    assert same(floats.add(a, b, F32), narrowed(x + y), F32)
    assert same(floats.multiply(a, b, F32), narrowed(x * y), F32)


def narrowed(value: float) -> int:
    try:
        return bits_of(value, F32)
    except OverflowError:
        return F32.infinity | (F32.sign if value < 0 else 0)


@given(bits32)
def test_conversions_to_half_precision_are_those_of_the_host(a: int) -> None:
    value = value_of(a, F32)
    try:
        wanted = bits_of(value, F16)
    except OverflowError:
        wanted = F16.infinity | (F16.sign if value < 0 else 0)

    assert same(floats.convert(a, F32, F16), wanted, F16)


@given(st.sampled_from((F16, F32, F64)), st.randoms(use_true_random=False))
def test_fused_sums_are_nearest_to_the_exact_ones(form: Format, random: Random) -> None:
    a, b, c = (float_bits(random, form) for _ in range(3))
    result = floats.fused(a, b, c, form)
    if any(bits & ~form.sign >= form.infinity for bits in (a, b, c, result)):
        return
    wanted = exact(a, form) * exact(b, form) + exact(c, form)

    for neighbour in (result - 1, result + 1):
        if neighbour & ~form.sign < form.infinity and (neighbour ^ result) < form.sign:
            gap = abs(exact(neighbour, form) - wanted) - abs(exact(result, form) - wanted)
            assert gap > 0 or (gap == 0 and not result & 1)


def exact(bits: int, form: Format) -> Fraction:
    value = floats.exact(bits, form)
    return Fraction(value.signed) * Fraction(2) ** value.power


def test_what_overflows_is_infinite_or_the_largest_number() -> None:
    huge = Exact(negative=False, count=1, power=200)

    assert floats.rounded(huge, F32) == F32.infinity
    assert floats.rounded(huge, F32, "zero") == F32.largest
    assert floats.rounded(huge, F32, "down") == F32.largest
    assert floats.rounded(huge, F32, "up") == F32.infinity


# What decides where the published text is wrong


@pytest.mark.parametrize(("program", "form"), [(DIVISION_F32, F32), (DIVISION_F64, F64)], ids=["f32", "f64"])
def test_the_compilers_division_is_that_of_ieee(program: tuple[str, ...], form: Format) -> None:
    random = Random(form.width)
    words = form.width // 32
    for _ in range(8):
        wave = Wave(mode=0xF0)
        pairs = [(division_operand(random, form), division_operand(random, form)) for _ in range(LANES)]
        pairs[0] = (pairs[0][0], pairs[0][0])
        for lane, pair in enumerate(pairs):
            for operand, bits in enumerate(pair):
                wave.write_vector(operand * words, lane, bits, words)
        for line in program:
            wave.run(parse_line(line)[0])
        for lane, (dividend, divisor) in enumerate(pairs):
            quotient = wave.read_vector(2 * words, lane, words)
            assert same(quotient, floats.divide(dividend, divisor, form), form), (hex(dividend), hex(divisor))


def division_operand(random: Random, form: Format) -> int:
    if random.random() < 0.4:
        return float_bits(random, form)
    field = random.choice((random.randrange(form.top), 0, 1, 23, form.top - 1, form.top - 3))
    return (
        random.getrandbits(1) << (form.width - 1) | field << form.fraction | random.getrandbits(form.fraction)
    )


def test_each_correction_changes_a_published_text() -> None:
    published = {
        name.removesuffix("_E32").removesuffix("_E64"): text
        for texts in load_pseudocode("rdna3").values()
        for name, text in texts.items()
    }
    changed = {name for name, text in published.items() if corrected(name, text) != text}

    for correction in CORRECTIONS:
        assert any(re.fullmatch(correction.instructions, name) for name in changed), correction


def test_an_edit_of_a_text_that_changed_is_refused() -> None:
    with pytest.raises(LookupError, match="no longer has"):
        corrected("V_FREXP_EXP_I32_F32", "D0.i32 = 0")


@pytest.mark.parametrize(
    ("line", "sources", "wanted"),
    [
        ("v_rndne_f32_e32 v1, v0", [0x3EFFFFFF], 0),  # 0.49999997
        ("v_rndne_f32_e32 v1, v0", [0xBE99999A], 0x80000000),  # -0.3
        ("v_rndne_f32_e32 v1, v0", [0x4B000001], 0x4B000001),  # 8388609
        ("v_fract_f32_e32 v1, v0", [0x80000001], 0x3F7FFFFF),
        ("v_frexp_exp_i32_f32_e32 v1, v0", [0x00000001], 0xFFFFFF6C),  # -148
        ("v_rcp_f32_e32 v1, v0", [0x80000001], 0xFF800000),
        ("v_bfe_i32 v1, v0, 4, 8", [0x00000F80], 0xFFFFFFF8),
        ("v_perm_b32 v1, v0, v2, s3", [0x11223344], 0x44000000),
        ("v_sub_nc_i16 v1.h, v0.l, v0.h clamp", [0x7FFF8000], 0x80000000),
        ("v_pk_add_u16 v1, v0, 2.0", [0x00030005], 0x40030005),
        ("v_dot4_i32_iu8 v1, v0, v0, 1 neg_lo:[1,1,0]", [0xFF0201FE], 1 + 4 + 1 + 4 + 1),
    ],
)
def test_single_instructions(line: str, sources: list[int], wanted: int) -> None:
    wave = Wave(mode=0xF0)
    wave.v[0] = [sources[0]] * LANES
    wave.s[3] = 0x04_0C_0C_0C
    wave.run(parse_line(line)[0])

    assert f"{wave.v[1][7]:08x}" == f"{wanted:08x}"


@pytest.mark.parametrize(
    ("bits", "is_bf8", "wanted"),
    [
        (0x38, False, 1.0),
        (0x01, False, 2**-9),
        (0xFE, False, -448.0),
        (0x01, True, 2**-16),
        (0xFB, True, -57344.0),
        (0x7C, True, math.inf),
    ],
)
def test_bytes_are_floats(bits: int, is_bf8: bool, wanted: float) -> None:
    assert value_of(floats.from_byte(bits, is_bf8=is_bf8), F32) == wanted


def test_texts_that_are_not_in_the_language_are_refused() -> None:
    with pytest.raises(syntax.NotUnderstood):
        find_text("ds_bvh_stack_rtn_b32", "rdna3")


# The comparison


def case_of(**changed: object) -> dict[str, object]:
    after = {
        "v": {"0": "3f800000", "1": "7fc00000"},
        "s": {"2": "00003c00"},
        "vcc": "0",
        "scc": 0,
        "exec": "1",
    }
    return {"name": "one", "lanes": 1, "after": after | changed}


@pytest.mark.parametrize(
    ("changed", "differences"),
    [
        ({}, 0),
        ({"v": {"0": "3f800001", "1": "7fc00000"}}, 0),  # a unit in the last place
        ({"v": {"0": "3f800002", "1": "7fc00000"}}, 1),
        ({"v": {"0": "3f800000", "1": "ffc00001"}}, 0),  # another NaN
        ({"v": {"0": "3f800000", "1": "7f800000"}}, 1),  # no NaN
        ({"v": {"0": "3f800000", "1": "7fc00000", "5": "1"}}, 1),  # a register that should be 0
        ({"s": {"2": "ffff3c00"}}, 0),  # an ignored half
        ({"s": {"2": "00003c01"}}, 1),
        ({"scc": 1}, 1),
        ({"vcc": "1"}, 1),
    ],
)
def test_comparison(changed: dict[str, object], differences: int) -> None:
    numbers = [
        {"register": "v0", "shift": 0, "type": "f32", "units": 1},
        {"register": "v1", "shift": 0, "type": "f32"},
    ]
    expected = case_of() | {"numbers": numbers, "ignored": [{"register": "s2", "mask": "ffff0000"}]}

    assert len(compare(expected, case_of(**changed))) == differences


def test_a_fault_is_a_difference() -> None:
    assert compare(case_of(), {"name": "one", "fault": "not emulated"}) == ["one: : not emulated"]
