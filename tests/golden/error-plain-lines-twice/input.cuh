#pragma once

#include "neighbour.cuh"

#define STEP 4

template <int width, int depth>
__launch_bounds__(width*depth, 1)
static __global__ void kernel(const float * x, float * dst, const int n) {
    constexpr int lanes = 32;
    const int i0 = first_row(n);

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
    finish(dst, lanes);
}

static const row_config rows[] = {
    ROW( 64,  32, 1)
    ROW(128,  32, 1)
    { 64, 16 },
    { 128, 16 },
};

void launch(const context & ctx, const int cc) {
    run(ctx, lanes_for(cc), STEP);
}
