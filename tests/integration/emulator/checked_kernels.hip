// Kernels with one fault each, and kernels that only look as if they had one, by name: what a check must find, and what
// it must not.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#ifdef __GFX12__
#define LOADS(left) "s_wait_loadcnt " #left "\n"
#define LDS(left) "s_wait_dscnt " #left "\n"
#define SCALARS(left) "s_wait_kmcnt " #left "\n"
#define BARRIER "s_barrier_signal -1\n s_barrier_wait -1\n"
#define STORES(left) "s_wait_storecnt " #left "\n"
#else
#define LOADS(left) "s_waitcnt vmcnt(" #left ")\n"
#define LDS(left) "s_waitcnt lgkmcnt(" #left ")\n"
#define SCALARS(left) LDS(left)
#define BARRIER "s_barrier\n"
#define STORES(left) "s_waitcnt_vscnt null, " #left "\n"
#endif
#define EVERYTHING LOADS(0) LDS(0) SCALARS(0)

// ---- Memory. `to` and `from` have 64 ints.

__global__ void write_at(int * to, int shift) { to[int(threadIdx.x) + shift] = 1; }
__global__ void read_at(int * to, const int * from, int shift) { to[threadIdx.x] = from[int(threadIdx.x) + shift]; }
__global__ void read_wide(int4 * to, const int4 * from, int shift) { to[threadIdx.x] = from[int(threadIdx.x) + shift]; }
__global__ void read_uniform(int * to, const int * __restrict__ from, int place) { to[threadIdx.x] = from[place]; }
__global__ void read_byte(int * to, const char * from, int place) { to[0] = from[place]; }
__global__ void add_at(int * to, long shift) {
    atomicAdd(reinterpret_cast<int *>(reinterpret_cast<char *>(to) + shift), 1);
}
__global__ void write_lds(int * to, int place) {
    extern __shared__ int lds[];
    lds[int(threadIdx.x) * place] = 1;
    __syncthreads();
    to[threadIdx.x] = lds[threadIdx.x];
}
__global__ void write_generic(int * to, int place, int which) {
    __shared__ int lds[64];
    int * const any = which == 0 ? lds : to;
    any[threadIdx.x] = 0;
    any[place] = int(threadIdx.x);
    __syncthreads();
    to[threadIdx.x] = lds[threadIdx.x];
}
__global__ void read_own(int * to, int place) {
    volatile int own[4] = {1, 2, 3, 4};
    to[threadIdx.x] = own[place];
}
// Buffer instructions, as Triton uses them: the range is 1 GiB, and lanes from `lanes` on have an offset outside of it.
__device__ __amdgpu_buffer_rsrc_t buffer_of(const int * start) {
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<int *>(start), 0, 1 << 30, 0x30000000);
}
__global__ void copy_by_buffers(int * to, const int * from, int shift, int lanes) {
    const int me = int(threadIdx.x), offset = me < lanes ? 4 * (me + shift) : int(0x80000000);
    const int value = __builtin_amdgcn_raw_buffer_load_b32(buffer_of(from), offset, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b32(value, buffer_of(to), me < lanes ? 4 * me : int(0x80000000), 0, 0);
}
__global__ void shares_by_buffers(int * to, bool has_barrier) {
    const int me = int(threadIdx.x);
    __builtin_amdgcn_raw_buffer_store_b32(me, buffer_of(to), 4 * me, 0, 0);
    if (has_barrier) {
        __syncthreads();
    }
    const int other = __builtin_amdgcn_raw_buffer_load_b32(buffer_of(to), 4 * (me ^ 32), 0, 0);
    __syncthreads();
    __builtin_amdgcn_raw_buffer_store_b32(other, buffer_of(to), 4 * me, 0, 0);
}
__device__ inline int number_at(const int * from, int place) { return from[place]; }
__global__ void reads_inlined(int * to, const int * from) {
    to[threadIdx.x] = number_at(from, int(threadIdx.x) + 60);
}
__constant__ int table[64];
__device__ const int fixed[4] = {1, 2, 3, 4};
// Addresses that the compiler knows nothing of.
__device__ inline int * hidden(const void * place) {
    int * result = const_cast<int *>(static_cast<const int *>(place));
    asm volatile("" : "+v"(result));
    return result;
}
__global__ void writes_constant(int * to, int which) {
    if (which == 0) {
        *hidden(&table[threadIdx.x]) = 1;
    } else if (which == 1) {
        *hidden(&fixed[threadIdx.x % 4]) = 1;
    } else if (which == 2) {
        *hidden((const void *) __builtin_amdgcn_kernarg_segment_ptr()) = 1;
    }
    to[threadIdx.x] = table[threadIdx.x] + fixed[which & 3];
}
// A lane beyond the end reads nothing, and a lane that reads is not beyond it.
__global__ void guarded(int * to, const int * from, int n) {
    const int i = int(threadIdx.x);
    to[i] = i < n ? from[i] : 0;
}
// The load is done for all lanes at a place that each has; what does not count is thrown away.
__global__ void masked_later(int * to, const int * from, int n) {
    const int i = int(threadIdx.x);
    const int value = from[i < n ? i : 0];
    to[i] = i < n ? value : -1;
}

// ---- Waits

__global__ void uses_load(int * to, const int * from, int wait) {
    const int * place = from + threadIdx.x;
    int value;
    if (wait != 0) {
        asm volatile("global_load_b32 %0, %1, off\n" LOADS(0) " v_add_nc_u32 %0, 1, %0" : "=&v"(value) : "v"(place));
    } else {
        asm volatile("global_load_b32 %0, %1, off\n v_add_nc_u32 %0, 1, %0\n" EVERYTHING : "=&v"(value) : "v"(place));
    }
    to[threadIdx.x] = value;
}
__global__ void uses_second(int * to, const int * from, int left) {
    const int * place = from + threadIdx.x;
    int first, second;
    if (left == 0) {
        asm volatile("global_load_b32 %0, %2, off\n global_load_b32 %1, %2, off offset:4\n" LOADS(0) ""
                     "v_add_nc_u32 %0, %0, %1" : "=&v"(first), "=&v"(second) : "v"(place));
    } else if (left == 1) { // in order: the first is there
        asm volatile("global_load_b32 %0, %2, off\n global_load_b32 %1, %2, off offset:4\n" LOADS(1) ""
                     "v_add_nc_u32 %0, 1, %0\n" LOADS(0) : "=&v"(first), "=&v"(second) : "v"(place));
    } else {
        asm volatile("global_load_b32 %0, %2, off\n global_load_b32 %1, %2, off offset:4\n" LOADS(1) ""
                     "v_add_nc_u32 %0, %0, %1\n" EVERYTHING : "=&v"(first), "=&v"(second) : "v"(place));
    }
    to[threadIdx.x] = first;
}
__global__ void uses_lds(int * to, int wait) {
    __shared__ int lds[64];
    lds[threadIdx.x] = int(threadIdx.x);
    __syncthreads();
    int value;
    const auto place = unsigned(size_t(&lds[threadIdx.x]));
    if (wait != 0) {
        asm volatile("ds_load_b32 %0, %1\n" LDS(0) "v_add_nc_u32 %0, 1, %0" : "=&v"(value) : "v"(place));
    } else {
        asm volatile("ds_load_b32 %0, %1\n v_add_nc_u32 %0, 1, %0\n" EVERYTHING : "=&v"(value) : "v"(place));
    }
    to[threadIdx.x] = value;
}
__global__ void uses_scalar(int * to, const int * from, int wait) {
    int first, second;
    if (wait == 0) {
        asm volatile("s_load_b32 %0, %2, 0\n s_add_i32 %0, %0, 1\n s_mov_b32 %1, 0\n" EVERYTHING
                     : "=&s"(first), "=&s"(second) : "s"(from) : "scc");
    } else if (wait == 1) { // scalar loads come back in any order
        asm volatile("s_load_b32 %0, %2, 0\n s_load_b32 %1, %2, 4\n" SCALARS(1) " s_add_i32 %0, %0, 1\n" EVERYTHING
                     : "=&s"(first), "=&s"(second) : "s"(from) : "scc");
    } else {
        asm volatile("s_load_b32 %0, %2, 0\n s_load_b32 %1, %2, 4\n" SCALARS(0) " s_add_i32 %0, %0, %1"
                     : "=&s"(first), "=&s"(second) : "s"(from) : "scc");
    }
    to[threadIdx.x] = first;
}
__global__ void overwrites(int * to, const int * from, int wait) {
    const int * place = from + threadIdx.x;
    int value;
    if (wait != 0) {
        asm volatile("global_load_b32 %0, %1, off\n" LOADS(0) " v_mov_b32 %0, 7" : "=&v"(value) : "v"(place));
    } else {
        asm volatile("global_load_b32 %0, %1, off\n v_mov_b32 %0, 7\n" EVERYTHING : "=&v"(value) : "v"(place));
    }
    to[threadIdx.x] = value;
}
// Two loads into the halves of a register: the second need not wait for the first.
__global__ void fills_halves(int * to, const short * from) {
    const short * place = from + threadIdx.x;
    int value;
    asm volatile("global_load_d16_b16 %0, %1, off\n global_load_d16_hi_b16 %0, %1, off offset:2\n" LOADS(0)
                 : "=&v"(value) : "v"(place));
    to[threadIdx.x] = value;
}
__global__ void early_barrier(int * to, int wait) {
    __shared__ int lds[64];
    lds[threadIdx.x] = 0;
    const auto place = unsigned(size_t(&lds[threadIdx.x]));
    if (wait != 0) {
        asm volatile("ds_store_b32 %0, %0\n" LDS(0) BARRIER :: "v"(place) : "memory");
    } else {
        asm volatile(LDS(0) "ds_store_b32 %0, %0\n" BARRIER :: "v"(place) : "memory");
    }
    to[threadIdx.x] = lds[threadIdx.x ^ 32];
}

// A wave stores, comes to a barrier, and another one reads, or writes, what it stored.
__global__ void tells_by_barrier(int * to, int * result, int how) {
    const int me = int(threadIdx.x), other = me ^ 32;
    int * const own = to + me;
    if (how == 0) {
        asm volatile("global_store_b32 %0, %1, off\n" BARRIER :: "v"(own), "v"(me) : "memory");
    } else if (how == 1) {
        asm volatile("global_store_b32 %0, %1, off\n" STORES(0) BARRIER :: "v"(own), "v"(me) : "memory");
    } else if (how == 2) { // for the first one alone
        asm volatile("global_store_b32 %2, %1, off\n global_store_b32 %0, %1, off\n" STORES(1) BARRIER
                     :: "v"(own), "v"(me), "v"(result + me) : "memory");
    } else if (how == 3) { // the other one is not read
        asm volatile("global_store_b32 %0, %1, off\n global_store_b32 %2, %1, off\n" STORES(1) BARRIER
                     :: "v"(own), "v"(me), "v"(result + me) : "memory");
    } else { // too late for this barrier
        asm volatile("global_store_b32 %0, %1, off\n" BARRIER STORES(0) :: "v"(own), "v"(me) : "memory");
        if (how == 5) {
            asm volatile(BARRIER ::: "memory");
        }
    }
    result[me] = *static_cast<volatile int *>(to + other);
}
__global__ void tells_by_syncthreads(int * to, int * result) {
    to[threadIdx.x] = int(threadIdx.x);
    __syncthreads();
    result[threadIdx.x] = to[threadIdx.x ^ 32];
}
__global__ void writes_again(int * to, int wait) {
    int * const own = to + threadIdx.x;
    if (wait != 0) {
        asm volatile("global_store_b32 %0, %1, off\n" STORES(0) BARRIER :: "v"(own), "v"(1) : "memory");
    } else {
        asm volatile("global_store_b32 %0, %1, off\n" BARRIER :: "v"(own), "v"(1) : "memory");
    }
    to[threadIdx.x ^ 32] = 2;
}
__global__ void reads_back(int * to, int * result, int by_scalar) {
    int value;
    int * const own = to + threadIdx.x;
    if (by_scalar != 0) {
        asm volatile("global_store_b32 %1, %2, off\n" STORES(0) "s_load_b32 %0, %3, 0\n" SCALARS(0)
                     : "=&s"(value) : "v"(own), "v"(1), "s"(to) : "memory");
    } else {
        asm volatile("global_store_b32 %1, %2, off\n global_load_b32 %0, %1, off\n" LOADS(0)
                     : "=&v"(value) : "v"(own), "v"(1) : "memory");
    }
    result[threadIdx.x] = value;
}

// ---- Races between the waves of a block

__global__ void shares(int * to, int with_barrier, int other) {
    __shared__ int lds[64];
    lds[threadIdx.x] = int(threadIdx.x);
    if (with_barrier != 0) {
        __syncthreads();
    } else {
        __builtin_amdgcn_wave_barrier();
    }
    to[threadIdx.x] = lds[(threadIdx.x + unsigned(other)) & 63];
}
__global__ void uses_again(int * to, const int * from, int with_barrier) {
    __shared__ int lds[64];
    int sum = 0;
    for (int n = 0; n < 4; ++n) {
        lds[threadIdx.x] = from[threadIdx.x] + n;
        __syncthreads();
        sum += lds[threadIdx.x ^ 63];
        if (with_barrier != 0) {
            __syncthreads();
        }
    }
    to[threadIdx.x] = sum;
}
__global__ void all_write(int * to, int by, int differ) {
    __shared__ int lds[64];
    lds[int(threadIdx.x) / by] = int(threadIdx.x) / 32 * differ;
    __syncthreads();
    to[threadIdx.x] = lds[threadIdx.x / unsigned(by)];
}
__global__ void neighbours(int * to) { // bytes of one dword that belong to different waves
    __shared__ char lds[64];
    lds[(threadIdx.x & 31) * 2 + threadIdx.x / 32] = char(threadIdx.x);
    __syncthreads();
    to[threadIdx.x] = lds[threadIdx.x];
}
__global__ void counts(int * to, int with_barrier) {
    __shared__ int sum;
    if (threadIdx.x == 0) {
        sum = 0;
    }
    __syncthreads();
    atomicAdd(&sum, int(threadIdx.x));
    if (with_barrier != 0) {
        __syncthreads();
    }
    to[threadIdx.x] = sum;
}
__global__ void waits_for_flag(int * to) {
    __shared__ int flag, value;
    if (threadIdx.x == 0) {
        flag = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        value = 42;
        __hip_atomic_store(&flag, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    } else if (threadIdx.x == 32) {
        while (__hip_atomic_load(&flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) {
        }
        to[0] = value;
    }
}
__global__ void clears_and_counts(int * to, int with_barrier) {
    __shared__ int sum;
    if (threadIdx.x == 0) {
        sum = 0;
    }
    if (with_barrier != 0) {
        __syncthreads();
    }
    atomicAdd(&sum, 1);
    __syncthreads();
    to[threadIdx.x] = sum;
}
// One wave at a time adds to what all share.
__global__ void takes_lock(int * to, int by_fences) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) {
        lock = sum = 0;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        if (by_fences != 0) {
            while (atomicCAS(&lock, 0, 1) != 0) {
            }
            __threadfence_block();
            sum = sum + 1;
            __threadfence_block();
            atomicExch(&lock, 0);
        } else {
            int free = 0;
            while (!__hip_atomic_compare_exchange_strong(&lock, &free, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED,
                                                         __HIP_MEMORY_SCOPE_WORKGROUP)) {
                free = 0;
            }
            sum = sum + 1;
            __hip_atomic_store(&lock, 0, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
        }
    }
    __syncthreads();
    to[threadIdx.x % 64] = sum;
}
__global__ void reduces(int * to, const int * from) { // within a wave no barrier is needed
    __shared__ int lds[128];
    const unsigned i = threadIdx.x;
    lds[i] = from[i];
    __syncthreads();
    if (i < 32) {
        volatile int * own = lds;
        own[i] = own[i] + own[i + 32];
        for (unsigned step = 16; step != 0; step /= 2) {
            own[i] = own[i] + own[i + step];
        }
        to[i] = own[0];
    }
}

int main(int count, char ** words) {
    const std::string wanted = count > 1 ? words[1] : "";
    int *to = nullptr, *from = nullptr, *old = nullptr;
    const size_t size = 64 * sizeof(int);
    (void) hipMalloc(&to, size);
    (void) hipMalloc(&from, size);
    (void) hipMalloc(&old, size);
    (void) hipMemset(to, 0, size);
    (void) hipMemset(from, 0, size);
    (void) hipFree(old);
    const dim3 one(1), block(64);
    const std::map<std::string, void (*)(int *, int *, int *, dim3, dim3)> cases = {
#define CASE(name, ...) {name, [](int * to, int * from, int * old, dim3 one, dim3 block) { (void) old; (void) from; __VA_ARGS__; }}
        CASE("write past end", write_at<<<one, block>>>(to, 1)),
        CASE("write before start", write_at<<<one, block>>>(to, -1)),
        CASE("write far away", write_at<<<one, block>>>(to, 1 << 28)),
        CASE("write far away in many blocks", write_at<<<8, 256>>>(to, 1 << 28)),
        CASE("write freed", write_at<<<one, block>>>(old, 0)),
        CASE("read freed", read_at<<<one, block>>>(to, old, 0)),
        CASE("read past end", read_at<<<one, block>>>(to, from, 63)),
        CASE("read null", read_at<<<one, block>>>(to, nullptr, 0)),
        CASE("read wide past end", read_wide<<<one, 16>>>((int4 *) to, (const int4 *) from, 1)),
        CASE("read half past end", read_wide<<<one, 1>>>((int4 *) to, (const int4 *) ((char *) from + 248), 0)),
        CASE("read uniform past end", read_uniform<<<one, block>>>(to, from, 64)),
        CASE("read inlined past end", reads_inlined<<<one, block>>>(to, from)),
        CASE("read byte past end", read_byte<<<one, 1>>>(to, (const char *) from, 256)),
        CASE("add past end", add_at<<<one, 1>>>(to, 256)),
        CASE("read past end by a buffer", copy_by_buffers<<<one, block>>>(to, from, 60, 64)),
        CASE("read without barrier by a buffer", shares_by_buffers<<<one, block>>>(to, false)),
        CASE("clean: masked buffers", copy_by_buffers<<<one, block>>>(to, from + 32, 0, 32)),
        CASE("clean: shared by buffers", shares_by_buffers<<<one, block>>>(to, true)),
        CASE("add misaligned", add_at<<<one, 1>>>(to, 2)),
        CASE("write past lds", write_lds<<<one, block, 256>>>(to, 2)),
        CASE("write generic past lds", write_generic<<<one, block>>>(to, 64, 0)),
        CASE("read past scratch", read_own<<<one, block>>>(to, 1 << 18)),
        CASE("write constant table", writes_constant<<<one, block>>>(to, 0)),
        CASE("write constant", writes_constant<<<one, 1>>>(to, 1)),
        CASE("write arguments", writes_constant<<<one, 1>>>(to, 2)),
        CASE("load without wait", uses_load<<<one, block>>>(to, from, 0)),
        CASE("wait for one too few", uses_second<<<one, 32>>>(to, from, 2)),
        CASE("lds load without wait", uses_lds<<<one, block>>>(to, 0)),
        CASE("scalar load without wait", uses_scalar<<<one, block>>>(to, from, 0)),
        CASE("scalar loads in order", uses_scalar<<<one, block>>>(to, from, 1)),
        CASE("overwritten without wait", overwrites<<<one, block>>>(to, from, 0)),
        CASE("barrier without wait", early_barrier<<<one, block>>>(to, 0)),
        CASE("barrier without wait for a store", tells_by_barrier<<<one, block>>>(to, from, 0)),
        CASE("barrier without wait for the second store", tells_by_barrier<<<one, block>>>(to, from, 2)),
        CASE("wait behind the barrier", tells_by_barrier<<<one, block>>>(to, from, 4)),
        CASE("written again behind a barrier", writes_again<<<one, block>>>(to, 0)),
        CASE("scalar load of a store", reads_back<<<one, block>>>(to, from, 1)),
        CASE("clean: barrier behind a store", tells_by_barrier<<<one, block>>>(to, from, 1)),
        CASE("clean: barrier behind the first store", tells_by_barrier<<<one, block>>>(to, from, 3)),
        CASE("clean: second barrier", tells_by_barrier<<<one, block>>>(to, from, 5)),
        CASE("clean: barrier of one wave", tells_by_barrier<<<one, 32>>>(to, from, 0)),
        CASE("clean: syncthreads", tells_by_syncthreads<<<one, block>>>(to, from)),
        CASE("clean: written again", writes_again<<<one, block>>>(to, 1)),
        CASE("clean: load of a store", reads_back<<<one, block>>>(to, from, 0)),
        CASE("read without barrier", shares<<<one, block>>>(to, 0, 32)),
        CASE("written again without barrier", uses_again<<<one, block>>>(to, from, 0)),
        CASE("written by two waves", all_write<<<one, block>>>(to, 64, 1)),
        CASE("sum without barrier", counts<<<one, block>>>(to, 0)),
        CASE("sum cleared without barrier", clears_and_counts<<<one, block>>>(to, 0)),
        CASE("clean: cleared sum", clears_and_counts<<<one, block>>>(to, 1)),
        CASE("clean: lock", takes_lock<<<one, 256>>>(to, 0)),
        CASE("clean: lock by fences", takes_lock<<<one, 256>>>(to, 1)),
        CASE("clean: write", write_at<<<one, block>>>(to, 0)),
        CASE("clean: read", read_at<<<one, block>>>(to, from, 0)),
        CASE("clean: read wide", read_wide<<<one, 16>>>((int4 *) to, (const int4 *) from, 0)),
        CASE("clean: read uniform", read_uniform<<<one, block>>>(to, from, 63)),
        CASE("clean: read byte", read_byte<<<one, 1>>>(to, (const char *) from, 255)),
        CASE("clean: read constants", writes_constant<<<one, block>>>(to, 3)),
        CASE("clean: add", add_at<<<one, block>>>(to, 252)),
        CASE("clean: lds", write_lds<<<one, block, 256>>>(to, 1)),
        CASE("clean: generic lds", write_generic<<<one, 32>>>(to, 63, 0)),
        CASE("clean: generic global", write_generic<<<one, 32>>>(to, 63, 1)),
        CASE("clean: scratch", read_own<<<one, block>>>(to, 3)),
        CASE("clean: guarded", guarded<<<one, block>>>(to, from + 32, 32)),
        CASE("clean: masked later", masked_later<<<one, block>>>(to, from + 60, 4)),
        CASE("clean: load", uses_load<<<one, block>>>(to, from, 1)),
        CASE("clean: first of two loads", uses_second<<<one, 32>>>(to, from, 1)),
        CASE("clean: two loads", uses_second<<<one, 32>>>(to, from, 0)),
        CASE("clean: lds load", uses_lds<<<one, block>>>(to, 1)),
        CASE("clean: scalar loads", uses_scalar<<<one, block>>>(to, from, 2)),
        CASE("clean: overwritten", overwrites<<<one, block>>>(to, from, 1)),
        CASE("clean: halves", fills_halves<<<one, 32>>>(to, (const short *) from)),
        CASE("clean: barrier", early_barrier<<<one, block>>>(to, 1)),
        CASE("clean: own lds", shares<<<one, block>>>(to, 0, 0)),
        CASE("clean: shared", shares<<<one, block>>>(to, 1, 32)),
        CASE("clean: again", uses_again<<<one, block>>>(to, from, 1)),
        CASE("clean: one wave writes", all_write<<<one, 32>>>(to, 32, 1)),
        CASE("clean: waves write the same", all_write<<<one, block>>>(to, 64, 0)),
        CASE("clean: neighbours", neighbours<<<one, block>>>(to)),
        CASE("clean: sum", counts<<<one, block>>>(to, 1)),
        CASE("clean: flag", waits_for_flag<<<one, block>>>(to)),
        CASE("clean: reduction", reduces<<<one, block>>>(to, from)),
    };
    const auto found = cases.find(wanted);
    if (found == cases.end()) {
        for (const auto & one : cases) {
            std::printf("%s\n", one.first.c_str());
        }
        return count > 1;
    }
    found->second(to, from, old, one, block);
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    if (count > 2) {
        std::abort(); // as a check of the host's would
    }
    return 0;
}
