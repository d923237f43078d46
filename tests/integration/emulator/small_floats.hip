// Floats as 8-bit floats by the functions of HIP's own header, on the device and on the host.
#include <hip/hip_fp8.h>
#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int count = 1 << 16;

template <__hip_fp8_interpretation_t of> __global__ void convert(unsigned char * to, const float * from) {
    const int place = int(blockIdx.x * blockDim.x + threadIdx.x);
    to[place] = __hip_cvt_float_to_fp8(from[place], __HIP_SATFINITE, of);
}

template <__hip_fp8_interpretation_t of> static void compare(const char * name, const std::vector<float> & numbers) {
    unsigned char * to = nullptr;
    float * from       = nullptr;
    (void) hipMalloc(&to, count);
    (void) hipMalloc(&from, count * sizeof(float));
    (void) hipMemcpy(from, numbers.data(), count * sizeof(float), hipMemcpyHostToDevice);
    convert<of><<<count / 256, 256>>>(to, from);
    std::vector<unsigned char> found(count);
    (void) hipMemcpy(found.data(), to, count, hipMemcpyDeviceToHost);
    int compared = 0, differ = 0;
    for (size_t n = 0; n < count; ++n) {
        // The header's own arithmetic shifts by more than 63 bits below that, and makes 1 of what is 0.
        if (std::isfinite(numbers[n]) && std::fabs(numbers[n]) >= 0x1p-60f) {
            ++compared;
            differ += found[n] != __hip_cvt_float_to_fp8(numbers[n], __HIP_SATFINITE, of);
        }
    }
    std::printf("%s: %d of %d differ; -inf is %02x, on the host %02x\n", name, differ, compared, found[0],
                __hip_cvt_float_to_fp8(numbers[0], __HIP_SATFINITE, of));
    (void) hipFree(to);
    (void) hipFree(from);
}

int main() {
    std::vector<float> numbers(count);
    for (unsigned n = 0; n < count; ++n) { // all signs and exponents, and the bits of a mantissa that decide
        const unsigned bits = n << 16 | (n * 40503u & 0xffff);
        std::memcpy(&numbers[n], &bits, sizeof(bits));
    }
    numbers[0] = -INFINITY;
    compare<__HIP_E4M3_FNUZ>("e4m3fnuz", numbers);
    compare<__HIP_E5M2_FNUZ>("e5m2fnuz", numbers);
    compare<__HIP_E4M3>("e4m3", numbers);
    compare<__HIP_E5M2>("e5m2", numbers);
    return 0;
}
