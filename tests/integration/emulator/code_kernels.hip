// What the loader's tests compile: each kernel or variable is there for one thing that a code object can have.
#include <hip/hip_runtime.h>

// Initialised, zeroed and constant memory, and addresses of variables and functions that only a loader knows.
__device__ int numbers[4] = {1, 2, 3, 5};
__device__ int * third = &numbers[2];
__device__ unsigned long long counter;
__constant__ float scale = 0.5f;
__device__ alignas(16384) char aligned_widely[64] = "sixteen kilobytes";

__device__ __attribute__((noinline)) float doubled(float x) { return x * 2.0f; }
__device__ __attribute__((noinline)) float halved(float x) { return x * 0.5f; }
__device__ float (*steps[2])(float) = {doubled, halved};

// Local to the file: only the full symbol table has it.
static __device__ __attribute__((noinline)) float local_sum(const float * values, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        sum += values[i] * scale;
    }
    return sum;
}

// Arguments of several sizes, no hidden ones.
struct sizes {
    long long rows;
    char flags[5];
};
__global__ void takes_arguments(const float * in, char letter, sizes shape, short last, double * out) {
    *out = in[shape.rows] + letter + shape.flags[4] + last;
}

extern __shared__ float dynamic_part[];
__global__ void __launch_bounds__(128) has_lds(float * out) {
    __shared__ float fixed_part[64];
    fixed_part[threadIdx.x % 64] = out[threadIdx.x];
    dynamic_part[threadIdx.x] = fixed_part[(threadIdx.x + 1) % 64];
    __syncthreads();
    out[threadIdx.x] = dynamic_part[blockDim.x - 1 - threadIdx.x] + blockIdx.y + gridDim.z;
}

__global__ void calls(float * out, int which, int n) {
    atomicAdd(&counter, 1ull);
    out[0] = local_sum(out, n) + steps[which](*third);
}

__global__ void prints(int n) { printf("block %d has %d\n", int(blockIdx.x), n); }

// An array that is indexed by what only the launch knows lives in scratch.
__global__ void has_scratch(const int * in, int * out, int n) {
    int kept[40];
    for (int i = 0; i < 40; ++i) {
        kept[i] = in[(i * n) & 1023];
    }
    out[threadIdx.x] = kept[n % 40] + kept[in[n] % 40] + aligned_widely[n & 63] + numbers[n & 3];
}
