#pragma once

#include "neighbour.cuh"

#define STEP 8

template <int width, int depth>
__launch_bounds__(width*depth, 1)
static __global__ void kernel(const float * x, float * dst, const int n) {
    constexpr int lanes = 64;
    const int i0 = first_row(n);
    const int i1 = i0 + STEP; // a line of its own

#pragma unroll
    for (int i = 0; i < STEP; ++i) {
        if (i0 + i >= n) {
            break;
        }
        dst[i0 + i] = scale<width, depth>(x[i0 + i], i % STEP);
    }

#ifdef FAST_TAIL
    tail_fast(dst, n);
#else
    tail(dst, n);
#endif
}

static const row_config rows[] = {
    ROW( 64,  32, 1)
    ROW(128,  32, 1)
    {  64, 32 },
    { 128, 16 },
};

static int lanes_for(int cc) {
    return cc > 7 ? 64 : 32;
}

void launch(const context & ctx, const int cc) {
    run(ctx, lanes_for(cc), STEP, true);
}
