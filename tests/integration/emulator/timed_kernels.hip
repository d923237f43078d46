// Kernels whose rates on gfx1151 others published: what the model of its time must give for them. And kernels that differ in
// nothing but where they read.
//
//   timed_kernels NAME    launches that kernel once, most on every SIMD of 40 compute units

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>

typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16 __attribute__((ext_vector_type(16)));
typedef float f32x8 __attribute__((ext_vector_type(8)));

constexpr int turns = 64, chains = 8;

// Eight accumulators, nothing but matrix instructions.
__global__ void wmma_f16(float * out, const char *) {
    f32x8 sums[chains] = {};
    f16x16 a, b;
    for (int n = 0; n < 16; ++n) {
        a[n] = b[n] = _Float16(threadIdx.x & 1);
    }
#pragma unroll 1
    for (int t = 0; t < turns; ++t) {
#pragma unroll
        for (int c = 0; c < chains; ++c) {
            sums[c] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, sums[c]);
        }
    }
    float total = 0;
    for (int c = 0; c < chains; ++c) {
        total += sums[c][0];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

__global__ void wmma_iu8(float * out, const char *) {
    i32x8 sums[chains] = {};
    const i32x4 a = {int(threadIdx.x % 16), 1, 2, 3}, b = {1, 0, 1, 0};
#pragma unroll 1
    for (int t = 0; t < turns; ++t) {
#pragma unroll
        for (int c = 0; c < chains; ++c) {
            sums[c] = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, sums[c], false);
        }
    }
    int total = 0;
    for (int c = 0; c < chains; ++c) {
        total += sums[c][0];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(total);
}

// Four loads of 16 bytes from LDS, without conflicts, beside each matrix instruction.
__global__ void wmma_and_lds(float * out, const char *) {
    __shared__ i32x4 tile[1024];
    for (int n = threadIdx.x; n < 1024; n += blockDim.x) {
        tile[n] = i32x4{n, 0, 0, 0};
    }
    __syncthreads();
    i32x8 sums[2] = {};
    const i32x4 a = {int(threadIdx.x % 16), 1, 2, 3};
    const i32x4 * from = tile + threadIdx.x % 32; // one row of banks for eight lanes
#pragma unroll 1
    for (int t = 0; t < turns; ++t) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            i32x4 x, y, z, w;
            asm volatile("ds_load_b128 %0, %4\n\tds_load_b128 %1, %4 offset:512\n\tds_load_b128 %2, %4 offset:1024\n\t"
                         "ds_load_b128 %3, %4 offset:1536"
                         : "=&v"(x), "=&v"(y), "=&v"(z), "=&v"(w)
                         : "v"(unsigned(size_t(from))));
            sums[c] = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, a, sums[c], false);
        }
        asm volatile("s_waitcnt lgkmcnt(0)");
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(sums[0][0] + sums[1][0]);
}

// In one of so many blocks; the others have nothing to do.
template <int one_of> __global__ void dot4(float * out, const char *) {
    if (blockIdx.x % one_of != 0) {
        return;
    }
    int sums[chains] = {};
    const int a = threadIdx.x;
#pragma unroll 1
    for (int t = 0; t < turns; ++t) {
#pragma unroll
        for (int c = 0; c < chains; ++c) {
            asm volatile("v_dot4_i32_iu8 %0, %1, %1, %0 neg_lo:[1,1,0]" : "+v"(sums[c]) : "v"(a));
        }
    }
    int total = 0;
    for (int c = 0; c < chains; ++c) {
        total += sums[c];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(total);
}

// Rows of 256 bytes, each read once.
template <int apart> __global__ void rows(float * out, const char * from) {
    constexpr int lanes_of_row = 16, times = 4;
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x / lanes_of_row;
    int total = 0;
    for (int t = 0; t < times; ++t) {
        const size_t row = thread / lanes_of_row + t * all;
        total += reinterpret_cast<const i32x4 *>(from + row * apart)[thread % lanes_of_row][0];
    }
    out[thread] = float(total);
}

// The first bytes of the same 128 rows, again and again.
template <int apart> __global__ void again(float * out, const char * from) {
    int total = 0;
#pragma unroll 1
    for (int t = 0; t < turns; ++t) {
        for (int n = 0; n < 4; ++n) {
            int one;
            asm volatile("global_load_b32 %0, %1, off\n\ts_waitcnt vmcnt(0)"
                         : "=v"(one) : "v"(from + (threadIdx.x % 32 + n * 32) * apart));
            total += one;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(total);
}

// Two passes over the lines of so many bytes, those of the block or the same for all of them.
template <int bytes, bool is_shared> __global__ void twice(float * out, const char * from) {
    constexpr int line = 128;
    int total = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
#pragma unroll 1
        for (int at = threadIdx.x * line; at < bytes; at += blockDim.x * line) {
            int one;
            asm volatile("global_load_b32 %0, %1, off\n\ts_waitcnt vmcnt(0)"
                         : "=v"(one) : "v"(from + (is_shared ? 0 : blockIdx.x * bytes) + at));
            total += one;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(total);
}

// Once through the lines of so many bytes: of the block's own, or of those that it has among 160. One in 20 blocks wants
// `more` times as many.
template <int bytes, bool is_shared, int more = 1> __global__ void once(float * out, const char * from) {
    constexpr int line = 128;
    const int block = is_shared ? blockIdx.x % 160 : blockIdx.x, all = block % 20 == 0 ? more * bytes : bytes;
    int total = 0;
#pragma unroll 1
    for (int at = threadIdx.x * line; at < all; at += blockDim.x * line) {
        int one;
        asm volatile("global_load_b32 %0, %1, off\n\ts_waitcnt vmcnt(0)" : "=v"(one) : "v"(from + size_t(block) * more * bytes + at));
        total += one;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(total);
}

// A loop of so many instructions of eight bytes.
template <int instructions> __global__ void loop(float * out, const char *) {
    int sum = 0;
    const int a = threadIdx.x;
#pragma unroll 1
    for (int t = 0; t < turns / 4; ++t) {
        asm volatile(".rept %2\n\tv_dot4_i32_iu8 %0, %1, %1, %0 neg_lo:[1,1,0]\n\t.endr" : "+v"(sum) : "v"(a), "n"(instructions));
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = float(sum);
}

int main(int argc, char ** argv) {
    const struct {
        const char * name;
        void (*run)(float *, const char *);
        int blocks = 160;
    } kernels[] = {{"wmma_f16", wmma_f16}, {"wmma_iu8", wmma_iu8}, {"wmma_and_lds", wmma_and_lds}, {"dot4", dot4<1>}, {"dot4_of_some", dot4<8>},
                   {"rows_beside", rows<256>}, {"rows_apart", rows<4096>}, {"rows_in_thirds", rows<768>}, {"again_beside", again<128>}, {"again_apart", again<1024>},
                   {"loop_16k", loop<2000>}, {"loop_30k", loop<3800>},
                   {"row_beside", rows<256>, 1}, {"row_apart", rows<4096>, 1},
                   {"even", once<65536, false>}, {"uneven", once<65536, false, 2>}, {"more_than_a_round", once<65536, false>, 180},
                   {"round_again_8k", once<8192, true>, 640}, {"round_again_32k", once<32768, true>, 640}, {"round_again_256k", once<262144, true>, 640}, {"rounds_32k", once<32768, false>, 640},
                   {"own_8k", twice<8192, false>}, {"own_64k", twice<65536, false>}, {"shared_64k", twice<65536, true>}};
    float * out;
    char * from;
    if (argc != 2 || hipMalloc(&out, 1 << 20) != hipSuccess || hipMalloc(&from, 10240 * 4096) != hipSuccess) {
        return 2;
    }
    for (const auto & one : kernels) {
        if (std::strcmp(one.name, argv[1]) == 0) {
            one.run<<<one.blocks, 256>>>(out, from);
            return hipDeviceSynchronize() == hipSuccess ? 0 : 1;
        }
    }
    return 2;
}
