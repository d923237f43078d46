// The layout of a 16x16 matrix in the registers of one wave of 32 lanes, and the matrix instruction
// itself. Used by rocwmma.hpp only.
//
// An operand is A or B. Its *line* is a row of A or a column of B, and each lane belongs to one line. A
// lane has half of its line, eight elements along k; the lane 16 further has the other half.
// Only the first three functions define this layout. Compiled kernels that run on the emulated GPU
// prove it (docs/records/rocwmma-stand-in.md).
#pragma once

#include <hip/hip_runtime.h>
#include <stdint.h>

#if defined(__HIP_DEVICE_COMPILE__)
#if defined(__GFX11__)
#define ROCWMMA_STAND_IN_GFX11
#elif defined(__GFX12__) && !defined(__gfx1250__) && !defined(__gfx1251__)
#define ROCWMMA_STAND_IN_GFX12
#endif
#endif

// If defined, gfx11 lanes get exact copies of each other's halves of a line, as the ISA guide requires.
// That costs eight selects per operand. If not, both halves of the wave get the whole line, each in
// another order of k. rocWMMA does the same, so registers are counted with this form.
#if defined(ROCWMMA_STAND_IN_EXACT_COPIES)
#define ROCWMMA_STAND_IN_ORDERED true
#else
#define ROCWMMA_STAND_IN_ORDERED false
#endif

#define ROCWMMA_STAND_IN_FUNCTION static __device__ inline __attribute__((always_inline))

namespace rocwmma {
namespace stand_in {

constexpr int kept = 8; // elements of a fragment in one lane

typedef _Float16 halves8 __attribute__((ext_vector_type(8)));
typedef _Float16 halves16 __attribute__((ext_vector_type(16)));
typedef float floats8 __attribute__((ext_vector_type(8)));
typedef int ints4 __attribute__((ext_vector_type(4)));
typedef int ints8 __attribute__((ext_vector_type(8)));

ROCWMMA_STAND_IN_FUNCTION uint32_t lane() {
#if defined(__HIP_DEVICE_COMPILE__)
    return __builtin_amdgcn_workitem_id_x() % 32; // as in rocWMMA: rows of a block are whole waves
#else
    return 0;
#endif
}

// This lane's line of an operand, and its column of an accumulator.
ROCWMMA_STAND_IN_FUNCTION uint32_t line() {
    return lane() % 16;
}

// The k of element 0 of an operand; the other elements have the next ones.
ROCWMMA_STAND_IN_FUNCTION uint32_t first_k() {
    return lane() / 16 * kept;
}

// The row of element 0 of an accumulator; each next element is row_step further.
#if defined(ROCWMMA_STAND_IN_GFX12)
constexpr uint32_t row_step = 1;
ROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {
    return lane() / 16 * kept;
}
#else
constexpr uint32_t row_step = 2;
ROCWMMA_STAND_IN_FUNCTION uint32_t first_row() {
    return lane() / 16;
}
#endif

#if defined(ROCWMMA_STAND_IN_GFX12)

ROCWMMA_STAND_IN_FUNCTION floats8 multiply_add(halves8 a, halves8 b, floats8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}

ROCWMMA_STAND_IN_FUNCTION halves8 multiply_add(halves8 a, halves8 b, halves8 c) {
    return __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(a, b, c);
}

#elif defined(ROCWMMA_STAND_IN_GFX11)

// The whole line of an operand: this lane's half and that of the lane 16 away.
ROCWMMA_STAND_IN_FUNCTION halves16 whole_line(halves8 half_line) {
    constexpr int swap_16 = 0x401f; // swizzle, bit mode: and 0x1f, or 0, xor 0x10
    const ints4 own = __builtin_bit_cast(ints4, half_line);
    ints4 other;
    other[0] = __builtin_amdgcn_ds_swizzle(own[0], swap_16);
    other[1] = __builtin_amdgcn_ds_swizzle(own[1], swap_16);
    other[2] = __builtin_amdgcn_ds_swizzle(own[2], swap_16);
    other[3] = __builtin_amdgcn_ds_swizzle(own[3], swap_16);
    if (ROCWMMA_STAND_IN_ORDERED) {
        const bool upper = lane() >= 16;
        const ints4 low = upper ? other : own;
        const ints4 high = upper ? own : other;
        return __builtin_bit_cast(halves16, __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
    }
    return __builtin_bit_cast(halves16, __builtin_shufflevector(own, other, 0, 4, 1, 5, 2, 6, 3, 7));
}

ROCWMMA_STAND_IN_FUNCTION floats8 multiply_add(halves8 a, halves8 b, floats8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(whole_line(a), whole_line(b), c);
}

// Each element of a 16-bit accumulator is in the lower half of a register.
ROCWMMA_STAND_IN_FUNCTION halves8 multiply_add(halves8 a, halves8 b, halves8 c) {
    const halves16 lower =
        __builtin_shufflevector(c, c, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1);
    const halves16 sum =
        __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(whole_line(a), whole_line(b), lower, false);
    return __builtin_shufflevector(sum, sum, 0, 2, 4, 6, 8, 10, 12, 14);
}

#elif defined(__HIP_DEVICE_COMPILE__)

template <class Vector>
ROCWMMA_STAND_IN_FUNCTION Vector multiply_add(halves8, halves8, Vector) {
    static_assert(sizeof(Vector) == 0, "patchkit's stand-in for rocWMMA knows gfx11 and gfx12 only");
}

#else // the host pass: never run

template <class Vector>
ROCWMMA_STAND_IN_FUNCTION Vector multiply_add(halves8, halves8, Vector c) {
    return c;
}

#endif

} // namespace stand_in
} // namespace rocwmma
