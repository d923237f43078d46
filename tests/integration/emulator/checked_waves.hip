// Programs, by name, in which the waves of one block touch the same memory of the device, or the same LDS: with an order
// between them or without one. What a check must find, and what it must not.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

constexpr int threads = 256, waves = threads / 32, count = 4096;

__device__ int me() { return int(threadIdx.x); }
__device__ int my_wave() { return int(threadIdx.x) / 32; }
__device__ bool is_first_lane() { return threadIdx.x % 32 == 0; }
__device__ void meet(bool wanted) {
    if (wanted) {
        __syncthreads();
    }
}

// ---- Through memory of the device, with all barriers or without one of them.

__global__ void neighbour(int * to, int * t, const int * from, bool all) {
    t[me()] = from[me()];
    meet(all);
    to[me()] = t[(me() + 32) % threads];
}
__global__ void used_again(int * to, int * t, const int * from, bool all) {
    int sum = 0;
    for (int n = 0; n < 12; ++n) {
        t[me()] = from[me()] + n;
        __syncthreads();
        sum += t[me() ^ 64];
        meet(all);
    }
    to[me()] = sum;
}
__global__ void in_place(int * to, int * t, const int * from, bool all) {
    t[me()] = from[me()];
    __syncthreads();
    const int value = t[(me() + 32) % threads] + 1;
    meet(all);
    t[me()] = value;
    to[me()] = value;
}
__global__ void one_place(int * to, int * t, const int * from, bool all) {
    for (int n = 0; n < waves; ++n) {
        if (my_wave() == n) {
            t[me() % 32] = from[me()];
        }
        meet(all);
    }
    to[me()] = from[me()];
}
__global__ void tree(int * to, int * t, const int * from, bool all) {
    t[me()] = from[me()];
    __syncthreads();
    for (int step = threads / 2; step > 0; step /= 2) {
        if (me() < step) {
            t[me()] += t[me() + step];
        }
        meet(all);
    }
    to[me()] = from[me()];
}
__global__ void counted(int * to, int * t, const int * from, bool all) {
    atomicAdd(t, from[me()]);
    meet(all);
    to[me()] = *t;
}
__global__ void cleared_and_counted(int * to, int * t, const int * from, bool all) {
    if (me() == 0) {
        *t = 5;
    }
    meet(all);
    atomicAdd(t, 1);
    to[me()] = from[me()];
}
// A factorisation by columns, as linear algebra does small ones: all need the root that one of them stores.
__global__ void factorises(int * to, int * t, const int * from, bool all) {
    constexpr int size = 64; // rows, of which a thread has one
    float * const a = reinterpret_cast<float *>(t);
    for (int k = 0; k < size; ++k) {
        if (me() < size) {
            a[me() * size + k] = me() == k ? 100.0f + float(k) : float((me() * 7 + k) % 5);
        }
    }
    __syncthreads();
    for (int k = 0; k < size; ++k) {
        if (a[k * size + k] <= 0.0f) { // alike for all of the block
            break;
        }
        __syncthreads();
        if (me() == k) {
            a[k * size + k] = sqrtf(a[k * size + k]);
        }
        meet(all);
        if (me() > k && me() < size) {
            a[me() * size + k] /= a[k * size + k];
        }
        __syncthreads();
        if (me() > k && me() < size) {
            for (int j = k + 1; j <= me(); ++j) {
                a[me() * size + j] -= a[me() * size + k] * a[j * size + k];
            }
        }
        __syncthreads();
    }
    to[me()] = from[me()];
}
__global__ void halves(int * to, int * t, const int * from, bool all) {
    short * const h = reinterpret_cast<short *>(t);
    h[me() % 32 * 2 * waves + my_wave()] = short(from[me()]); // two waves in each dword
    meet(all);
    to[me()] = h[me() % 32 * 2 * waves + (my_wave() + 1) % waves];
}
__global__ void wide(int * to, int * t, const int * from, bool all) {
    reinterpret_cast<int4 *>(t)[me()] = make_int4(from[me()], 1, 2, 3);
    meet(all);
    to[me()] = t[(4 * me() + 130) % count];
}
__global__ void two_buffers(int * to, int * t, const int * from, bool all) {
    int sum = 0;
    t[me()] = from[me()];
    __syncthreads();
    for (int n = 0; n < 20; ++n) {
        int * const here = t + n % 2 * threads, * const next = t + (n + (all ? 1 : 2)) % 2 * threads;
        sum += here[(me() + 64) % threads];
        next[me()] = sum + n;
        __syncthreads();
    }
    to[me()] = sum;
}
// Between the read and the write lie as many barriers as the check tells apart, or none.
__global__ void long_after(int * to, int * t, const int * from, bool all) {
    int value = from[me()];
    if (my_wave() == 0) {
        value = t[me()];
    }
    for (int n = 0; all && n < 7; ++n) {
        __syncthreads();
    }
    if (my_wave() == 1) {
        t[me() - 32] = value + 1;
    }
    __syncthreads();
    to[me()] = value;
}
// A flag that says too early that the value is there; in order when it says so behind it.
__global__ void flag(int * to, int * t, const int * from, bool all) {
    if (me() == 0) {
        if (all) {
            t[64] = from[1];
        }
        __hip_atomic_store(t, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
        if (!all) {
            *static_cast<volatile int *>(t + 64) = from[1];
        }
    } else if (me() == 32) {
        while (__hip_atomic_load(t, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) {
        }
        to[0] = t[64];
    }
}
__global__ void lock(int * to, int * t, const int * from, bool all) {
    if (is_first_lane()) {
        while (atomicCAS(t, 0, 1) != 0) {
        }
        __threadfence();
        if (all) {
            t[64] += from[me()];
        }
        __threadfence();
        atomicExch(t, 0);
        if (!all) {
            t[64] += from[me()];
        }
    }
    to[me()] = from[me()];
}

// ---- In order without a barrier.

__global__ void volatile_flag(int * to, int * t, const int * from, bool) {
    if (my_wave() == 0) {
        t[64 + me()] = from[me()];
        __threadfence();
        *static_cast<volatile int *>(t) = 1;
    } else if (my_wave() == 1) {
        while (*static_cast<volatile int *>(t) == 0) {
        }
        __threadfence();
        to[me()] = t[64 + me() % 32];
    }
}
__global__ void polled_by_atomics(int * to, int * t, const int * from, bool) {
    if (my_wave() == 0) {
        t[64 + me()] = from[me()];
        __threadfence();
        atomicExch(t, 1);
    } else if (my_wave() == 1) {
        while (atomicAdd(t, 0) == 0) {
        }
        __threadfence();
        to[me()] = t[64 + me() % 32];
    }
}
// Each wave adds to what the one before left (decoupled look-back).
__global__ void look_back(int * to, int * t, const int * from, bool) {
    if (!is_first_lane()) {
        return;
    }
    int before = 0;
    if (my_wave() != 0) {
        while (__hip_atomic_load(&t[my_wave() - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) {
        }
        before = t[64 + my_wave() - 1];
    }
    t[64 + my_wave()] = before + from[me()];
    __hip_atomic_store(&t[my_wave()], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    to[my_wave()] = before;
}
__global__ void in_step(int * to, int * t, const int * from, bool) { // the lanes of one wave
    volatile int * own = t;
    own[me()] = from[me()];
    for (int step = 16; step > 0; step /= 2) {
        own[me()] = own[me()] + own[me() ^ step];
    }
    to[me()] = own[me()];
}
__global__ void bytes_of_waves(int * to, int * t, const int * from, bool) { // of each dword every wave has a byte
    if (my_wave() < 4) {
        char * const own = reinterpret_cast<char *>(t) + me() % 32 * 4 + my_wave();
        *own = char(from[me()]);
        *own = char(*own + 1);
    }
    __syncthreads();
    to[me()] = t[me() % 32];
}
__global__ void bytes_again(int * to, int * t, const int * from, bool) { // and in the next epoch another one
    for (int n = 0; n < 9; ++n) {
        char * const own = reinterpret_cast<char *>(t) + me() % 32 * 4 + (my_wave() + n) % 4;
        if (my_wave() < 4) {
            *own = char(*own + from[me()]);
        }
        __syncthreads();
    }
    to[me()] = t[me() % 32];
}
__global__ void same_by_all(int * to, int * t, const int * from, bool) {
    t[me() % 32] = 42;
    to[me()] = from[me()];
}
__global__ void histogram(int * to, int * t, const int * from, bool) {
    atomicAdd(&t[from[me()] & 15], 1);
    __syncthreads();
    to[me()] = t[me() & 15];
}
__global__ void groups(int * to, int * t, const int * from, bool) {
    namespace cg = cooperative_groups;
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<32>(block);
    for (int n = 0; n < 9; ++n) {
        t[me()] = from[me()] + n;
        block.sync();
        int sum = t[(me() + 96) % threads];
        for (unsigned step = 16; step > 0; step /= 2) {
            sum += tile.shfl_down(sum, step);
        }
        block.sync();
        t[me()] = sum;
        tile.sync();
        to[me()] = t[me() ^ 1];
        block.sync();
    }
}
__global__ void grid_groups(int * to, int * t, const int * from) {
    namespace cg = cooperative_groups;
    const cg::grid_group grid = cg::this_grid();
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x), all = int(gridDim.x * blockDim.x);
    for (int n = 0; n < 9; ++n) {
        t[i] = from[i] + n;
        grid.sync();
        to[i] = t[(i + 32 + 256 * (n % 2)) % all];
        grid.sync();
    }
}
__global__ void queue(int * to, int * t, const int * from, bool) { // whoever comes takes the next, as long as there is one
    __shared__ int next;
    for (;;) {
        if (me() == 0) {
            next = atomicAdd(t, 1);
        }
        __syncthreads();
        const int mine = next;
        __syncthreads();
        if (mine >= 12) {
            break;
        }
        t[64 + mine * threads + me()] = from[me()] + mine;
    }
    to[me()] = from[me()];
}
__global__ void looks_before_taking(int * to, int * t, const int * from, bool) { // a look that nobody relies on
    int taken = 0;
    if (is_first_lane() && t[0] < 6) {
        taken = atomicAdd(t, 1);
    }
    to[me()] = taken + from[me()];
}

// ---- Loops around a compare-and-swap.

template <class T, class F> __device__ void change(T * place, F f) {
    if constexpr (sizeof(T) == 8) {
        auto * const bits = reinterpret_cast<unsigned long long *>(place);
        unsigned long long old = *bits, assumed;
        do {
            assumed = old;
            T value;
            __builtin_memcpy(&value, &assumed, 8);
            value = f(value);
            unsigned long long wanted;
            __builtin_memcpy(&wanted, &value, 8);
            old = atomicCAS(bits, assumed, wanted);
        } while (old != assumed);
    } else if constexpr (sizeof(T) == 4) {
        auto * const bits = reinterpret_cast<unsigned *>(place);
        unsigned old = *bits, assumed;
        do {
            assumed = old;
            T value;
            __builtin_memcpy(&value, &assumed, 4);
            value = f(value);
            unsigned wanted;
            __builtin_memcpy(&wanted, &value, 4);
            old = atomicCAS(bits, assumed, wanted);
        } while (old != assumed);
    } else { // a part of a dword
        auto * const bits = reinterpret_cast<unsigned *>(size_t(place) & ~size_t(3));
        const unsigned shift = unsigned(size_t(place) & 3) * 8, mask = (1u << (8 * sizeof(T))) - 1;
        unsigned old = *bits, assumed;
        do {
            assumed = old;
            const T value = f(T(assumed >> shift & mask));
            old = atomicCAS(bits, assumed, (assumed & ~(mask << shift)) | (unsigned(value) & mask) << shift);
        } while (old != assumed);
    }
}
template <class T> __global__ void swaps(int * to, T * t, const int * from, bool all) {
    change(t + me() % 2, [&](T value) { return T(value + T(from[me()])); });
    meet(all);
    to[me()] = int(t[me() % 2]);
}
template <class T> __global__ void swaps_lds(int * to, const int * from, bool all) {
    __shared__ T t[4];
    if (me() < 4) {
        t[me()] = T(0);
    }
    __syncthreads();
    change(t + me() % 2, [&](T value) { return T(value + T(from[me()])); });
    meet(all);
    to[me()] = int(t[me() % 2]);
}
__global__ void adds_doubles(int * to, const int * from, bool all) { // the header's own loop
    __shared__ double sum;
    if (me() == 0) {
        sum = 0.0;
    }
    __syncthreads();
    atomicAdd(&sum, double(from[me()]));
    meet(all);
    to[me()] = int(sum);
}
__global__ void adds_doubles_in_memory(int * to, double * t, const int * from, bool all) {
    atomicAdd(t, double(from[me()]));
    meet(all);
    to[me()] = int(*t);
}
template <bool is_in_lds> __global__ void largest(int * to, int * t, const int * from, bool) { // no swap where none is needed
    __shared__ int lds[1];
    int * const place = is_in_lds ? lds : t;
    if (me() == 0) {
        *place = 0;
    }
    __syncthreads();
    int old = *place;
    while (old < from[me()]) {
        const int before = atomicCAS(place, old, from[me()]);
        if (before == old) {
            break;
        }
        old = before;
    }
    __syncthreads();
    to[me()] = *place;
}

int main(int arguments, char ** words) {
    const std::string wanted = arguments > 1 ? words[1] : "";
    int *to = nullptr, *t = nullptr, *from = nullptr;
    (void) hipMalloc(&to, count * sizeof(int));
    (void) hipMalloc(&t, count * sizeof(int));
    (void) hipMalloc(&from, count * sizeof(int));
    std::vector<int> numbers(count);
    for (int n = 0; n < count; ++n) {
        numbers[size_t(n)] = n * 7 % 1000 + 3;
    }
    (void) hipMemcpy(from, numbers.data(), count * sizeof(int), hipMemcpyHostToDevice);
    (void) hipMemset(t, 0, count * sizeof(int));
    using kernel = void (*)(int *, int *, const int *, bool);
    const std::map<std::string, kernel> with_barriers = {
        {"neighbour", neighbour}, {"used again", used_again}, {"in place", in_place}, {"one place", one_place},
        {"tree", tree}, {"counted", counted}, {"cleared and counted", cleared_and_counted},
        {"factorises", factorises}, {"halves", halves}, {"wide", wide}, {"two buffers", two_buffers},
        {"long after", long_after}, {"flag", flag}, {"lock", lock},
    };
    const std::map<std::string, kernel> ordered = {
        {"volatile flag", volatile_flag}, {"polled by atomics", polled_by_atomics}, {"look back", look_back},
        {"in step", in_step}, {"bytes of waves", bytes_of_waves}, {"bytes again", bytes_again},
        {"same by all", same_by_all}, {"histogram", histogram}, {"groups", groups}, {"queue", queue},
        {"looks before taking", looks_before_taking}, {"largest", largest<false>}, {"largest in lds", largest<true>},
    };
    using case_of = void (*)(int *, int *, const int *, bool);
    const std::map<std::string, case_of> swapping = {
#define SWAP(name, ...) {name, [](int * to, int * t, const int * from, bool all) { (void) t; __VA_ARGS__; }}
        SWAP("swapped dwords", swaps<<<1, threads>>>(to, (unsigned *) t, from, all)),
        SWAP("swapped floats", swaps<<<1, threads>>>(to, (float *) t, from, all)),
        SWAP("swapped doubles", swaps<<<1, threads>>>(to, (double *) t, from, all)),
        SWAP("swapped halves", swaps<<<1, threads>>>(to, (unsigned short *) t, from, all)),
        SWAP("swapped bytes", swaps<<<1, threads>>>(to, (unsigned char *) t, from, all)),
        SWAP("swapped floats in lds", swaps_lds<float><<<1, threads>>>(to, from, all)),
        SWAP("swapped doubles in lds", swaps_lds<double><<<1, threads>>>(to, from, all)),
        SWAP("swapped halves in lds", swaps_lds<unsigned short><<<1, threads>>>(to, from, all)),
        SWAP("swapped bytes in lds", swaps_lds<unsigned char><<<1, threads>>>(to, from, all)),
        SWAP("doubles in lds", adds_doubles<<<1, threads>>>(to, from, all)),
        SWAP("doubles", adds_doubles_in_memory<<<1, threads>>>(to, (double *) t, from, all)),
    };
    const bool is_clean = wanted.starts_with("clean: ");
    const std::string name = is_clean ? wanted.substr(7) : wanted;
    if (with_barriers.contains(name)) {
        with_barriers.at(name)<<<1, threads>>>(to, t, from, is_clean);
    } else if (is_clean && ordered.contains(name)) {
        ordered.at(name)<<<1, threads>>>(to, t, from, true);
    } else if (swapping.contains(name)) {
        swapping.at(name)(to, t, from, is_clean);
    } else if (wanted == "clean: grid groups") {
        void * all[] = {&to, &t, &from};
        (void) hipLaunchCooperativeKernel(reinterpret_cast<const void *>(grid_groups), dim3(4), dim3(threads), all, 0, nullptr);
    } else {
        for (const auto & cases : {with_barriers, swapping}) {
            for (const auto & one : cases) {
                if (one.first != "swapped bytes" && one.first != "swapped halves") { // parts of dwords are not followed so far
                    std::printf("%s\n", one.first.c_str());
                }
                std::printf("clean: %s\n", one.first.c_str());
            }
        }
        for (const auto & one : ordered) {
            std::printf("clean: %s\n", one.first.c_str());
        }
        std::printf("clean: grid groups\n");
        return arguments > 1;
    }
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    return 0;
}
