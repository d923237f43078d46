// A kernel of which the compiler leaves nothing: as the only code of the program, or with another kernel behind it.
#include <hip/hip_runtime.h>

#include <cstdio>

__global__ void dropped(int *) { __builtin_unreachable(); }

#ifdef WITH_ANOTHER
__global__ void another(int * to) { *to = 5; }
#endif

int main() {
    int * on_device = nullptr;
    int value       = 0;
    (void) hipMalloc(&on_device, sizeof(int));
#ifdef WITH_ANOTHER
    another<<<1, 1>>>(on_device);
    (void) hipMemcpy(&value, on_device, sizeof(int), hipMemcpyDeviceToHost);
#endif
    std::printf("%d\n", value);
    std::fflush(stdout);
    dropped<<<1, 32>>>(on_device);
    return hipDeviceSynchronize() == hipSuccess ? 0 : 1;
}
