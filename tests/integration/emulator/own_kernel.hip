// A program of somebody who carries no patch: one kernel, launched three times, and its answer checked.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

__global__ void scaled_sum(float factor, const float * x, float * y, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) {
        y[at] += factor * x[at];
    }
}

// With a word, also what a model has to tell apart: launches of other sizes, more work, a process that ends in the middle.
int main(int words, char ** word) {
    const std::string asked = words > 1 ? word[1] : "";
    constexpr int count = 1 << 14;
    std::vector<float> x(count, 1.0f), y(count, 2.0f);
    float * on_device[2] = {};
    for (float *& one : on_device) {
        (void) hipMalloc(&one, count * sizeof(float));
    }
    (void) hipMemcpy(on_device[0], x.data(), count * sizeof(float), hipMemcpyHostToDevice);
    (void) hipMemcpy(on_device[1], y.data(), count * sizeof(float), hipMemcpyHostToDevice);
    for (int launch = 0; launch < 3; ++launch) {
        scaled_sum<<<count / 256, 256>>>(3.0f, on_device[0], on_device[1], count);
    }
    if (asked == "sizes") {
        scaled_sum<<<count / 256, 32>>>(3.0f, on_device[0], on_device[1], 0);
        return hipDeviceSynchronize();
    }
    if (asked == "abort") {
        (void) hipDeviceSynchronize();
        std::abort();
    }
    (void) hipMemcpy(y.data(), on_device[1], count * sizeof(float), hipMemcpyDeviceToHost);
    std::printf("%g\n", y[count - 1]);
    return y[count - 1] == 11.0f ? 0 : 3;
}
