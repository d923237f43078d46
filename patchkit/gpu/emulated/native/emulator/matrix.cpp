// WMMA on wave32: D = A * B + C of 16 x 16 matrices. Layouts: RDNA3 ISA guide, 7.9, and RDNA4 ISA guide, 7.12.
//
// On RDNA3, lane n contains all of row n of A and column n of B, and lanes 16 to 31 repeat this. Register r of C and D
// contains rows 2r (lanes 0 to 15) and 2r + 1, one column per lane. On RDNA4, the halves of the wave contain the halves
// of k, and register r of C and D contains rows r and r + 8. The width of A's operand determines the layout. EXEC is
// ignored. The rounding within the hardware's sums is not published: here every step is one fused multiply-add in f32,
// in order of k.

#include "executor.hpp"
#include "table.hpp"

namespace patchkit::gpu {

namespace {

using f32h = vector_of<f32, 16>;
using i32h = vector_of<i32, 16>;
using u32h = vector_of<u32, 16>;
using u16h = vector_of<u16, 16>;
using f16h = vector_of<_Float16, 16>;

enum class element : u8 { f16, bf16, fp8, bf8, u8, u4 };

constexpr int bits_of(element e) {
    return e == element::u4 ? 4 : e == element::f16 || e == element::bf16 ? 16 : 8;
}

u32h half_of(const u32x & value, bool is_upper) {
    u32h part;
    std::memcpy(&part, reinterpret_cast<const char *>(&value) + (is_upper ? sizeof(part) : 0), sizeof(part));
    return part;
}

void put_half(u32x & value, bool is_upper, const u32h & part) {
    std::memcpy(reinterpret_cast<char *>(&value) + (is_upper ? sizeof(part) : 0), &part, sizeof(part));
}

// Whether this is RDNA3's layout, in which each half of the wave contains everything.
template <element e, int depth> bool is_replicated(const instruction * i) {
    return i->immediate * 32 == depth * bits_of(e);
}

// Element k of each row of A (source 0) or column of B (source 1), as bits.
template <element e, int depth> u32h elements(const instruction * i, wave & w, int source, int k) {
    constexpr int bits = bits_of(e);
    const bool whole = is_replicated<e, depth>(i);
    const int within = whole ? k : k % (depth / 2);
    const u32x & held = vector_at(w, i->from[source], within * bits / 32);
    const u32h part = half_of(held, !whole && k >= depth / 2);
    return (part >> (within * bits % 32)) & ((1u << bits) - 1);
}

// How the upper half of the wave repeats the lower one (both bits may be set): the same registers, or with each pair of
// registers exchanged, which is another order of k.
enum : u32 { as_it_is = 1, pairs_exchanged = 2 };

u32 repetition_of(const instruction * i, wave & w, int source) {
    u32 found = as_it_is | pairs_exchanged;
    for (int n = 0; n < i->immediate; ++n) {
        const auto * held = reinterpret_cast<const char *>(&vector_at(w, i->from[source], n));
        const auto * paired = reinterpret_cast<const char *>(&vector_at(w, i->from[source], n ^ 1));
        found &= std::memcmp(held, held + sizeof(u32h), sizeof(u32h)) == 0 ? found : ~u32(as_it_is);
        found &= std::memcmp(held, paired + sizeof(u32h), sizeof(u32h)) == 0 ? found : ~u32(pairs_exchanged);
    }
    return found;
}

// The guide requires equal copies. rocWMMA 1.6.0, which AMD tests on hardware, uses another order of k in each half,
// equal for A and B; the sum over k is then the same whichever copy the hardware uses. Any other difference has an
// unknown effect.
void check_replicas(const instruction * i, wave & w) {
    if ((repetition_of(i, w, 0) & repetition_of(i, w, 1)) == 0) {
        w.on->fault(i, w, "lanes 16 to 31 of A and B do not repeat lanes 0 to 15, as they must on RDNA3");
    }
}

template <element e> f32h as_floats(const u32h & bits, u32 sign) {
    const u32h flipped = bits ^ sign;
    if constexpr (e == element::bf16) {
        return __builtin_bit_cast(f32h, flipped << 16);
    } else if constexpr (e == element::bf8) { // bf8 is the upper byte of an f16
        return __builtin_convertvector(__builtin_bit_cast(f16h, __builtin_convertvector(bits << 8, u16h)), f32h);
    } else if constexpr (e == element::fp8) {
        const u32h magnitude = bits & 0x7f;
        const f32h value = __builtin_bit_cast(f32h, magnitude << 20) * 0x1p120f; // handles subnormals, too
        const u32h number = magnitude == 0x7f ? splat<u32h>(0x7fc00000) : __builtin_bit_cast(u32h, value);
        return __builtin_bit_cast(f32h, number | ((bits & 0x80) << 24));
    } else {
        return __builtin_convertvector(__builtin_bit_cast(f16h, __builtin_convertvector(flipped, u16h)), f32h);
    }
}

int register_of_row(int row, bool whole) { return whole ? row / 2 : row % 8; }
bool is_upper_row(int row, bool whole) { return whole ? row % 2 != 0 : row >= 8; }

template <element e, element of_b = e> void multiply_floats(const instruction * i, wave & w, f32h (&sum)[16]) {
    if (is_replicated<e, 16>(i)) {
        check_replicas(i, w);
    }
    f32 a[16][16];
    f32h b[16];
    for (int k = 0; k < 16; ++k) {
        // Packed: neg_lo applies to even elements, neg_hi to odd ones.
        const u32 negative = (k % 2 == 0 ? modifier::neg_0 : modifier::neg_hi_0);
        const f32h column = as_floats<e>(elements<e, 16>(i, w, 0, k), (i->modifiers & negative) != 0 ? 0x8000 : 0);
        std::memcpy(a[k], &column, sizeof(column));
        b[k] = as_floats<of_b>(elements<of_b, 16>(i, w, 1, k), (i->modifiers & (negative << 1)) != 0 ? 0x8000 : 0);
    }
    for (int k = 0; k < 16; ++k) {
        for (int row = 0; row < 16; ++row) {
            sum[row] = __builtin_elementwise_fma(splat<f32h>(a[k][row]), b[k], sum[row]);
        }
    }
}

// C: a constant is the same in all lanes; neg_lo negates, neg_hi takes the absolute value.
u32x addend(const instruction * i, wave & w, int n, u32 sign) {
    u32x bits = i->from[2].is(operand::vector) ? vector_at(w, i->from[2], n) : read_bits(i, w, i->from[2]);
    if ((i->modifiers & (modifier::neg_hi_0 << 2)) != 0) {
        bits &= ~splat<u32x>(sign);
    }
    if ((i->modifiers & (modifier::neg_0 << 2)) != 0) {
        bits ^= sign;
    }
    return bits;
}

template <element e, element of_b = e> void wmma_f32(const instruction * i, wave & w) {
    const bool whole = is_replicated<e, 16>(i);
    f32h sum[16];
    for (int row = 0; row < 16; ++row) {
        const u32x held = addend(i, w, register_of_row(row, whole), 0x80000000);
        sum[row] = __builtin_bit_cast(f32h, half_of(held, is_upper_row(row, whole)));
    }
    multiply_floats<e, of_b>(i, w, sum);
    for (int row = 0; row < 16; ++row) {
        u32x & to = vector_at(w, i->to[0], register_of_row(row, whole));
        put_half(to, is_upper_row(row, whole), __builtin_bit_cast(u32h, sum[row]));
    }
    PATCHKIT_NEXT(i, w);
}

template <element e> u32h to_bits(const f32h & value) {
    if constexpr (e == element::bf16) {
        const u32h bits = __builtin_bit_cast(u32h, value);
        const u32h rounded = bits + 0x7fff + ((bits >> 16) & 1);
        return (value != value ? bits | 0x400000 : rounded) >> 16;
    } else {
        return __builtin_convertvector(__builtin_bit_cast(u16h, __builtin_convertvector(value, f16h)), u32h);
    }
}

// 16-bit results. RDNA3: one per register, in the half selected by op_sel; the other half is unchanged. RDNA4: rows 2r
// and 2r + 1 (plus 8 in the upper half) share register r.
template <element e> void wmma_16(const instruction * i, wave & w) {
    const bool whole = is_replicated<e, 16>(i);
    const bool high = (i->modifiers & (modifier::op_sel_0 << 2)) != 0;
    const auto place = [&](int row) { return whole ? row / 2 : row % 8 / 2; };
    const auto shift = [&](int row) { return whole ? (high ? 16 : 0) : row % 2 * 16; };
    f32h sum[16];
    for (int row = 0; row < 16; ++row) {
        const u32x held = addend(i, w, place(row), 0x80008000);
        sum[row] = as_floats<e>((half_of(held, is_upper_row(row, whole)) >> shift(row)) & 0xffff, 0);
    }
    multiply_floats<e>(i, w, sum);
    for (int row = 0; row < 16; ++row) {
        u32x & to = vector_at(w, i->to[0], place(row));
        const bool upper = is_upper_row(row, whole);
        const u32h kept = half_of(to, upper) & ~(0xffffu << shift(row));
        put_half(to, upper, kept | (to_bits<e>(sum[row]) << shift(row)));
    }
    PATCHKIT_NEXT(i, w);
}

template <element e> i32h as_integers(const u32h & bits, bool is_signed) {
    constexpr int unused = 32 - bits_of(e);
    const i32h value = __builtin_bit_cast(i32h, bits);
    return is_signed ? (value << unused) >> unused : value;
}

i32h saturated_sum(const i32h & a, const i32h & b) { return __builtin_elementwise_add_sat(a, b); }

template <element e, int depth> void wmma_i32(const instruction * i, wave & w) {
    const bool whole = is_replicated<e, depth>(i);
    if (whole) {
        check_replicas(i, w);
    }
    i32 a[depth][16];
    i32h b[depth];
    for (int k = 0; k < depth; ++k) {
        const i32h column = as_integers<e>(elements<e, depth>(i, w, 0, k), (i->modifiers & modifier::neg_0) != 0);
        std::memcpy(a[k], &column, sizeof(column));
        b[k] = as_integers<e>(elements<e, depth>(i, w, 1, k), (i->modifiers & (modifier::neg_0 << 1)) != 0);
    }
    i32h result[16];
    for (int row = 0; row < 16; ++row) {
        i32h products{};
        for (int k = 0; k < depth; ++k) {
            products += splat<i32h>(a[k][row]) * b[k];
        }
        const i32h c = __builtin_bit_cast(i32h, half_of(addend(i, w, register_of_row(row, whole), 0),
                                                        is_upper_row(row, whole)));
        result[row] = (i->modifiers & modifier::clamp) != 0
                          ? saturated_sum(products, c)
                          : __builtin_bit_cast(i32h, __builtin_bit_cast(u32h, products) + __builtin_bit_cast(u32h, c));
    }
    for (int row = 0; row < 16; ++row) {
        u32x & to = vector_at(w, i->to[0], register_of_row(row, whole));
        put_half(to, is_upper_row(row, whole), __builtin_bit_cast(u32h, result[row]));
    }
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions matrix_instructions() {
    const std::vector<format> sources{format::whole, format::whole, format::whole};
    const std::vector<format> to{format::whole};
    constexpr u32 matrix = trait::is_matrix | trait::crosses_lanes, tolerance = matrix | trait::has_tolerance;
    return {
        {"v_wmma_f32_16x16x16_f16", wmma_f32<element::f16>, to, sources, tolerance},
        {"v_wmma_f32_16x16x16_bf16", wmma_f32<element::bf16>, to, sources, tolerance},
        {"v_wmma_f32_16x16x16_fp8_fp8", wmma_f32<element::fp8>, to, sources, tolerance},
        {"v_wmma_f32_16x16x16_fp8_bf8", wmma_f32<element::fp8, element::bf8>, to, sources, tolerance},
        {"v_wmma_f32_16x16x16_bf8_fp8", wmma_f32<element::bf8, element::fp8>, to, sources, tolerance},
        {"v_wmma_f32_16x16x16_bf8_bf8", wmma_f32<element::bf8>, to, sources, tolerance},
        {"v_wmma_f16_16x16x16_f16", wmma_16<element::f16>, to, sources, tolerance},
        {"v_wmma_bf16_16x16x16_bf16", wmma_16<element::bf16>, to, sources, tolerance},
        {"v_wmma_i32_16x16x16_iu8", wmma_i32<element::u8, 16>, to, sources, matrix},
        {"v_wmma_i32_16x16x16_iu4", wmma_i32<element::u4, 16>, to, sources, matrix},
        {"v_wmma_i32_16x16x32_iu4", wmma_i32<element::u4, 32>, to, sources, matrix},
    };
}

} // namespace patchkit::gpu
