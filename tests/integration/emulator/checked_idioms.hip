// Programs, by name, that keep an order in the ways that look most like none: what no check may blame. Those that hang on
// a barrier alone also come without it.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace cg = cooperative_groups;

constexpr int threads = 128, waves = threads / 32, blocks = 6, count = 8192;

__device__ int me() { return int(threadIdx.x); }
__device__ int lane() { return int(threadIdx.x) % 32; }
__device__ int my_wave() { return int(threadIdx.x) / 32; }
__device__ int place() { return int(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ void meet(bool wanted) {
    if (wanted) {
        __syncthreads();
    }
}
template <class T> __device__ T relaxed(T * from) { return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
template <class T> __device__ void set_relaxed(T * to, T value) {
    __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> __device__ T acquired(T * from) { return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT); }
template <class T> __device__ void release(T * to, T value) {
    __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

// ---- A barrier, and what it is for.

// Each round fills the buffer that the round before did not read: one barrier is enough.
__global__ void double_buffer(int * to, int *, const int * from, bool all) {
    __shared__ int tile[2][threads];
    int sum = 0;
    tile[0][me()] = from[me()];
    for (int n = 0; n < 10; ++n) {
        meet(all);
        sum += tile[n % 2][threads - 1 - me()];
        tile[(n + 1) % 2][me()] = from[me() + n] + n;
    }
    to[place()] = sum;
}
__global__ void transposed(int * to, int *, const int * from, bool all) { // padded by a column
    __shared__ int tile[waves][33];
    tile[my_wave()][lane()] = from[me()];
    meet(all);
    to[place()] = tile[lane() % waves][my_wave() * 8 + lane() / waves];
}
__global__ void own_histograms(int * to, int *, const int * from, bool all) { // of each wave, added up at the end
    __shared__ int counts[waves][32];
    counts[my_wave()][lane()] = 0;
    atomicAdd(&counts[my_wave()][from[me()] % 32], 1);
    atomicAdd(&counts[my_wave()][from[me() + 64] % 32], 1);
    meet(all);
    int sum = 0;
    for (int n = 0; n < waves; ++n) {
        sum += counts[n][lane()];
    }
    to[place()] = sum;
}
__global__ void with_halo(int * to, int *, const int * from, bool all) {
    __shared__ int row[threads + 2];
    row[me() + 1] = from[me()];
    if (me() == 0) {
        row[0] = row[threads + 1] = 0;
    }
    for (int n = 0; n < 6; ++n) {
        __syncthreads();
        const int next = (row[me()] + row[me() + 1] + row[me() + 2]) / 3;
        meet(all);
        row[me() + 1] = next;
    }
    to[place()] = row[me() + 1];
}
__global__ void another_type(int * to, int *, const int * from, bool all) { // the same bytes, as floats and then as shorts
    alignas(8) __shared__ char bytes[threads * 4];
    auto * const floats = reinterpret_cast<float *>(bytes);
    auto * const shorts = reinterpret_cast<short *>(bytes);
    floats[me()] = float(from[me()]);
    __syncthreads();
    const float value = floats[(me() + 40) % threads];
    meet(all);
    shorts[me()] = short(value);
    __syncthreads();
    to[place()] = shorts[me() ^ 33];
}
__global__ void up_and_down(int * to, int *, const int * from, bool all) { // a scan by a tree, in place
    __shared__ int sums[threads];
    sums[me()] = from[me()];
    for (int step = 1; step < threads; step *= 2) {
        meet(all);
        if ((me() + 1) % (2 * step) == 0) {
            sums[me()] += sums[me() - step];
        }
    }
    if (me() == threads - 1) {
        sums[me()] = 0;
    }
    for (int step = threads / 2; step > 0; step /= 2) {
        meet(all);
        if ((me() + 1) % (2 * step) == 0) {
            const int before = sums[me() - step];
            sums[me() - step] = sums[me()];
            sums[me()] += before;
        }
    }
    __syncthreads();
    to[place()] = sums[threads - 1 - me()];
}
__global__ void scan_of_waves(int * to, int *, const int * from, bool all) { // shuffles within a wave, LDS between them
    __shared__ int totals[waves];
    int sum = from[me()];
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up(sum, step);
        sum += lane() >= step ? before : 0;
    }
    if (lane() == 31) {
        totals[my_wave()] = sum;
    }
    meet(all);
    for (int n = 0; n < my_wave(); ++n) {
        sum += totals[n];
    }
    to[place()] = sum;
}
__global__ void bitmap(int * to, int *, const int * from, bool all) {
    __shared__ unsigned bits[32];
    if (me() < 32) {
        bits[me()] = 0;
    }
    __syncthreads();
    atomicOr(&bits[from[me()] / 32 % 32], 1u << from[me()] % 32);
    meet(all);
    to[place()] = __popc(bits[lane()]);
}
__global__ void until_none_changes(int * to, int *, const int * from, bool all) { // all vote, and all leave together
    __shared__ int least[threads];
    least[me()] = from[me()] % 50;
    for (;;) {
        __syncthreads();
        const int found = min(least[me()], least[(me() + 32) % threads]);
        const bool has_changed = found != least[me()];
        meet(all);
        least[me()] = found;
        if (__syncthreads_or(has_changed) == 0) {
            break;
        }
    }
    to[place()] = least[me()];
}

// ---- Within a wave, whose lanes run in step.

__global__ void wave_reduces(int * to, int *, const int * from, bool) {
    __shared__ volatile int values[threads];
    values[me()] = from[me()];
    for (int step = 16; step > 0; step /= 2) {
        if (lane() < step) {
            values[me()] = values[me()] + values[me() + step];
        }
    }
    to[place()] = values[my_wave() * 32];
}
__global__ void wave_fences(int * to, int *, const int * from, bool) {
    __shared__ int values[threads];
    for (int n = 0; n < 5; ++n) {
        values[me()] = from[me()] + n;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
        __builtin_amdgcn_wave_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
        to[place()] = values[me() ^ 5];
        __builtin_amdgcn_wave_barrier();
    }
}
__global__ void sorts_rows(int * to, int *, const int * from, bool) { // bitonic, a row for each wave
    __shared__ volatile int rows[threads];
    rows[me()] = from[me()];
    for (int size = 2; size <= 32; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            const int mine = rows[me()], other = rows[me() ^ step];
            const bool takes_least = ((lane() & size) == 0) == ((lane() & step) == 0);
            rows[me()] = takes_least ? min(mine, other) : max(mine, other);
        }
    }
    to[place()] = rows[me()];
}
__global__ void small_tiles(int * to, int *, const int * from, bool) { // groups of 16 lanes
    __shared__ int values[threads];
    const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    for (int n = 0; n < 4; ++n) {
        values[me()] = from[me()] * n;
        tile.sync();
        to[place()] = values[me() - int(tile.thread_rank()) + (int(tile.thread_rank()) + n) % 16];
        tile.sync();
    }
}
__global__ void appends_together(int * to, int * t, const int * from, bool) { // one lane takes places for all that have something
    if (from[place()] % 3 == 0) {
        const cg::coalesced_group active = cg::coalesced_threads();
        int begin = 0;
        if (active.thread_rank() == 0) {
            begin = atomicAdd(t, int(active.size()));
        }
        to[active.shfl(begin, 0) + int(active.thread_rank())] = from[place()];
    }
}

// ---- Between waves of a block, without a barrier of it.

__global__ void turns(int * to, int * t, const int * from, bool) { // each wave waits for its number
    __shared__ int turn, sum;
    if (me() == 0) {
        turn = sum = 0;
    }
    __syncthreads();
    if (lane() == 0) {
        while (__hip_atomic_load(&turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) != my_wave()) {
        }
        sum += from[me()];
        t[place() / 32] = sum;
        __hip_atomic_store(&turn, my_wave() + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    to[place()] = from[me()];
}
__global__ void ring(int * to, int *, const int * from, bool) { // one wave fills what another one empties
    constexpr int slots = 3, rounds = 9;
    __shared__ int values[slots][32], filled, emptied;
    if (me() == 0) {
        filled = emptied = 0;
    }
    __syncthreads();
    int sum = 0;
    for (int n = 0; n < rounds; ++n) {
        if (my_wave() == 0) {
            while (n - __hip_atomic_load(&emptied, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) >= slots) {
                __builtin_amdgcn_s_sleep(1);
            }
            values[n % slots][lane()] = from[lane()] + n;
            __builtin_amdgcn_wave_barrier();
            __hip_atomic_store(&filled, n + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
        } else if (my_wave() == 1) {
            while (__hip_atomic_load(&filled, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) <= n) {
                __builtin_amdgcn_s_sleep(1);
            }
            sum += values[n % slots][31 - lane()];
            __builtin_amdgcn_wave_barrier();
            __hip_atomic_store(&emptied, n + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
        }
    }
    to[place()] = sum;
}
__global__ void own_barrier(int * to, int *, const int * from, bool) { // of waves that count themselves, used again
    __shared__ int arrived, phase, values[threads];
    if (me() == 0) {
        arrived = phase = 0;
    }
    __syncthreads();
    int sum = 0;
    for (int n = 0; n < 4; ++n) {
        values[me()] = from[me()] + n;
        for (int half = 0; half < 2; ++half) {
            if (lane() == 0) {
                const int now = __hip_atomic_load(&phase, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
                if (__hip_atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_WORKGROUP) == waves - 1) {
                    __hip_atomic_store(&arrived, 0, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
                    __hip_atomic_store(&phase, now + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
                }
                while (__hip_atomic_load(&phase, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == now) {
                }
            }
            __builtin_amdgcn_wave_barrier();
            if (half == 0) {
                sum += values[(me() + 32) % threads];
            }
        }
    }
    to[place()] = sum;
}
__global__ void ticket_lock(int * to, int * t, const int * from, bool) {
    __shared__ int next, serving, sum;
    if (me() == 0) {
        next = serving = sum = 0;
    }
    __syncthreads();
    if (lane() == 0) {
        const int mine = atomicAdd(&next, 1);
        while (__hip_atomic_load(&serving, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) != mine) {
        }
        sum += from[me()];
        __hip_atomic_fetch_add(&serving, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    __syncthreads();
    to[place()] = sum;
    (void) t;
}

// ---- Between blocks.

__global__ void last_block(int * to, int * t, const int * from, bool) { // whoever comes last adds up what all left
    __shared__ int is_last;
    int sum = from[place()];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor(sum, step);
    }
    if (lane() == 0) {
        t[64 + place() / 32] = sum;
    }
    __threadfence();
    __syncthreads();
    if (me() == 0) {
        is_last = atomicAdd(t, 1) == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (is_last != 0) {
        __threadfence();
        if (me() < int(gridDim.x) * waves) {
            to[me()] = t[64 + me()];
        }
    }
}
__global__ void look_back_with_flags(int * to, int * t, const int * from, bool) { // a scan in one pass: value, fence, flag
    __shared__ int before;
    const int all = __syncthreads_count(from[place()] % 2);
    if (me() == 0) {
        int sum = 0;
        if (blockIdx.x != 0) {
            while (relaxed(&t[blockIdx.x - 1]) == 0) {
                __builtin_amdgcn_s_sleep(1);
            }
            __threadfence();
            sum = t[64 + blockIdx.x - 1];
        }
        t[64 + blockIdx.x] = sum + all;
        __threadfence();
        set_relaxed(&t[blockIdx.x], 1);
        before = sum;
    }
    __syncthreads();
    to[place()] = before;
}
__global__ void look_back_in_a_word(int * to, int * t, const int * from, bool) { // value and flag in one word: no fence
    auto * const states = reinterpret_cast<unsigned long long *>(t);
    __shared__ int before;
    const int own = __syncthreads_count(from[place()] % 2);
    if (me() == 0) {
        constexpr unsigned long long partial = 1ull << 32, whole = 2ull << 32;
        set_relaxed(&states[blockIdx.x], (blockIdx.x == 0 ? whole : partial) | unsigned(own));
        int sum = 0;
        for (int other = int(blockIdx.x) - 1; other >= 0;) {
            const unsigned long long seen = relaxed(&states[other]);
            if (seen >> 32 != 0) {
                sum += int(seen);
                other = seen >= whole ? -1 : other - 1;
            }
        }
        set_relaxed(&states[blockIdx.x], whole | unsigned(sum + own));
        before = sum;
    }
    __syncthreads();
    to[place()] = before;
}
__global__ void barrier_of_blocks(int * to, int * t, const int * from, bool) { // a counter that all wait for
    for (int n = 0; n < 3; ++n) {
        t[64 + place()] = from[place()] + n;
        for (int half = 0; half < 2; ++half) {
            __syncthreads();
            if (me() == 0) {
                __threadfence();
                atomicAdd(t, 1);
                while (acquired(t) < int(gridDim.x) * (2 * n + half + 1)) {
                    __builtin_amdgcn_s_sleep(2);
                }
                __threadfence();
            }
            __syncthreads();
            if (half == 0) {
                to[place()] = t[64 + (place() + threads) % int(gridDim.x * blockDim.x)];
            }
        }
    }
}
__global__ void lock_of_blocks(int * to, int * t, const int * from, bool) {
    if (me() == 0) {
        while (atomicCAS(t, 0, 1) != 0) {
            __builtin_amdgcn_s_sleep(1);
        }
        __threadfence();
        t[64] += from[place()];
        __threadfence();
        atomicExch(t, 0);
    }
    to[place()] = from[place()];
}
__global__ void sends(int * to, int * t, const int * from, bool) { // a block to the one behind it
    const int size = int(blockDim.x);
    if (blockIdx.x % 2 == 0) {
        t[64 + place()] = from[place()];
        __syncthreads();
        if (me() == 0) {
            release(&t[blockIdx.x], 1);
        }
    } else {
        if (me() == 0) {
            while (acquired(&t[blockIdx.x - 1]) == 0) {
                __builtin_amdgcn_s_sleep(1);
            }
        }
        __syncthreads();
        to[place()] = t[64 + place() - size];
    }
}
__global__ void hash_table(int * to, int * t, const int * from, bool) { // who finds a place free takes it, or goes on
    const int key = from[place()] % 400 + 1;
    int at = key * 37 % 1024;
    for (;;) {
        const int there = atomicCAS(&t[at], 0, key);
        if (there == 0 || there == key) {
            break;
        }
        at = (at + 1) % 1024;
    }
    to[place()] = at;
}
__global__ void largest_float(int * to, int * t, const int * from, bool) { // as an int, of which the order is the same
    atomicMax(t, __float_as_int(float(from[place()])));
    to[place()] = from[place()];
}
__global__ void trees(int * to, int * t, const int * from, bool) { // sets are joined by their roots, as components are found
    const auto root = [t](int one) {
        for (int above = relaxed(&t[one]); above != 0 && above != one + 1; above = relaxed(&t[one])) {
            one = above - 1;
        }
        return one;
    };
    int a = root(place()), b = root(from[place()] % int(gridDim.x * blockDim.x));
    while (a != b) {
        if (a < b) {
            const int swapped = a;
            a = b;
            b = swapped;
        }
        const int there = atomicCAS(&t[a], 0, b + 1); // the larger one hangs below the smaller
        if (there == 0) {
            break;
        }
        a = root(a);
        b = root(b);
    }
    to[place()] = a;
}
__global__ void takes_work(int * to, int * t, const int * from, bool) { // blocks take pieces until there are none
    __shared__ int next;
    for (;;) {
        if (me() == 0) {
            next = atomicAdd(t, 1);
        }
        __syncthreads();
        const int piece = next;
        __syncthreads();
        if (piece >= 16) {
            break;
        }
        to[piece * threads + me()] = from[piece * threads + me()] * 2;
    }
}
__global__ void exchanged(int * to, int * t, const int * from, bool) { // the word itself is what is handed over
    if (me() == 0) {
        to[blockIdx.x] = atomicExch(t, from[place()]);
    }
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
        {"double buffer", double_buffer}, {"transposed", transposed}, {"own histograms", own_histograms},
        {"with halo", with_halo}, {"another type", another_type}, {"up and down", up_and_down},
        {"scan of waves", scan_of_waves}, {"bitmap", bitmap}, {"until none changes", until_none_changes},
    };
    const std::map<std::string, kernel> of_a_block = {
        {"wave reduces", wave_reduces}, {"wave fences", wave_fences}, {"sorts rows", sorts_rows},
        {"small tiles", small_tiles}, {"turns", turns}, {"ring", ring}, {"own barrier", own_barrier},
        {"ticket lock", ticket_lock},
    };
    const std::map<std::string, kernel> of_blocks = {
        {"appends together", appends_together}, {"last block", last_block},
        {"look back with flags", look_back_with_flags}, {"look back in a word", look_back_in_a_word},
        {"barrier of blocks", barrier_of_blocks}, {"lock of blocks", lock_of_blocks}, {"sends", sends},
        {"hash table", hash_table}, {"largest float", largest_float}, {"trees", trees}, {"takes work", takes_work},
        {"exchanged", exchanged},
    };
    const bool is_clean    = wanted.starts_with("clean: ");
    const std::string name = is_clean ? wanted.substr(7) : wanted;
    if (with_barriers.contains(name)) {
        with_barriers.at(name)<<<1, threads>>>(to, t, from, is_clean);
    } else if (is_clean && of_a_block.contains(name)) {
        of_a_block.at(name)<<<1, threads>>>(to, t, from, true);
    } else if (is_clean && of_blocks.contains(name)) {
        of_blocks.at(name)<<<blocks, threads>>>(to, t, from, true);
    } else {
        for (const auto & one : with_barriers) {
            std::printf("%s\nclean: %s\n", one.first.c_str(), one.first.c_str());
        }
        for (const auto & all : {of_a_block, of_blocks}) {
            for (const auto & one : all) {
                std::printf("clean: %s\n", one.first.c_str());
            }
        }
        return arguments > 1;
    }
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    return 0;
}
