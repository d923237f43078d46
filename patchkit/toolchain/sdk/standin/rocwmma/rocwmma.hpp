// patchkit's stand-in for rocWMMA: the part of its interface that llama.cpp's attention kernel uses,
// implemented with the compiler's matrix builtins for gfx11 and gfx12, wave32. With it, the kernel can
// be compiled and its registers counted on a machine without rocWMMA.
// What it covers, and what was proven about it: docs/records/rocwmma-stand-in.md.
#pragma once

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <stdint.h>

#include "rocwmma-version.hpp"
#include "stand_in_wave.hpp"

namespace rocwmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t : uint32_t { mem_row_major, mem_col_major };

namespace stand_in {

template <class Element> struct registers; // how eight elements are stored in registers, and loaded from memory
template <> struct registers<__half> {
    typedef halves8 kept_type;
    typedef _Float16 stored __attribute__((may_alias));
};
template <> struct registers<float> {
    typedef floats8 kept_type;
    typedef float stored __attribute__((may_alias));
};

// Half a line that is contiguous in memory; the interface requires such lines to be aligned to 16 bytes.
typedef halves8 stored_halves8 __attribute__((may_alias, aligned(16)));

ROCWMMA_STAND_IN_FUNCTION halves8 load_along_line(const __half * matrix, uint32_t stride) {
    return *reinterpret_cast<const stored_halves8 *>(matrix + (line() * stride + first_k()));
}

ROCWMMA_STAND_IN_FUNCTION halves8 load_across_lines(const __half * matrix, uint32_t stride) {
    typedef registers<__half>::stored stored;
    const stored * element = reinterpret_cast<const stored *>(matrix) + (first_k() * stride + line());
    halves8 loaded;
#pragma unroll
    for (int i = 0; i < kept; ++i, element += stride) {
        loaded[i] = *element;
    }
    return loaded;
}

// Offset of element 0 of an accumulator in memory, and from each element to the next.
ROCWMMA_STAND_IN_FUNCTION uint32_t first_offset(uint32_t stride, layout_t layout) {
    return layout == mem_row_major ? first_row() * stride + line() : line() * stride + first_row();
}

ROCWMMA_STAND_IN_FUNCTION uint32_t offset_step(uint32_t stride, layout_t layout) {
    return layout == mem_row_major ? row_step * stride : row_step;
}

} // namespace stand_in

template <class Role, uint32_t M, uint32_t N, uint32_t K, class Element, class Layout = void> struct fragment {
    static_assert(sizeof(Element) == 0, "patchkit's stand-in for rocWMMA knows 16x16x16 with half operands "
                                        "and half or float accumulators only");
};

template <class Layout> struct fragment<matrix_a, 16, 16, 16, __half, Layout> {
    stand_in::halves8 x;
    static constexpr uint32_t num_elements = stand_in::kept;
};

template <class Layout> struct fragment<matrix_b, 16, 16, 16, __half, Layout> {
    stand_in::halves8 x;
    static constexpr uint32_t num_elements = stand_in::kept;
};

template <class Element> struct fragment<accumulator, 16, 16, 16, Element, void> {
    typename stand_in::registers<Element>::kept_type x;
    static constexpr uint32_t num_elements = stand_in::kept;
};

template <class Element>
ROCWMMA_STAND_IN_FUNCTION void fill_fragment(fragment<accumulator, 16, 16, 16, Element> & filled, Element value) {
    typedef typename stand_in::registers<Element>::stored stored;
#pragma unroll
    for (int i = 0; i < stand_in::kept; ++i) {
        filled.x[i] = __builtin_bit_cast(stored, value);
    }
}

// A line is a row of A or a column of B: the lines of a row-major A and of a column-major B are contiguous.
ROCWMMA_STAND_IN_FUNCTION void load_matrix_sync(
        fragment<matrix_a, 16, 16, 16, __half, row_major> & loaded, const __half * matrix, uint32_t stride) {
    loaded.x = stand_in::load_along_line(matrix, stride);
}

ROCWMMA_STAND_IN_FUNCTION void load_matrix_sync(
        fragment<matrix_a, 16, 16, 16, __half, col_major> & loaded, const __half * matrix, uint32_t stride) {
    loaded.x = stand_in::load_across_lines(matrix, stride);
}

ROCWMMA_STAND_IN_FUNCTION void load_matrix_sync(
        fragment<matrix_b, 16, 16, 16, __half, col_major> & loaded, const __half * matrix, uint32_t stride) {
    loaded.x = stand_in::load_along_line(matrix, stride);
}

ROCWMMA_STAND_IN_FUNCTION void load_matrix_sync(
        fragment<matrix_b, 16, 16, 16, __half, row_major> & loaded, const __half * matrix, uint32_t stride) {
    loaded.x = stand_in::load_across_lines(matrix, stride);
}

template <class Element>
ROCWMMA_STAND_IN_FUNCTION void load_matrix_sync(
        fragment<accumulator, 16, 16, 16, Element> & loaded, const Element * matrix, uint32_t stride, layout_t layout) {
    typedef typename stand_in::registers<Element>::stored stored;
    const stored * element = reinterpret_cast<const stored *>(matrix) + stand_in::first_offset(stride, layout);
#pragma unroll
    for (int i = 0; i < stand_in::kept; ++i, element += stand_in::offset_step(stride, layout)) {
        loaded.x[i] = *element;
    }
}

template <class Element>
ROCWMMA_STAND_IN_FUNCTION void store_matrix_sync(
        Element * matrix, const fragment<accumulator, 16, 16, 16, Element> & stored, uint32_t stride, layout_t layout) {
    typedef typename stand_in::registers<Element>::stored element_type;
    element_type * element = reinterpret_cast<element_type *>(matrix) + stand_in::first_offset(stride, layout);
#pragma unroll
    for (int i = 0; i < stand_in::kept; ++i, element += stand_in::offset_step(stride, layout)) {
        *element = stored.x[i];
    }
}

template <class Element, class LayoutA, class LayoutB>
ROCWMMA_STAND_IN_FUNCTION void mma_sync(
        fragment<accumulator, 16, 16, 16, Element> & result,
        const fragment<matrix_a, 16, 16, 16, __half, LayoutA> & a,
        const fragment<matrix_b, 16, 16, 16, __half, LayoutB> & b,
        const fragment<accumulator, 16, 16, 16, Element> & c) {
    result.x = stand_in::multiply_add(a.x, b.x, c.x);
}

} // namespace rocwmma
