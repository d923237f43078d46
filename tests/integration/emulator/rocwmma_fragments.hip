// What fragments of rocWMMA's interface must do, whichever header offers it: loaded, multiplied and stored in every
// layout they leave in memory what a plain product leaves, and their elements can be reached one by one. Prints what is
// wrong.

#include <rocwmma/rocwmma.hpp>

#include <cmath>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "matrix_layouts.hpp"

using namespace rocwmma;

// Elements from a line to the next. The interface wants contiguous lines of A and B at multiples of 16 bytes; C and D
// may lie anywhere.
struct strides {
    uint32_t a, b, c, d;
};
constexpr strides all_strides[] = {{size, size, size, size}, {24, 40, 19, 21}};
constexpr strides widest        = all_strides[1];

// Elements of so many matrices, one behind the other: nothing follows the last line of the last.
constexpr size_t held(int matrices, uint32_t stride) { return (matrices * size - 1) * stride + size; }

// Matrices as they lie in memory.
template <class element> struct stored {
    std::vector<element> data;
    uint32_t stride;
    bool by_rows;

    stored(int matrices, uint32_t stride, bool by_rows, float between)
        : data(held(matrices, stride), element(between)), stride(stride), by_rows(by_rows) {}

    size_t place(int number, int row, int column) const {
        const int line = by_rows ? row : column, within = by_rows ? column : row;
        return size_t(number * size + line) * stride + size_t(within);
    }

    template <class value_of> void put(int number, value_of value) {
        for (int row = 0; row < size; ++row) {
            for (int column = 0; column < size; ++column) {
                data[place(number, row, column)] = element(float(value(row, column)));
            }
        }
    }

    void put(int number, const matrix & from) {
        put(number, [&](int row, int column) { return from[row][column]; });
    }
};

static int wrong = 0;

static void report(const std::string & what) {
    std::printf("%s\n", what.c_str());
    ++wrong;
}

template <class element>
static void expect(const std::string & what, const on_device<element> & left, const stored<element> & expected) {
    const std::vector<element> found = left.back();
    for (size_t n = 0; n < found.size(); ++n) {
        if (float(found[n]) != float(expected.data[n])) {
            const size_t line = n / expected.stride;
            char text[200];
            std::snprintf(text, sizeof(text), ": element %zu of %s %zu of matrix %zu is %g, not %g",
                          n % expected.stride, expected.by_rows ? "row" : "column", line % size, line / size,
                          double(float(found[n])), double(float(expected.data[n])));
            report(what + text);
            return;
        }
    }
}

template <bool by_rows> using layout          = std::conditional_t<by_rows, row_major, col_major>;
template <bool by_rows> constexpr layout_t at = by_rows ? mem_row_major : mem_col_major;
template <class element> constexpr const char * name = sizeof(element) == 2 ? "half" : "float";

// ---- products

template <class element> struct operands {
    const __half *a, *b;
    const element * c;
    element * d;
    strides stride;
};

template <class element, bool a_by_rows, bool b_by_rows, bool c_by_rows, bool d_by_rows>
static __device__ inline void multiply(const operands<element> & in, int wave) {
    fragment<matrix_a, size, size, size, __half, layout<a_by_rows>> a;
    fragment<matrix_b, size, size, size, __half, layout<b_by_rows>> b;
    fragment<accumulator, size, size, size, element> c, d;
    load_matrix_sync(a, in.a + wave * steps * size * in.stride.a, in.stride.a);
    load_matrix_sync(b, in.b + wave * steps * size * in.stride.b, in.stride.b);
    load_matrix_sync(c, in.c + wave * size * in.stride.c, in.stride.c, at<c_by_rows>);
    mma_sync(d, a, b, c);
    load_matrix_sync(a, in.a + (wave * steps + 1) * size * in.stride.a, in.stride.a);
    load_matrix_sync(b, in.b + (wave * steps + 1) * size * in.stride.b, in.stride.b);
    mma_sync(d, a, b, d);
    store_matrix_sync(in.d + wave * size * in.stride.d, d, in.stride.d, at<d_by_rows>);
}

template <class element> static __device__ inline void copy(const element * from, element * to, size_t count) {
    for (size_t n = threadIdx.y * blockDim.x + threadIdx.x; n < count; n += blockDim.x * blockDim.y) {
        to[n] = from[n];
    }
}

template <class element, bool in_lds, bool... by_rows> __global__ void product(operands<element> in) {
    const int wave = int(threadIdx.y * blockDim.x + threadIdx.x) / lanes;
    if constexpr (in_lds) {
        __shared__ alignas(16) __half a[held(waves * steps, widest.a)], b[held(waves * steps, widest.b)];
        __shared__ element c[held(waves, widest.c)], d[held(waves, widest.d)];
        copy(in.a, a, held(waves * steps, in.stride.a));
        copy(in.b, b, held(waves * steps, in.stride.b));
        copy(in.c, c, held(waves, in.stride.c));
        copy<element>(in.d, d, held(waves, in.stride.d));
        __syncthreads();
        multiply<element, by_rows...>({a, b, c, d, in.stride}, wave);
        __syncthreads();
        copy<element>(d, in.d, held(waves, in.stride.d));
    } else {
        multiply<element, by_rows...>(in, wave);
    }
}

template <class element>
static void check_product(void (*kernel)(operands<element>), const bool * by_rows, bool in_lds, strides stride) {
    constexpr float untouched = -2016; // no result
    stored<__half> a(waves * steps, stride.a, by_rows[0], NAN), b(waves * steps, stride.b, by_rows[1], NAN);
    stored<element> c(waves, stride.c, by_rows[2], NAN), d(waves, stride.d, by_rows[3], untouched);
    const on_device<element> result(d.data);
    const std::vector<problem> problems = all_problems();
    for (int wave = 0; wave < waves; ++wave) {
        const problem & one = problems[size_t(wave)];
        for (int step = 0; step < steps; ++step) {
            a.put(wave * steps + step, one.a[step]);
            b.put(wave * steps + step, one.b[step]);
        }
        c.put(wave, one.c);
        d.put(wave, [&](int row, int column) { return one.result(row, column); });
    }
    const on_device<__half> left(a.data), right(b.data);
    const on_device<element> addend(c.data);
    kernel<<<1, dim3(2 * lanes, waves / 2)>>>({left.data, right.data, addend.data, result.data, stride});
    std::string what = std::string("product in ") + name<element> + ", by rows A B C D ";
    for (int n = 0; n < 4; ++n) {
        what += by_rows[n] ? '1' : '0';
    }
    what += in_lds ? ", LDS" : ", global memory";
    expect(what + ", stride of D " + std::to_string(stride.d), result, d);
}

// ``choice`` picks the layouts, where the matrices lie, and what the accumulator's elements are.
template <size_t choice> static void check_choice() {
    using element            = std::conditional_t<choice / 32 % 2 == 0, __half, float>;
    constexpr bool in_lds    = choice / 16 % 2 != 0;
    constexpr bool by_rows[] = {choice % 2 != 0, choice / 2 % 2 != 0, choice / 4 % 2 != 0, choice / 8 % 2 != 0};
    constexpr auto kernel    = product<element, in_lds, by_rows[0], by_rows[1], by_rows[2], by_rows[3]>;
    for (const strides & stride : all_strides) {
        check_product<element>(kernel, by_rows, in_lds, stride);
    }
}

template <size_t... choices> static void check_products(std::index_sequence<choices...>) {
    (check_choice<choices>(), ...);
}

// ---- elements of fragments

template <class element>
__global__ void elements(const element * from, uint32_t stride, layout_t layout, float * in_lanes, element * twice,
                         element * filled) {
    fragment<accumulator, size, size, size, element> loaded, doubled;
    load_matrix_sync(loaded, from, stride, layout);
    fill_fragment(doubled, element(-1.5f));
    store_matrix_sync(filled, doubled, stride, layout);
    for (uint32_t n = 0; n < loaded.num_elements; ++n) {
        in_lanes[threadIdx.x * loaded.num_elements + n] = float(loaded.x[n]);
        doubled.x[n]                                    = loaded.x[n] + loaded.x[n];
    }
    store_matrix_sync(twice, doubled, stride, layout);
}

template <class element> static void check_elements(bool by_rows) {
    constexpr uint32_t stride = widest.c;
    problem numbers;
    number(numbers.c);
    stored<element> c(1, stride, by_rows, 0), twice = c, filled = c;
    const on_device<element> doubled(c.data), same(c.data);
    stored<float> in_lanes(1, size, true, 0); // eight elements of each lane
    const on_device<float> registers(in_lanes.data);
    c.put(0, numbers.c);
    twice.put(0, [&](int row, int column) { return 2 * numbers.c[row][column]; });
    filled.put(0, [&](int, int) { return -1.5f; });
    for (int n = 0; n < size * size; ++n) {
        const slot one                                    = accumulator_slot(is_rdna4(), n / size, n % size);
        in_lanes.data[size_t(one.lane * 8 + one.element)] = float(numbers.c[n / size][n % size]);
    }
    const on_device<element> from(c.data);
    elements<<<1, lanes>>>(from.data, stride, by_rows ? mem_row_major : mem_col_major, registers.data, doubled.data,
                           same.data);
    const std::string what = std::string("accumulator in ") + name<element> + (by_rows ? " by rows" : " by columns");
    expect(what + ", filled", same, filled);
    expect(what + ", element by element", doubled, twice);
    expect(what + ", registers of two lanes in a row", registers, in_lanes);
}

template <class role, bool by_rows>
__global__ void operand_elements(const __half * from, uint32_t stride, __half * to) {
    fragment<role, size, size, size, __half, layout<by_rows>> loaded;
    load_matrix_sync(loaded, from, stride);
    for (uint32_t n = 0; n < loaded.num_elements; ++n) {
        to[threadIdx.x * loaded.num_elements + n] = loaded.x[n];
    }
}

// Lanes share an operand between them, in an order that is the header's own business.
template <class role, bool by_rows> static void check_operand() {
    constexpr uint32_t stride = widest.a;
    problem numbers;
    number(numbers.c);
    stored<__half> operand(1, stride, by_rows, NAN);
    operand.put(0, numbers.c);
    const on_device<__half> from(operand.data), to(std::vector<__half>(size * size));
    operand_elements<role, by_rows><<<1, lanes>>>(from.data, stride, to.data);
    std::set<int> found;
    for (const __half one : to.back()) {
        found.insert(int(float(one)));
    }
    if (found.size() != size * size || *found.begin() != 1 || *found.rbegin() != size * size) {
        report("the elements of an operand's fragments are not those of the matrix");
    }
}

int main() {
    check_products(std::make_index_sequence<64>());
    for (const bool by_rows : {true, false}) {
        check_elements<__half>(by_rows);
        check_elements<float>(by_rows);
    }
    check_operand<matrix_a, true>();
    check_operand<matrix_a, false>();
    check_operand<matrix_b, true>();
    check_operand<matrix_b, false>();
    std::printf("%d wrong\n", wrong);
    return wrong != 0;
}
