// A value that one wave leaves in LDS and all waves read, with a barrier between and without.

#include <hip/hip_runtime.h>

#include <cstdio>

constexpr int threads = 256, value = 42;

template <bool waits> __global__ void pass_on(int * out) {
    __shared__ volatile int passed;
    if (threadIdx.x == 0) {
        passed = value;
    }
    if (waits) {
        __syncthreads();
    }
    out[threadIdx.x] = passed;
}

template <bool waits> bool is_right() {
    int * out = nullptr;
    if (hipMallocManaged(&out, threads * sizeof(int)) != hipSuccess) {
        return false;
    }
    pass_on<waits><<<1, threads>>>(out);
    bool result = hipDeviceSynchronize() == hipSuccess;
    for (int n = 0; n < threads; ++n) {
        result = result && out[n] == value;
    }
    return result;
}

int main() { std::printf("with a barrier %d, without %d\n", is_right<true>(), is_right<false>()); }
