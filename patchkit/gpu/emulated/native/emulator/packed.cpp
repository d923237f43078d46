// Packed 16-bit instructions and dot products. Semantics: RDNA3 and RDNA3.5 ISA guides, chapter 16.

#include "table.hpp"

#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace patchkit::gpu {

namespace {

u16p fma_pairs(const f32p & a, const f32p & b, const f32p & c) { return fma_half(a, b, c); }

template <class V> V pair_min(const V & a, const V & b) { return a < b ? a : b; }
template <class V> V pair_max(const V & a, const V & b) { return a > b ? a : b; }

u16p min_halves(u32 modifiers, const u16p & a, const u16p & b) { return half_of_two<true>(modifiers, a, b); }
u16p max_halves(u32 modifiers, const u16p & a, const u16p & b) { return half_of_two<false>(modifiers, a, b); }

// Minimum and maximum of IEEE 754-2019 (RDNA4): NaN if either operand is NaN.
template <bool is_min> u16p ieee_halves(u32 modifiers, const u16p & a, const u16p & b) {
    const auto is_nan = [](const u16p & bits) { return (bits & 0x7fff) > 0x7c00; };
    const u16p number = half_of_two<is_min>(modifiers & ~modifier::ieee, a, b);
    return is_nan(a) ? a | 0x200 : is_nan(b) ? b | 0x200 : number;
}

template <bool is_sum> u16p add_unsigned(u32 modifiers, const u16p & a, const u16p & b) {
    const u16p result = is_sum ? a + b : a - b;
    if ((modifiers & modifier::clamp) == 0) {
        return result;
    }
    return is_sum ? (result < a ? splat<u16p>(0xffff) : result) : (b > a ? splat<u16p>(0) : result);
}

template <bool is_sum> i16p add_signed(u32 modifiers, const i16p & a, const i16p & b) {
    if ((modifiers & modifier::clamp) == 0) {
        return is_sum ? a + b : a - b;
    }
    const i32p exact = is_sum ? convert<i32p>(a) + convert<i32p>(b) : convert<i32p>(a) - convert<i32p>(b);
    const i32p most = exact > 32767 ? splat<i32p>(32767) : exact;
    return convert<i16p>(most < -32768 ? splat<i32p>(-32768) : most);
}

u16p mad_unsigned(u32 modifiers, const u16p & a, const u16p & b, const u16p & c) {
    if ((modifiers & modifier::clamp) == 0) {
        return a * b + c;
    }
    const u32p exact = convert<u32p>(a) * convert<u32p>(b) + convert<u32p>(c);
    return convert<u16p>(exact > 0xffff ? splat<u32p>(0xffff) : exact);
}

i16p mad_signed(u32 modifiers, const i16p & a, const i16p & b, const i16p & c) {
    if ((modifiers & modifier::clamp) == 0) {
        return a * b + c;
    }
    const i32p exact = convert<i32p>(a) * convert<i32p>(b) + convert<i32p>(c);
    const i32p most = exact > 32767 ? splat<i32p>(32767) : exact;
    return convert<i16p>(most < -32768 ? splat<i32p>(-32768) : most);
}

// ---- Dot products. Products of f16 are exact in f32; the rounding order of the hardware's sums is not published.

f32x low_half(const u32x & pair) { return widened(convert<u16x>(pair)); }
f32x high_half(const u32x & pair) { return widened(convert<u16x>(pair >> 16)); }
f32x low_bf16(const u32x & pair) { return as<f32x>(pair << 16); }
f32x high_bf16(const u32x & pair) { return as<f32x>(pair & 0xffff0000); }

template <bool is_bf16> f32x dot2(const u32x & a, const u32x & b, const f32x & c) {
    if constexpr (is_bf16) {
        const f32x first = __builtin_elementwise_fma(low_bf16(a), low_bf16(b), c);
        return __builtin_elementwise_fma(high_bf16(a), high_bf16(b), first);
    } else { // products are exact, so all halves are widened in place
        const f32p products = widened(as<u16p>(a)) * widened(as<u16p>(b));
        return (c + even_elements(products)) + odd_elements(products);
    }
}

template <bool is_bf16> void dot2_f32(const instruction * i, wave & w) {
    F32::write(i, w, dot2<is_bf16>(packed<0>(i, w), packed<1>(i, w), F32::read<2>(i, w)));
    PATCHKIT_NEXT(i, w);
}

void dot2_f16(const instruction * i, wave & w) {
    // Its sources are whole registers, its addend and result f16; each step is rounded to f16.
    const u32x a = with_sign_modifiers(read_bits(i, w, i->from[0]), i->modifiers, 0, splat<u32x>(0x80008000));
    const u32x b = with_sign_modifiers(read_bits(i, w, i->from[1]), i->modifiers, 1, splat<u32x>(0x80008000));
    const u16x first = fma_half(low_half(a), low_half(b), F16::read<2>(i, w));
    H16::write(i, w, fma_half(high_half(a), high_half(b), widened(first)));
    PATCHKIT_NEXT(i, w);
}

u16x narrowed_bf16(const f32x & value) {
    const u32x bits = as<u32x>(value);
    const u32x rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return convert<u16x>((value != value ? bits | 0x400000 : rounded) >> 16);
}

void dot2_bf16(const instruction * i, wave & w) {
    const u32x a = with_sign_modifiers(read_bits(i, w, i->from[0]), i->modifiers, 0, splat<u32x>(0x80008000));
    const u32x b = with_sign_modifiers(read_bits(i, w, i->from[1]), i->modifiers, 1, splat<u32x>(0x80008000));
    const f32x c = widened_bf16(U16::read<2>(i, w));
    write_bits_16(w, i->to[0], narrowed_bf16(dot2<true>(a, b, c)));
    PATCHKIT_NEXT(i, w);
}

// `width` bits per part; in mixed forms neg_lo says whether a source is signed.
template <int width> i32x part_of(const u32x & value, int n, bool is_signed) {
    const u32x at_top = value << (32 - width * (n + 1));
    return is_signed ? as<i32x>(at_top) >> (32 - width) : as<i32x>(at_top >> (32 - width));
}

// Per register, the sum of the products of its halves.
i32x paired_products(const i16p & a, const i16p & b) {
    i32x result;
#if defined(__AVX512BW__)
    const auto *from = reinterpret_cast<const __m512i *>(&a), *by = reinterpret_cast<const __m512i *>(&b);
    for (int n = 0; n < 2; ++n) {
        reinterpret_cast<__m512i *>(&result)[n] = _mm512_madd_epi16(from[n], by[n]);
    }
#elif defined(__AVX2__)
    const auto *from = reinterpret_cast<const __m256i *>(&a), *by = reinterpret_cast<const __m256i *>(&b);
    for (int n = 0; n < 4; ++n) {
        reinterpret_cast<__m256i *>(&result)[n] = _mm256_madd_epi16(from[n], by[n]);
    }
#else
    const i32x wide_a = as<i32x>(a), wide_b = as<i32x>(b);
    result = ((wide_a << 16) >> 16) * ((wide_b << 16) >> 16) + (wide_a >> 16) * (wide_b >> 16);
#endif
    return result;
}

// The even or the odd bytes.
i16p bytes_of(const u32x & value, bool is_odd, bool is_signed) {
    const u16p at_top = is_odd ? as<u16p>(value) : as<u16p>(value) << 8;
    return is_signed ? as<i16p>(at_top) >> 8 : as<i16p>(at_top >> 8);
}

template <int width, bool is_unsigned> void dot_integers(const instruction * i, wave & w) {
    const u32x a = read_bits(i, w, i->from[0]), b = read_bits(i, w, i->from[1]);
    const bool a_signed = !is_unsigned && (i->modifiers & modifier::neg_0) != 0;
    const bool b_signed = !is_unsigned && (i->modifiers & (modifier::neg_0 << 1)) != 0;
    i32x sum{};
    if constexpr (width == 8) {
        sum = paired_products(bytes_of(a, false, a_signed), bytes_of(b, false, b_signed)) +
              paired_products(bytes_of(a, true, a_signed), bytes_of(b, true, b_signed));
    } else {
        for (int n = 0; n < 32 / width; ++n) {
            sum += part_of<width>(a, n, a_signed) * part_of<width>(b, n, b_signed);
        }
    }
    const u32x c = read_bits(i, w, i->from[2]);
    u32x result = as<u32x>(sum) + c;
    if ((i->modifiers & modifier::clamp) != 0) {
        if (is_unsigned) {
            result = result < c ? splat<u32x>(~0u) : result;
        } else {
            const i64x exact = convert<i64x>(sum) + convert<i64x>(as<i32x>(c));
            const i64x most = exact > INT32_MAX ? splat<i64x>(INT32_MAX) : exact;
            result = convert<u32x>(most < INT32_MIN ? splat<i64x>(INT32_MIN) : most);
        }
    }
    U32::write(i, w, result);
    PATCHKIT_NEXT(i, w);
}

// Sums of four byte products; the hardware's order of additions is not published.
template <auto widen_a, auto widen_b> void dot4_floats(const instruction * i, wave & w) {
    const u32x a = read_bits(i, w, i->from[0]), b = read_bits(i, w, i->from[1]);
    f32x sum = F32::read<2>(i, w);
    for (int n = 0; n < 4; ++n) {
        sum = __builtin_elementwise_fma(widen_a((a >> (8 * n)) & 0xff), widen_b((b >> (8 * n)) & 0xff), sum);
    }
    F32::write(i, w, sum);
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions packed_instructions() {
    const std::vector<format> dot{format::whole, format::whole, format::b32};
    const std::vector<format> dot_halves{format::half_pairs, format::half_pairs, format::f32};
    const std::vector<format> dot_bf16{format::bf16_pairs, format::bf16_pairs, format::f32};
    constexpr u32 tolerance = trait::has_tolerance;
    return {
        op<[](f32p a, f32p b) { return a + b; }, PairsF16, PairsF16, PairsF16>("v_pk_add_f16"),
        op<[](f32p a, f32p b) { return a * b; }, PairsF16, PairsF16, PairsF16>("v_pk_mul_f16"),
        op<fma_pairs, PairsH16, PairsF16, PairsF16, PairsF16>("v_pk_fma_f16"),
        op<fma_pairs, PairsH16, PairsF16, PairsF16, PairsF16>("v_pk_fmac_f16", trait::accumulates),
        modal<min_halves, PairsH16, PairsH16, PairsH16>("v_pk_min_f16"),
        modal<max_halves, PairsH16, PairsH16, PairsH16>("v_pk_max_f16"),
        modal<ieee_halves<true>, PairsH16, PairsH16, PairsH16>("v_pk_minimum_f16"),
        modal<ieee_halves<false>, PairsH16, PairsH16, PairsH16>("v_pk_maximum_f16"),
        modal<add_unsigned<true>, PairsU16, PairsU16, PairsU16>("v_pk_add_u16"),
        modal<add_unsigned<false>, PairsU16, PairsU16, PairsU16>("v_pk_sub_u16"),
        modal<add_signed<true>, PairsI16, PairsI16, PairsI16>("v_pk_add_i16"),
        modal<add_signed<false>, PairsI16, PairsI16, PairsI16>("v_pk_sub_i16"),
        op<[](u16p a, u16p b) { return a * b; }, PairsU16, PairsU16, PairsU16>("v_pk_mul_lo_u16"),
        modal<mad_unsigned, PairsU16, PairsU16, PairsU16, PairsU16>("v_pk_mad_u16"),
        modal<mad_signed, PairsI16, PairsI16, PairsI16, PairsI16>("v_pk_mad_i16"),
        op<pair_min<u16p>, PairsU16, PairsU16, PairsU16>("v_pk_min_u16"),
        op<pair_max<u16p>, PairsU16, PairsU16, PairsU16>("v_pk_max_u16"),
        op<pair_min<i16p>, PairsI16, PairsI16, PairsI16>("v_pk_min_i16"),
        op<pair_max<i16p>, PairsI16, PairsI16, PairsI16>("v_pk_max_i16"),
        op<[](u16p a, u16p b) { return b << (a & 15); }, PairsU16, PairsU16, PairsU16>("v_pk_lshlrev_b16"),
        op<[](u16p a, u16p b) { return (b >> (a & 15)); }, PairsU16, PairsU16, PairsU16>("v_pk_lshrrev_b16"),
        op<[](u16p a, i16p b) { return (b >> as<i16p>(a & 15)); }, PairsI16, PairsU16, PairsI16>("v_pk_ashrrev_i16"),
        {"v_dot4_f32_fp8_fp8", dot4_floats<widened_fp8, widened_fp8>, {format::f32}, dot, tolerance},
        {"v_dot4_f32_fp8_bf8", dot4_floats<widened_fp8, widened_bf8>, {format::f32}, dot, tolerance},
        {"v_dot4_f32_bf8_fp8", dot4_floats<widened_bf8, widened_fp8>, {format::f32}, dot, tolerance},
        {"v_dot4_f32_bf8_bf8", dot4_floats<widened_bf8, widened_bf8>, {format::f32}, dot, tolerance},
        {"v_dot2_f32_f16", dot2_f32<false>, {format::f32}, dot_halves, tolerance},
        {"v_dot2acc_f32_f16", dot2_f32<false>, {format::f32}, dot_halves, tolerance | trait::accumulates},
        {"v_dot2_f32_bf16", dot2_f32<true>, {format::f32}, dot_bf16, tolerance},
        {"v_dot2acc_f32_bf16", dot2_f32<true>, {format::f32}, dot_bf16, tolerance | trait::accumulates},
        {"v_dot2_f16_f16", dot2_f16, {format::f16}, {format::whole_halves, format::whole_halves, format::f16}, tolerance},
        {"v_dot2_bf16_bf16", dot2_bf16, {format::bf16}, {format::whole, format::whole, format::bf16}, tolerance},
        {"v_dot4_i32_iu8", dot_integers<8, false>, {format::b32}, dot},
        {"v_dot4_u32_u8", dot_integers<8, true>, {format::b32}, dot},
        {"v_dot8_i32_iu4", dot_integers<4, false>, {format::b32}, dot},
        {"v_dot8_u32_u4", dot_integers<4, true>, {format::b32}, dot},
    };
}

} // namespace patchkit::gpu
