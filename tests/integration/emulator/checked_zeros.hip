// Programs, by name, in which waves of a block write to one place in no order, and change nothing: because all write the
// same whatever the numbers are, or because these numbers are zeros.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>

constexpr int threads = 256, count = 4096;

__device__ int me() { return int(threadIdx.x); }

// ---- Hidden by zeros.

template <class T> __global__ void tree_in_lds(int * to, int *, const int * from) {
    __shared__ T part[threads];
    part[me()] = reinterpret_cast<const T *>(from)[me()];
    __syncthreads();
    for (int step = threads / 2; step > 0; step /= 2) {
        if (me() < step) {
            part[me()] += part[me() + step];
        }
    }
    if (me() == 0) {
        to[0] = int(part[0]);
    }
}
__global__ void tree(int * to, int * t, const int * from) {
    t[me()] = from[me()];
    __syncthreads();
    for (int step = threads / 2; step > 0; step /= 2) {
        if (me() < step) {
            t[me()] += t[me() + step];
        }
    }
    to[me()] = from[me()];
}
__global__ void last_one_stays(int * to, int *, const int * from) {
    __shared__ int part[32];
    part[me() % 32] = from[me()];
    __syncthreads();
    to[me()] = part[me() % 32];
}
__global__ void last_one_stays_in_memory(int * to, int * t, const int * from) {
    t[me() % 32] = from[me()];
    to[me()] = from[me()];
}
__global__ void shifted(int * to, int *, const int * from) { // in place, by a wave
    __shared__ int part[threads];
    part[me()] = from[me()];
    __syncthreads();
    part[me()] = part[(me() + 32) % threads];
    __syncthreads();
    to[me()] = part[me()];
}
__global__ void product(int * to, int *, const int * from) {
    __shared__ float part[threads];
    const float * numbers = reinterpret_cast<const float *>(from);
    part[me()] = numbers[me()];
    __syncthreads();
    part[me()] = part[me() ^ 32] * numbers[me()] + numbers[me() + 1];
    __syncthreads();
    to[me()] = int(part[me()]);
}
__global__ void running_sum(int * to, int * t, const int * from) { // in place, without the barrier between read and write
    t[me()] = from[me()];
    __syncthreads();
    for (int step = 32; step < threads; step *= 2) {
        const int before = me() >= step ? t[me() - step] : 0;
        t[me()] += before;
        __syncthreads();
    }
    to[me()] = t[me()];
}

// ---- The same whatever the numbers are.

__global__ void constant(int * to, int * t, const int * from) {
    __shared__ int flag;
    flag = 1;
    t[0] = 7;
    to[me()] = from[me()] + flag;
}
__global__ void found_one(int * to, int * t, const int * from) {
    if (from[me()] >= 0) {
        t[0] = 1;
    }
    to[me()] = from[me()];
}
__global__ void of_the_block(int * to, int *, const int * from) { // every thread stores what all of them loaded
    __shared__ int first;
    first = from[blockIdx.x];
    to[me()] = first;
}
__global__ void all_sum(int * to, int * t, const int * from) { // every wave adds up the same
    __shared__ int part[8], total;
    if (me() % 32 == 0) {
        part[me() / 32] = from[me()];
    }
    __syncthreads();
    int sum = 0;
    for (int n = 0; n < 8; ++n) {
        sum += part[n];
    }
    total = sum;
    t[0] = sum;
    to[me()] = total;
}
__global__ void own_place_again(int * to, int *, const int * from) { // each wave its own
    __shared__ volatile int part[threads];
    part[me()] = from[me()];
    part[me()] = part[me() ^ 1];
    to[me()] = part[me()];
}

int main(int arguments, char ** words) {
    const std::string wanted = arguments > 1 ? words[1] : "";
    int *to = nullptr, *t = nullptr, *from = nullptr;
    for (int ** one : {&to, &t, &from}) {
        (void) hipMalloc(one, count * sizeof(int));
        (void) hipMemset(*one, 0, count * sizeof(int));
    }
    using kernel = void (*)(int *, int *, const int *);
    const std::map<std::string, kernel> cases = {
        {"tree", tree}, {"tree in lds", tree_in_lds<int>}, {"tree of floats", tree_in_lds<float>},
        {"last one stays", last_one_stays}, {"last one stays in memory", last_one_stays_in_memory},
        {"shifted", shifted}, {"product", product}, {"running sum", running_sum},
        {"clean: constant", constant}, {"clean: found one", found_one}, {"clean: of the block", of_the_block},
        {"clean: all sum", all_sum}, {"clean: own place again", own_place_again},
    };
    const auto found = cases.find(wanted);
    if (found == cases.end()) {
        for (const auto & one : cases) {
            std::printf("%s\n", one.first.c_str());
        }
        return arguments > 1;
    }
    found->second<<<1, threads>>>(to, t, from);
    int numbers[count];
    if (hipDeviceSynchronize() != hipSuccess || hipMemcpy(numbers, from, sizeof(numbers), hipMemcpyDeviceToHost) != hipSuccess) {
        return 1;
    }
    for (const int one : numbers) { // what runs once more with other bits leaves memory as it is
        if (one != 0) {
            std::printf("%d is no zero\n", one);
            return 1;
        }
    }
    if (hipMemcpy(numbers, to, sizeof(numbers), hipMemcpyDeviceToHost) != hipSuccess) {
        return 1;
    }
    for (const int one : numbers) {
        if (one > 1) {
            std::printf("%d is left\n", one);
            return 1;
        }
    }
    return 0;
}
