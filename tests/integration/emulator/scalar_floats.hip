// What RDNA4 computes once for a wave: exp and its like of a value that all lanes have.
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdio>

__global__ void compute(float * to, float x) {
    to[0] = __builtin_amdgcn_exp2f(x);
    to[1] = __builtin_amdgcn_logf(x);
    to[2] = __builtin_amdgcn_rcpf(x);
    to[3] = __builtin_amdgcn_rsqf(x);
    to[4] = __builtin_amdgcn_sqrtf(x);
    const _Float16 half = _Float16(x);
    to[5] = float(__builtin_amdgcn_rcph(half));
    to[6] = float(__builtin_amdgcn_sqrth(half));
    to[7] = float(__builtin_amdgcn_rsqh(half));
}

int main() {
    float *to = nullptr, got[8];
    (void) hipMalloc((void **) &to, sizeof(got));
    for (const float x : {0.75f, 1.5f, 6.25f, 100.0f}) {
        compute<<<1, 1>>>(to, x);
        (void) hipMemcpy(got, to, sizeof(got), hipMemcpyDeviceToHost);
        const float wanted[8] = {std::exp2(x), std::log2(x), 1 / x,           1 / std::sqrt(x),
                                 std::sqrt(x), 1 / x,        std::sqrt(x), 1 / std::sqrt(x)};
        for (int n = 0; n < 8; ++n) {
            const float near = n < 5 ? 2e-6f : 2e-3f; // of f32 and of halves
            if (!(std::fabs(got[n] - wanted[n]) <= near * std::fabs(wanted[n]))) {
                std::printf("%d of %g: %g, not %g\n", n, double(x), double(got[n]), double(wanted[n]));
                return 1;
            }
        }
    }
    return 0;
}
