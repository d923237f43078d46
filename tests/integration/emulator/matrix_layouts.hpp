// Matrices of which a wrong element or lane shows, and where AMD's guides put them in the registers of a wave of 32.
//
// Guides: "Wave Matrix Multiply Accumulate", section 7.9 (RDNA3 and RDNA3.5) and 7.12 (RDNA4). All matrices are 16x16.
// The line of an element of A is its row, that of one of B its column.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int size = 16, lanes = 32, steps = 2, waves = 4;

struct slot {
    int lane, element; // of the vector that the instruction takes from each lane
};

inline bool is_rdna4() {
    hipDeviceProp_t of;
    return hipGetDeviceProperties(&of, 0) == hipSuccess && std::strncmp(of.gcnArchName, "gfx12", 5) == 0;
}

// RDNA3 has each operand twice, once for each half of the wave. RDNA4 splits k into runs of four: 0-3 and 8-11 lie in
// lanes 0-15, the others in lanes 16-31.
inline int copies(bool rdna4) { return rdna4 ? 1 : 2; }
inline int operand_width(bool rdna4) { return rdna4 ? size / 2 : size; }
inline slot operand_slot(bool rdna4, int line, int k, int copy) {
    return rdna4 ? slot{line + k / 4 % 2 * size, k / 8 * 4 + k % 4} : slot{line + copy * size, k};
}

// Elements of C and D, of which each lane has eight. RDNA3: rows alternate between the halves of the wave. RDNA4: lanes
// 0-15 hold rows 0-7.
inline slot accumulator_slot(bool rdna4, int row, int column) {
    return rdna4 ? slot{column + row / 8 * size, row % 8} : slot{column + row % 2 * size, row / 2};
}

using matrix = int[size][size];

// What one wave multiplies: D = C + A[0] * B[0] + A[1] * B[1]. All numbers and sums are exact in 16 bits.
struct problem {
    matrix a[steps] = {}, b[steps] = {}, c = {};

    int result(int row, int column) const {
        int sum = c[row][column];
        for (int step = 0; step < steps; ++step) {
            for (int k = 0; k < size; ++k) {
                sum += a[step][row][k] * b[step][k][column];
            }
        }
        return sum;
    }
};

inline void number(matrix & to) {
    for (int n = 0; n < size * size; ++n) {
        to[n / size][n % size] = n + 1;
    }
}

inline void permute(matrix & to) {
    for (int n = 0; n < size; ++n) {
        to[n][(5 * n + 3) % size] = 1;
    }
}

// Each of C, A of the first step and B of the second alone with a number of its own in every element, and all together
// with small numbers everywhere.
inline std::vector<problem> all_problems() {
    std::vector<problem> all(waves);
    number(all[0].c);
    number(all[1].a[0]);
    permute(all[1].b[0]);
    permute(all[2].a[1]);
    number(all[2].b[1]);
    uint32_t state = 1;
    for (matrix * to : {&all[3].a[0], &all[3].a[1], &all[3].b[0], &all[3].b[1], &all[3].c}) {
        for (int n = 0; n < size * size; ++n) {
            state                      = state * 1664525 + 1013904223;
            (*to)[n / size][n % size] = int(state >> 16) % 9 - 4;
        }
    }
    return all;
}

inline void need(hipError_t error) {
    if (error != hipSuccess) {
        std::fprintf(stderr, "%s\n", hipGetErrorName(error));
        std::exit(3);
    }
}

// Memory of the GPU that is exactly as large as what it holds.
template <class element> struct on_device {
    explicit on_device(const std::vector<element> & from) : count(from.size()) {
        need(hipMalloc((void **) &data, count * sizeof(element)));
        need(hipMemcpy(data, from.data(), count * sizeof(element), hipMemcpyHostToDevice));
    }
    ~on_device() { (void) hipFree(data); }
    on_device(const on_device &)             = delete;
    on_device & operator=(const on_device &) = delete;

    std::vector<element> back() const {
        std::vector<element> to(count);
        need(hipMemcpy(to.data(), data, count * sizeof(element), hipMemcpyDeviceToHost));
        return to;
    }

    element * data = nullptr;
    size_t count;
};
