// Kernels that wait, by name. Those that begin with "stuck: " can never go on; the others print "right" at their end.
#include <hip/hip_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

constexpr int block = 64, blocks = 3;

__device__ int look(int * at) { return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM); }
__device__ int look_behind(int * at) { return __hip_atomic_load(at, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); }
__device__ void set(int * at, int to) { __hip_atomic_store(at, to, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT); }

// ---- Nobody raises what they wait for.

__global__ void flag(int * flags) {
    if (threadIdx.x == 0) {
        while (look(flags) == 0) { // line: flag
        }
    }
    __syncthreads(); // line: barrier
    flags[1] = 1;
}
__global__ void flag_with_sleep(int * flags) {
    if (threadIdx.x == 0) {
        while (look_behind(flags) == 0) {
            __builtin_amdgcn_s_sleep(1);
        }
    }
    __syncthreads();
    flags[1] = 1;
}
__global__ void lock_twice(int * flags) {
    for (int n = 0; n < 2; ++n) {
        while (atomicCAS(flags, 0, 1) != 0) {
        }
    }
}
__global__ void flag_in_lds(int * flags) {
    __shared__ volatile int mine;
    mine = 0;
    __syncthreads();
    while (threadIdx.x < 32 && mine == 0) {
    }
    flags[1] = 1;
}
__global__ void every_wave_looks(int * flags) {
    __shared__ int seen;
    do {
        if (threadIdx.x == 0) {
            seen = look(flags);
        }
        __syncthreads();
    } while (seen == 0);
    flags[1] = 1;
}
__global__ void each_for_the_next(int * flags) {
    while (look_behind(&flags[(blockIdx.x + 1) % gridDim.x]) == 0) {
    }
    set(&flags[blockIdx.x], 1);
}
__global__ void many_flags(int * flags) { // a scan of other lengths in each wave: 21 jumps and 13
    const int count = threadIdx.x < 32 ? 20 : 12;
    for (int missing = 1; missing != 0;) {
        missing = 0;
        for (int n = 0; n < count; ++n) {
            missing += look(&flags[n]) == 0;
        }
    }
    flags[40] = 1;
}
__global__ void nothing(int * flags) {
    for (;;) {
        __builtin_amdgcn_s_sleep(2);
        asm volatile("" ::: "memory");
    }
}
__global__ void same_again(int * flags) { // stores what is there already
    while (look(flags) == 0) {
        __hip_atomic_store(&flags[2], 0, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        atomicOr(&flags[3], 0);
    }
    flags[1] = 1;
}

// ---- These go on.

__global__ void until_time(int * flags) {
    const long long start = wall_clock64();
    while (wall_clock64() - start < 3000000) {
    }
    flags[1] = 1;
}
__global__ void until_time_or_flag(int * flags) {
    const long long start = wall_clock64();
    while (look(flags) == 0 && wall_clock64() - start < 3000000) {
        __builtin_amdgcn_s_sleep(1);
    }
    flags[1] = 1;
}
__global__ void one_computes(int * flags) { // for long, with nothing but registers
    if (blockIdx.x == 0) {
        unsigned state = 1;
        for (int n = 0; n < 1000000; ++n) {
            state = state * 1664525u + 1013904223u;
            asm volatile("" : "+v"(state));
        }
        set(flags, state != 0);
    }
    while (look_behind(flags) == 0) {
    }
    flags[1] = 1;
}
__global__ void counts_in_memory(int * flags) {
    volatile int * counter = flags + 2;
    while (*counter < 300000) {
        *counter = *counter + 1;
    }
    flags[1] = 1;
}
__global__ void counts_by_atomics(int * flags) {
    while (atomicAdd(&flags[2], 1) < 300000) {
    }
    flags[1] = 1;
}
__global__ void counts_in_scratch(int * flags) {
    volatile int counter[4] = {};
    while (counter[threadIdx.x & 3] < 50000) {
        counter[threadIdx.x & 3] = counter[threadIdx.x & 3] + 1;
    }
    flags[1] = 1;
}
__global__ void ping_pong(int * flags) { // one thread of each block
    for (int n = 0; n < 2000 && threadIdx.x == 0; ++n) {
        while (look_behind(&flags[4]) % 2 != int(blockIdx.x)) {
        }
        set(&flags[4], 2 * n + int(blockIdx.x) + 1);
    }
    flags[1] = 1;
}
__global__ void say_while_others_wait(int * flags) {
    if (blockIdx.x == 0) {
        for (int n = 0; n < 300; ++n) {
            printf("%s", "");
        }
        set(flags, 1);
    }
    while (look_behind(flags) == 0) {
    }
    flags[1] = 1;
}

using kernel = void (*)(int *);

static void * device_memory() {
    int * place = nullptr;
    NEED(hipMalloc(&place, 1024));
    NEED(hipMemset(place, 0, 1024));
    return place;
}

// Runs it, and says whether it came to its end.
static void run(kernel which, int grid, int * flags) {
    which<<<grid, block>>>(flags);
    NEED(hipDeviceSynchronize());
    int ended = 0;
    NEED(hipMemcpy(&ended, flags + 1, sizeof(int), hipMemcpyDefault));
    std::printf("%s\n", ended == 1 ? "right" : "wrong");
}
static std::function<void()> on_device(kernel which, int grid) {
    return [=] { run(which, grid, static_cast<int *>(device_memory())); };
}

// Host code raises the flag, long after the kernel began to wait for it.
static void raised_by_host(int * flags) {
    flags[0] = flags[1] = 0;
    std::thread raises([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        reinterpret_cast<std::atomic<int> *>(flags)->store(1);
    });
    run(flag, blocks, flags);
    raises.join();
}

int main(int argc, char ** argv) {
    const std::map<std::string, std::function<void()>> cases = {
        {"stuck: flag", on_device(flag, blocks)},
        {"stuck: flag with sleep", on_device(flag_with_sleep, blocks)},
        {"stuck: one block", on_device(flag, 1)},
        {"stuck: more blocks than run", on_device(flag, 5000)},
        {"stuck: lock twice", on_device(lock_twice, 1)},
        {"stuck: flag in LDS", on_device(flag_in_lds, 1)},
        {"stuck: every wave looks", on_device(every_wave_looks, blocks)},
        {"stuck: each for the next", on_device(each_for_the_next, blocks)},
        {"stuck: many flags", on_device(many_flags, 2)},
        {"stuck: nothing", on_device(nothing, 1)},
        {"stuck: same again", on_device(same_again, 1)},
        {"stuck: copy of another stream",
         [] {
             int * const flags = static_cast<int *>(device_memory());
             hipStream_t other;
             NEED(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
             std::thread copies([=] { // when the kernel runs
                 std::this_thread::sleep_for(std::chrono::milliseconds(500));
                 const int one = 1;
                 NEED(hipMemcpyWithStream(flags, &one, sizeof(one), hipMemcpyHostToDevice, other));
             });
             run(flag, 1, flags);
             copies.join();
         }},
        {"time", on_device(until_time, blocks)},
        {"time or flag", on_device(until_time_or_flag, blocks)},
        {"one computes", on_device(one_computes, 8)},
        {"counts in memory", on_device(counts_in_memory, 1)},
        {"counts by atomics", on_device(counts_by_atomics, blocks)},
        {"counts in scratch", on_device(counts_in_scratch, blocks)},
        {"ping pong", on_device(ping_pong, 2)},
        {"say while others wait", on_device(say_while_others_wait, 8)},
        {"host memory",
         [] {
             int * flags = nullptr;
             NEED(hipHostMalloc(&flags, 1024, hipHostMallocMapped));
             raised_by_host(flags);
         }},
        {"managed memory",
         [] {
             int * flags = nullptr;
             NEED(hipMallocManaged(&flags, 1024));
             raised_by_host(flags);
         }},
        {"registered memory",
         [] {
             static int own[256];
             NEED(hipHostRegister(own, sizeof(own), hipHostRegisterMapped));
             raised_by_host(own);
         }},
        {"fine-grained memory",
         [] {
             int * flags = nullptr;
             NEED(hipExtMallocWithFlags(reinterpret_cast<void **>(&flags), 1024, hipDeviceMallocFinegrained));
             raised_by_host(flags);
         }},
    };
    const auto found = cases.find(argc > 1 ? argv[1] : "");
    if (found == cases.end()) {
        for (const auto & [name, todo] : cases) {
            std::printf("%s\n", name.c_str());
        }
        return argc > 1;
    }
    found->second();
    return 0;
}
