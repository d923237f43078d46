// Launches of many blocks, by name: what a sample of the blocks does.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

constexpr int blocks = 100;

__global__ void say_that_it_ran(int * ran) {
    if (threadIdx.x == 0) {
        ran[blockIdx.x] = 1;
    }
}
__global__ void write_past_end(int * to) { // the last block
    to[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
__global__ void where_others_wrote(int * to, const int * places) { to[places[(blockIdx.x + 1) % gridDim.x]] = 7; }
__global__ void number(int * places) { places[blockIdx.x] = int(blockIdx.x); }
__global__ void wait_for_the_one_before(int * flags) {
    if (blockIdx.x != 0) {
        while (__hip_atomic_load(&flags[blockIdx.x - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
        }
    }
    __hip_atomic_store(&flags[blockIdx.x], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ bool is_set(int * flag) { return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != 0; }
__device__ void set(int * flag) { __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); }
__global__ void wait_for_the_next(int * flags) {
    while (blockIdx.x + 1 < gridDim.x && !is_set(&flags[blockIdx.x + 1])) {
    }
    set(&flags[blockIdx.x]);
}
__global__ void look_for_all_behind(int * flags) {
    for (unsigned missing = 1; missing != 0;) {
        missing = 0;
        for (unsigned other = blockIdx.x + 1; other < gridDim.x; ++other) {
            missing += !is_set(&flags[other]);
        }
    }
    set(&flags[blockIdx.x]);
}
__global__ void meet(int * ran) {
    cooperative_groups::this_grid().sync();
    ran[blockIdx.x] = 1;
}
__global__ void take_long(int * to, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
        sum = sum * 5 + to[i & 15];
    }
    to[threadIdx.x + 16] = sum;
}

int main(int argc, char ** argv) {
    const char * name = argc > 1 ? argv[1] : "";
    const auto is = [name](const char * wanted) { return std::strcmp(name, wanted) == 0; };
    int *ran, *places, host[blocks];
    NEED(hipMalloc(&ran, sizeof(host)));
    NEED(hipMalloc(&places, sizeof(host)));
    if (is("ran")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        say_that_it_ran<<<blocks, 64>>>(ran);
    } else if (is("past end")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        write_past_end<<<4, 32>>>(ran); // 128 numbers, and there are 100
    } else if (is("others")) {
        number<<<blocks, 32>>>(places);
        where_others_wrote<<<blocks, 1>>>(ran, places);
    } else if (is("wait")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        wait_for_the_one_before<<<blocks, 1>>>(ran);
    } else if (is("wait for the next")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        wait_for_the_next<<<blocks, 1>>>(ran);
    } else if (is("look for all behind")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        look_for_all_behind<<<blocks, 1>>>(ran);
    } else if (is("meet")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        void * arguments[] = {&ran};
        NEED(hipLaunchCooperativeKernel(reinterpret_cast<void *>(meet), dim3(40), dim3(32), arguments, 0, nullptr));
    } else if (is("two")) {
        NEED(hipMemset(ran, 0, sizeof(host)));
        say_that_it_ran<<<1, 32>>>(ran);
        take_long<<<1, 32>>>(ran, 200000);
    }
    NEED(hipGetLastError());
    NEED(hipMemcpy(host, ran, sizeof(host), hipMemcpyDeviceToHost));
    for (int i = 0; i < blocks; ++i) {
        if (host[i] == 1) {
            std::printf("%d ", i);
        }
    }
    std::puts("");
    NEED(hipFree(ran));
    NEED(hipFree(places));
    return is("ran") && host[1] == 0 ? 3 : 0;
}
