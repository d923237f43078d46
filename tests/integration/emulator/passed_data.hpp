// For programs whose blocks or waves pass data to each other. Each value has a neighbour that never changes. Readers
// first look at the neighbour, which brings the line of the value into their caches.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>

constexpr int threads = 64, blocks = 64, rounds = 3;
constexpr int relaxed = __ATOMIC_RELAXED, agent = __HIP_MEMORY_SCOPE_AGENT, block = __HIP_MEMORY_SCOPE_WORKGROUP;

__device__ inline int me() { return int(threadIdx.x); }
__device__ inline int my_block() { return int(blockIdx.x); }

// Plain loads that the compiler must not move, merge or turn into scalar loads.
__device__ inline int plain(const int * at) {
    asm volatile("" : "+v"(at) : : "memory");
    const int found = *at;
    asm volatile("" : : "v"(found) : "memory");
    return found;
}
__device__ inline int * value(int * data, int n) { return data + 2 * n; }
__device__ inline void look(int * data, int n) { (void) plain(value(data, n) + 1); } // at its neighbour
__device__ inline void expect(int found, int wanted, int * wrong) {
    if (found != wanted) {
        atomicAdd(wrong, 1);
    }
}
__device__ inline int look_at(int * flag) { return __hip_atomic_load(flag, relaxed, agent); }
// An atomic that changes nothing and does not become a load.
__device__ inline int ask(int * flag) { return atomicCAS(flag, -1, -1); }
__device__ inline void set(int * flag, int value) { __hip_atomic_store(flag, value, relaxed, agent); }
__device__ inline void pause() { __builtin_amdgcn_s_sleep(1); }

// Flags, data, and the number of wrong values; all zero at the start.
using kernel = void (*)(int *, int *, int *);

// Runs the kernel that the program's argument names, or lists the names. Prints whether a value was wrong. A lock counts
// in the first value how often it was held.
inline int run_named(const std::map<std::string, kernel> & all, int arguments, char ** words) {
    const std::string wanted = arguments > 1 ? words[1] : "";
    const auto chosen = all.find(wanted);
    if (chosen == all.end()) {
        for (const auto & one : all) {
            std::printf("%s\n", one.first.c_str());
        }
        return arguments > 1;
    }
    constexpr int count = 4 * blocks * threads;
    int *flags = nullptr, *data = nullptr, *wrong = nullptr, found = 0, first = 0;
    (void) hipMalloc(&flags, count * sizeof(int));
    (void) hipMalloc(&data, count * sizeof(int));
    (void) hipMalloc(&wrong, sizeof(int));
    (void) hipMemset(flags, 0, count * sizeof(int));
    (void) hipMemset(data, 0, count * sizeof(int));
    (void) hipMemset(wrong, 0, sizeof(int));
    if (wanted == "clean: grid group") {
        void * given[] = {&flags, &data, &wrong};
        (void) hipLaunchCooperativeKernel(
            reinterpret_cast<void *>(chosen->second), dim3(blocks), dim3(threads), given, 0, nullptr);
    } else {
        chosen->second<<<blocks, threads>>>(flags, data, wrong);
    }
    const hipError_t error = hipMemcpy(&found, wrong, sizeof(int), hipMemcpyDeviceToHost);
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    if (wanted.find(" lock") != std::string::npos) {
        (void) hipMemcpy(&first, data, sizeof(int), hipMemcpyDeviceToHost);
        found += first != rounds * blocks;
    }
    std::printf("%s\n", found == 0 ? "right" : "wrong");
    return 0;
}
