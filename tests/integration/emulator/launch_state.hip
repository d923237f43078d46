// What kernels begin with: the numbers of threads, blocks and waves, of which each kernel wants some; and trap registers.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

__global__ void thread_x(int * to) { atomicAdd(&to[threadIdx.x], 1); }
__global__ void thread_y(int * to) { atomicAdd(&to[threadIdx.y], 1); }
__global__ void thread_z(int * to) { atomicAdd(&to[threadIdx.z], 1); }
__global__ void block_x(int * to) { atomicAdd(&to[blockIdx.x], 1); }
__global__ void block_y(int * to) { atomicAdd(&to[blockIdx.y], 1); }
__global__ void block_z(int * to) { atomicAdd(&to[blockIdx.z], 1); }
__global__ void block_x_y(int * to) { atomicAdd(&to[blockIdx.y * gridDim.x + blockIdx.x], 1); }
__device__ __attribute__((noinline)) int far_away() { return int(blockIdx.z * gridDim.y + blockIdx.y); }
__global__ void block_of_a_call(int * to) { atomicAdd(&to[far_away()], 1); }

#define READ(name, instruction)                                                                                        \
    __global__ void name(int * to) {                                                                                   \
        int value;                                                                                                     \
        asm volatile(instruction : "=s"(value));                                                                       \
        atomicAdd(&to[value & 7], 1);                                                                                  \
    }
READ(trap_6, "s_mov_b32 %0, ttmp6")
READ(trap_7, "s_mov_b32 %0, ttmp7")
READ(trap_8, "s_bfe_u32 %0, ttmp8, 0x50019") // the number of the wave in its block, on RDNA4
READ(trap_9, "s_mov_b32 %0, ttmp9")
READ(trap_write, "s_mov_b32 ttmp8, 0\n\ts_mov_b32 %0, 0")

int main(int argc, char ** argv) {
    using kernel = void (*)(int *);
    const std::map<std::string, kernel> kernels = {
        {"thread x", thread_x}, {"thread y", thread_y}, {"thread z", thread_z},   {"block x", block_x},
        {"block y", block_y},   {"block z", block_z},   {"block x, y", block_x_y}, {"block of a call", block_of_a_call},
        {"ttmp6", trap_6},      {"ttmp7", trap_7},      {"ttmp8", trap_8},        {"ttmp9", trap_9},
        {"write", trap_write},
    };
    const auto found = kernels.find(argc > 1 ? argv[1] : "");
    if (found == kernels.end()) {
        return 1;
    }
    constexpr size_t count = 64;
    int * to = nullptr;
    NEED(hipMalloc(&to, count * sizeof(int)));
    NEED(hipMemset(to, 0, count * sizeof(int)));
    found->second<<<dim3(3, 4, 5), dim3(8, 4, 2)>>>(to); // two waves in each of 60 blocks
    NEED(hipDeviceSynchronize());
    std::vector<int> seen(count);
    NEED(hipMemcpy(seen.data(), to, count * sizeof(int), hipMemcpyDeviceToHost));
    while (!seen.empty() && seen.back() == 0) {
        seen.pop_back();
    }
    for (const int one : seen) {
        std::printf("%d ", one);
    }
    std::puts("");
    return 0;
}
