// Vector instructions that change the type of a value. Semantics: RDNA3 and RDNA3.5 ISA guides, chapter 16.

#include "table.hpp"

namespace patchkit::gpu {

namespace {

template <class V> V bounded(const V & value, const V & least, const V & most) {
    return value < least ? least : value > most ? most : value;
}

// Rounds towards zero and saturates; NaN is 0.
i32x to_i32(const f64x & a) {
    const f64x number = a != a ? splat<f64x>(0.0) : bounded<f64x>(a, splat<f64x>(-2147483648.0), splat<f64x>(2147483647.0));
    return convert<i32x>(number);
}
u32x to_u32(const f64x & a) {
    const f64x number = a != a ? splat<f64x>(0.0) : bounded<f64x>(a, splat<f64x>(0.0), splat<f64x>(4294967295.0));
    return convert<u32x>(convert<i64x>(number));
}
i32x to_i32(const f32x & a) {
    // The largest f32 below 2^31 is exact, so the conversion of the rest is as well.
    const f32x number = a != a ? splat<f32x>(0.0f) : bounded<f32x>(a, splat<f32x>(-2147483648.0f), splat<f32x>(2147483520.0f));
    return a >= 2147483648.0f ? splat<i32x>(INT32_MAX) : convert<i32x>(number);
}
u32x to_u32(const f32x & a) { return to_u32(convert<f64x>(a)); }
i32x to_i16(const f32x & a) {
    return convert<i32x>(a != a ? splat<f32x>(0.0f) : bounded<f32x>(a, splat<f32x>(-32768.0f), splat<f32x>(32767.0f)));
}
u32x to_u16(const f32x & a) {
    return convert<u32x>(a != a ? splat<f32x>(0.0f) : bounded<f32x>(a, splat<f32x>(0.0f), splat<f32x>(65535.0f)));
}

f32x byte_of(const u32x & a, int n) { return convert<f32x>((a >> (8 * n)) & 0xff); }

// To nearest even, for a value scaled so that 1 is the largest number.
i32x to_snorm(const f32x & a) {
    const f32x number = a != a ? splat<f32x>(0.0f) : bounded<f32x>(a, splat<f32x>(-1.0f), splat<f32x>(1.0f));
    return convert<i32x>(__builtin_elementwise_roundeven(number * 32767.0f));
}
u32x to_unorm(const f32x & a) {
    const f32x number = a != a ? splat<f32x>(0.0f) : bounded<f32x>(a, splat<f32x>(0.0f), splat<f32x>(1.0f));
    return convert<u32x>(__builtin_elementwise_roundeven(number * 65535.0f));
}

u32x pair(const u32x & low, const u32x & high) { return (low & 0xffff) | (high << 16); }
u32x pair(const i32x & low, const i32x & high) { return pair(as<u32x>(low), as<u32x>(high)); }

// To f16, towards zero: corrects rounding to nearest if the result is larger in magnitude.
u32x towards_zero(const f32x & a) {
    const u16x nearest = narrowed(a);
    const f32x back = widened(nearest);
    const i32x is_too_large = __builtin_elementwise_abs(back) > __builtin_elementwise_abs(a);
    const u32x bits = convert<u32x>(nearest);
    return is_too_large ? bits - 1 : bits;
}

u32x saturated_i16(const i32x & a) { return as<u32x>(bounded<i32x>(a, splat<i32x>(-32768), splat<i32x>(32767))) & 0xffff; }
u32x saturated_u16(const u32x & a) { return a > 0xffff ? splat<u32x>(0xffff) : a; }

u32x replaced_byte(const f32x & value, const u32x & which, const u32x & old) {
    const u32x byte = convert<u32x>(value != value ? splat<f32x>(0.0f) : bounded<f32x>(value, splat<f32x>(0.0f), splat<f32x>(255.0f)));
    const u32x shift = (which & 3) * 8;
    return (old & ~(splat<u32x>(0xff) << shift)) | (byte << shift);
}

u16x saturated_bytes(const u32x & a) {
    const i32x low = as<i32x>(a << 16) >> 16, high = as<i32x>(a) >> 16;
    const i32x first = bounded<i32x>(low, splat<i32x>(0), splat<i32x>(255)), second = bounded<i32x>(high, splat<i32x>(0), splat<i32x>(255));
    return convert<u16x>(first | (second << 8));
}

// ---- 8-bit floats (RDNA4)

// Rounds to the format's mantissa, with subnormals below 2^least: to nearest even, or stochastically with `random` in
// place of the truncated bits. Larger values become `beyond`.
struct byte_format {
    int mantissa;
    int least;
    u32 largest, beyond, infinity, nan;
};
constexpr byte_format fp8{3, -6, 0x7e, 0x7f, 0x7f, 0x7f}, bf8{2, -14, 0x7b, 0x7c, 0x7c, 0x7f};

u32x narrowed_to(const byte_format & to, const f32x & value, const u32x * random) {
    const u32x bits = as<u32x>(value), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    const i32x exponent = as<i32x>(magnitude >> 23) - 127;
    // Subnormals keep fewer of the 24 bits of an f32.
    const i32x missing = exponent < to.least ? to.least - exponent : splat<i32x>(0);
    const i32x cut = missing + (23 - to.mantissa);
    const u32x shift = as<u32x>(cut > 31 ? splat<i32x>(31) : cut);
    const u32x significand = (magnitude & 0x7fffff) | (exponent > -127 ? splat<u32x>(0x800000) : splat<u32x>(0));
    const u32x lost = (splat<u32x>(1) << shift) - 1;
    const u32x odd = (significand >> shift) & 1;
    const u32x added = random == nullptr ? (lost >> 1) + odd : (*random >> (32 - 23)) & lost;
    u32x kept = cut > 25 ? splat<u32x>(0) : (significand + added) >> shift;
    // The leading one of a normal number adds one to the exponent, which also absorbs the carry.
    const i32x field = exponent < to.least ? splat<i32x>(0) : exponent - to.least;
    kept += as<u32x>(field) << u32(to.mantissa);
    kept = kept > to.largest ? splat<u32x>(to.beyond) : kept;
    kept = magnitude == 0x7f800000 ? splat<u32x>(to.infinity) : kept;
    kept = magnitude > 0x7f800000 ? splat<u32x>(to.nan) : kept;
    return kept | sign;
}

// `immediate` is the index of the byte (byte_sel).
template <auto widen> void from_byte(const instruction * i, wave & w) {
    F32::write(i, w, widen((read_bits(i, w, i->from[0]) >> (8 * u32(i->immediate))) & 0xff));
    PATCHKIT_NEXT(i, w);
}

template <auto widen> void from_two_bytes(const instruction * i, wave & w) {
    const u32x bits = read_bits(i, w, i->from[0]) >> (i->from[0].is(operand::high) ? 16 : 0);
    const f32x low = widen(bits & 0xff), high = widen((bits >> 8) & 0xff);
    write_bits(w, vector_at(w, i->to[0]), as<u32x>(low));
    write_bits(w, vector_at(w, i->to[0], 1), as<u32x>(high));
    PATCHKIT_NEXT(i, w);
}

template <const byte_format & to> void to_two_bytes(const instruction * i, wave & w) {
    const u32x low = narrowed_to(to, F32::read<0>(i, w), nullptr), high = narrowed_to(to, F32::read<1>(i, w), nullptr);
    write_bits_16(w, i->to[0], convert<u16x>(low | (high << 8)));
    PATCHKIT_NEXT(i, w);
}

template <const byte_format & to> void to_byte_at_random(const instruction * i, wave & w) {
    const u32x random = read_bits(i, w, i->from[1]), byte = narrowed_to(to, F32::read<0>(i, w), &random);
    const u32 shift = 8 * u32(i->immediate);
    u32x & target = vector_at(w, i->to[0]);
    write_bits(w, target, (target & ~(0xffu << shift)) | (byte << shift));
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions conversion_instructions() {
    return {
        op<[](i32x a) { return convert<f32x>(a); }, F32, I32>("v_cvt_f32_i32"),
        op<[](u32x a) { return convert<f32x>(a); }, F32, U32>("v_cvt_f32_u32"),
        op<[](f32x a) { return to_i32(a); }, I32, F32>("v_cvt_i32_f32"),
        op<[](f32x a) { return to_u32(a); }, U32, F32>("v_cvt_u32_f32"),
        op<[](f32x a) { return to_i32(f32x(__builtin_elementwise_floor(a + 0.5f))); }, I32, F32>(
            "v_cvt_nearest_i32_f32"),
        op<[](f32x a) { return to_i32(f32x(__builtin_elementwise_floor(a))); }, I32, F32>("v_cvt_floor_i32_f32"),
        op<[](f32x a) { return a; }, F16, F32>("v_cvt_f16_f32"),
        op<[](f32x a) { return a; }, F32, F16>("v_cvt_f32_f16"),
        op<[](f32x a) { return convert<f64x>(a); }, F64, F32>("v_cvt_f64_f32"),
        op<[](f64x a) { return convert<f32x>(a); }, F32, F64>("v_cvt_f32_f64"),
        op<[](i32x a) { return convert<f64x>(a); }, F64, I32>("v_cvt_f64_i32"),
        op<[](u32x a) { return convert<f64x>(a); }, F64, U32>("v_cvt_f64_u32"),
        op<[](f64x a) { return to_i32(a); }, I32, F64>("v_cvt_i32_f64"),
        op<[](f64x a) { return to_u32(a); }, U32, F64>("v_cvt_u32_f64"),
        op<[](u32x a) { return byte_of(a, 0); }, F32, U32>("v_cvt_f32_ubyte0"),
        op<[](u32x a) { return byte_of(a, 1); }, F32, U32>("v_cvt_f32_ubyte1"),
        op<[](u32x a) { return byte_of(a, 2); }, F32, U32>("v_cvt_f32_ubyte2"),
        op<[](u32x a) { return byte_of(a, 3); }, F32, U32>("v_cvt_f32_ubyte3"),
        op<[](u16x a) { return convert<f32x>(a); }, F16, U16>("v_cvt_f16_u16"),
        op<[](i16x a) { return convert<f32x>(a); }, F16, I16>("v_cvt_f16_i16"),
        op<[](f32x a) { return convert<u16x>(to_u16(a)); }, U16, F16>("v_cvt_u16_f16"),
        op<[](f32x a) { return convert<i16x>(to_i16(a)); }, I16, F16>("v_cvt_i16_f16"),
        op<[](i16x a) { return convert<i32x>(a); }, I32, I16>("v_cvt_i32_i16"),
        op<[](u16x a) { return convert<u32x>(a); }, U32, U16>("v_cvt_u32_u16"),
        op<[](f32x a) { return convert<i16x>(to_snorm(a)); }, I16, F16>("v_cvt_norm_i16_f16"),
        op<[](f32x a) { return convert<u16x>(to_unorm(a)); }, U16, F16>("v_cvt_norm_u16_f16"),
        op<[](f32x a, f32x b) { return pair(to_snorm(a), to_snorm(b)); }, U32, F32, F32>("v_cvt_pk_norm_i16_f32"),
        op<[](f32x a, f32x b) { return pair(to_unorm(a), to_unorm(b)); }, U32, F32, F32>("v_cvt_pk_norm_u16_f32"),
        op<[](f32x a, f32x b) { return pair(to_snorm(a), to_snorm(b)); }, U32, F16, F16>("v_cvt_pk_norm_i16_f16"),
        op<[](f32x a, f32x b) { return pair(to_unorm(a), to_unorm(b)); }, U32, F16, F16>("v_cvt_pk_norm_u16_f16"),
        op<[](f32x a, f32x b) { return pair(to_i16(a), to_i16(b)); }, U32, F32, F32>("v_cvt_pk_i16_f32"),
        op<[](f32x a, f32x b) { return pair(to_u16(a), to_u16(b)); }, U32, F32, F32>("v_cvt_pk_u16_f32"),
        op<[](f32x a, f32x b) { return pair(towards_zero(a), towards_zero(b)); }, U32, F32, F32>(
            "v_cvt_pk_rtz_f16_f32"),
        op<[](i32x a, i32x b) { return pair(saturated_i16(a), saturated_i16(b)); }, U32, I32, I32>("v_cvt_pk_i16_i32"),
        op<[](u32x a, u32x b) { return pair(saturated_u16(a), saturated_u16(b)); }, U32, U32, U32>("v_cvt_pk_u16_u32"),
        op<replaced_byte, U32, F32, U32, U32>("v_cvt_pk_u8_f32"),
        op<saturated_bytes, U16, U32>("v_sat_pk_u8_i16"),
        // A signed 4-bit number in sixteenths.
        op<[](u32x a) { return convert<f32x>(as<i32x>(a << 28) >> 28) * 0.0625f; }, F32, U32>("v_cvt_off_f32_i4"),
        {"v_cvt_f32_fp8", from_byte<widened_fp8>, {format::f32}, {format::b32}},
        {"v_cvt_f32_bf8", from_byte<widened_bf8>, {format::f32}, {format::b32}},
        {"v_cvt_pk_f32_fp8", from_two_bytes<widened_fp8>, {format::b64}, {format::b16}},
        {"v_cvt_pk_f32_bf8", from_two_bytes<widened_bf8>, {format::b64}, {format::b16}},
        {"v_cvt_pk_fp8_f32", to_two_bytes<fp8>, {format::b16}, {format::f32, format::f32}},
        {"v_cvt_pk_bf8_f32", to_two_bytes<bf8>, {format::b16}, {format::f32, format::f32}},
        {"v_cvt_sr_fp8_f32", to_byte_at_random<fp8>, {format::b32}, {format::f32, format::b32}},
        {"v_cvt_sr_bf8_f32", to_byte_at_random<bf8>, {format::b32}, {format::f32, format::b32}},
    };
}

} // namespace patchkit::gpu
