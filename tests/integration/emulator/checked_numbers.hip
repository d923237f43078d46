// Kernels that make a NaN or an infinity of finite numbers, and kernels that only pass one on, by name.
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>

typedef _Float16 half;
typedef half pair __attribute__((ext_vector_type(2)));

__global__ void divides(float * to, const float * by) { to[threadIdx.x] = 3.0f / by[threadIdx.x]; }
__global__ void logarithm(float * to, const float * of) { to[threadIdx.x] = __log2f(of[threadIdx.x]); }
__global__ void root(float * to, const float * of) { to[threadIdx.x] = __fsqrt_rn(of[threadIdx.x]); }
__global__ void power(float * to, const float * of) { to[threadIdx.x] = __builtin_amdgcn_exp2f(of[threadIdx.x]); }
__global__ void product(float * to, const float * of) { to[threadIdx.x] = of[threadIdx.x] * of[threadIdx.x]; }
__global__ void sum(float * to, const float * of) { to[threadIdx.x] = of[threadIdx.x] + of[threadIdx.x]; }
__global__ void wide(double * to, const double * of) { to[threadIdx.x] = of[threadIdx.x] * of[threadIdx.x]; }
__global__ void to_half(half * to, const float * of) { to[threadIdx.x] = half(of[threadIdx.x]); }
__global__ void half_product(half * to, const half * of) { to[threadIdx.x] = of[threadIdx.x] * of[threadIdx.x]; }
__global__ void pair_product(pair * to, const pair * of) { to[threadIdx.x] = of[threadIdx.x] * of[threadIdx.x]; }
__global__ void mixed(float * to, const half * of, float by) {
    to[threadIdx.x] = __builtin_fmaf(float(of[threadIdx.x]), by, by);
}
__global__ void softmax(float * to, const float * of) {
    float most = -INFINITY;
    for (int i = 0; i < 32; ++i) {
        most = fmaxf(most, of[i]);
    }
    float all = 0;
    for (int i = 0; i < 32; ++i) {
        all += __builtin_amdgcn_exp2f(of[i] - most);
    }
    to[threadIdx.x] = __builtin_amdgcn_exp2f(of[threadIdx.x] - most) / all;
}

template <class T> T * filled(double value) {
    T host[32], * made = nullptr;
    for (int i = 0; i < 32; ++i) {
        host[i] = T(i == 5 ? value : 1.0); // lane 5 has it
    }
    (void) hipMalloc((void **) &made, 256);
    (void) hipMemcpy(made, host, sizeof(host), hipMemcpyHostToDevice);
    return made;
}

int main(int count, char ** words) {
    const std::string wanted = count > 1 ? words[1] : "";
    const std::map<std::string, void (*)(void *)> cases = {
#define CASE(name, kernel, out, in, value) {name, [](void * to) { kernel<<<1, 32>>>((out *) to, filled<in>(value)); }}
        CASE("division by zero", divides, float, float, 0),
        CASE("logarithm of zero", logarithm, float, float, 0),
        CASE("root of less than zero", root, float, float, -4),
        CASE("large power", power, float, float, 200),
        CASE("large product", product, float, float, 1e30),
        CASE("large sum", sum, float, float, 3e38),
        CASE("large product of f64", wide, double, double, 1e200),
        CASE("large half", to_half, half, float, 70000),
        CASE("large product of halves", half_product, half, half, 300),
        {"one of a pair", [](void * to) { pair_product<<<1, 16>>>((pair *) to, (const pair *) filled<half>(300)); }},
        {"mixed", [](void * to) { mixed<<<1, 32>>>((float *) to, filled<half>(60000), 3e38f); }},
        CASE("clean: division", divides, float, float, 1e-30),
        CASE("clean: division by infinity", divides, float, float, INFINITY),
        CASE("clean: logarithm", logarithm, float, float, 2),
        CASE("clean: passes NaN on", product, float, float, NAN),
        CASE("clean: passes infinity on", sum, float, float, INFINITY),
        CASE("clean: half of infinity", to_half, half, float, INFINITY),
        CASE("clean: largest half", to_half, half, float, 65504),
        CASE("clean: small power", power, float, float, -500),
        CASE("clean: softmax", softmax, float, float, 30),
        CASE("clean: masked softmax", softmax, float, float, -INFINITY),
    };
    const auto found = cases.find(wanted);
    if (found == cases.end()) {
        for (const auto & one : cases) {
            std::printf("%s\n", one.first.c_str());
        }
        return count > 1;
    }
    void * to = nullptr;
    (void) hipMalloc(&to, 256);
    found->second(to);
    return hipDeviceSynchronize() != hipSuccess;
}
