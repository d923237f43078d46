"""Where AMD's published pseudocode is wrong or says too little: what is used instead, why, and what decides.

What decides is one of: hardware (programs whose authors ran them on RDNA3 cards too, in tinygrad's tests),
IEEE 754 (a division or rounding that the instruction exists for must come out right), LLVM (its compiler
folds or expands around what the instruction does), or the text itself where it contradicts itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """``{t}`` in the texts is the type in the instruction's name (f32); ``values`` has more such names."""

    instructions: str  # a pattern of names without encoding
    why: str
    decides: str
    edits: tuple[tuple[str, str], ...] = ()  # what each text has exactly once, and what it should be
    text: str = ""  # or all of it anew
    values: tuple[tuple[str, dict[str, str]], ...] = ()  # by type


_NO_DENORMALS = (
    "denormal numbers are zero to the f32 instruction and come out as zero, whatever the mode:"
    " the compiler scales around it where they count"
)
_DIV_SCALE = """
D0.{t} = S0.{t};
VCC = 0x0LL;
if exponent(S2.{t}) - exponent(S1.{t}) >= {near} then
    VCC = 0x1LL;
    if S0.{t} == S1.{t} then
        D0.{t} = ldexp(S0.{t}, {scale})
    endif
elsif S1.{t} == DENORM.{t} then
    D0.{t} = ldexp(S0.{t}, {scale})
elsif ((exponent(S1.{t}) >= {large}) && (exponent(S2.{t}) - exponent(S1.{t}) <= {small})) then
    VCC = 0x1LL;
    if S0.{t} == S1.{t} then
        D0.{t} = ldexp(S0.{t}, -{scale})
    endif
elsif exponent(S1.{t}) >= {large} then
    D0.{t} = ldexp(S0.{t}, -{scale})
elsif exponent(S2.{t}) - exponent(S1.{t}) <= {small} then
    VCC = 0x1LL;
    if S0.{t} == S2.{t} then
        D0.{t} = ldexp(S0.{t}, {scale})
    endif
elsif exponent(S2.{t}) <= {tiny} then
    D0.{t} = ldexp(S0.{t}, {scale})
endif;
if ((S2.{t} == {zero}) || (S1.{t} == {zero})) then
    D0.{t} = NAN.{t}
endif
"""
_DIV_FMAS = """
D0.{t} = fma_scaled(S0.{t}, S1.{t}, S2.{t},
    VCC.u64[laneId] ? (exponent(S2.{t}) > {bias} ? {scale} : -{scale}) : 0)
"""

CORRECTIONS = (
    Correction(
        "V_DIV_FMAS_(F32|F64)",
        "the scale is 2**64 (2**128 for f64), down where the quotient is small; not 2**32 (2**64) and only"
        " up. Sum and scale are rounded once, or denormal quotients come out wrong",
        "hardware (div_fmas_f32_per_lane_vcc, div_fmas_f64_scale_down_vcc1_small_s2); IEEE division",
        text=_DIV_FMAS,
        values=(("f32", {"bias": "127", "scale": "64"}), ("f64", {"bias": "1023", "scale": "128"})),
    ),
    Correction(
        "V_DIV_SCALE_(F32|F64)",
        "nothing is assigned where nothing is scaled. A denominator whose inverse is denormal must be scaled"
        " down when the quotient is too, as up it overflows. Whether they are is judged in the type itself,"
        " not f64, and from exponents alone. VCC is set whatever a zero makes of the result",
        "hardware (div_scale_f32_zero_numer_gives_nan, _denorm_denom, _tiny_numer_exp_le_23,"
        " _result_would_be_denorm); IEEE division",
        text=_DIV_SCALE,
        values=(
            (
                "f32",
                {"near": "96", "scale": "64", "large": "253", "small": "-126", "tiny": "23", "zero": "0.0F"},
            ),
            (
                "f64",
                {
                    "near": "768",
                    "scale": "128",
                    "large": "2045",
                    "small": "-1022",
                    "tiny": "53",
                    "zero": "0.0",
                },
            ),
        ),
    ),
    Correction(
        "V_DIV_FIXUP_(F32|F64)",
        "a quotient that is NaN though its operands are ordinary numbers overflowed on the way",
        "hardware (div_fixup_f32_nan_estimate_overflow, _sign)",
        edits=(("elsif exponent(S1.{t}) == {top} then", "elsif isNAN(S0.{t}) then"),),
        values=(("f32", {"top": "255"}), ("f64", {"top": "2047"})),
    ),
    Correction(
        "[VS]_RNDNE_(F16|F32|F64)",
        "floor(x + 0.5) rounds its sum: 0.49999997 and odd numbers from 2**23 come out wrong, and -0.3 as +0",
        "IEEE 754, roundToIntegralTiesToEven",
        text="D0.{t} = nearest_even(S0.{t})",
    ),
    Correction(
        "V_FRACT_(F16|F32|F64)",
        "a small negative number gives the largest number below one, not one",
        "LLVM (constant folding of llvm.amdgcn.fract, which cites OpenCL's definition)",
        text="D0.{t} = S0.{t} + -floor(S0.{t});\nif D0.{t} == {one} then\nD0.{t} = {below}\nendif",
        values=(
            ("f16", {"one": "16'1.0", "below": "16'F(0x3bff)"}),
            ("f32", {"one": "1.0F", "below": "32'F(0x3f7fffff)"}),
            ("f64", {"one": "1.0", "below": "64'F(0x3fefffffffffffff)"}),
        ),
    ),
    Correction(
        "V_FREXP_EXP_I(?:16|32)_(F16|F32|F64)",
        "the exponent of denormal numbers is that of their value, and zero has 0",
        "LLVM (constant folding of llvm.amdgcn.frexp.exp)",
        edits=(("exponent(S0.{t}) - {less} + 1", "binary_exponent(S0.{t})"),),
        values=(("f16", {"less": "15"}), ("f32", {"less": "127"}), ("f64", {"less": "1023"})),
    ),
    Correction(
        "V_(SIN|COS)_F32",
        "the argument in turns is not rounded when it is made radians; " + _NO_DENORMALS,
        "hardware (v_cos_f32_large)",
        text="D0.f32 = {t}_of_turns(flushed(S0.f32))",
    ),
    Correction(
        "V_(SIN|COS)_F16",
        "the argument in turns is not rounded when it is made radians",
        "as for f32",
        text="D0.f16 = {t}_of_turns(S0.f16)",
    ),
    Correction(
        "V_(?:S_)?RCP(?:_IFLAG)?_(F32)",
        _NO_DENORMALS,
        "LLVM (f32 division)",
        text="D0.f32 = flushed(1.0F / flushed(S0.f32))",
    ),
    Correction(
        "V_(?:S_)?RSQ_(F32)", _NO_DENORMALS, "LLVM (f32 rsq)", text="D0.f32 = 1.0F / sqrt(flushed(S0.f32))"
    ),
    Correction(
        "V_(?:S_)?SQRT_(F32)", _NO_DENORMALS, "LLVM (lowerFSQRTF32)", text="D0.f32 = sqrt(flushed(S0.f32))"
    ),
    Correction(
        "V_(?:S_)?LOG_(F32)", _NO_DENORMALS, "LLVM (lowerFLOG2)", text="D0.f32 = log2(flushed(S0.f32))"
    ),
    Correction(
        "V_(?:S_)?EXP_(F32)",
        _NO_DENORMALS,
        "LLVM (lowerFEXP2)",
        text="D0.f32 = flushed(pow(2.0F, flushed(S0.f32)))",
    ),
    Correction(
        "V_TRIG_PREOP_(F64)",
        "the 53 bits kept are the upper ones of the 1201",
        "hardware (v_trig_preop_f64_sum_equals_two_over_pi, trig_preop_f64_index1)",
        edits=(
            (
                "64'F((1201'B(2.0 / PI)[1200 : 0] << shift.u32) & 1201'0x1fffffffffffff)",
                "64'F(64'U(1201'B(two_over_pi() << shift.u32) >> 1148))",
            ),
        ),
    ),
    Correction(
        "V_CVT_PK_(I16|U16)_F32",
        "v_cvt_i16_f32 is no instruction",
        "the name",
        text="D0 = { f32_to_{t}(S1.f32), f32_to_{t}(S0.f32) }",
    ),
)


def corrected(name: str, text: str) -> str:
    """The text of an instruction (V_RCP_F32, without encoding) as it should read."""
    for correction in CORRECTIONS:
        match = re.fullmatch(correction.instructions, name)
        if match is not None:
            return _apply(correction, match[1].lower(), text)
    return text


def _apply(correction: Correction, kind: str, text: str) -> str:
    names = {"t": kind, **dict(correction.values).get(kind, {})}

    def filled(template: str) -> str:
        for name, value in names.items():
            template = template.replace("{" + name + "}", value)
        return template

    if correction.text:
        return filled(correction.text)
    for old, new in correction.edits:
        before = filled(old)
        if text.count(before) != 1:
            raise LookupError(f"{correction.instructions}: the published text no longer has {before!r} once")
        text = text.replace(before, filled(new))
    return text
