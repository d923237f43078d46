// Programs, by name, in which blocks of a kernel, or operations of streams, touch the same memory: with an order between
// them or without one. What a check must find, and what it must not.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

constexpr int count = 1024;
constexpr size_t bytes = count * sizeof(int);
constexpr int blocks = 8, threads = 128; // of which each has its 128 of the 1024 numbers

// ---- Kernels whose blocks keep to themselves.

__global__ void put(int * to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void take(int * to, const int * from) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i];
}
__global__ void raise(int * to) { to[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
__global__ void put_wide(int4 * to) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    to[i] = make_int4(i, i, i, i);
}
__global__ void halves(short * to) { // of each dword every block has one
    to[2 * threadIdx.x + blockIdx.x] = short(blockIdx.x + 1);
}
__global__ void bytes_of_dwords(char * to) { to[4 * threadIdx.x + blockIdx.x] = char(blockIdx.x); }
__global__ void odd_rows(short * to) { // rows of 33 halves: their ends share dwords
    if (threadIdx.x < 33) {
        to[33 * blockIdx.x + threadIdx.x] = short(threadIdx.x);
    }
}
__global__ void same_everywhere(int * to, int value) { to[threadIdx.x] = value; }
__global__ void same_halves(short * to) { to[threadIdx.x] = 7; }
__global__ void read_shared(int * to, const int * from) {
    int sum = 0;
    for (int i = 0; i < count; ++i) {
        sum += from[i];
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void histogram(int * to, const int * from) {
    atomicAdd(&to[from[blockIdx.x * blockDim.x + threadIdx.x] & 15], 1);
}
__global__ void largest(float * to, const int * from) { // the guide's own loop
    int * const place = reinterpret_cast<int *>(to);
    int old = *place, assumed;
    do {
        assumed = old;
        old = atomicCAS(place, assumed, __float_as_int(fmaxf(__int_as_float(assumed), float(from[blockIdx.x]))));
    } while (old != assumed);
}

// ---- Kernels whose blocks meet.

__global__ void same_element(int * to) { to[threadIdx.x] = int(blockIdx.x); }
__global__ void next_element(int * to) { // a block reads what the next one writes
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const int value = to[(i + blockDim.x) % count];
    to[i] = value + 1;
}
__global__ void overlapping(int * to) { to[blockIdx.x * (blockDim.x - 1) + threadIdx.x] = int(blockIdx.x); }
__global__ void overlapping_halves(short * to) { to[blockIdx.x * 31 + threadIdx.x] = short(blockIdx.x); }
__global__ void overlapping_wide(int4 * to) {
    const int b = int(blockIdx.x);
    to[blockIdx.x * 100 + threadIdx.x] = make_int4(b, b, b, b);
}
__global__ void cleared_by_one(int * sum) { // others may have added already
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *sum = 0;
    }
    if (threadIdx.x == 0) {
        atomicAdd(sum, 1);
    }
}

// `how`: 0 fence and atomic, 1 no fence, 2 a plain counter
__global__ void last_block(int * to, int * parts, int * counter, int how) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = int(blockIdx.x) + 1;
        if (how != 1) {
            __threadfence();
        }
        int before;
        if (how == 2) {
            before = *counter;
            *counter = before + 1;
        } else {
            before = atomicAdd(counter, 1);
        }
        is_last = before == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (is_last) {
        if (threadIdx.x < gridDim.x) {
            atomicAdd(to, parts[threadIdx.x]);
        }
        if (threadIdx.x == 0) {
            *counter = 0;
        }
    }
}
__global__ void last_block_of_all(int * to, int * parts, unsigned * counter) { // all threads write, then one counts
    __shared__ bool is_last;
    parts[blockIdx.x * blockDim.x + threadIdx.x] = int(threadIdx.x);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        int sum = 0;
        for (unsigned b = 0; b < gridDim.x; ++b) {
            sum += parts[b * blockDim.x + threadIdx.x];
        }
        to[threadIdx.x] = sum;
    }
}
__global__ void last_block_by_release(int * to, int * parts, int * counter) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = 1;
        is_last = __hip_atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x < gridDim.x) {
        to[threadIdx.x] = parts[threadIdx.x];
    }
}

#ifdef __GFX12__
#define FORGETS_CACHES "global_inv scope:SCOPE_DEV\n"
#else
#define FORGETS_CACHES "buffer_gl1_inv\n buffer_gl0_inv\n"
#endif

// Sums from block to block. `how`: 0 release and acquire, 1 volatile with fences, 2 no order, 3 half a fence
__global__ void look_back(int * to, int * sums, int * flags, int how) {
    if (threadIdx.x != 0) {
        return;
    }
    const unsigned b = blockIdx.x;
    int before = 0;
    if (b != 0) {
        if (how == 0) {
            while (__hip_atomic_load(&flags[b - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
                __builtin_amdgcn_s_sleep(1);
            }
        } else if (how != 2) {
            while (static_cast<volatile int *>(flags)[b - 1] == 0) {
                __builtin_amdgcn_s_sleep(1);
            }
            __threadfence();
        }
        before = sums[b - 1];
    }
    sums[b] = before + int(b);
    if (how == 0) {
        __hip_atomic_store(&flags[b], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    } else if (how == 1) {
        __threadfence();
        static_cast<volatile int *>(flags)[b] = 1;
    } else if (how == 3) {
        // It waits for no store. The compiler's own stores to volatile wait for those before, on RDNA4.
        asm volatile(FORGETS_CACHES "global_store_b32 %0, %1, off" :: "v"(flags + b), "v"(1) : "memory");
    }
    to[b] = before;
}
// Block 1 starts what block 0 made, for all other blocks.
__global__ void through_another(int * to, int * made, int * flags) {
    if (threadIdx.x != 0) {
        return;
    }
    const auto wait = [&](int n) {
        while (__hip_atomic_load(&flags[n], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
            __builtin_amdgcn_s_sleep(1);
        }
    };
    const auto set = [&](int n) {
        __hip_atomic_store(&flags[n], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    };
    if (blockIdx.x == 0) {
        *made = 5;
        set(0);
    } else if (blockIdx.x == 1) {
        wait(0);
        set(1);
    } else {
        wait(1);
        to[blockIdx.x] = *made;
    }
}
__global__ void in_turns(int * to, int * turn) { // each block adds to what the one before left
    if (threadIdx.x == 0) {
        while (atomicAdd(turn, 0) != int(blockIdx.x)) {
            __builtin_amdgcn_s_sleep(1);
        }
        __threadfence();
        *to = *to + 1;
        __threadfence();
        atomicAdd(turn, 1);
    }
}
__global__ void passes_on(int * to, int * turn, int how) { // the same by one word that each block sets for the next
    if (threadIdx.x == 0) {
        const int me = int(blockIdx.x);
        if (how == 0) {
            while (*(volatile int *) turn != me) {
            }
            __threadfence();
        } else {
            while (__hip_atomic_load(turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != me) {
            }
        }
        *to = *to + 1;
        if (how == 0) {
            __threadfence();
            *(volatile int *) turn = me + 1;
        } else {
            __hip_atomic_store(turn, me + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        }
    }
}
__global__ void tells_too_early(int * to, int * flag) {
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        *(volatile int *) to = 7;
    } else if (threadIdx.x == 0 && blockIdx.x == 1) {
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {
        }
        to[1] = *to;
    }
}
__global__ void behind_a_lock(int * to, int * lock, int by_store) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {
            __builtin_amdgcn_s_sleep(1);
        }
        __threadfence();
        *to = *to + 1;
        __threadfence();
        if (by_store != 0) {
            *static_cast<volatile int *>(lock) = 0;
        } else {
            atomicExch(lock, 0);
        }
    }
}
__global__ void grid_wide(int * to, int * from, int rounds) { // `rounds` of them with a barrier
    const auto grid = cooperative_groups::this_grid();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int n = 0; n < 3; ++n) {
        const int value = from[(i + blockDim.x) % count];
        if (n < rounds) {
            grid.sync();
        }
        from[i] = value + 1;
        if (n < rounds) {
            grid.sync();
        }
    }
    to[i] = from[i];
}
__device__ int arrived, released;
__global__ void own_barrier(int * to, int * from) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    from[i] = int(i);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(&arrived, 1) == int(gridDim.x) - 1) {
            __hip_atomic_store(&released, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        }
        while (__hip_atomic_load(&released, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0) {
            __builtin_amdgcn_s_sleep(1);
        }
        __threadfence();
    }
    __syncthreads();
    to[i] = from[(i + blockDim.x) % count];
}

// ---- Programs.

static int *a, *b, *c;       // of the device, 1024 zeros
static int *pinned, *second; // of the host
static hipStream_t s, t, u;  // that do not wait for the default stream
static hipEvent_t event, later;

static void on(hipStream_t stream, int * to) { put<<<blocks, threads, 0, stream>>>(to, 1); }
static void copy(hipStream_t stream, int * to, const int * from) { take<<<blocks, threads, 0, stream>>>(to, from); }
static void order(hipStream_t first, hipStream_t then, hipEvent_t by = event) {
    NEED(hipEventRecord(by, first));
    NEED(hipStreamWaitEvent(then, by, 0));
}
static void up(hipStream_t stream, int * to, const int * from) {
    NEED(hipMemcpyAsync(to, from, bytes, hipMemcpyHostToDevice, stream));
}
static void down(hipStream_t stream, int * to, const int * from) {
    NEED(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToHost, stream));
}
static hipGraphExec_t captured(void (*what)()) {
    hipGraph_t graph;
    hipGraphExec_t made;
    NEED(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
    what();
    NEED(hipStreamEndCapture(s, &graph));
    NEED(hipGraphInstantiate(&made, graph, nullptr, nullptr, 0));
    return made;
}
static void branches(bool with_edge) { // two branches, and one more kernel that needs both
    order(s, t);
    on(t, a);
    if (!with_edge) {
        copy(s, b, a);
    }
    order(t, s, later);
    copy(s, b, a);
}
__attribute__((noinline)) static void change_unread(volatile int * at, int value) { *at = value; }
__attribute__((noinline)) static void change_read(volatile int * at, int value) { *at = value; }
static std::atomic<int> host_value{0};
static volatile int seen; // of memory of the host

using program = void (*)();
static const std::map<std::string, program> & programs() {
    static const std::map<std::string, program> all = {
#define CASE(name, ...) {name, [] { __VA_ARGS__; }}
        // Blocks.
        CASE("same element", (same_element<<<blocks, threads>>>(a))),
        CASE("next element", (next_element<<<blocks, threads>>>(a))),
        CASE("overlapping", (overlapping<<<blocks, threads>>>(a))),
        CASE("overlapping halves", (overlapping_halves<<<blocks, 32>>>((short *) a))),
        CASE("overlapping wide", (overlapping_wide<<<2, threads>>>((int4 *) a))),
        CASE("cleared by one", (cleared_by_one<<<blocks, threads>>>(a))),
        CASE("last block without fence", (last_block<<<blocks, threads>>>(a, b, c, 1))),
        CASE("last block with plain counter", (last_block<<<blocks, threads>>>(a, b, c, 2))),
        CASE("look back without order", (look_back<<<blocks, 32>>>(a, b, c, 2))),
        CASE("look back without wait", (look_back<<<blocks, 32>>>(a, b, c, 3))),
        CASE("grid without barrier", (grid_wide<<<blocks, threads>>>(a, b, 0))),
        CASE("clean: own elements", (put<<<blocks, threads>>>(a, 1))),
        CASE("clean: wide elements", (put_wide<<<2, threads>>>((int4 *) a))),
        CASE("clean: in place", (raise<<<blocks, threads>>>(a))),
        CASE("clean: halves", (halves<<<2, threads>>>((short *) a))),
        CASE("clean: bytes", (bytes_of_dwords<<<2, threads>>>((char *) a))),
        CASE("clean: odd rows", (odd_rows<<<blocks, 64>>>((short *) a))),
        CASE("clean: the same", (same_everywhere<<<blocks, threads>>>(a, 3))),
        CASE("clean: the same halves", (same_halves<<<blocks, threads>>>((short *) a))),
        CASE("clean: read by all", (read_shared<<<blocks, threads>>>(a, b))),
        CASE("clean: histogram", (histogram<<<blocks, threads>>>(a, b))),
        CASE("clean: largest", (largest<<<blocks, threads>>>((float *) a, b))),
        CASE("clean: last block", (last_block<<<blocks, threads>>>(a, b, c, 0));
             (last_block<<<blocks, threads>>>(a, b, c, 0))),
        CASE("clean: last block of all", (last_block_of_all<<<blocks, threads>>>(a, b, (unsigned *) c))),
        CASE("clean: last block by release", (last_block_by_release<<<blocks, threads>>>(a, b, c))),
        CASE("clean: look back", (look_back<<<blocks, 32>>>(a, b, c, 0))),
        CASE("clean: look back by fences", (look_back<<<blocks, 32>>>(a, b, c, 1))),
        CASE("clean: through another", (through_another<<<blocks, 32>>>(a, b, c))),
        CASE("clean: in turns", (in_turns<<<blocks, 32>>>(a, b))),
        CASE("clean: passed on by fences", (passes_on<<<blocks, 32>>>(a, b, 0))),
        CASE("clean: passed on", (passes_on<<<blocks, 32>>>(a, b, 1))),
        CASE("told too early", (tells_too_early<<<2, 32>>>(a, b))),
        CASE("clean: lock", (behind_a_lock<<<blocks, 32>>>(a, b, 0))),
        CASE("clean: lock by store", (behind_a_lock<<<blocks, 32>>>(a, b, 1))),
        CASE("clean: grid", int rounds = 3; void * arguments[] = {&a, &b, &rounds};
             NEED(hipLaunchCooperativeKernel((const void *) grid_wide, dim3(blocks), dim3(threads), arguments, 0, nullptr))),
        CASE("clean: own barrier", (own_barrier<<<blocks, threads>>>(a, b))),
        // Operations.
        CASE("no event", on(s, a); copy(t, b, a)),
        CASE("event before the kernel", order(s, t); on(s, a); copy(t, b, a)),
        CASE("event of another stream", on(s, a); order(u, t); copy(t, b, a)),
        CASE("both write", on(s, a); (put<<<blocks, threads, 0, t>>>(a, 2))),
        CASE("written while it is read", copy(s, b, a); on(t, a)),
        CASE("copied while it is written", on(s, a); down(t, pinned, a)),
        CASE("copy over what is read", copy(s, b, a); up(t, a, pinned)),
        CASE("copies to one place", up(s, a, pinned); up(t, a, second)),
        CASE("copies through pinned memory", down(s, pinned, a); up(t, b, pinned)),
        CASE("cleared while it is read", copy(s, b, a); NEED(hipMemsetAsync(a, 1, bytes, t))),
        CASE("cleared by default", NEED(hipMemset(a, 1, bytes)); copy(s, b, a)),
        CASE("branches without edge", NEED(hipGraphLaunch(captured([] { branches(false); }), s))),
        CASE("graph without event", NEED(hipGraphLaunch(captured([] { branches(true); }), s)); copy(u, c, b)),
        CASE("freed while it is read", int * own; NEED(hipMallocAsync((void **) &own, bytes, s)); copy(s, a, own);
             NEED(hipFreeAsync(own, t))),
        CASE("source changed", up(s, a, pinned); pinned[5] = 1; NEED(hipStreamSynchronize(s))),
        CASE("source changed after another wait", up(s, a, pinned); NEED(hipStreamSynchronize(t)); pinned[5] = 1;
             NEED(hipStreamSynchronize(s))),
        CASE("rows", NEED(hipMemcpy2DAsync(a, 64, pinned, 64, 32, 16, hipMemcpyHostToDevice, s));
             NEED(hipMemcpy2DAsync(a + 4, 64, second, 64, 32, 16, hipMemcpyHostToDevice, t))),
        CASE("third of three", on(s, a); order(s, t); copy(t, b, a); copy(u, c, b)),
        CASE("target changed", down(s, pinned, a); pinned[5] = 1; NEED(hipStreamSynchronize(s))),
        CASE("target changed after another wait", down(s, pinned, a); NEED(hipStreamSynchronize(t)); pinned[5] = 1;
             NEED(hipStreamSynchronize(s))),
        CASE("rows of a target changed", NEED(hipMemcpy2DAsync(pinned, 64, a, 64, 32, 16, hipMemcpyDeviceToHost, s));
             pinned[16] = 1; NEED(hipStreamSynchronize(s))),
        CASE("changed while a kernel reads it", copy(s, a, pinned); pinned[5] = 1; NEED(hipStreamSynchronize(s))),
        CASE("changed while a kernel writes it", on(s, pinned); pinned[5] = 9; NEED(hipStreamSynchronize(s))),
        CASE("one number for all", (read_shared<<<blocks, threads, 0, s>>>(a, pinned)); pinned[1023] = 1),
        CASE("changed twice while a kernel reads it", for (int i = 0; i < 2; ++i) {
             (take<<<1, 1, 0, s>>>(a, pinned)); change_unread(pinned + 1, i); change_read(pinned, i + 1);
             NEED(hipStreamSynchronize(s)); }),
        CASE("managed memory changed", int * own; NEED(hipMallocManaged((void **) &own, bytes)); on(s, own); own[7] = 2;
             NEED(hipStreamSynchronize(s))),
        CASE("memory of its own registered", static int own[count];
             NEED(hipHostRegister(own, bytes, hipHostRegisterDefault)); copy(s, a, own); own[9] = 1;
             NEED(hipStreamSynchronize(s))),
        CASE("changed behind an event of before", NEED(hipEventRecord(event, s)); copy(s, a, pinned);
             NEED(hipEventSynchronize(event)); pinned[5] = 1; NEED(hipStreamSynchronize(s))),
        CASE("target read", down(s, pinned, a); seen = pinned[5]; NEED(hipStreamSynchronize(s))),
        CASE("target read after another wait", down(s, pinned, a); NEED(hipStreamSynchronize(t)); seen = pinned[5]),
        CASE("target read by another thread", down(s, pinned, a); std::thread([] { seen = pinned[5]; }).join()),
        CASE("target of its own read", const size_t size = 16 * bytes; auto * own = (int *) std::aligned_alloc(64, size);
             int * from; NEED(hipMalloc((void **) &from, size)); NEED(hipHostRegister(own, size, hipHostRegisterDefault));
             NEED(hipMemcpyAsync(own, from, size, hipMemcpyDeviceToHost, s)); seen = own[8 * count]),
        CASE("clean: target read after a wait", down(s, pinned, a); NEED(hipStreamSynchronize(s)); seen = pinned[5]),
        CASE("clean: target read after an event", down(s, pinned, a); NEED(hipEventRecord(event, s));
             while (hipEventQuery(event) == hipErrorNotReady) {} seen = pinned[5]),
        CASE("clean: beside a target", NEED(hipMemcpyAsync(pinned, a, bytes / 2, hipMemcpyDeviceToHost, s));
             seen = pinned[count / 2]),
        CASE("clean: target read by a function", down(s, pinned, a);
             NEED(hipLaunchHostFunc(s, [](void *) { seen = pinned[5]; }, nullptr)); down(s, second, pinned)),
        CASE("clean: a kernel told that a target is there", down(s, pinned, a); on(s, second); seen = pinned[5]),
        CASE("clean: freed target", int * own; NEED(hipHostMalloc((void **) &own, bytes, 0)); down(s, own, a);
             NEED(hipHostFree(own)); NEED(hipHostMalloc((void **) &own, bytes, 0)); own[0] = 1),
        CASE("clean: target after a wait", down(s, pinned, a); NEED(hipStreamSynchronize(s)); pinned[5] = 1),
        CASE("clean: between rows of a target", NEED(hipMemcpy2DAsync(pinned, 64, a, 64, 32, 16, hipMemcpyDeviceToHost, s));
             pinned[8] = 1; NEED(hipStreamSynchronize(s))),
        CASE("clean: kernel and wait", copy(s, a, pinned); NEED(hipEventRecord(event, s));
             NEED(hipEventSynchronize(event)); pinned[5] = 1),
        CASE("clean: kernel of another part", (put<<<4, threads, 0, s>>>(pinned, 1)); pinned[900] = 1),
        CASE("clean: managed memory", int * own; NEED(hipMallocManaged((void **) &own, bytes)); on(s, own);
             NEED(hipStreamSynchronize(s)); own[7] = 2; copy(s, a, own); NEED(hipStreamSynchronize(s));
             NEED(hipFree(own))),
        CASE("clean: counted with the host", (histogram<<<blocks, threads, 0, s>>>(pinned, a));
             __atomic_fetch_add(pinned, 1, __ATOMIC_RELAXED)),
        CASE("clean: result and function", down(s, pinned, a);
             NEED(hipLaunchHostFunc(s, [](void *) { pinned[3] = 4; }, nullptr)); NEED(hipStreamSynchronize(s))),
        CASE("clean: kernel, then copy", on(s, pinned); down(s, pinned, a); up(s, b, pinned);
             NEED(hipStreamSynchronize(s)); pinned[0] = 1),
        CASE("clean: freed behind a kernel", int * own; NEED(hipHostMalloc((void **) &own, bytes, 0)); on(s, own);
             NEED(hipStreamSynchronize(s)); NEED(hipHostFree(own))),
        CASE("clean: one stream", up(s, a, pinned); copy(s, b, a); down(s, pinned, b)),
        CASE("clean: event", on(s, a); order(s, t); copy(t, b, a)),
        CASE("clean: chain of three", on(s, a); order(s, t); copy(t, b, a); order(t, u, later); copy(u, a, b)),
        CASE("clean: back and forth", for (int n = 0; n < 5; ++n) {
            on(s, a);
            order(s, t);
            copy(t, b, a);
            order(t, s, later);
        }),
        CASE("clean: stream wait", on(s, a); NEED(hipStreamSynchronize(s)); copy(t, b, a)),
        CASE("clean: event wait", on(s, a); NEED(hipEventRecord(event, s)); NEED(hipEventSynchronize(event));
             copy(t, b, a)),
        CASE("clean: device wait", on(s, a); NEED(hipDeviceSynchronize()); copy(t, b, a)),
        CASE("clean: asked", on(s, a); while (hipStreamQuery(s) == hipErrorNotReady) {} copy(t, b, a)),
        CASE("clean: event asked", on(s, a); NEED(hipEventRecord(event, s));
             while (hipEventQuery(event) == hipErrorNotReady) {} copy(t, b, a)),
        CASE("clean: both read", copy(s, b, a); copy(t, c, a)),
        CASE("clean: both add", (histogram<<<blocks, threads, 0, s>>>(a, b)); (histogram<<<blocks, threads, 0, t>>>(a, b))),
        CASE("clean: halves of a buffer", (put<<<4, threads, 0, s>>>(a, 1)); (put<<<4, threads, 0, t>>>(a + 512, 2))),
        CASE("clean: both write the same", on(s, a); on(t, a)),
        CASE("clean: default streams", hipStream_t own; NEED(hipStreamCreate(&own)); on(own, a); on(nullptr, a);
             copy(own, b, a); copy(nullptr, c, b)),
        CASE("clean: destroyed stream", hipStream_t own; NEED(hipStreamCreate(&own)); on(own, a);
             NEED(hipStreamDestroy(own)); NEED(hipStreamSynchronize(nullptr)); copy(nullptr, b, a)),
        CASE("clean: thread's stream", on(hipStreamPerThread, a); copy(nullptr, b, a); copy(hipStreamPerThread, c, b)),
        CASE("clean: threads", std::thread([] { on(hipStreamPerThread, a); }).join(); copy(nullptr, b, a)),
        CASE("clean: synchronous copy", int own[count]; on(s, a); NEED(hipStreamSynchronize(s));
             NEED(hipMemcpy(own, a, bytes, hipMemcpyDeviceToHost)); NEED(hipMemcpy(b, own, bytes, hipMemcpyHostToDevice));
             copy(t, c, b)),
        CASE("clean: cleared in the stream", NEED(hipMemsetAsync(a, 1, bytes, s)); copy(s, b, a)),
        CASE("clean: pinned again", for (int n = 0; n < 4; ++n) {
            pinned[0] = n;
            up(s, a, pinned);
            NEED(hipEventRecord(event, s));
            NEED(hipEventSynchronize(event));
        }),
        CASE("clean: two pinned", for (int n = 0; n < 4; ++n) {
            int * const own = n % 2 == 0 ? pinned : second;
            hipEvent_t done = n % 2 == 0 ? event : later;
            NEED(hipEventSynchronize(done));
            own[0] = n;
            up(s, a, own);
            NEED(hipEventRecord(done, s));
        }),
        CASE("clean: pinned there and back", up(s, a, pinned); (raise<<<blocks, threads, 0, s>>>(a));
             down(s, pinned, a); NEED(hipStreamSynchronize(s)); pinned[0] = 9),
        CASE("clean: pageable source", std::vector<int> own(count); up(s, a, own.data()); own[5] = 1;
             NEED(hipStreamSynchronize(s))),
        CASE("clean: pool", for (int n = 0; n < 3; ++n) {
            int * own;
            NEED(hipMallocAsync((void **) &own, bytes, s));
            on(s, own);
            copy(s, a, own);
            NEED(hipFreeAsync(own, s));
        }),
        CASE("clean: pool of two streams", int * own; NEED(hipMallocAsync((void **) &own, bytes, s)); on(s, own);
             order(s, t); copy(t, a, own); order(t, s, later); NEED(hipFreeAsync(own, s))),
        CASE("clean: freed", int * own; NEED(hipMalloc((void **) &own, bytes)); on(s, own); NEED(hipFree(own))),
        CASE("clean: graph", hipGraphExec_t made = captured([] { branches(true); }); NEED(hipGraphLaunch(made, s));
             NEED(hipGraphLaunch(made, s)); copy(s, c, b)),
        CASE("clean: graph in another stream", hipGraphExec_t made = captured([] { branches(true); });
             NEED(hipGraphLaunch(made, s)); order(s, t); NEED(hipGraphLaunch(made, t))),
        CASE("clean: graph and wait", NEED(hipGraphLaunch(captured([] { branches(true); }), s));
             NEED(hipStreamSynchronize(s)); copy(t, c, b)),
        CASE("clean: captured copy", hipGraphExec_t made = captured([] { up(s, a, pinned); copy(s, b, a); });
             for (int n = 0; n < 3; ++n) {
                 pinned[0] = n;
                 NEED(hipGraphLaunch(made, s));
                 NEED(hipStreamSynchronize(s));
             }),
        CASE("clean: told by a function", up(s, a, pinned);
             NEED(hipLaunchHostFunc(s, [](void *) { pinned[3] = 4; }, nullptr)); up(s, b, pinned)),
        CASE("clean: rows", NEED(hipMemcpy2DAsync(a, 64, pinned, 64, 32, 16, hipMemcpyHostToDevice, s));
             NEED(hipMemcpy2DAsync(a + 8, 64, second, 64, 32, 16, hipMemcpyHostToDevice, t))),
        CASE("clean: event again", on(s, a); order(s, t); on(s, c); order(s, u); copy(t, b, a); copy(u, pinned, c)),
    };
    return all;
}

int main(int number, char ** words) {
    const auto found = programs().find(number > 1 ? words[1] : "");
    const bool crashes = number > 1 && std::strcmp(words[1], "crash") == 0; // no program of the list: it ends
    if (found == programs().end() && !crashes) {
        for (const auto & one : programs()) {
            std::printf("%s\n", one.first.c_str());
        }
        return number > 1;
    }
    for (int ** one : {&a, &b, &c}) {
        NEED(hipMalloc((void **) one, bytes));
        NEED(hipMemset(*one, 0, bytes));
    }
    for (int ** one : {&pinned, &second}) {
        NEED(hipHostMalloc((void **) one, bytes, 0));
        std::memset(*one, 0, bytes);
    }
    for (hipStream_t * one : {&s, &t, &u}) {
        NEED(hipStreamCreateWithFlags(one, hipStreamNonBlocking));
    }
    NEED(hipEventCreate(&event));
    NEED(hipEventCreate(&later));
    NEED(hipDeviceSynchronize());
    if (crashes) {
        down(s, pinned, a);
        *(volatile int *) 8 = pinned[5];
    }
    found->second();
    NEED(hipDeviceSynchronize());
    return 0;
}
