// Programs, by name, whose waves and lanes meet at barriers, or do not; and kernels that wait for ever behind a fault.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

constexpr int threads = 128, count = 1024;

__device__ int me() { return int(threadIdx.x); }
__device__ int my_wave() { return int(threadIdx.x) / 32; }

__device__ __forceinline__ int sum_of_block(int value) { // a function with a barrier, as libraries have them
    __shared__ int parts[4];
    if (me() % 32 == 0) {
        parts[my_wave()] = value;
    }
    __syncthreads();
    return parts[0];
}

// ---- Faults.

__global__ void some_call_it(int * to, const int * from) {
    int value = from[me()];
    if (me() < 4) {
        value = sum_of_block(value);
    }
    to[me()] = value;
    __syncthreads();
    to[me()] = to[me()] + 1;
}
__global__ void two_branches(int * to, const int * from) {
    if (my_wave() == 0) {
        to[me()] = from[me()];
        __syncthreads();
    } else {
        to[me()] = from[me()] * 3 + 1;
        __syncthreads();
    }
    to[me()] += 2;
}
__global__ void loops_differ(int * to, const int * from) { // a wave goes around once less, and meets the others' barrier
    int sum = 0;
    for (int n = 0; n < (my_wave() == 1 ? 3 : 4); ++n) {
        sum += from[me() + n];
        __syncthreads();
    }
    to[me()] = sum;
    __syncthreads();
    to[me()] += 1;
}
__global__ void leaves_the_loop(int * to, const int * from) { // the same, but that it ends
    int sum = 0;
    for (int n = 0; n < 4; ++n) {
        if (my_wave() == 2 && n == 2) {
            return;
        }
        sum += from[me() + n];
        __syncthreads();
    }
    to[me()] = sum;
}
__global__ void some_lanes(int * to, const int * from) {
    if (me() % 32 < 20) {
        to[me()] = from[me()];
        __syncthreads();
    }
    to[me()] += 1;
}
__global__ void lanes_loop(int * to, const int * from) { // as often as a lane's number says
    int sum = 0;
    for (int n = 0; n < from[me()] % 3 + 1; ++n) {
        sum += from[me() + n];
        __syncthreads();
    }
    to[me()] = sum;
}
__global__ void one_branch(int * to, const int * from) { // of two waves one comes to the first barrier
    if (my_wave() % 2 == 0) {
        to[me()] = from[me()];
        __syncthreads();
    }
    to[me()] = 3;
    __syncthreads();
    to[me()] += 2;
}
__global__ void called_twice(int * to, const int * from) { // one barrier of the source, by two calls
    int value = from[me()];
    if (my_wave() == 0) {
        value = sum_of_block(value);
    } else {
        value = sum_of_block(value + 1) * 2;
    }
    to[me()] = value;
}

// ---- Notes: a GPU goes on, others need not.

__global__ void waves_return(int * to, const int * from) {
    if (my_wave() == 3) {
        return;
    }
    to[me()] = from[me()];
    __syncthreads();
    to[me()] += from[me() + 32];
}
__global__ void lanes_return(int * to, const int * from) {
    if (me() >= 50) {
        return;
    }
    to[me()] = from[me()];
    __syncthreads();
    to[me()] += 1;
}

// ---- Neither.

__global__ void all_come(int * to, const int * from) {
    int sum = 0;
    for (int n = 0; n < 20; ++n) {
        sum += from[me() + n];
        __syncthreads();
        if (n == 15) {
            break;
        }
    }
    to[me()] = sum;
}
__global__ void unrolled(int * to, const int * from, int times) { // one barrier that the compiler copies
    int sum = 0;
    for (int n = 0; n < times; n += 2) {
#pragma unroll
        for (int k = 0; k < 2; ++k) { // every second wave is one copy ahead, and all go around as often
            if (n + k >= my_wave() % 2 && n + k < times - 2 + my_wave() % 2) {
                sum += from[me() + n + k];
                __syncthreads();
            }
        }
    }
    to[me()] = sum;
}
__global__ void branch_of_all(int * to, const int * from) {
    if (from[0] > 1) {
        to[me()] = from[me()];
        __syncthreads();
    } else {
        to[me()] = 1;
        __syncthreads();
    }
    to[me()] = sum_of_block(to[me()]);
}
__global__ void lanes_before(int * to, const int * from) {
    if (me() < 20) {
        to[me()] = from[me()];
    }
    __syncthreads();
    if (my_wave() != 0) {
        return;
    }
    to[me()] = from[me()] + 1;
}
__global__ void waves_end_behind(int * to, const int * from) {
    to[me()] = from[me()];
    __syncthreads();
    if (me() >= 20) {
        return;
    }
    to[me()] = to[me() + 64];
}

// ---- An access is left out, and what it was for does not come.

__global__ void polls_nothing(int * flag) {
    if (threadIdx.x == 0) {
        while (*static_cast<volatile int *>(flag) != 1) {
        }
    }
}
__global__ void waits_for_a_lost_store(int * flag, int * far) {
    if (me() == 0) {
        __hip_atomic_store(far, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    } else if (me() == 32) {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
        }
    }
    __syncthreads();
}
__global__ void sleeps_for_a_lost_store(int * flag, int * far) { // the same between blocks
    if (blockIdx.x == 1 && me() == 0) {
        __hip_atomic_store(far, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    } else if (blockIdx.x == 0 && me() == 0) {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
            __builtin_amdgcn_s_sleep(1);
        }
    }
}
__global__ void goes_on(int * to, int * far, int times) { // long, but not for ever
    int sum = 0;
    if (me() == 0) {
        *far = 1;
    }
    for (int n = 0; n < times; ++n) {
        sum = sum * 5 + n;
        asm volatile("" : "+v"(sum));
    }
    to[me()] = sum;
}
using two_words = long __attribute__((ext_vector_type(2)));
extern "C" __device__ two_words __ockl_hostcall_preview(unsigned service, unsigned long, unsigned long, unsigned long,
                                                        unsigned long, unsigned long, unsigned long, unsigned long,
                                                        unsigned long);
__global__ void calls_the_host() { __ockl_hostcall_preview(1, 0x1234, 0, 0, 0, 0, 0, 0, 0); }

int main(int arguments, char ** words) {
    const std::string wanted = arguments > 1 ? words[1] : "";
    int *to = nullptr, *from = nullptr;
    (void) hipMalloc(&to, count * sizeof(int));
    (void) hipMalloc(&from, count * sizeof(int));
    std::vector<int> numbers(count);
    for (int n = 0; n < count; ++n) {
        numbers[size_t(n)] = n * 7 % 100 + 2;
    }
    (void) hipMemcpy(from, numbers.data(), count * sizeof(int), hipMemcpyHostToDevice);
    (void) hipMemset(to, 0, count * sizeof(int));
    using kernel = void (*)(int *, const int *);
    const std::map<std::string, kernel> meeting = {
        {"some call it", some_call_it}, {"two branches", two_branches}, {"loops differ", loops_differ},
        {"leaves the loop", leaves_the_loop}, {"some lanes", some_lanes}, {"lanes loop", lanes_loop},
        {"one branch", one_branch}, {"called twice", called_twice}, {"note: waves return", waves_return},
        {"note: lanes return", lanes_return}, {"clean: all come", all_come}, {"clean: branch of all", branch_of_all},
        {"clean: lanes before", lanes_before}, {"clean: waves end behind", waves_end_behind},
    };
    if (meeting.contains(wanted)) {
        meeting.at(wanted)<<<1, threads>>>(to, from);
    } else if (wanted == "clean: unrolled") {
        unrolled<<<1, threads>>>(to, from, 12);
    } else if (wanted == "stuck: polls nothing") {
        polls_nothing<<<1, 32>>>(from + (1 << 28));
    } else if (wanted == "stuck: lost store") {
        waits_for_a_lost_store<<<1, 64>>>(to, from + (1 << 28));
    } else if (wanted == "stuck: lost store of another block") {
        sleeps_for_a_lost_store<<<4, 32>>>(to, from + (1 << 28));
    } else if (wanted == "goes on") {
        goes_on<<<2, 32>>>(to, from + (1 << 28), 3000000);
    } else if (wanted == "refused: host function") {
        calls_the_host<<<1, 32>>>();
    } else {
        for (const auto & one : meeting) {
            std::printf("%s\n", one.first.c_str());
        }
        std::printf("clean: unrolled\n");
        return arguments > 1;
    }
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    return 0;
}
