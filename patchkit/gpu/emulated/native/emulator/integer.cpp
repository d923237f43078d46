// Vector instructions on integers and bits. Semantics: RDNA3 and RDNA3.5 ISA guides (AMD, 2023 and 2024), chapter 16.

#include "table.hpp"

namespace patchkit::gpu {

namespace {

u64x wide(const u32x & value) { return convert<u64x>(value); }
i64x wide(const i32x & value) { return convert<i64x>(value); }

template <class V> V smaller(const V & a, const V & b) { return a < b ? a : b; }
template <class V> V larger(const V & a, const V & b) { return a > b ? a : b; }
template <class V> V middle(const V & a, const V & b, const V & c) {
    return larger(smaller(a, b), smaller(larger(a, b), c));
}

u32x low_24(const u32x & value) { return value & 0xffffff; }
i32x signed_24(const i32x & value) { return (value << 8) >> 8; }

u32x bit_field(const u32x & value, const u32x & first, const u32x & width) {
    return (value >> (first & 31)) & ((splat<u32x>(1) << (width & 31)) - 1);
}

i32x signed_bit_field(const i32x & value, const u32x & first, const u32x & width) {
    // A field beyond the last bit is filled with the sign.
    const u32x bits = bit_field(as<u32x>(value >> as<i32x>(first & 31)), splat<u32x>(0), width);
    const u32x sign = (width & 31) == 0 ? splat<u32x>(0) : splat<u32x>(1) << ((width - 1) & 31);
    return as<i32x>((bits ^ sign) - sign);
}

u32x permuted_bytes(const u32x & a, const u32x & b, const u32x & selectors) {
    const u64x bytes = joined(b, a);
    u32x result{};
    for (int n = 0; n < 4; ++n) {
        const u32x which = (selectors >> (8 * n)) & 0xff;
        u32x byte = low_of(bytes >> (convert<u64x>(which & 7) * 8)) & 0xff;
        // 8 to 11: the sign of a 16-bit part; 12: zero; above: ones.
        const u32x sign = low_of(bytes >> (convert<u64x>(which & 3) * 16 + 15)) & 1;
        byte = which >= 8 ? (sign != 0 ? splat<u32x>(0xff) : splat<u32x>(0)) : byte;
        byte = which == 12 ? splat<u32x>(0) : byte;
        byte = which > 12 ? splat<u32x>(0xff) : byte;
        result |= byte << (8 * n);
    }
    return result;
}

u32x byte_difference(const u32x & a, const u32x & b, int n) {
    const u32x x = (a >> (8 * n)) & 0xff, y = (b >> (8 * n)) & 0xff;
    return x > y ? x - y : y - x;
}

u32x sum_of_differences(const u32x & a, const u32x & b, const u32x & c) {
    return c + byte_difference(a, b, 0) + byte_difference(a, b, 1) + byte_difference(a, b, 2) +
           byte_difference(a, b, 3);
}

u32x leading_zeros(const u32x & value) {
    u32x count;
    for (int lane = 0; lane < lanes; ++lane) {
        count[lane] = value[lane] == 0 ? ~0u : u32(std::countl_zero(value[lane]));
    }
    return count;
}

u32x trailing_zeros(const u32x & value) {
    u32x count;
    for (int lane = 0; lane < lanes; ++lane) {
        count[lane] = value[lane] == 0 ? ~0u : u32(std::countr_zero(value[lane]));
    }
    return count;
}

u32x leading_sign_bits(const u32x & value) {
    return leading_zeros(as<u32x>(as<i32x>(value) < 0 ? ~as<i32x>(value) : as<i32x>(value)));
}

u32x population(const u32x & value) { return __builtin_elementwise_popcount(value); }

// With clamp, sums and differences saturate.
bool saturates(const instruction * i) { return (i->modifiers & modifier::clamp) != 0; }

void add_u32(const instruction * i, wave & w) {
    const u32x a = U32::read<0>(i, w), b = U32::read<1>(i, w), sum = a + b;
    U32::write(i, w, saturates(i) && any(sum < a) ? (sum < a ? splat<u32x>(~0u) : sum) : sum);
    PATCHKIT_NEXT(i, w);
}

template <bool is_reversed> void sub_u32(const instruction * i, wave & w) {
    u32x a = U32::read<0>(i, w), b = U32::read<1>(i, w);
    if (is_reversed) {
        std::swap(a, b);
    }
    U32::write(i, w, saturates(i) ? (b > a ? splat<u32x>(0) : a - b) : a - b);
    PATCHKIT_NEXT(i, w);
}

template <bool is_sum> void add_i32(const instruction * i, wave & w) {
    const i64x a = wide(I32::read<0>(i, w)), b = wide(I32::read<1>(i, w));
    i64x exact = is_sum ? a + b : a - b;
    if (saturates(i)) {
        exact = middle<i64x>(exact, splat<i64x>(INT32_MIN), splat<i64x>(INT32_MAX));
    }
    I32::write(i, w, convert<i32x>(exact));
    PATCHKIT_NEXT(i, w);
}

template <bool is_sum> void add_u16(const instruction * i, wave & w) {
    const u16x a = U16::read<0>(i, w), b = U16::read<1>(i, w);
    u16x result = is_sum ? a + b : a - b;
    if (saturates(i)) {
        result = is_sum ? (result < a ? splat<u16x>(0xffff) : result) : (b > a ? splat<u16x>(0) : result);
    }
    U16::write(i, w, result);
    PATCHKIT_NEXT(i, w);
}

template <bool is_sum> void add_i16(const instruction * i, wave & w) {
    const i32x a = convert<i32x>(I16::read<0>(i, w)), b = convert<i32x>(I16::read<1>(i, w));
    i32x exact = is_sum ? a + b : a - b;
    if (saturates(i)) {
        exact = middle<i32x>(exact, splat<i32x>(INT16_MIN), splat<i32x>(INT16_MAX));
    }
    I16::write(i, w, convert<i16x>(exact));
    PATCHKIT_NEXT(i, w);
}

// Sums and differences with carry out, and optionally carry in.
enum class carry : u8 { sum, difference, reversed };

template <carry kind, bool takes_one> void with_carry(const instruction * i, wave & w) {
    u32x a = U32::read<0>(i, w), b = U32::read<1>(i, w);
    if (kind == carry::reversed) {
        std::swap(a, b);
    }
    const u32 carried = takes_one ? read_scalar(i, w, i->from[2]) : 0;
    const u32x one = (splat<u32x>(carried) >> lane_numbers()) & 1;
    u32x result = kind == carry::sum ? a + b : a - b;
    i32x is_carried = kind == carry::sum ? result < a : a < b;
    if (takes_one && kind == carry::sum) {
        result += one;
        is_carried |= result < one;
    } else if (takes_one) {
        is_carried |= result < one;
        result -= one;
    }
    const u32 out = lane_bits(is_carried) & w.exec();
    if (saturates(i)) {
        const i32x is_beyond = lane_mask(out);
        result = kind == carry::sum ? (is_beyond ? splat<u32x>(~0u) : result) : (is_beyond ? splat<u32x>(0) : result);
    }
    write_scalar(w, i->to[1], out);
    U32::write(i, w, result);
    PATCHKIT_NEXT(i, w);
}

template <carry kind, bool takes_one> definition carrying(std::string_view name) {
    definition made{name, with_carry<kind, takes_one>, {format::b32, format::lanes}, {format::b32, format::b32}};
    if (takes_one) {
        made.from.push_back(format::lanes);
    }
    return made;
}

void mad_u64_u32(const instruction * i, wave & w) {
    const u64x product = wide(U32::read<0>(i, w)) * wide(U32::read<1>(i, w));
    const u64x sum = product + U64::read<2>(i, w);
    write_scalar(w, i->to[1], lane_bits(sum < product) & w.exec());
    U64::write(i, w, sum);
    PATCHKIT_NEXT(i, w);
}

void mad_i64_i32(const instruction * i, wave & w) {
    const i64x product = wide(I32::read<0>(i, w)) * wide(I32::read<1>(i, w));
    const u64x addend = U64::read<2>(i, w), sum = as<u64x>(product) + addend;
    // The bit is bit 65 of the exact sum, its sign.
    const u64x overflow = (as<u64x>(product) ^ sum) & (addend ^ sum);
    write_scalar(w, i->to[1], lane_bits(as<i64x>(overflow ^ sum) < 0) & w.exec());
    U64::write(i, w, sum);
    PATCHKIT_NEXT(i, w);
}

// Products with an addend; with clamp they saturate in the result's type.
template <class V, class Wide> V mad(u32 modifiers, const Wide & a, const Wide & b, const Wide & c, i64 least, i64 most) {
    const Wide exact = a * b + c;
    return convert<V>((modifiers & modifier::clamp) != 0 ? middle<Wide>(exact, splat<Wide>(least), splat<Wide>(most)) : exact);
}
u32x mad_u24(u32 m, const u32x & a, const u32x & b, const u32x & c) {
    return mad<u32x, i64x>(m, convert<i64x>(low_24(a)), convert<i64x>(low_24(b)), convert<i64x>(c), 0, UINT32_MAX);
}
i32x mad_i24(u32 m, const i32x & a, const i32x & b, const i32x & c) {
    return mad<i32x, i64x>(m, wide(signed_24(a)), wide(signed_24(b)), wide(c), INT32_MIN, INT32_MAX);
}
u16x mad_u16(u32 m, const u16x & a, const u16x & b, const u16x & c) {
    return mad<u16x, i64x>(m, convert<i64x>(a), convert<i64x>(b), convert<i64x>(c), 0, UINT16_MAX);
}
i16x mad_i16(u32 m, const i16x & a, const i16x & b, const i16x & c) {
    return mad<i16x, i32x>(m, convert<i32x>(a), convert<i32x>(b), convert<i32x>(c), INT16_MIN, INT16_MAX);
}

u32x lookup_sad_hi(const u32x & a, const u32x & b, const u32x & c) {
    return (sum_of_differences(a, b, splat<u32x>(0)) << 16) + c;
}

// Zero bytes of the reference b are ignored.
u32x masked_sum_of_differences(const u32x & a, const u32x & b, const u32x & c) {
    u32x sum = c;
    for (int n = 0; n < 4; ++n) {
        sum += ((b >> (8 * n)) & 0xff) != 0 ? byte_difference(a, b, n) : splat<u32x>(0);
    }
    return sum;
}

u32x sum_of_differences_16(const u32x & a, const u32x & b, const u32x & c) {
    u32x sum = c;
    for (int n = 0; n < 2; ++n) {
        const u32x x = (a >> (16 * n)) & 0xffff, y = (b >> (16 * n)) & 0xffff;
        sum += x > y ? x - y : y - x;
    }
    return sum;
}

// Average of each byte, rounded up if the byte of c is odd.
u32x average_bytes(const u32x & a, const u32x & b, const u32x & c) {
    u32x result{};
    for (int n = 0; n < 4; ++n) {
        const u32x sum = ((a >> (8 * n)) & 0xff) + ((b >> (8 * n)) & 0xff) + ((c >> (8 * n)) & 1);
        result |= (sum >> 1) << (8 * n);
    }
    return result;
}

// Four sums of differences, for the four bytes of `a` at increasing offsets.
template <auto sum> void four_sums_16(const instruction * i, wave & w) {
    const u64x a = U64::read<0>(i, w), c = read_bits_64(i, w, i->from[2]);
    const u32x b = read_bits(i, w, i->from[1]);
    u64x result{};
    for (int n = 0; n < 4; ++n) {
        const u32x one = sum(low_of(a >> u64(8 * n)), b, low_of(c >> u64(16 * n)) & 0xffff);
        result |= convert<u64x>(one & 0xffff) << u64(16 * n);
    }
    U64::write(i, w, result);
    PATCHKIT_NEXT(i, w);
}

void four_sums_32(const instruction * i, wave & w) {
    const u64x a = U64::read<0>(i, w);
    const u32x b = read_bits(i, w, i->from[1]);
    u32x result[4];
    for (int n = 0; n < 4; ++n) {
        const u32x c = i->from[2].is(operand::vector) ? vector_at(w, i->from[2], n) : read_bits(i, w, i->from[2]);
        result[n] = masked_sum_of_differences(low_of(a >> u64(8 * n)), b, c);
    }
    for (int n = 0; n < 4; ++n) {
        write_bits(w, vector_at(w, i->to[0], n), result[n]);
    }
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions integer_instructions() {
    return {
        op<[](u32x a) { return a; }, U32, U32>("v_mov_b32", trait::moves_bits),
        op<[](u16x a) { return a; }, U16, H16>("v_mov_b16", trait::moves_bits),
        op<[](u32x a) { return ~a; }, U32, U32>("v_not_b32"),
        op<[](u16x a) { return u16x(~a); }, U16, U16>("v_not_b16"),
        op<[](u32x a) { return as<u32x>(__builtin_elementwise_bitreverse(a)); }, U32, U32>(
            "v_bfrev_b32", trait::moves_bits),
        op<leading_zeros, U32, U32>("v_clz_i32_u32"),
        op<trailing_zeros, U32, U32>("v_ctz_i32_b32"),
        op<leading_sign_bits, U32, U32>("v_cls_i32"),
        op<[](u32x a, u32x b) { return a & b; }, U32, U32, U32>("v_and_b32", trait::moves_bits),
        op<[](u32x a, u32x b) { return a | b; }, U32, U32, U32>("v_or_b32", trait::moves_bits),
        op<[](u32x a, u32x b) { return a ^ b; }, U32, U32, U32>("v_xor_b32"),
        op<[](u32x a, u32x b) { return ~(a ^ b); }, U32, U32, U32>("v_xnor_b32"),
        op<[](u16x a, u16x b) { return u16x(a & b); }, U16, U16, U16>("v_and_b16", trait::moves_bits),
        op<[](u16x a, u16x b) { return u16x(a | b); }, U16, U16, U16>("v_or_b16", trait::moves_bits),
        op<[](u16x a, u16x b) { return u16x(a ^ b); }, U16, U16, U16>("v_xor_b16"),
        op<[](u32x a, u32x b, u32x c) { return (a & b) | c; }, U32, U32, U32, U32>("v_and_or_b32", trait::moves_bits),
        op<[](u32x a, u32x b, u32x c) { return a | b | c; }, U32, U32, U32, U32>("v_or3_b32", trait::moves_bits),
        op<[](u32x a, u32x b, u32x c) { return a ^ b ^ c; }, U32, U32, U32, U32>("v_xor3_b32"),
        op<[](u32x a, u32x b, u32x c) { return (a ^ b) + c; }, U32, U32, U32, U32>("v_xad_u32"),
        op<[](u32x a, u32x b, u32x c) { return (a & b) | (~a & c); }, U32, U32, U32, U32>("v_bfi_b32", trait::moves_bits),
        op<bit_field, U32, U32, U32, U32>("v_bfe_u32", trait::moves_bits),
        op<signed_bit_field, I32, I32, U32, U32>("v_bfe_i32", trait::moves_bits),
        op<[](u32x a, u32x b) { return ((splat<u32x>(1) << (a & 31)) - 1) << (b & 31); }, U32, U32, U32>(
            "v_bfm_b32", trait::moves_bits),
        op<permuted_bytes, U32, U32, U32, U32>("v_perm_b32", trait::moves_bits),
        op<[](u32x a, u32x b, u16x c) { return low_of(joined(b, a) >> convert<u64x>(u16x(c & 31))); }, U32, U32, U32,
           U16>("v_alignbit_b32", trait::moves_bits),
        op<[](u32x a, u32x b, u16x c) { return low_of(joined(b, a) >> (convert<u64x>(u16x(c & 3)) * 8)); }, U32, U32,
           U32, U16>("v_alignbyte_b32", trait::moves_bits),
        op<[](u32x a, u32x b) { return b << (a & 31); }, U32, U32, U32>("v_lshlrev_b32", trait::moves_bits),
        op<[](u32x a, u32x b) { return (b >> (a & 31)); }, U32, U32, U32>("v_lshrrev_b32", trait::moves_bits),
        op<[](u32x a, i32x b) { return (b >> as<i32x>(a & 31)); }, I32, U32, I32>("v_ashrrev_i32"),
        op<[](u16x a, u16x b) { return u16x(b << (a & 15)); }, U16, U16, U16>("v_lshlrev_b16", trait::moves_bits),
        op<[](u16x a, u16x b) { return u16x(b >> (a & 15)); }, U16, U16, U16>("v_lshrrev_b16", trait::moves_bits),
        op<[](u16x a, i16x b) { return i16x(b >> as<i16x>(u16x(a & 15))); }, I16, U16, I16>("v_ashrrev_i16"),
        op<[](u32x a, u64x b) { return b << convert<u64x>(a & 63); }, U64, U32, U64>("v_lshlrev_b64", trait::moves_bits),
        op<[](u32x a, u64x b) { return (b >> convert<u64x>(a & 63)); }, U64, U32, U64>("v_lshrrev_b64", trait::moves_bits),
        op<[](u32x a, i64x b) { return (b >> convert<i64x>(a & 63)); }, I64, U32, I64>("v_ashrrev_i64"),
        op<[](u32x a, u32x b, u32x c) { return (a << (b & 31)) + c; }, U32, U32, U32, U32>(
            "v_lshl_add_u32", trait::moves_bits),
        op<[](u32x a, u32x b, u32x c) { return (a << (b & 31)) | c; }, U32, U32, U32, U32>(
            "v_lshl_or_b32", trait::moves_bits),
        op<[](u32x a, u32x b, u32x c) { return (a + b) << (c & 31); }, U32, U32, U32, U32>("v_add_lshl_u32"),
        op<[](u32x a, u32x b, u32x c) { return a + b + c; }, U32, U32, U32, U32>("v_add3_u32"),
        {"v_add_nc_u32", add_u32, {format::b32}, {format::b32, format::b32}},
        {"v_sub_nc_u32", sub_u32<false>, {format::b32}, {format::b32, format::b32}},
        {"v_subrev_nc_u32", sub_u32<true>, {format::b32}, {format::b32, format::b32}},
        {"v_add_nc_i32", add_i32<true>, {format::b32}, {format::b32, format::b32}},
        {"v_sub_nc_i32", add_i32<false>, {format::b32}, {format::b32, format::b32}},
        {"v_add_nc_u16", add_u16<true>, {format::b16}, {format::b16, format::b16}},
        {"v_sub_nc_u16", add_u16<false>, {format::b16}, {format::b16, format::b16}},
        {"v_add_nc_i16", add_i16<true>, {format::b16}, {format::b16, format::b16}},
        {"v_sub_nc_i16", add_i16<false>, {format::b16}, {format::b16, format::b16}},
        carrying<carry::sum, false>("v_add_co_u32"),
        carrying<carry::difference, false>("v_sub_co_u32"),
        carrying<carry::reversed, false>("v_subrev_co_u32"),
        carrying<carry::sum, true>("v_add_co_ci_u32"),
        carrying<carry::difference, true>("v_sub_co_ci_u32"),
        carrying<carry::reversed, true>("v_subrev_co_ci_u32"),
        op<[](u32x a, u32x b) { return a * b; }, U32, U32, U32>("v_mul_lo_u32"),
        op<[](u32x a, u32x b) { return high_of(wide(a) * wide(b)); }, U32, U32, U32>("v_mul_hi_u32"),
        op<[](i32x a, i32x b) { return high_of(as<u64x>(wide(a) * wide(b))); }, U32, I32, I32>("v_mul_hi_i32"),
        op<[](u16x a, u16x b) { return u16x(a * b); }, U16, U16, U16>("v_mul_lo_u16"),
        op<[](u32x a, u32x b) { return low_24(a) * low_24(b); }, U32, U32, U32>("v_mul_u32_u24"),
        op<[](u32x a, u32x b) { return high_of(wide(low_24(a)) * wide(low_24(b))); }, U32, U32, U32>(
            "v_mul_hi_u32_u24"),
        op<[](i32x a, i32x b) { return signed_24(a) * signed_24(b); }, I32, I32, I32>("v_mul_i32_i24"),
        op<[](i32x a, i32x b) { return high_of(as<u64x>(wide(signed_24(a)) * wide(signed_24(b)))); }, U32, I32, I32>(
            "v_mul_hi_i32_i24"),
        modal<mad_u24, U32, U32, U32, U32>("v_mad_u32_u24"),
        modal<mad_i24, I32, I32, I32, I32>("v_mad_i32_i24"),
        modal<mad_u16, U16, U16, U16, U16>("v_mad_u16"),
        modal<mad_i16, I16, I16, I16, I16>("v_mad_i16"),
        op<[](u16x a, u16x b, u32x c) { return convert<u32x>(a) * convert<u32x>(b) + c; }, U32, U16, U16, U32>(
            "v_mad_u32_u16"),
        op<[](i16x a, i16x b, i32x c) { return convert<i32x>(a) * convert<i32x>(b) + c; }, I32, I16, I16, I32>(
            "v_mad_i32_i16"),
        {"v_mad_u64_u32", mad_u64_u32, {format::b64, format::lanes}, {format::b32, format::b32, format::b64}},
        {"v_mad_i64_i32", mad_i64_i32, {format::b64, format::lanes}, {format::b32, format::b32, format::b64}},
        op<smaller<u32x>, U32, U32, U32>("v_min_u32"),
        op<larger<u32x>, U32, U32, U32>("v_max_u32"),
        op<smaller<i32x>, I32, I32, I32>("v_min_i32"),
        op<larger<i32x>, I32, I32, I32>("v_max_i32"),
        op<smaller<u16x>, U16, U16, U16>("v_min_u16"),
        op<larger<u16x>, U16, U16, U16>("v_max_u16"),
        op<smaller<i16x>, I16, I16, I16>("v_min_i16"),
        op<larger<i16x>, I16, I16, I16>("v_max_i16"),
        op<[](u32x a, u32x b, u32x c) { return smaller(smaller(a, b), c); }, U32, U32, U32, U32>("v_min3_u32"),
        op<[](u32x a, u32x b, u32x c) { return larger(larger(a, b), c); }, U32, U32, U32, U32>("v_max3_u32"),
        op<[](i32x a, i32x b, i32x c) { return smaller(smaller(a, b), c); }, I32, I32, I32, I32>("v_min3_i32"),
        op<[](i32x a, i32x b, i32x c) { return larger(larger(a, b), c); }, I32, I32, I32, I32>("v_max3_i32"),
        op<[](u16x a, u16x b, u16x c) { return smaller(smaller(a, b), c); }, U16, U16, U16, U16>("v_min3_u16"),
        op<[](u16x a, u16x b, u16x c) { return larger(larger(a, b), c); }, U16, U16, U16, U16>("v_max3_u16"),
        op<[](i16x a, i16x b, i16x c) { return smaller(smaller(a, b), c); }, I16, I16, I16, I16>("v_min3_i16"),
        op<[](i16x a, i16x b, i16x c) { return larger(larger(a, b), c); }, I16, I16, I16, I16>("v_max3_i16"),
        op<middle<u32x>, U32, U32, U32, U32>("v_med3_u32"),
        op<middle<i32x>, I32, I32, I32, I32>("v_med3_i32"),
        op<middle<u16x>, U16, U16, U16, U16>("v_med3_u16"),
        op<middle<i16x>, I16, I16, I16, I16>("v_med3_i16"),
        op<[](u32x a, u32x b, u32x c) { return smaller(larger(a, b), c); }, U32, U32, U32, U32>("v_maxmin_u32"),
        op<[](u32x a, u32x b, u32x c) { return larger(smaller(a, b), c); }, U32, U32, U32, U32>("v_minmax_u32"),
        op<[](i32x a, i32x b, i32x c) { return smaller(larger(a, b), c); }, I32, I32, I32, I32>("v_maxmin_i32"),
        op<[](i32x a, i32x b, i32x c) { return larger(smaller(a, b), c); }, I32, I32, I32, I32>("v_minmax_i32"),
        op<[](u32x a, u32x b) { return population(a) + b; }, U32, U32, U32>("v_bcnt_u32_b32"),
        op<sum_of_differences, U32, U32, U32, U32>("v_sad_u8"),
        op<lookup_sad_hi, U32, U32, U32, U32>("v_sad_hi_u8"),
        op<masked_sum_of_differences, U32, U32, U32, U32>("v_msad_u8"),
        op<sum_of_differences_16, U32, U32, U32, U32>("v_sad_u16"),
        op<average_bytes, U32, U32, U32, U32>("v_lerp_u8"),
        {"v_qsad_pk_u16_u8", four_sums_16<sum_of_differences>, {format::b64}, {format::b64, format::b32, format::b64}},
        {"v_mqsad_pk_u16_u8", four_sums_16<masked_sum_of_differences>, {format::b64},
         {format::b64, format::b32, format::b64}},
        {"v_mqsad_u32_u8", four_sums_32, {format::whole}, {format::b64, format::b32, format::whole}},
        op<[](u32x a, u32x b, u32x c) { return c + (a > b ? a - b : b - a); }, U32, U32, U32, U32>("v_sad_u32"),
        op<[](u32x a, u32x b, u32 which) { return lane_mask(which) ? b : a; }, U32, U32, U32, Lanes>(
            "v_cndmask_b32", trait::moves_bits),
        op<[](u16x a, u16x b, u32 which) { return convert<i16x>(lane_mask(which)) ? b : a; }, U16, H16, H16, Lanes>(
            "v_cndmask_b16", trait::moves_bits),
        op<[](u16x low, u16x high) { return convert<u32x>(low) | (convert<u32x>(high) << 16); }, U32, H16, H16>(
            "v_pack_b32_f16", trait::moves_bits),
    };
}

} // namespace patchkit::gpu
