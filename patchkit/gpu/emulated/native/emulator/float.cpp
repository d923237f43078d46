// Vector instructions on floats. Semantics: RDNA3 and RDNA3.5 ISA guides (AMD, 2023 and 2024), chapter 16; exceptions
// (division steps, V_RNDNE, V_FRACT) are documented below.

#include "table.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace patchkit::gpu {

u32x with_input_modifiers(u32x bits, u32 modifiers, int n) {
    bits = with_sign_modifiers(bits, modifiers, n, splat<u32x>(0x80000000));
    return (modifiers & modifier::flush_f32) != 0 ? flushed(bits) : bits;
}

namespace {

template <class V> V scaled_and_clamped(V value, u32 modifiers) {
    if ((modifiers & modifier::times_2) != 0) {
        value *= 2;
    } else if ((modifiers & modifier::times_4) != 0) {
        value *= 4;
    } else if ((modifiers & modifier::half) != 0) {
        value *= decltype(value[0] + 0)(0.5);
    }
    if ((modifiers & modifier::clamp) != 0) {
        value = value > 0 ? value : splat<V>(0); // NaN becomes 0
        value = value < 1 ? value : splat<V>(1);
    }
    return value;
}

} // namespace

f32x with_output_modifiers(f32x value, u32 modifiers) {
    value = scaled_and_clamped(value, modifiers);
    return (modifiers & modifier::flush_f32) != 0 ? as<f32x>(flushed(as<u32x>(value))) : value;
}

f64x with_output_modifiers(f64x value, u32 modifiers) { return scaled_and_clamped(value, modifiers); }

namespace {

// Everything below is for f32x and f64x; f16 is computed as f32x.
template <class V> struct bits_of;
template <> struct bits_of<f32x> {
    using bits = u32x;
    using sign = i32x;
    static constexpr u32 quiet = 0x400000, infinity = 0x7f800000;
    static constexpr int mantissa = 23, bias = 127;
};
template <> struct bits_of<f64x> {
    using bits = u64x;
    using sign = i64x;
    static constexpr u64 quiet = u64(1) << 51, infinity = u64(0x7ff) << 52;
    static constexpr int mantissa = 52, bias = 1023;
};

template <class V> auto is_negative(const V & a) { return as<typename bits_of<V>::sign>(a) < 0; }
template <class V> V magnitude(const V & a) { return __builtin_elementwise_abs(a); }

template <class V> V quieted(const V & a) {
    const auto bits = as<typename bits_of<V>::bits>(a);
    return as<V>(a != a ? bits | bits_of<V>::quiet : bits);
}

template <class V> auto is_signaling(const V & a) {
    return (a != a) & ((as<typename bits_of<V>::bits>(a) & bits_of<V>::quiet) == 0);
}

// -0 is less than +0. With one NaN the number is selected, except for a signaling NaN in IEEE mode. The `result` is `a`
// where `takes_a`.
template <class V, class M> V chosen(u32 modifiers, const V & a, const V & b, const M & takes_a) {
    V result = takes_a ? a : b;
    if (any((a != a) | (b != b))) [[unlikely]] {
        result = b != b ? a : a != a ? b : result;
        if ((modifiers & modifier::ieee) != 0) {
            result = is_signaling(b) ? quieted(b) : result;
            result = is_signaling(a) ? quieted(a) : result;
        }
    }
    return result;
}

template <class V> V min_of(u32 modifiers, const V & a, const V & b) {
    return chosen(modifiers, a, b, (a < b) | ((a == b) & is_negative(a)));
}
template <class V> V max_of(u32 modifiers, const V & a, const V & b) {
    return chosen(modifiers, a, b, (a > b) | ((a == b) & is_negative(b)));
}
template <class V> V min3_of(u32 m, const V & a, const V & b, const V & c) { return min_of(m, min_of(m, a, b), c); }
template <class V> V max3_of(u32 m, const V & a, const V & b, const V & c) { return max_of(m, max_of(m, a, b), c); }
template <class V> V minmax_of(u32 m, const V & a, const V & b, const V & c) { return max_of(m, min_of(m, a, b), c); }
template <class V> V maxmin_of(u32 m, const V & a, const V & b, const V & c) { return min_of(m, max_of(m, a, b), c); }
template <class V> V med3_of(u32 m, const V & a, const V & b, const V & c) {
    const V largest = max3_of(m, a, b, c);
    const V middle = largest == a ? max_of(m, b, c) : largest == b ? max_of(m, a, c) : max_of(m, a, b);
    return ((a != a) | (b != b) | (c != c)) ? min3_of(m, a, b, c) : middle;
}

// Maximum and minimum of IEEE 754-2019 (RDNA4): NaN if either operand is NaN.
template <class V> V maximum_of(u32 m, const V & a, const V & b) {
    return a != a ? quieted(a) : b != b ? quieted(b) : max_of(m & ~modifier::ieee, a, b);
}
template <class V> V minimum_of(u32 m, const V & a, const V & b) {
    return a != a ? quieted(a) : b != b ? quieted(b) : min_of(m & ~modifier::ieee, a, b);
}
template <class V> V maximum3_of(u32 m, const V & a, const V & b, const V & c) {
    return maximum_of(m, maximum_of(m, a, b), c);
}
template <class V> V minimum3_of(u32 m, const V & a, const V & b, const V & c) {
    return minimum_of(m, minimum_of(m, a, b), c);
}
template <class V> V maximumminimum_of(u32 m, const V & a, const V & b, const V & c) {
    return minimum_of(m, maximum_of(m, a, b), c);
}
template <class V> V minimummaximum_of(u32 m, const V & a, const V & b, const V & c) {
    return maximum_of(m, minimum_of(m, a, b), c);
}

// The cube face that a direction points at, with the coordinates on it (RDNA3 ISA guide, V_CUBEID_F32 ff.).
enum class cube : u8 { face, s, t, major };
template <cube wanted> f32x cube_of(const f32x & x, const f32x & y, const f32x & z) {
    const f32x ax = __builtin_elementwise_abs(x), ay = __builtin_elementwise_abs(y), az = __builtin_elementwise_abs(z);
    const i32x is_z = (az >= ax) & (az >= ay), is_y = ay >= ax;
    const auto side = [&](const f32x & of_z, const f32x & of_y, const f32x & of_x) {
        return is_z ? of_z : is_y ? of_y : of_x;
    };
    const auto by_sign = [](const f32x & value, const f32x & negative, const f32x & positive) {
        return value < 0.0f ? negative : positive;
    };
    switch (wanted) {
        case cube::face: return side(by_sign(z, splat<f32x>(5.0f), splat<f32x>(4.0f)), by_sign(y, splat<f32x>(3.0f), splat<f32x>(2.0f)),
                                     by_sign(x, splat<f32x>(1.0f), splat<f32x>(0.0f)));
        case cube::s: return side(by_sign(z, -x, x), x, by_sign(x, z, -z));
        case cube::t: return side(-y, by_sign(y, -z, z), -y);
        case cube::major: return side(z, y, x) * 2.0f;
    }
}

u16x half_maximum(u32 m, const u16x & a, const u16x & b) {
    return as<u16x>(narrowed(maximum_of(m, widened(a), widened(b))));
}
u16x half_minimum(u32 m, const u16x & a, const u16x & b) {
    return as<u16x>(narrowed(minimum_of(m, widened(a), widened(b))));
}
u16x half_maximum3(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    return half_maximum(m, half_maximum(m, a, b), c);
}
u16x half_minimum3(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    return half_minimum(m, half_minimum(m, a, b), c);
}
u16x half_maximumminimum(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    return half_minimum(m, half_maximum(m, a, b), c);
}
u16x half_minimummaximum(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    return half_maximum(m, half_minimum(m, a, b), c);
}

u16x half_min(u32 m, const u16x & a, const u16x & b) { return half_of_two<true>(m, a, b); }
u16x half_max(u32 m, const u16x & a, const u16x & b) { return half_of_two<false>(m, a, b); }
u16x half_min3(u32 m, const u16x & a, const u16x & b, const u16x & c) { return half_min(m, half_min(m, a, b), c); }
u16x half_max3(u32 m, const u16x & a, const u16x & b, const u16x & c) { return half_max(m, half_max(m, a, b), c); }
u16x half_minmax(u32 m, const u16x & a, const u16x & b, const u16x & c) { return half_max(m, half_min(m, a, b), c); }
u16x half_maxmin(u32 m, const u16x & a, const u16x & b, const u16x & c) { return half_min(m, half_max(m, a, b), c); }
u16x half_med3(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    const auto is_nan = [](const u16x & bits) { return (bits & 0x7fff) > 0x7c00; };
    const f32x largest = widened(half_max3(m, a, b, c));
    const i16x is_a = convert<i16x>(largest == widened(a)), is_b = convert<i16x>(largest == widened(b));
    const u16x middle = is_a ? half_max(m, b, c) : is_b ? half_max(m, a, c) : half_max(m, a, b);
    return (is_nan(a) | is_nan(b) | is_nan(c)) ? half_min3(m, a, b, c) : middle;
}

f32x fma_of(const f32x & a, const f32x & b, const f32x & c) { return __builtin_elementwise_fma(a, b, c); }
f64x fma_of(const f64x & a, const f64x & b, const f64x & c) { return __builtin_elementwise_fma(a, b, c); }

// An exact product and a sum rounded once, for v_fma_f16 and similar.
u16x fma_halves(const u16x & a, const u16x & b, const u16x & c) { return fma_half(widened(a), widened(b), widened(c)); }

// A product with zero is zero, whatever the other factor is.
f32x dx9_fma(const f32x & a, const f32x & b, const f32x & c) {
    return ((a == 0.0f) | (b == 0.0f)) ? c : fma_of(a, b, c);
}

template <class V> V floor_of(const V & a) { return __builtin_elementwise_floor(a); }
template <class V> V ceil_of(const V & a) { return __builtin_elementwise_ceil(a); }
template <class V> V trunc_of(const V & a) { return __builtin_elementwise_trunc(a); }
template <class V> V rndne_of(const V & a) { return __builtin_elementwise_roundeven(a); }
// Never 1, but at most the largest number below it, as LLVM folds V_FRACT of a constant.
f32x fract_of(const f32x & a) {
    const f32x below_one = as<f32x>(splat<u32x>(0x3f7fffff)), fraction = a - floor_of(a);
    return fraction >= 1.0f ? below_one : fraction;
}
f64x fract_of(const f64x & a) {
    const f64x below_one = as<f64x>(splat<u64x>(0x3fefffffffffffff)), fraction = a - floor_of(a);
    return fraction >= 1.0 ? below_one : fraction;
}
f32x fract_of_half(const f32x & a) {
    const f32x fraction = a - floor_of(a);
    return fraction > 0.99951171875f ? splat<f32x>(0.99951171875f) : fraction;
}

template <class V> V zero_wins(const V & a, const V & b) { return ((a == 0) | (b == 0)) ? splat<V>(0) : a * b; }

template <class V> auto biased_exponent(const V & a) {
    using bits = typename bits_of<V>::bits;
    return as<typename bits_of<V>::sign>((as<bits>(a) & bits_of<V>::infinity) >> bits_of<V>::mantissa);
}

template <class V> auto is_subnormal(const V & a) { return (biased_exponent(a) == 0) & (a != 0); }

// value * 2^power, rounded once.
f32x scaled(const f32x & value, i32x power) {
    power = power < -400 ? splat<i32x>(-400) : power > 400 ? splat<i32x>(400) : power;
    const i64x bits = (convert<i64x>(power) + 1023) << 52;
    return convert<f32x>(convert<f64x>(value) * as<f64x>(bits)); // exact until converted
}

f64x scaled(const f64x & value, const i32x & power) {
    if (!any((power < -1022) | (power > 1023))) [[likely]] { // one multiplication, rounded once
        return value * as<f64x>((convert<i64x>(power) + 1023) << 52);
    }
    f64x result;
    for (int lane = 0; lane < lanes; ++lane) {
        result[lane] = std::ldexp(value[lane], power[lane]);
    }
    return result;
}

f32x ldexp_half(const f32x & value, const i16x & power) { return scaled(value, convert<i32x>(power)); }

// Mantissa and exponent, without a call per lane, because logarithms need both; subnormals are normalised first.
template <class V> struct parted {
    typename bits_of<V>::bits bits;
    typename bits_of<V>::sign is_small; // it was multiplied by 2^64
    typename bits_of<V>::sign is_plain; // not 0, infinite or NaN
};
template <class V> parted<V> part(const V & a) {
    using bits = typename bits_of<V>::bits;
    const bits exponent = as<bits>(a) & bits_of<V>::infinity;
    const auto is_small = exponent == 0;
    return {as<bits>(is_small ? a * splat<V>(0x1p64) : a), is_small, (exponent != bits_of<V>::infinity) & (a != 0)};
}
template <class V> V frexp_mantissa(const V & a) {
    using bits = typename bits_of<V>::bits;
    const parted<V> p = part(a);
    const bits half = as<bits>(splat<V>(0.5));
    return p.is_plain ? as<V>((p.bits & ~splat<bits>(bits_of<V>::infinity)) | half) : a;
}
template <class V> i32x frexp_exponent(const V & a) {
    using sign = typename bits_of<V>::sign;
    const parted<V> p = part(a);
    constexpr int of_half = bits_of<V>::bias - 1;
    const sign exponent = as<sign>((p.bits & bits_of<V>::infinity) >> bits_of<V>::mantissa) -
                          (p.is_small ? splat<sign>(of_half + 64) : splat<sign>(of_half));
    return convert<i32x>(p.is_plain ? exponent : splat<sign>(0));
}

// ---- Functions that the hardware approximates. These are accurate to slightly more than half an ULP. Like the
// hardware, they flush subnormal inputs and results (LLVM's lowering of exp2, log2, rcp and rsq works around that).

f32x without_subnormals(const f32x & a) { return as<f32x>(flushed(as<u32x>(a))); }

f32x exp2_of(const f32x & a) {
    // 2^(whole + rest) with |rest| <= 1/2; the series is truncated below 2^-40.
    const f32x bounded = a < -200.0f ? splat<f32x>(-200.0f) : a > 200.0f ? splat<f32x>(200.0f) : a;
    const f64x x = convert<f64x>(a != a ? splat<f32x>(0.0f) : bounded);
    const f64x whole = __builtin_elementwise_roundeven(x);
    const f64x t = (x - whole) * 0.6931471805599453;
    f64x sum = splat<f64x>(1.0 / 362880.0);
    for (const double inverse : {1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0,
                                 1.0}) {
        sum = __builtin_elementwise_fma(sum, t, splat<f64x>(inverse));
    }
    const f64x power = as<f64x>((convert<i64x>(whole) + 1023) << 52);
    return a != a ? quieted(a) : without_subnormals(convert<f32x>(sum * power));
}

f64x log2_positive(const f64x & a) {
    // a = 2^power * m with m in [sqrt(1/2), sqrt(2)]; log m = 2 atanh((m - 1) / (m + 1)).
    const u64x bits = as<u64x>(a);
    const u64x from_sqrt = bits - 0x3fe6a09e667f3bcd;
    const i64x power = as<i64x>(from_sqrt) >> 52;
    const f64x m = as<f64x>(bits - (as<u64x>(power) << 52));
    const f64x s = (m - 1.0) / (m + 1.0), square = s * s;
    f64x sum = splat<f64x>(1.0 / 19.0);
    for (const double inverse : {1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0,
                                 1.0 / 3.0, 1.0}) {
        sum = __builtin_elementwise_fma(sum, square, splat<f64x>(inverse));
    }
    return __builtin_elementwise_fma(s * sum, splat<f64x>(2.885390081777927), convert<f64x>(power));
}

f32x log2_of(const f32x & given) {
    const f32x a = without_subnormals(given);
    const f32x usual = convert<f32x>(log2_positive(convert<f64x>(a > 0.0f ? a : splat<f32x>(1.0f))));
    const f32x infinity = splat<f32x>(INFINITY), nan = splat<f32x>(NAN);
    const f32x special = a == 0.0f ? -infinity : a < 0.0f ? nan : quieted(a);
    return ((a > 0.0f) & (a < infinity)) ? usual : special;
}

f32x rcp_of(const f32x & a) { return without_subnormals(1.0f / without_subnormals(a)); }

// 1 / sqrt(a) for a in the range of f32.
f64x inverse_root(const f64x & a) {
#ifdef __AVX512F__
    // The CPU's estimate with 14 bits, and two Newton steps, each of which doubles the precision: a quarter of the time
    // of a square root and a division.
    alignas(256) __m512d estimates[4];
    for (int n = 0; n < 4; ++n) {
        estimates[n] = _mm512_rsqrt14_pd(reinterpret_cast<const __m512d *>(&a)[n]);
    }
    f64x y = *reinterpret_cast<const f64x *>(estimates);
    for (int step = 0; step < 2; ++step) {
        y = __builtin_elementwise_fma(y * 0.5, __builtin_elementwise_fma(-a * y, y, f64x(1.0)), y);
    }
    const f64x infinity = __builtin_elementwise_copysign(f64x(INFINITY), a);
    const f64x special = a == 0 ? infinity : a < 0 ? f64x(NAN) : a > 0 ? f64x(0) : a;
    return ((a > 0) & (a < INFINITY)) ? y : special;
#else
    return 1.0 / __builtin_elementwise_sqrt(a);
#endif
}

f32x rsq_of(const f32x & a) { return convert<f32x>(inverse_root(convert<f64x>(without_subnormals(a)))); }

f32x sqrt_of(const f32x & a) { return __builtin_elementwise_sqrt(without_subnormals(a)); }
f32x sqrt_of_half(const f32x & a) { return __builtin_elementwise_sqrt(a); }
f32x rsq_of_half(const f32x & a) { return convert<f32x>(inverse_root(convert<f64x>(a))); }
f32x rcp_of_half(const f32x & a) { return 1.0f / a; }

// The argument is in revolutions.
template <bool is_sine> f32x wave_of(const f32x & a) {
    const f64x turns = convert<f64x>(a), rest = turns - __builtin_elementwise_roundeven(turns);
    const f64x known = rest == rest ? rest : splat<f64x>(0); // infinity has no fractional part
    // Relative to the nearest quarter turn, where exact results stay exact.
    const f64x quarters = __builtin_elementwise_roundeven(known * 4.0);
    const f64x angle = __builtin_elementwise_fma(quarters, splat<f64x>(-0.25), known) * 6.283185307179586; // up to pi / 4
    // Both series are truncated below 2^-53.
    const f64x square = angle * angle;
    const auto series = [&](std::initializer_list<double> factors) {
        f64x sum{};
        for (const double factor : factors) {
            sum = __builtin_elementwise_fma(sum, square, splat<f64x>(factor));
        }
        return sum;
    };
    const f64x sine = angle * series({-1 / 1307674368000.0, 1 / 6227020800.0, -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0,
                                      1 / 120.0, -1 / 6.0, 1.0});
    const f64x cosine = series({1 / 20922789888000.0, -1 / 87178291200.0, 1 / 479001600.0, -1 / 3628800.0, 1 / 40320.0,
                                -1 / 720.0, 1 / 24.0, -1 / 2.0, 1.0});
    const i64x quarter = convert<i64x>(quarters), which = (is_sine ? quarter : quarter + 1) & 3;
    f64x value = (which & 1) != 0 ? cosine : sine;
    value = (which & 2) != 0 ? -value : value;
    const f64x zero = is_sine ? (quarter == 0 ? __builtin_elementwise_copysign(splat<f64x>(0), turns) : splat<f64x>(0)) : splat<f64x>(0);
    value = value == 0 ? zero : value;
    return convert<f32x>(rest == rest ? value : splat<f64x>(NAN));
}

f64x rcp_wide(const f64x & a) { return 1.0 / a; }
f64x rsq_wide(const f64x & a) { return 1.0 / __builtin_elementwise_sqrt(a); }
f64x sqrt_wide(const f64x & a) { return __builtin_elementwise_sqrt(a); }

// ---- Division steps, from which the compiler builds divisions.

struct scales {
    int by;        // power of two by which operands are scaled
    int far;       // exponents that differ by this much may overflow
    int tiny;      // numerators with this biased exponent or less are scaled up
    int inverse;   // denominators with this biased exponent or more have a subnormal inverse
    int quotient;  // exponents that differ by this much in the other direction give a subnormal quotient
    int underflow; // and by this much, underflow
};
template <class V> constexpr scales scales_of() {
    return std::is_same_v<V, f32x> ? scales{64, 96, 23, 253, -126, -150} : scales{128, 768, 53, 2045, -1022, -1075};
}

template <class V> V power_of_two(int power) {
    if constexpr (std::is_same_v<V, f32x>) {
        return splat<V>(std::ldexp(1.0f, power));
    } else {
        return splat<V>(std::ldexp(1.0, power));
    }
}

// The guide's text is wrong in five places. This implementation follows the hardware-verified programs of issue 14, and
// gives correct IEEE divisions with the compiler's expansion (tests/property): if no case applies, the result is the
// source; subnormal inverses and quotients are recognised by exponents; if both apply, the denominator is scaled down;
// VCC is set by the same cases if an operand is 0, whose result is NaN.
template <class V, class K> void div_scale(const instruction * i, wave & w) {
    constexpr scales s = scales_of<V>();
    using B = bits_of<V>;
    const V value = K::template read<0>(i, w), denominator = K::template read<1>(i, w);
    const V numerator = K::template read<2>(i, w);
    const auto exponent_n = biased_exponent(numerator), exponent_d = biased_exponent(denominator);
    const auto apart = exponent_n - exponent_d;
    const auto has_case = (apart >= s.far) | (apart <= s.quotient) | (exponent_d == 0) | (exponent_d >= s.inverse) |
                          (exponent_n <= s.tiny);
    if ((lane_bits(has_case) & w.exec()) == 0) [[likely]] {
        write_scalar(w, i->to[1], 0);
        K::write(i, w, value);
        PATCHKIT_NEXT(i, w);
    }
    const auto is_denominator = as<typename B::bits>(value) == as<typename B::bits>(denominator);
    const auto is_numerator = as<typename B::bits>(value) == as<typename B::bits>(numerator);
    const V up = value * power_of_two<V>(s.by), down = value * power_of_two<V>(-s.by);
    auto left = apart == apart; // lanes for which no case applied yet
    const auto take = [&](auto condition) {
        const auto taken = left & condition;
        left = left & ~condition;
        return taken;
    };
    const auto is_far = take(apart >= s.far);
    const auto is_subnormal_d = take(is_subnormal(denominator));
    const auto has_tiny_inverse = exponent_d >= s.inverse, has_tiny_quotient = apart <= s.quotient;
    const auto is_tiny_both = take(has_tiny_inverse & has_tiny_quotient);
    const auto is_tiny_inverse = take(has_tiny_inverse);
    const auto is_tiny_quotient = take(has_tiny_quotient);
    const auto is_tiny_numerator = take(exponent_n <= s.tiny);
    V result = value;
    result = ((is_far & is_denominator) | is_subnormal_d | (is_tiny_quotient & is_numerator) | is_tiny_numerator)
                 ? up
                 : result;
    result = ((is_tiny_both & is_denominator) | is_tiny_inverse) ? down : result;
    result = ((numerator == 0) | (denominator == 0)) ? splat<V>(NAN) : result;
    write_scalar(w, i->to[1], lane_bits(is_far | is_tiny_both | is_tiny_quotient) & w.exec());
    K::write(i, w, result);
    PATCHKIT_NEXT(i, w);
}

// (a * b + c) * 2^power, rounded once: computed in a type that holds the sum with additional bits.
f32 scaled_sum(f32 a, f32 b, f32 c, int power) {
    const f64 product = f64(a) * b, sum = product + c, other = sum - product;
    const f64 lost = (product - (sum - other)) + (c - other);
    u64 bits = as<u64>(sum);
    if (lost != 0 && std::isfinite(sum) && (bits & 1) == 0) { // round to odd, to preserve what is lost
        bits = std::signbit(lost) == std::signbit(sum) ? bits + 1 : bits - 1;
    }
    return f32(std::ldexp(as<f64>(bits), power));
}

#if __LDBL_MANT_DIG__ == 113
using f128 = long double;
#else
using f128 = __float128;
#endif

f64 scaled_sum(f64 a, f64 b, f64 c, int power) {
    const f128 product = f128(a) * f128(b), sum = product + f128(c), other = sum - product; // the product is exact
    const f128 lost = (product - (sum - other)) + (f128(c) - other);
    auto bits = as<unsigned __int128>(sum);
    if (lost != 0 && std::isfinite(f64(sum)) && (bits & 1) == 0) {
        bits = (lost < 0) == (sum < 0) ? bits + 1 : bits - 1;
    }
    return f64(as<f128>(bits) * f128(std::ldexp(1.0, power)));
}

template <class V> auto is_normal(const V & a) {
    const auto exponent = biased_exponent(a);
    return (exponent != 0) & (exponent <= 2 * bits_of<V>::bias);
}

template <class V> V div_fmas(const V & a, const V & b, const V & c, u32 scaled_back) {
    constexpr int by = scales_of<V>().by;
    V result = fma_of(a, b, c);
    if (scaled_back == 0) [[likely]] {
        return result;
    }
    const auto exponent = biased_exponent(c);
    // Scaling by a power of two is exact while both are normal numbers; otherwise scaled_sum rounds once. NaN are
    // common here, from divisions by zero.
    const V moved = result * (exponent > bits_of<V>::bias ? power_of_two<V>(by) : power_of_two<V>(-by));
    const auto is_exact = (is_normal(result) & is_normal(moved)) | (result != result);
    const auto is_scaled = convert<std::remove_cvref_t<decltype(is_exact)>>(lane_mask(scaled_back)) != 0;
    const u32 rest = scaled_back & ~lane_bits(is_exact);
    result = (is_scaled & is_exact) ? moved : result;
    for (u32 left = rest; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        result[lane] = scaled_sum(a[lane], b[lane], c[lane], exponent[lane] > bits_of<V>::bias ? by : -by);
    }
    return result;
}

template <class V> V div_fixup(const V & quotient, const V & denominator, const V & numerator) {
    using bits = typename bits_of<V>::bits;
    constexpr int width = sizeof(V) / lanes * 8;
    const bits sign = (as<bits>(denominator) ^ as<bits>(numerator)) & (splat<bits>(1) << (width - 1));
    const auto with_sign = [&](const V & value) { return as<V>((as<bits>(magnitude(value))) | sign); };
    const V infinity = splat<V>(INFINITY), d = magnitude(denominator), n = magnitude(numerator);
    // A NaN from the previous steps means overflow.
    V result = with_sign(quotient != quotient ? infinity : quotient);
    result = biased_exponent(numerator) - biased_exponent(denominator) < scales_of<V>().underflow
                 ? with_sign(splat<V>(0))
                 : result;
    result = ((d == infinity) | (n == 0)) ? with_sign(splat<V>(0)) : result;
    result = ((d == 0) | (n == infinity)) ? with_sign(infinity) : result;
    result = ((d == 0) & (n == 0)) | ((d == infinity) & (n == infinity)) ? -splat<V>(NAN) : result;
    result = denominator != denominator ? quieted(denominator) : result;
    return numerator != numerator ? quieted(numerator) : result;
}

// ---- Mixed precision: op_sel_hi says per source whether it is f16, op_sel which half.

template <int n> f32x mixed(const instruction * i, const wave & w) {
    u32x bits = read_bits(i, w, i->from[n]);
    if ((i->modifiers & (modifier::op_sel_hi_0 << n)) != 0) {
        const bool is_high = (i->modifiers & (modifier::op_sel_0 << n)) != 0;
        bits = as<u32x>(widened(convert<u16x>(is_high ? bits >> 16 : bits)));
    } else if ((i->modifiers & modifier::flush_f32) != 0) {
        bits = flushed(bits);
    }
    return as<f32x>(with_sign_modifiers(bits, i->modifiers, n, splat<u32x>(0x80000000)));
}

enum class half_of : u8 { none, low, high };

template <half_of part> void fma_mix(const instruction * i, wave & w) {
    f32x result = fma_of(mixed<0>(i, w), mixed<1>(i, w), mixed<2>(i, w));
    if constexpr (part == half_of::none) {
        F32::write(i, w, result);
    } else {
        if ((i->modifiers & modifier::clamp) != 0) {
            result = with_output_modifiers(result, modifier::clamp);
        }
        const operand to{i->to[0].code | (part == half_of::high ? operand::high : 0)};
        write_bits_16(w, to, narrowed(result));
    }
    PATCHKIT_NEXT(i, w);
}

// One scalar, by the transcendental unit (RDNA4). f16 results have zeros in the upper half.
template <auto f, bool is_half> void run_of_wave(const instruction * i, wave & w) {
    f32x value;
    if constexpr (is_half) {
        value = f(F16::read<0>(i, w));
    } else {
        value = f(F32::read<0>(i, w));
    }
    if ((i->modifiers & modifier::output) != 0) {
        value = with_output_modifiers(value, i->modifiers & ~modifier::flush_f32);
    }
    write_scalar(w, i->to[0], is_half ? convert<u32x>(narrowed(value))[0] : as<u32x>(value)[0]);
    PATCHKIT_NEXT(i, w);
}
template <auto f, bool is_half = false> definition of_wave(std::string_view name) {
    return {name, run_of_wave<f, is_half>, {format::scalar}, {is_half ? format::f16 : format::f32}, trait::has_tolerance};
}

f32x legacy_mullit(const f32x & a, const f32x & b, const f32x & c) {
    const f32x largest = splat<f32x>(3.402823466e38f);
    const i32x is_bad = (b == -largest) | (b == -splat<f32x>(INFINITY)) | (b != b) | (c <= 0.0f) | (c != c);
    return is_bad ? -largest : a * b;
}

// 2/pi: the first 1201 bits after the point, in 64-bit words, most significant first (computed with 1400 bits of pi by
// Machin's formula; tests/unit/emulator recomputes it).
constexpr u64 two_over_pi[] = {
#include "two_over_pi.inc"
};

// The 53 bits of 2/pi after the first `shift` bits.
u64 bits_of_two_over_pi(int shift) {
    constexpr int words = int(std::size(two_over_pi));
    constexpr u64 of_last = ~u64(0) << (words * 64 - 1201); // there are 1201 bits
    const auto word = [](int n) { return n + 1 < words ? two_over_pi[n] : n + 1 == words ? two_over_pi[n] & of_last : 0; };
    const int at = shift / 64, further = shift % 64;
    const u64 next = further == 0 ? 0 : word(at + 1) >> (64 - further);
    return (word(at) << further | next) >> 11;
}

f64x trig_preop(const f64x & a, const u32x & segment) {
    f64x result;
    int before = -1;
    f64 of_before = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        const int exponent = int((as<u64>(a[lane] + 0.0) >> 52) & 0x7ff);
        const int shift = int(segment[lane] & 31) * 53 + std::max(exponent - 1077, 0);
        const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
        if (const int both = shift * 2 + (exponent >= 1968); both != before) { // usually the same for all lanes
            before = both;
            of_before = std::ldexp(double(bits_of_two_over_pi(shift)), scale);
        }
        result[lane] = of_before;
    }
    return result;
}

} // namespace

definitions float_instructions() {
    constexpr u32 tolerance = trait::has_tolerance;
    return {
        // f32
        op<[](f32x a, f32x b) { return a + b; }, F32, F32, F32>("v_add_f32"),
        op<[](f32x a, f32x b) { return a - b; }, F32, F32, F32>("v_sub_f32"),
        op<[](f32x a, f32x b) { return b - a; }, F32, F32, F32>("v_subrev_f32"),
        op<[](f32x a, f32x b) { return a * b; }, F32, F32, F32>("v_mul_f32"),
        op<zero_wins<f32x>, F32, F32, F32>("v_mul_dx9_zero_f32"),
        op<[](f32x a, f32x b, f32x c) { return fma_of(a, b, c); }, F32, F32, F32, F32>("v_fma_f32"),
        op<[](f32x a, f32x b, f32x c) { return fma_of(a, b, c); }, F32, F32, F32, F32>("v_fmac_f32",
                                                                                       trait::accumulates),
        op<[](f32x a, f32x b, f32x c) { return fma_of(a, b, c); }, F32, F32, F32, F32>("v_fmamk_f32"),
        op<[](f32x a, f32x b, f32x c) { return fma_of(a, b, c); }, F32, F32, F32, F32>("v_fmaak_f32"),
        op<dx9_fma, F32, F32, F32, F32>("v_fma_dx9_zero_f32"),
        op<dx9_fma, F32, F32, F32, F32>("v_fmac_dx9_zero_f32", trait::accumulates),
        op<cube_of<cube::face>, F32, F32, F32, F32>("v_cubeid_f32"),
        op<cube_of<cube::s>, F32, F32, F32, F32>("v_cubesc_f32"),
        op<cube_of<cube::t>, F32, F32, F32, F32>("v_cubetc_f32"),
        op<cube_of<cube::major>, F32, F32, F32, F32>("v_cubema_f32"),
        modal<maximum_of<f32x>, F32, F32, F32>("v_maximum_f32"),
        modal<minimum_of<f32x>, F32, F32, F32>("v_minimum_f32"),
        modal<maximum3_of<f32x>, F32, F32, F32, F32>("v_maximum3_f32"),
        modal<minimum3_of<f32x>, F32, F32, F32, F32>("v_minimum3_f32"),
        modal<maximumminimum_of<f32x>, F32, F32, F32, F32>("v_maximumminimum_f32"),
        modal<minimummaximum_of<f32x>, F32, F32, F32, F32>("v_minimummaximum_f32"),
        modal<maximum_of<f64x>, F64, F64, F64>("v_maximum_f64"),
        modal<minimum_of<f64x>, F64, F64, F64>("v_minimum_f64"),
        modal<half_maximum, H16, H16, H16>("v_maximum_f16"),
        modal<half_minimum, H16, H16, H16>("v_minimum_f16"),
        modal<half_maximum3, H16, H16, H16, H16>("v_maximum3_f16"),
        modal<half_minimum3, H16, H16, H16, H16>("v_minimum3_f16"),
        modal<half_maximumminimum, H16, H16, H16, H16>("v_maximumminimum_f16"),
        modal<half_minimummaximum, H16, H16, H16, H16>("v_minimummaximum_f16"),
        modal<min_of<f32x>, F32, F32, F32>("v_min_f32"),
        modal<max_of<f32x>, F32, F32, F32>("v_max_f32"),
        modal<min3_of<f32x>, F32, F32, F32, F32>("v_min3_f32"),
        modal<max3_of<f32x>, F32, F32, F32, F32>("v_max3_f32"),
        modal<med3_of<f32x>, F32, F32, F32, F32>("v_med3_f32"),
        modal<minmax_of<f32x>, F32, F32, F32, F32>("v_minmax_f32"),
        modal<maxmin_of<f32x>, F32, F32, F32, F32>("v_maxmin_f32"),
        op<floor_of<f32x>, F32, F32>("v_floor_f32"),
        op<ceil_of<f32x>, F32, F32>("v_ceil_f32"),
        op<trunc_of<f32x>, F32, F32>("v_trunc_f32"),
        op<rndne_of<f32x>, F32, F32>("v_rndne_f32"),
        op<[](f32x a) { return fract_of(a); }, F32, F32>("v_fract_f32"),
        op<[](f32x a, i32x b) { return scaled(a, b); }, F32, F32, I32>("v_ldexp_f32"),
        op<[](f32x a) { return frexp_mantissa(a); }, F32, F32>("v_frexp_mant_f32"),
        op<[](f32x a) { return frexp_exponent(a); }, I32, F32>("v_frexp_exp_i32_f32"),
        op<exp2_of, F32, F32>("v_exp_f32", tolerance),
        op<log2_of, F32, F32>("v_log_f32", tolerance),
        op<rcp_of, F32, F32>("v_rcp_f32", tolerance),
        op<rcp_of, F32, F32>("v_rcp_iflag_f32", tolerance),
        op<rsq_of, F32, F32>("v_rsq_f32", tolerance),
        op<sqrt_of, F32, F32>("v_sqrt_f32", tolerance),
        op<[](f32x a) { return without_subnormals(wave_of<true>(without_subnormals(a))); }, F32, F32>("v_sin_f32",
                                                                                                tolerance),
        op<[](f32x a) { return wave_of<false>(without_subnormals(a)); }, F32, F32>("v_cos_f32", tolerance),
        {"v_div_scale_f32", div_scale<f32x, F32>, {format::f32, format::lanes}, {format::f32, format::f32, format::f32},
         trait::is_step},
        op<div_fmas<f32x>, F32, F32, F32, F32, Lanes>("v_div_fmas_f32", trait::reads_vcc | trait::is_step),
        op<div_fixup<f32x>, F32, F32, F32, F32>("v_div_fixup_f32", trait::is_fixup),
        op<legacy_mullit, F32, F32, F32, F32>("v_mullit_f32"),
        // f64
        op<[](f64x a, f64x b) { return a + b; }, F64, F64, F64>("v_add_f64"),
        op<[](f64x a, f64x b) { return a * b; }, F64, F64, F64>("v_mul_f64"),
        op<[](f64x a, f64x b, f64x c) { return fma_of(a, b, c); }, F64, F64, F64, F64>("v_fma_f64"),
        modal<min_of<f64x>, F64, F64, F64>("v_min_f64"),
        modal<max_of<f64x>, F64, F64, F64>("v_max_f64"),
        op<floor_of<f64x>, F64, F64>("v_floor_f64"),
        op<ceil_of<f64x>, F64, F64>("v_ceil_f64"),
        op<trunc_of<f64x>, F64, F64>("v_trunc_f64"),
        op<rndne_of<f64x>, F64, F64>("v_rndne_f64"),
        op<[](f64x a) { return fract_of(a); }, F64, F64>("v_fract_f64"),
        op<[](f64x a, i32x b) { return scaled(a, b); }, F64, F64, I32>("v_ldexp_f64"),
        op<frexp_mantissa<f64x>, F64, F64>("v_frexp_mant_f64"),
        op<frexp_exponent<f64x>, I32, F64>("v_frexp_exp_i32_f64"),
        op<rcp_wide, F64, F64>("v_rcp_f64", tolerance),
        op<rsq_wide, F64, F64>("v_rsq_f64", tolerance),
        op<sqrt_wide, F64, F64>("v_sqrt_f64", tolerance),
        {"v_div_scale_f64", div_scale<f64x, F64>, {format::f64, format::lanes}, {format::f64, format::f64, format::f64},
         trait::is_step},
        op<div_fmas<f64x>, F64, F64, F64, F64, Lanes>("v_div_fmas_f64", trait::reads_vcc | trait::is_step),
        op<div_fixup<f64x>, F64, F64, F64, F64>("v_div_fixup_f64", trait::is_fixup),
        op<trig_preop, F64, F64, U32>("v_trig_preop_f64", trait::is_step),
        // f16
        op<[](f32x a, f32x b) { return a + b; }, F16, F16, F16>("v_add_f16"),
        op<[](f32x a, f32x b) { return a - b; }, F16, F16, F16>("v_sub_f16"),
        op<[](f32x a, f32x b) { return b - a; }, F16, F16, F16>("v_subrev_f16"),
        op<[](f32x a, f32x b) { return a * b; }, F16, F16, F16>("v_mul_f16"),
        op<fma_halves, H16, H16, H16, H16>("v_fma_f16"),
        op<fma_halves, H16, H16, H16, H16>("v_fmac_f16", trait::accumulates),
        op<fma_halves, H16, H16, H16, H16>("v_fmamk_f16"),
        op<fma_halves, H16, H16, H16, H16>("v_fmaak_f16"),
        modal<half_min, H16, H16, H16>("v_min_f16"),
        modal<half_max, H16, H16, H16>("v_max_f16"),
        modal<half_min3, H16, H16, H16, H16>("v_min3_f16"),
        modal<half_max3, H16, H16, H16, H16>("v_max3_f16"),
        modal<half_med3, H16, H16, H16, H16>("v_med3_f16"),
        modal<half_minmax, H16, H16, H16, H16>("v_minmax_f16"),
        modal<half_maxmin, H16, H16, H16, H16>("v_maxmin_f16"),
        op<floor_of<f32x>, F16, F16>("v_floor_f16"),
        op<ceil_of<f32x>, F16, F16>("v_ceil_f16"),
        op<trunc_of<f32x>, F16, F16>("v_trunc_f16"),
        op<rndne_of<f32x>, F16, F16>("v_rndne_f16"),
        op<fract_of_half, F16, F16>("v_fract_f16"),
        op<ldexp_half, F16, F16, I16>("v_ldexp_f16"),
        op<[](f32x a) { return frexp_mantissa(a); }, F16, F16>("v_frexp_mant_f16"),
        op<[](f32x a) { return convert<i16x>(frexp_exponent(a)); }, I16, F16>("v_frexp_exp_i16_f16"),
        of_wave<exp2_of>("v_s_exp_f32"),
        of_wave<log2_of>("v_s_log_f32"),
        of_wave<rcp_of>("v_s_rcp_f32"),
        of_wave<rsq_of>("v_s_rsq_f32"),
        of_wave<sqrt_of>("v_s_sqrt_f32"),
        of_wave<exp2_of, true>("v_s_exp_f16"),
        of_wave<log2_of, true>("v_s_log_f16"),
        of_wave<rcp_of_half, true>("v_s_rcp_f16"),
        of_wave<rsq_of_half, true>("v_s_rsq_f16"),
        of_wave<sqrt_of_half, true>("v_s_sqrt_f16"),
        op<exp2_of, F16, F16>("v_exp_f16", tolerance),
        op<log2_of, F16, F16>("v_log_f16", tolerance),
        op<rcp_of_half, F16, F16>("v_rcp_f16", tolerance),
        op<rsq_of_half, F16, F16>("v_rsq_f16", tolerance),
        op<sqrt_of_half, F16, F16>("v_sqrt_f16", tolerance),
        op<wave_of<true>, F16, F16>("v_sin_f16", tolerance),
        op<wave_of<false>, F16, F16>("v_cos_f16", tolerance),
        op<div_fixup<f32x>, F16, F16, F16, F16>("v_div_fixup_f16", trait::is_fixup),
        // f16 and f32
        {"v_fma_mix_f32", fma_mix<half_of::none>, {format::f32}, {format::whole, format::whole, format::whole},
         trait::mixes},
        {"v_fma_mixlo_f16", fma_mix<half_of::low>, {format::b32}, {format::whole, format::whole, format::whole},
         trait::mixes | trait::mixes_low},
        {"v_fma_mixhi_f16", fma_mix<half_of::high>, {format::b32}, {format::whole, format::whole, format::whole},
         trait::mixes | trait::mixes_high},
    };
}

} // namespace patchkit::gpu
