#pragma once

static __device__ int block_of(const int rows, const int columns) {
    if (rows > 64) {
        const int width = 2*rows;
        return width;
    }
    if (columns > 64) {
        const int width = columns;
        return width;
    }
    const int width = 32;
    return width;
}
