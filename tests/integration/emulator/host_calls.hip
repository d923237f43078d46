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

// counts[0]: threads whose memory was their own until they gave it back, counts[1]: that got none.
__global__ void allocates(int * counts, size_t size) {
    const int own = int(blockIdx.x * blockDim.x + threadIdx.x);
    int * place   = (int *) malloc(size);
    if (place == nullptr) {
        atomicAdd(counts + 1, 1);
        return;
    }
    place[0] = own;
    place[3] = ~own;
    __syncthreads();
    atomicAdd(counts, int(place[0] == own && place[3] == ~own));
    free(place);
}

__global__ void frees_twice() {
    void * place = malloc(5000);
    free(place);
    free(place);
}

// What a thread of it does with 5000 bytes of its own that it must not.
__global__ void oversteps(int * to, bool is_freed) {
    int * place = (int *) malloc(5000);
    place[1249] = 1;
    if (is_freed) {
        free(place);
    }
    to[threadIdx.x] = place[is_freed ? 8 : 1250 + threadIdx.x];
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
        size_t heap = 0;
        if (hipDeviceSetLimit(hipLimitMallocHeapSize, 1 << 20) != hipSuccess ||
            hipDeviceGetLimit(&heap, hipLimitMallocHeapSize) != hipSuccess || heap != 1 << 20) {
            std::printf("the size of the heap cannot be set\n");
        }
        for (const size_t size : {size_t(16), size_t(5000), size_t(1) << 50}) {
            int * counts = nullptr;
            int seen[2]  = {};
            (void) hipMalloc((void **) &counts, sizeof(seen));
            (void) hipMemset(counts, 0, sizeof(seen));
            allocates<<<3, 64>>>(counts, size);
            (void) hipMemcpy(seen, counts, sizeof(seen), hipMemcpyDeviceToHost);
            std::printf("%d %d\n", seen[0], seen[1]);
        }
    } else if (std::strcmp(name, "frees_twice") == 0) {
        frees_twice<<<1, 1>>>();
    } else if (std::strcmp(name, "behind") == 0 || std::strcmp(name, "freed") == 0) {
        int * to = nullptr;
        (void) hipMalloc((void **) &to, 256);
        oversteps<<<1, 3>>>(to, std::strcmp(name, "freed") == 0);
    } else if (std::strcmp(name, "asks_for_a_function") == 0) {
        asks_for_a_function<<<1, 1>>>();
    } else if (std::strcmp(name, "meets") == 0) {
        std::printf("%d\n", int(all_meet()));
    }
    std::printf("%s\n", hipGetErrorName(hipDeviceSynchronize()));
    return 0;
}
