// Kernels with a hazard of the chip that no run shows (hazard_*), and kernels that only look like it (clean_*).
#include <hip/hip_runtime.h>

#include <cstdio>

#define KERNEL extern "C" __global__ void __launch_bounds__(256)

// ---- A barrier that a store is not waited for: clang 22 drops the wait in these loops.

KERNEL hazard_barrier_links(long * links, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long here;
        while ((here = links[i]) >= 0) {
            const long next = links[here];
            __syncthreads();
            links[i] = next;
        }
    }
}

KERNEL hazard_barrier_turn(int * all, int n) {
    for (int k = 0; k < n; ++k) {
        const int other = all[(threadIdx.x + 37) & 255];
        __syncthreads();
        all[threadIdx.x] = other + k;
    }
}

KERNEL hazard_barrier_wide(float4 * all, int n) {
    for (int k = 0; k < n; ++k) {
        float4 other = all[(threadIdx.x + 1) & 255];
        other.x += k;
        __syncthreads();
        all[threadIdx.x] = other;
    }
}

KERNEL hazard_barrier_byte(unsigned char * all, int n) {
    for (int k = 0; k < n; ++k) {
        const unsigned char other = all[255 - threadIdx.x];
        __syncthreads();
        all[threadIdx.x] = other;
    }
}

KERNEL hazard_barrier_some(int * all, int n) {
    for (int k = 0; k < n; ++k) {
        const int other = all[(threadIdx.x * 5) & 255];
        __syncthreads();
        if (other > k) {
            all[threadIdx.x] = other - k;
        }
    }
}

KERNEL hazard_barrier_two_arrays(int * all, int * sums, int n) {
    for (int k = 0; k < n; ++k) {
        const int other = all[(threadIdx.x + 3) & 255] + sums[threadIdx.x ^ 64];
        __syncthreads();
        all[threadIdx.x] = other;
        sums[threadIdx.x] = k;
    }
}

#if defined(__gfx1151__) || defined(__gfx1100__)
#define BARRIER "s_barrier\n buffer_gl0_inv\n"
#define WAITED "s_waitcnt_vscnt null, 0x0\n"
#define BARELY "s_waitcnt_vscnt null, 0x1\n"
#else
#define BARRIER "s_barrier_signal -1\n s_barrier_wait -1\n global_inv scope:SCOPE_SE\n"
#define WAITED "s_wait_storecnt 0x0\n"
#define BARELY "s_wait_storecnt 0x1\n"
#endif

KERNEL hazard_barrier_by_hand(int * all) {
    int * const mine = all + threadIdx.x;
    asm volatile("global_store_b32 %0, %1, off\n" BARRIER : : "v"(mine), "v"(1) : "memory");
}

KERNEL hazard_barrier_one_too_few(int * all) {
    int * const mine = all + threadIdx.x;
    asm volatile("global_store_b32 %0, %1, off\n global_store_b32 %0, %1, off offset:1024\n" BARELY BARRIER
                 : : "v"(mine), "v"(1) : "memory");
}

KERNEL clean_barrier_by_hand(int * all) {
    int * const mine = all + threadIdx.x;
    asm volatile("global_store_b32 %0, %1, off\n" WAITED BARRIER : : "v"(mine), "v"(1) : "memory");
}

KERNEL clean_barrier_straight(int * all, int n) {
    for (int k = 0; k < n; ++k) {
        all[threadIdx.x] += k;
        __syncthreads();
        all[(threadIdx.x + 37) & 255] *= 3;
        __syncthreads();
    }
}

// A barrier that says nothing of memory: the waves only meet.
KERNEL clean_barrier_alone(int * all, int n) {
    for (int k = 0; k < n; ++k) {
        all[threadIdx.x + 256 * k] = k;
        __builtin_amdgcn_s_barrier();
    }
}

// One that says something of LDS.
KERNEL clean_barrier_of_lds(int * all, int n) {
    __shared__ int part[256];
    for (int k = 0; k < n; ++k) {
        part[threadIdx.x] = k;
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
        all[threadIdx.x + 256 * k] = part[255 - threadIdx.x];
    }
}

KERNEL clean_barrier_last_store(int * all) {
    const int other = all[255 - threadIdx.x];
    __syncthreads();
    all[threadIdx.x] = other;
}

// ---- Dual instructions behind a lane pattern.

#if defined(__gfx1151__) || defined(__gfx1100__)
#define USED "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "vcc"
#define CODE(name, text)                                 \
    KERNEL name(float * to) {                            \
        asm volatile("v_mov_b32 v1, 0\n" text : : : USED); \
        to[threadIdx.x] = 0;                             \
    }
#define SHIFTED "v_add_f32_dpp v2, v1, v1 row_shr:1 row_mask:0xf bank_mask:0xf\n"

CODE(hazard_dual_next, SHIFTED "v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(hazard_dual_second_half, SHIFTED "v_dual_mul_f32 v5, v4, v7 :: v_dual_add_f32 v6, v2, v8\n")
CODE(hazard_dual_second_source, SHIFTED "v_dual_mul_f32 v5, v3, v4 :: v_dual_add_f32 v6, v8, v2\n")
CODE(hazard_dual_moves, "v_mov_b32_dpp v2, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf\n"
                        "v_dual_mov_b32 v5, v2 :: v_dual_mov_b32 v6, v4\n")
CODE(hazard_dual_odd, "v_max_f32_dpp v3, v1, v1 row_ror:8 row_mask:0xf bank_mask:0xf\n"
                      "v_dual_mul_f32 v5, v3, v7 :: v_dual_max_f32 v6, v9, v8\n")
CODE(hazard_dual_waits, SHIFTED "s_nop 7\n s_nop 7\n v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(hazard_dual_others_between, SHIFTED "v_mul_f32 v9, v1, v1\n v_dual_mul_f32 v5, v7, v1 :: v_dual_mov_b32 v6, v8\n"
                                         "v_dual_fmamk_f32 v5, v2, 0x12345678, v7 :: v_dual_mov_b32 v6, v4\n")
CODE(hazard_dual_branch, SHIFTED "s_cbranch_scc0 1f\n s_nop 15\n s_nop 15\n"
                                 "1: v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(hazard_dual_eight, "v_mov_b32_dpp v2, v1 dpp8:[7,6,5,4,3,2,1,0]\n"
                        "v_dual_cndmask_b32 v5, v2, v7 :: v_dual_mov_b32 v6, v4\n")

CODE(clean_dual_parity, SHIFTED "v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v9, v8\n")
CODE(clean_dual_places, SHIFTED "v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v9, v4\n")
CODE(clean_dual_far, SHIFTED "s_nop 15\n s_nop 9\n v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(clean_dual_read, SHIFTED "v_add_f32 v9, v2, v2\n v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(clean_dual_waited, SHIFTED "s_waitcnt_depctr 0xfff\n"
                                "v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(clean_dual_plain, "v_add_f32 v2, v1, v1\n v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(clean_dual_overwritten, SHIFTED "v_mov_b32 v2, 0\n v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, v4, v9\n")
CODE(clean_dual_constant, SHIFTED "v_dual_mul_f32 v5, v2, v7 :: v_dual_add_f32 v6, 1.0, v9\n")
#endif

int main() {
    int * all = nullptr;
    (void) hipMalloc(&all, 256 * sizeof(int));
    (void) hipMemset(all, 0, 256 * sizeof(int));
    hazard_barrier_by_hand<<<1, 256>>>(all);
    const auto error = hipDeviceSynchronize();
    std::printf("%s\n", hipGetErrorName(error));
    return error == hipSuccess ? 0 : 1;
}
