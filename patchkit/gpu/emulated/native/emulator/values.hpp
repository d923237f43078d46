// Values of all 32 lanes of a wave as compiler vectors, which map to the SIMD registers of the CPU.
#pragma once

#include "vectors.hpp"

#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace patchkit::gpu {

constexpr int lanes = 32;

using u8   = uint8_t;
using u16  = uint16_t;
using i16  = int16_t;
using u32  = uint32_t;
using i32  = int32_t;
using u64  = uint64_t;
using i64  = int64_t;
using f32  = float;
using f64  = double;

using u8x = vector_of<u8, 32>;
using u16x = vector_of<u16, 32>;
using i16x = vector_of<i16, 32>;
using u32x = vector_of<u32, 32>;
using i32x = vector_of<i32, 32>;
using u64x = vector_of<u64, 32>;
using i64x = vector_of<i64, 32>;
using f32x = vector_of<f32, 32>;
using f64x = vector_of<f64, 32>;
using f16x = vector_of<_Float16, 32>;

// Both halves of a register, starting with the low half of lane 0.
using u16p = vector_of<u16, 64>;
using i16p = vector_of<i16, 64>;
using u32p = vector_of<u32, 64>;
using i32p = vector_of<i32, 64>;
using f32p = vector_of<f32, 64>;
using f16p = vector_of<_Float16, 64>;

template <class To, class From> inline To as(const From & from) { return __builtin_bit_cast(To, from); }
template <class To, class From> inline To convert(const From & from) { return __builtin_convertvector(from, To); }

constexpr u32x lane_numbers() {
    u32x numbers{};
    for (int lane = 0; lane < lanes; ++lane) {
        numbers[lane] = u32(lane);
    }
    return numbers;
}

// Conversion between vector comparisons and bit masks of lanes.
template <class Comparison> inline u32 lane_bits(const Comparison & compared) {
#ifdef __clang__
    return as<u32>(convert<vector_of<bool, lanes>>(compared));
#else
    u32 bits = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        bits |= u32(compared[lane] != 0) << lane;
    }
    return bits;
#endif
}
inline i32x lane_mask(u32 bits) {
#if defined(__AVX512F__) && defined(__clang__)
    return convert<i32x>(as<vector_of<bool, lanes>>(bits)) != 0; // a mask register
#else
    return ((splat<u32x>(bits) >> lane_numbers()) & 1) != 0;
#endif
}
inline i64x lane_mask_wide(u32 bits) { return convert<i64x>(lane_mask(bits)); }

// Whether a comparison is true for any lane.
inline bool any(const i32x & compared) { return lane_bits(compared) != 0; }
inline bool any(const i64x & compared) { return lane_bits(compared) != 0; }
inline bool any(const i32p & compared) { return any(first_half(compared)) || any(second_half(compared)); }

inline u64x joined(const u32x & low, const u32x & high) {
    return convert<u64x>(low) | (convert<u64x>(high) << 32);
}
inline u32x low_of(const u64x & value) { return convert<u32x>(value); }
inline u32x high_of(const u64x & value) { return convert<u32x>(value >> 32); }

// Lane n gets the value of lane from[n], modulo 32.
inline u32x picked(const u32x & values, const u32x & from) {
#ifdef __AVX512F__
    const auto * halves = reinterpret_cast<const __m512i *>(&values);
    const auto * places = reinterpret_cast<const __m512i *>(&from);
    alignas(128) __m512i found[2];
    for (int n = 0; n < 2; ++n) {
        found[n] = _mm512_permutex2var_epi32(halves[0], places[n], halves[1]); // uses 5 bits of each index
    }
    return *reinterpret_cast<const u32x *>(found);
#else
    alignas(128) u32 all[lanes], numbers[lanes], found[lanes];
    std::memcpy(all, &values, sizeof(all));
    std::memcpy(numbers, &from, sizeof(numbers));
    for (int lane = 0; lane < lanes; ++lane) {
        found[lane] = all[numbers[lane] & 31];
    }
    u32x result;
    std::memcpy(&result, found, sizeof(result));
    return result;
#endif
}

// Lane n gets start[at[n]].
inline u64x gathered(const u64 * start, const u64x & at) {
#ifdef __AVX512F__
    const auto * places = reinterpret_cast<const __m512i *>(&at);
    alignas(256) __m512i found[4];
    for (int n = 0; n < 4; ++n) {
        found[n] = _mm512_i64gather_epi64(places[n], start, 8);
    }
    return *reinterpret_cast<const u64x *>(found);
#else
    alignas(256) u64 numbers[lanes], found[lanes];
    std::memcpy(numbers, &at, sizeof(numbers));
    for (int lane = 0; lane < lanes; ++lane) {
        found[lane] = start[numbers[lane]];
    }
    u64x result;
    std::memcpy(&result, found, sizeof(result));
    return result;
#endif
}

// Conversion between f16 formats and f32, rounding to nearest even; NaN stays NaN.
inline f32x widened(const u16x & half) { return convert<f32x>(as<f16x>(half)); }
inline u16x narrowed(const f32x & value) { return as<u16x>(convert<f16x>(value)); }
inline f32p widened(const u16p & half) { return convert<f32p>(as<f16p>(half)); }
inline u16p narrowed(const f32p & value) { return as<u16p>(convert<f16p>(value)); }
inline f32x widened_bf16(const u16x & half) { return as<f32x>(convert<u32x>(half) << 16); }

// 8-bit floats (RDNA4): fp8 has 4 exponent bits and no infinity; bf8 has 5 and equals the upper byte of an f16.
inline f32x widened_fp8(const u32x & byte) {
    const u32x sign = (byte & 0x80) << 24, magnitude = byte & 0x7f;
    // Reinterpreted as f32 without sign; scaling by a power of two corrects the exponent, also of subnormals.
    const f32x value = as<f32x>(magnitude << 20) * 0x1p120f;
    return as<f32x>((magnitude == 0x7f ? splat<u32x>(0x7fc00000) : as<u32x>(value)) | sign);
}
inline f32x widened_bf8(const u32x & byte) { return widened(convert<u16x>((byte & 0xff) << 8)); }

// a * b + c in f16 with a single rounding. The product of two f16 is exact in f32, but the sum is not, and rounding it
// again would be wrong close to the midpoint of two f16: then the sum is rounded to odd first.
template <class F, class U, class I> inline F sum_to_be_narrowed(const F & product, const F & addend) {
    const F sum = product + addend;
    const U bits = as<U>(sum);
    // Midpoints have zeros below the bits that f16 keeps; subnormal f16 keep fewer bits.
    if (!any(I((bits & 0xfff) == 0))) {
        return sum;
    }
    const F other = sum - product; // TwoSum: the exact rounding error
    const F lost = (product - (sum - other)) + (addend - other);
    const U is_same_sign = (as<U>(lost) ^ bits) >> 31;
    const U towards_lost = is_same_sign == 0 ? bits + 1 : bits - 1; // differs in the last bit, which is 0 in bits
    const I is_inexact = (lost != 0) & ((bits & 0xfff) == 0) & ((bits & 0x7f800000) != 0x7f800000);
    return as<F>(is_inexact ? towards_lost : bits);
}
inline u16x fma_half(const f32x & a, const f32x & b, const f32x & c) {
    return narrowed(sum_to_be_narrowed<f32x, u32x, i32x>(a * b, c));
}
inline u16p fma_half(const f32p & a, const f32p & b, const f32p & c) {
    return narrowed(sum_to_be_narrowed<f32p, u32p, i32p>(a * b, c));
}

} // namespace patchkit::gpu
