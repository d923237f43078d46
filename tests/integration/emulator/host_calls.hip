// Kernels that call the host, or wait for all blocks, by name.
#undef NDEBUG
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cassert>
#include <cstdio>
#include <cstring>

__global__ void prints(int lanes) {
    if (int(threadIdx.x) < lanes) {
        printf("%d of %u: %s, %.2f, %5s|%lld\n", int(threadIdx.x), blockIdx.x, threadIdx.x == 0 ? "first" : "another",
               threadIdx.x * 0.5, "ab", 1ll << 40);
    }
}

__global__ void asserts(unsigned wrong) { assert(threadIdx.x != wrong); }

__global__ void allocates(int ** to) {
    int * place = (int *) malloc(16);
    *place = 3;
    *to    = place;
}

__global__ void meets(int * sums) {
    atomicAdd(sums, 1);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) {
        sums[1 + blockIdx.x] = *sums;
    }
}

using two_words = long __attribute__((ext_vector_type(2)));
extern "C" __device__ two_words __ockl_hostcall_preview(unsigned service, unsigned long, unsigned long, unsigned long,
                                                        unsigned long, unsigned long, unsigned long, unsigned long,
                                                        unsigned long);

__global__ void asks_for_a_function() { __ockl_hostcall_preview(1, 0x1234, 0, 0, 0, 0, 0, 0, 0); }

static bool all_meet() {
    constexpr int blocks = 40, threads = 96;
    int * sums = nullptr;
    int seen[1 + blocks] = {};
    (void) hipMalloc((void **) &sums, sizeof(seen));
    for (int round = 1; round <= 2; ++round) { // what they meet at is used again
        (void) hipMemset(sums, 0, sizeof(seen));
        void * arguments[] = {&sums};
        if (hipLaunchCooperativeKernel((void *) meets, dim3(blocks), dim3(threads), arguments, 0, nullptr) != hipSuccess ||
            hipMemcpy(seen, sums, sizeof(seen), hipMemcpyDeviceToHost) != hipSuccess) {
            return false;
        }
        for (const int sum : seen) {
            if (sum != blocks * threads) {
                return false;
            }
        }
    }
    return true;
}

int main(int, char ** arguments) {
    const char * name = arguments[1];
    if (std::strcmp(name, "prints") == 0) {
        prints<<<2, 64>>>(2);
    } else if (std::strcmp(name, "asserts") == 0) {
        asserts<<<1, 64>>>(33);
    } else if (std::strcmp(name, "allocates") == 0) {
        int ** place = nullptr;
        (void) hipMalloc((void **) &place, 8);
        allocates<<<1, 1>>>(place);
    } else if (std::strcmp(name, "asks_for_a_function") == 0) {
        asks_for_a_function<<<1, 1>>>();
    } else if (std::strcmp(name, "meets") == 0) {
        std::printf("%d\n", int(all_meet()));
    }
    std::printf("%s\n", hipGetErrorName(hipDeviceSynchronize()));
    return 0;
}
