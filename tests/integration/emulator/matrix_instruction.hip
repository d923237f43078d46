// The matrix instruction and AMD's guides. With the argument "guide": where the guides put each element, and that the
// instruction takes and leaves them there. Without: whether a header of rocWMMA's interface hands them over like that,
// and in which order of k. The instruction adds up over k, so that any order is right that A and B share.

#include "matrix_layouts.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <type_traits>

typedef _Float16 halves8 __attribute__((ext_vector_type(8)));
typedef _Float16 halves16 __attribute__((ext_vector_type(16)));
typedef float floats8 __attribute__((ext_vector_type(8)));

#if defined(__GFX11__)
using operand = halves16;
using narrow  = halves16; // each element in one half of a register, the other is not used
static __device__ inline floats8 instruction(operand a, operand b, floats8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
}
static __device__ inline narrow instruction(operand a, operand b, narrow c) {
    return __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(a, b, c, false);
}
#elif defined(__GFX12__)
using operand = halves8;
using narrow  = halves8;
static __device__ inline floats8 instruction(operand a, operand b, floats8 c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}
static __device__ inline narrow instruction(operand a, operand b, narrow c) {
    return __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(a, b, c);
}
#else // the host's pass
using operand = halves8;
using narrow  = halves16;
template <class sums> static __device__ inline sums instruction(operand, operand, sums c) { return c; }
#endif

// What each lane of one wave gave to the instruction.
struct given {
    float a[lanes][size], b[lanes][size], c[lanes][size / 2];
};
static __device__ given seen;

template <class vector> constexpr __device__ int count_of = sizeof(vector) / sizeof(vector{}[0]);

template <class vector> static __device__ inline void note(const vector & from, float * to, int first, int step) {
    for (int n = 0; first + step * n < count_of<vector>; ++n) {
        to[n] = float(from[first + step * n]);
    }
}

// In place of the builtin, which takes any vectors of the right length. ``high``: C is in upper halves of registers.
template <class sums, class given_a, class given_b, class given_c>
static __device__ inline given_c watched(given_a a, given_b b, given_c c, bool high = false) {
    const auto left = __builtin_bit_cast(operand, a), right = __builtin_bit_cast(operand, b);
    const auto addend = __builtin_bit_cast(sums, c);
    note(left, seen.a[threadIdx.x], 0, 1);
    note(right, seen.b[threadIdx.x], 0, 1);
    note(addend, seen.c[threadIdx.x], int(high), count_of<sums> / 8);
    return __builtin_bit_cast(given_c, instruction(left, right, addend));
}

#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32 watched<floats8>
#define __builtin_amdgcn_wmma_f16_16x16x16_f16_w32 watched<narrow>
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12 watched<floats8>
#define __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12 watched<narrow>
#include <rocwmma/rocwmma.hpp>

using namespace rocwmma;

static int wrong = 0;

static void report(const char * what) {
    std::printf("%s\n", what);
    ++wrong;
}

// ---- the guides

template <class element> using sums_of = std::conditional_t<sizeof(element) == 2, narrow, floats8>;

// Lanes have their vectors one behind the other.
template <class element>
__global__ void multiply(const _Float16 * a, const _Float16 * b, const element * c, element * d) {
    const auto * left  = (const operand *) a + threadIdx.x;
    const auto * right = (const operand *) b + threadIdx.x;
    const auto sum     = instruction(*left, *right, ((const sums_of<element> *) c)[threadIdx.x]);
    ((sums_of<element> *) d)[threadIdx.x] = instruction(left[waves * lanes], right[waves * lanes], sum);
}

template <class element> static void check_guide(bool rdna4) {
    const bool is_spaced = sizeof(element) == 2 && !rdna4;
    const int width      = operand_width(rdna4), sums = is_spaced ? 16 : 8;
    std::vector<_Float16> a(size_t(steps * waves * lanes * width)), b = a;
    std::vector<element> c(size_t(waves * lanes * sums)), expected = c;
    const std::vector<problem> problems = all_problems();
    for (int n = 0; n < waves * size * size; ++n) {
        const int wave = n / (size * size), row = n / size % size, column = n % size;
        const problem & one = problems[size_t(wave)];
        for (int step = 0; step < steps; ++step) {
            for (int copy = 0; copy < copies(rdna4); ++copy) {
                const auto place = [&](int line, int k) {
                    const slot at = operand_slot(rdna4, line, k, copy);
                    return size_t(((step * waves + wave) * lanes + at.lane) * width + at.element);
                };
                a[place(row, column)] = _Float16(one.a[step][row][column]);
                b[place(column, row)] = _Float16(one.b[step][row][column]);
            }
        }
        const slot at      = accumulator_slot(rdna4, row, column);
        const size_t place = size_t((wave * lanes + at.lane) * sums + at.element * (is_spaced ? 2 : 1));
        c[place]           = element(one.c[row][column]);
        expected[place]    = element(one.result(row, column));
    }
    const on_device<_Float16> left(a), right(b);
    const on_device<element> addend(c), result(c);
    multiply<<<1, waves * lanes>>>(left.data, right.data, addend.data, result.data);
    if (result.back() != expected) {
        report("the instruction does not multiply what lies where the guide says");
    }
}

// As AMD's matrix instruction calculator prints it: row, column, register, lane, which 16 bits of it.
static void list(bool rdna4, bool is_half) {
    const auto write = [](slot at, bool is_packed) {
        is_packed ? std::printf(" v%d{%d}.%d", at.element / 2, at.lane, at.element % 2)
                  : std::printf(" v%d{%d}", at.element, at.lane);
    };
    for (const char which : {'A', 'B', 'C', 'D'}) {
        for (int n = 0; n < size * size; ++n) {
            const int row = n / size, column = n % size;
            std::printf("%s %c %d %d", is_half ? "half" : "float", which, row, column);
            if (which >= 'C') {
                slot at = accumulator_slot(rdna4, row, column);
                at.element *= is_half && !rdna4 ? 2 : 1;
                write(at, is_half);
            } else {
                const int line = which == 'A' ? row : column, k = which == 'A' ? column : row;
                for (int copy = 0; copy < copies(rdna4); ++copy) {
                    write(operand_slot(rdna4, line, k, copy), true);
                }
            }
            std::printf("\n");
        }
    }
}

// ---- a header

template <class element, bool a_by_rows, bool b_by_rows>
__global__ void hand_over(const __half * from, const element * c, element * d) {
    fragment<matrix_a, size, size, size, __half, std::conditional_t<a_by_rows, row_major, col_major>> a;
    fragment<matrix_b, size, size, size, __half, std::conditional_t<b_by_rows, row_major, col_major>> b;
    fragment<accumulator, size, size, size, element> sum;
    load_matrix_sync(a, from, size);
    load_matrix_sync(b, from, size);
    load_matrix_sync(sum, c, size, mem_row_major);
    mma_sync(sum, a, b, sum);
    store_matrix_sync(d, sum, size, mem_row_major);
}

using order = std::vector<int>; // the k that stands where the guide has k 0, 1, ... 15

// The k of an operand's element, by its value; -1 where it is of another line. Memory holds 1, 2, ... 256.
static int k_of(float found, int line, bool is_a, bool by_rows) {
    const int n = int(found) - 1, row = by_rows ? n / size : n % size, column = by_rows ? n % size : n / size;
    return (is_a ? row : column) != line ? -1 : is_a ? column : row;
}

using orders = std::set<order>[2]; // of all lines of A and B, for each copy

template <class element, bool a_by_rows, bool b_by_rows> static void check_header(bool rdna4, orders & found) {
    std::vector<__half> numbers;
    std::vector<element> sums;
    for (int n = 1; n <= size * size; ++n) {
        numbers.push_back(__half(float(n)));
        sums.push_back(element(float(n)));
    }
    const on_device<__half> from(numbers);
    const on_device<element> c(sums), d(sums);
    hand_over<element, a_by_rows, b_by_rows><<<1, lanes>>>(from.data, c.data, d.data);
    given all;
    need(hipMemcpyFromSymbol(&all, HIP_SYMBOL(seen), sizeof(all)));
    for (int n = 0; n < size * size; ++n) {
        const slot at = accumulator_slot(rdna4, n / size, n % size);
        if (all.c[at.lane][at.element] != float(n + 1)) {
            return report("an element of C is not where the guide has it");
        }
    }
    for (int copy = 0; copy < copies(rdna4); ++copy) {
        for (int line = 0; line < size; ++line) {
            order of_a, of_b;
            for (int k = 0; k < size; ++k) {
                const slot at = operand_slot(rdna4, line, k, copy);
                of_a.push_back(k_of(all.a[at.lane][at.element], line, true, a_by_rows));
                of_b.push_back(k_of(all.b[at.lane][at.element], line, false, b_by_rows));
            }
            found[copy].insert(of_a);
            found[copy].insert(of_b);
        }
    }
}

static void report_orders(bool rdna4, const orders & found) {
    order of_guide(size);
    std::iota(of_guide.begin(), of_guide.end(), 0);
    for (int copy = 0; copy < copies(rdna4); ++copy) {
        const order one = found[copy].size() == 1 ? *found[copy].begin() : order(size);
        if (!std::is_permutation(one.begin(), one.end(), of_guide.begin())) {
            return report("lines of A and B are not whole, or not all in the same order of k");
        }
        std::printf("order of k%s:", rdna4 ? "" : copy == 0 ? " in lanes 0 to 15" : " in lanes 16 to 31");
        for (const int k : one) {
            std::printf(" %d", k);
        }
        std::printf("\n");
    }
}

template <class element> static void check_headers(bool rdna4, orders & found) {
    check_header<element, true, true>(rdna4, found);
    check_header<element, true, false>(rdna4, found);
    check_header<element, false, true>(rdna4, found);
    check_header<element, false, false>(rdna4, found);
}

int main(int argc, char **) {
    const bool rdna4 = is_rdna4();
    if (argc == 2) {
        check_guide<_Float16>(rdna4);
        check_guide<float>(rdna4);
        list(rdna4, true);
        list(rdna4, false);
    } else {
        orders found;
        check_headers<__half>(rdna4, found);
        check_headers<float>(rdna4, found);
        report_orders(rdna4, found);
    }
    std::printf("%d wrong\n", wrong);
    return wrong != 0;
}
