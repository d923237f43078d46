// Kernels in which a value that nobody gave decides something, and kernels that only touch such values, by name.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#ifdef __GFX12__
#define LOADED "s_wait_loadcnt 0\n"
#else
#define LOADED "s_waitcnt vmcnt(0)\n"
#endif

// `to` has 64 ints with values; `from` 64 ints of which the first 32 have one; `blank` 64 ints that have none.

__global__ void copies_lds(int * to, int written) {
    __shared__ int lds[64];
    const int i = int(threadIdx.x);
    if (i < written) {
        lds[i] = i;
    }
    __syncthreads();
    to[i] = lds[i] + 1;
}
__global__ void selects_lds(int * to) { // reads all, uses what was written
    __shared__ int lds[64];
    const int i = int(threadIdx.x);
    if (i < 32) {
        lds[i] = i;
    }
    __syncthreads();
    const int value = lds[i];
    to[i] = i < 32 ? value : -1;
}
__global__ void counts_by_lds(int * to, int with_count) {
    __shared__ int count;
    if (with_count != 0 && threadIdx.x == 0) {
        count = 3;
    }
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < (count & 7); ++i) {
        sum += to[i];
    }
    __syncthreads(); // others may read yet
    to[threadIdx.x] = sum;
}
__global__ void half_of_lds(int * to, int all) {
    __shared__ short lds[128];
    const int i = int(threadIdx.x);
    lds[2 * i] = short(i);
    if (all != 0) {
        lds[2 * i + 1] = short(-i);
    }
    __syncthreads();
    to[i] = reinterpret_cast<volatile int *>(lds)[i] + 1;
}
__global__ void moves_half_of_lds(int * to) { // as it is, which says nothing yet
    __shared__ short lds[128];
    const int i = int(threadIdx.x);
    lds[2 * i] = short(i);
    __syncthreads();
    to[i] = reinterpret_cast<volatile int *>(lds)[i];
}
__global__ void masks_half_of_lds(int * to) {
    __shared__ short lds[128];
    const int i = int(threadIdx.x);
    lds[2 * i] = short(i);
    __syncthreads();
    to[i] = reinterpret_cast<volatile int *>(lds)[i] & 0xffff;
}
__global__ void adds(int * to, const int * from) { to[threadIdx.x] = from[threadIdx.x] + 1; }
__global__ void adds_float(float * to, const float * from) { to[threadIdx.x] = from[threadIdx.x] + 1.0f; }
__global__ void copies(int * to, const int * from) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void picks(int * to, const int * places) { to[places[threadIdx.x] & 31] = 1; }
__global__ void reads_at(int * to, const int * places) { to[threadIdx.x] = to[places[threadIdx.x] & 31]; }
__global__ void branches(int * to, const int * from) {
    if (from[threadIdx.x] == 7) {
        atomicAdd(to, 1);
    }
}
__global__ void branches_as_one(int * to, const int * __restrict__ from) {
    if (from[blockIdx.x] == 7) {
        __builtin_amdgcn_s_sleep(1);
        to[threadIdx.x] = 1;
    }
}
__global__ void branches_by_two(int * to, const int * from, int n) { // the second condition counts where the first holds
    const int i = int(threadIdx.x);
    const int value = from[i];
    if (i < n && value == 7) {
        to[i] = 1;
    }
}
__global__ void compares_equal(int * to, const int * from) { to[threadIdx.x] = from[threadIdx.x] == 1234567; }
__global__ void takes_larger(float * to, const float * from) { to[threadIdx.x] = fmaxf(from[threadIdx.x], 1e30f); }
__global__ void tests_bit(int * to, const int * from) { to[threadIdx.x] = (from[threadIdx.x] & 4) != 0 ? 1 : 2; }
__global__ void keeps_constant_bits(int * to, const int * from) { to[threadIdx.x] = (from[threadIdx.x] & 0) | 5; }
__global__ void by_zero(int * to, const int * from) { to[threadIdx.x] = from[threadIdx.x] * int(gridDim.x - 1); }
__global__ void clears(int * to, const int * from) { to[threadIdx.x] = from[threadIdx.x] ^ from[threadIdx.x]; }
__global__ void own_array(int * to, int written, int place) {
    volatile int own[16];
    for (int i = 0; i < written; ++i) {
        own[i] = i;
    }
    to[threadIdx.x] = own[(place + int(threadIdx.x)) % 16];
}
__global__ void register_never_written(int * to) {
    int value;
    asm volatile("v_add_nc_u32 %0, 1, v90" : "=v"(value)::"v90");
    to[threadIdx.x] = value;
}
__global__ void scalar_never_written(int * to) {
    int value;
    asm volatile("s_add_i32 %0, s90, 1" : "=s"(value)::"s90", "scc");
    to[threadIdx.x] = value;
}
__global__ void scalar_decides(int * to) {
    asm volatile("s_cmp_eq_u32 s90, 5\n s_cbranch_scc1 1f\n s_nop 0\n1:" ::: "s90", "scc");
    to[threadIdx.x] = 1;
}
__global__ void fills_low_half(int * to, const short * from, int both) {
    int value;
    if (both != 0) {
        asm volatile("global_load_d16_b16 v90, %1, off\n global_load_d16_hi_b16 v90, %1, off\n" LOADED "v_add_nc_u32 %0, 1, v90"
                     : "=v"(value) : "v"(from + threadIdx.x) : "v90");
    } else {
        asm volatile("global_load_d16_b16 v90, %1, off\n" LOADED "v_add_nc_u32 %0, 1, v90"
                     : "=v"(value) : "v"(from + threadIdx.x) : "v90");
    }
    to[threadIdx.x] = value;
}
__global__ void reads_first_lane(int * to, const int * from) {
    to[threadIdx.x] = __builtin_amdgcn_readfirstlane(from[threadIdx.x]);
}
__global__ void shuffles(int * to, const int * from, int by) { // lanes 16 to 31 have no value
    const int i = int(threadIdx.x);
    const int value = i < 16 ? i : from[i];
    to[i] = __shfl(value, (i % 16) + by, 32);
}
__global__ void sums_wave(int * to, const int * from, int n) { // by lanes below n
    const int i = int(threadIdx.x);
    int value = from[i];
    value = i < n ? value : 0;
    for (int step = 16; step != 0; step /= 2) {
        value += __shfl_xor(value, step, 32);
    }
    to[i] = value;
}
__global__ void counts_up(int * counter) { atomicAdd(counter, 1); }
__global__ void exchanges(int * place) { atomicExch(place + threadIdx.x, 1); }
__global__ void tail_of_four(float * to, const float4 * from, int n) { // of the last four some are beyond the end
    const int i = int(threadIdx.x);
    const float4 four = from[i];
    float sum = 0;
    sum += 4 * i + 0 < n ? four.x : 0;
    sum += 4 * i + 1 < n ? four.y : 0;
    sum += 4 * i + 2 < n ? four.z : 0;
    sum += 4 * i + 3 < n ? four.w : 0;
    to[i] = sum;
}
struct padded {
    char tag;
    int value;
};
__global__ void copies_padding(padded * to, const padded * from) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void sets_members(padded * to) {
    to[threadIdx.x].tag = 1;
    to[threadIdx.x].value = 2;
}
__global__ void uses_members(int * to, const padded * from) { to[threadIdx.x] = from[threadIdx.x].tag + from[threadIdx.x].value; }
__device__ __attribute__((noinline)) int called(int a, int b) { return a * b + 1; }
__global__ void calls(int * to, const int * from) { to[threadIdx.x] = called(from[threadIdx.x], 3); }
__global__ void ors_by_parts(int * to) { // builds a dword from bytes
    __shared__ unsigned char lds[256];
    const int i = int(threadIdx.x);
    for (int n = 0; n < 4; ++n) {
        lds[4 * i + n] = (unsigned char) (i + n);
    }
    __syncthreads();
    to[i] = reinterpret_cast<volatile int *>(lds)[i];
}
__global__ void multiplies_halves(int * to, const int * from) {
    typedef _Float16 pair __attribute__((ext_vector_type(2)));
    const pair value = __builtin_bit_cast(pair, from[threadIdx.x]);
    const pair twice = value * value;
    to[threadIdx.x] = __builtin_bit_cast(int, twice);
}
__global__ void loads_late(int * to, const int * from, int n) { // a variable with a value on one path only
    int last;
    for (int i = 0; i < n; ++i) {
        last = from[i];
    }
    to[threadIdx.x] = n > 0 ? last : 0;
}

// Rows of a matrix that were not written give rows of the result that are not stored.
__global__ void multiplies_rows(float * to, int rows) {
    __shared__ _Float16 lds[256];
    for (int i = int(threadIdx.x); i < rows * 16; i += 32) {
        lds[i] = _Float16(i % 7);
    }
    __syncthreads();
    const int column = int(threadIdx.x) % 16, half = int(threadIdx.x) / 16;
    typedef float sums __attribute__((ext_vector_type(8)));
#ifdef __GFX12__
    typedef _Float16 fragment __attribute__((ext_vector_type(8)));
    fragment a, b;
    for (int i = 0; i < 8; ++i) {
        a[i] = lds[column * 16 + half * 8 + i];
        b[i] = _Float16(i);
    }
    const sums result = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, sums{});
    const int first = 8 * half, step = 1;
#else
    typedef _Float16 fragment __attribute__((ext_vector_type(16)));
    fragment a, b;
    for (int i = 0; i < 16; ++i) {
        a[i] = lds[column * 16 + i];
        b[i] = _Float16(i);
    }
    const sums result = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, sums{});
    const int first = half, step = 2;
#endif
    for (int i = 0; i < 8; ++i) {
        const int row = first + step * i;
        if (row < 8 && column < 8) {
            to[row * 8 + column] = result[i];
        }
    }
}

struct buffers {
    int *to, *from, *blank, *host, *managed;
    int back[64];

    void read() { (void) hipMemcpy(back, to, sizeof(back), hipMemcpyDeviceToHost); }
};

int main(int count, char ** words) {
    const std::string wanted = count > 1 ? words[1] : "";
    const size_t size = 64 * sizeof(int);
    const dim3 one(1), wave(32), block(64);
    const std::map<std::string, void (*)(buffers &, dim3, dim3, dim3, size_t)> cases = {
#define CASE(name, ...)                                                                                                \
    {name, [](buffers & b, dim3 one, dim3 wave, dim3 block, size_t size) {                                             \
         (void) one; (void) wave; (void) block; (void) size; __VA_ARGS__; b.read();                                    \
     }}
        CASE("lds decides output", copies_lds<<<one, block>>>(b.to, 32)),
        CASE("one lane of lds", copies_lds<<<one, block>>>(b.to, 63)),
        CASE("lds decides how often", counts_by_lds<<<one, block>>>(b.to, 0)),
        CASE("half of lds", half_of_lds<<<one, block>>>(b.to, 0)),
        CASE("memory decides output", adds<<<one, block>>>(b.to, b.from)),
        CASE("float decides output", adds_float<<<one, wave>>>((float *) b.to, (const float *) b.blank)),
        CASE("memory is copied on", copies<<<one, block>>>(b.to, b.blank)),
        CASE("memory decides where to write", picks<<<one, wave>>>(b.to, b.blank)),
        CASE("memory decides where to read", reads_at<<<one, wave>>>(b.to, b.blank)),
        CASE("memory decides a branch", branches<<<one, block>>>(b.to, b.from)),
        CASE("memory decides a branch of the wave", branches_as_one<<<one, wave>>>(b.to, b.blank)),
        CASE("both conditions", branches_by_two<<<one, block>>>(b.to, b.from, 40)),
        CASE("compared with one number", compares_equal<<<one, wave>>>(b.to, b.blank)),
        CASE("maximum", takes_larger<<<one, wave>>>((float *) b.to, (const float *) b.blank)),
        CASE("one bit", tests_bit<<<one, wave>>>(b.to, b.blank)),
        CASE("own array", own_array<<<one, wave>>>(b.to, 15, 0)),
        CASE("register", register_never_written<<<one, wave>>>(b.to)),
        CASE("scalar register", scalar_never_written<<<one, wave>>>(b.to)),
        CASE("scalar register decides", scalar_decides<<<one, wave>>>(b.to)),
        CASE("high half", fills_low_half<<<one, wave>>>(b.to, (const short *) b.from, 0)),
        CASE("first lane", reads_first_lane<<<one, wave>>>(b.to, b.blank)),
        CASE("other lane", shuffles<<<one, wave>>>(b.to, b.blank, 1)),
        CASE("sum of one too many", sums_wave<<<one, wave>>>(b.to, b.from + 16, 17)),
        CASE("counter", counts_up<<<one, wave>>>(b.blank); (void) hipMemcpy(b.to, b.blank, 4, hipMemcpyDeviceToDevice)),
        CASE("copied to the device and used", (void) hipMemcpy(b.to, b.blank, size, hipMemcpyDeviceToDevice);
             picks<<<one, wave>>>(b.to + 32, b.to)),
        CASE("to memory of the host", adds<<<one, wave>>>(b.host, b.blank)),
        CASE("tail of four", tail_of_four<<<one, 16>>>((float *) b.to, (const float4 *) b.from, 33)),
        CASE("product of halves", multiplies_halves<<<one, wave>>>(b.to, b.blank)),
        CASE("through a function", calls<<<one, wave>>>(b.to, b.blank)),
        CASE("rest of a fill", (void) hipMemset(b.blank, 0, 100); adds<<<one, wave>>>(b.to, b.blank)),
        CASE("rest of rows", (void) hipMemset2D(b.blank, 16, 0, 12, 8); adds<<<one, wave>>>(b.to, b.blank)),
        CASE("row of a matrix", multiplies_rows<<<one, wave>>>((float *) b.to, 7)),
        CASE("clean: rows of a matrix", multiplies_rows<<<one, wave>>>((float *) b.to, 8)),
        CASE("clean: lds", copies_lds<<<one, block>>>(b.to, 64)),
        CASE("clean: selected", selects_lds<<<one, block>>>(b.to)),
        CASE("clean: count in lds", counts_by_lds<<<one, block>>>(b.to, 1)),
        CASE("clean: halves of lds", half_of_lds<<<one, block>>>(b.to, 1)),
        CASE("clean: moved half", moves_half_of_lds<<<one, block>>>(b.to)),
        CASE("clean: padding for the host", padded * p = (padded *) b.blank; sets_members<<<one, 8>>>(p);
             copies_padding<<<one, 8>>>((padded *) b.to, p); copies_padding<<<one, 8>>>((padded *) b.host, p)),
        CASE("clean: masked half", masks_half_of_lds<<<one, block>>>(b.to)),
        CASE("clean: memory", adds<<<one, wave>>>(b.to, b.from)),
        CASE("clean: copied and not used", copies<<<one, block>>>(b.blank, b.blank + 0)),
        CASE("clean: buffer of which a part is used", adds<<<one, wave>>>(b.blank, b.from);
             (void) hipMemcpy(b.back, b.blank, size, hipMemcpyDeviceToHost)),
        CASE("clean: first condition", branches_by_two<<<one, block>>>(b.to, b.from, 32)),
        CASE("clean: no bit counts", keeps_constant_bits<<<one, wave>>>(b.to, b.blank)),
        CASE("clean: times zero", by_zero<<<one, wave>>>(b.to, b.blank)),
        CASE("clean: cleared by itself", clears<<<one, wave>>>(b.to, b.blank)),
        CASE("clean: own array", own_array<<<one, wave>>>(b.to, 16, 3)),
        CASE("clean: both halves", fills_low_half<<<one, wave>>>(b.to, (const short *) b.from, 1)),
        CASE("clean: other lane", shuffles<<<one, wave>>>(b.to, b.blank, 0)),
        CASE("clean: sum of a part", sums_wave<<<one, wave>>>(b.to, b.from + 16, 16)),
        CASE("clean: counter", (void) hipMemset(b.blank, 0, 4); counts_up<<<one, wave>>>(b.blank);
             (void) hipMemcpy(b.to, b.blank, 4, hipMemcpyDeviceToDevice)),
        CASE("clean: exchanged", exchanges<<<one, block>>>(b.blank); adds<<<one, block>>>(b.to, b.blank)),
        CASE("clean: tail of four", tail_of_four<<<one, 16>>>((float *) b.to, (const float4 *) b.from, 32)),
        CASE("clean: padding", padded * p = (padded *) b.blank; sets_members<<<one, 8>>>(p); copies_padding<<<one, 8>>>(p + 8, p);
             uses_members<<<one, 8>>>(b.to, p + 8)),
        CASE("clean: bytes", ors_by_parts<<<one, block>>>(b.to)),
        CASE("clean: product of halves", multiplies_halves<<<one, wave>>>(b.to, b.from)),
        CASE("clean: function", calls<<<one, wave>>>(b.to, b.from)),
        CASE("clean: set on one path", loads_late<<<one, wave>>>(b.to, b.from, 3); loads_late<<<one, wave>>>(b.to, b.from, 0)),
        CASE("clean: filled", (void) hipMemset(b.blank, 0, size); adds<<<one, block>>>(b.to, b.blank)),
        CASE("clean: filled in rows", (void) hipMemset2D(b.blank, 16, 0, 16, 8); adds<<<one, wave>>>(b.to, b.blank)),
        CASE("clean: copied there", (void) hipMemcpy(b.blank, b.back, size, hipMemcpyHostToDevice);
             adds<<<one, block>>>(b.to, b.blank)),
        CASE("clean: copied on the device", (void) hipMemcpy(b.blank, b.from, size / 2, hipMemcpyDeviceToDevice);
             adds<<<one, wave>>>(b.to, b.blank)),
        CASE("clean: memory of the host", b.host[3] = 1; adds<<<one, block>>>(b.to, b.host)),
        CASE("clean: managed memory", adds<<<one, block>>>(b.to, b.managed)),
    };
    const auto found = cases.find(wanted);
    if (found == cases.end()) {
        for (const auto & one_case : cases) {
            std::printf("%s\n", one_case.first.c_str());
        }
        return count > 1;
    }
    buffers all{};
    (void) hipMalloc(&all.to, size);
    (void) hipMalloc(&all.from, size);
    (void) hipMalloc(&all.blank, size);
    (void) hipHostMalloc((void **) &all.host, size, hipHostMallocDefault);
    (void) hipMallocManaged((void **) &all.managed, size);
    (void) hipMemset(all.to, 0, size);
    (void) hipMemset(all.from, 1, size / 2);
    found->second(all, one, wave, block, size);
    const hipError_t error = hipDeviceSynchronize();
    if (error != hipSuccess) {
        std::printf("%s\n", hipGetErrorString(error));
        return 1;
    }
    return 0;
}
