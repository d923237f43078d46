// Programs, by name, that leave a __shared__ array and stay in the LDS of their block, and others that look like it.
// What docs/reference/checks.md tells a user to compile with calls one of these with the lanes that are about to.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

extern "C" __host__ __device__ __attribute__((weak, used, noinline)) void __ubsan_handle_out_of_bounds_minimal() {
    asm volatile("");
}
extern "C" __host__ __device__ __attribute__((weak, used, noinline)) void __ubsan_handle_local_out_of_bounds_minimal() {
    asm volatile("");
}

constexpr int threads = 64;

__device__ int me() { return int(threadIdx.x); }

// A neighbour on each side, whichever order the compiler has them in.
#define THREE_ARRAYS                   \
    __shared__ int before[threads];    \
    __shared__ int here[threads];      \
    __shared__ int behind[threads];    \
    before[me()] = from[me()];         \
    here[me()] = from[me()] * 3;       \
    behind[me()] = from[me()] * 5;     \
    __syncthreads()

#define USE_ALL before[me() ^ 1] + here[me() ^ 1] + behind[me() ^ 1]

// ---- Faults: each with what is read from `from`, which the compiler does not know (step is 16).

__global__ void index_too_large(int * to, const int * from, int step) {
    THREE_ARRAYS;
    to[me()] = here[me() + step] + USE_ALL;
}
__global__ void index_below(int * to, const int * from, int step) {
    THREE_ARRAYS;
    to[me()] = here[me() - step] + USE_ALL;
}
__global__ void writes_beyond(int * to, const int * from, int step) {
    THREE_ARRAYS;
    here[me() + step] = 7;
    __syncthreads();
    to[me()] = USE_ALL;
}
__device__ int sum_of(const int * numbers, int first, int count) {
    int sum = 0;
    for (int n = first; n < first + count; ++n) {
        sum += numbers[n];
    }
    return sum;
}
__global__ void by_pointer(int * to, const int * from, int step) { // in a function that the compiler inlines
    THREE_ARRAYS;
    to[me()] = sum_of(here, threads - 8, step) + USE_ALL;
}
__global__ void walks_on(int * to, const int * from, int step) { // a pointer that goes on in steps
    THREE_ARRAYS;
    int sum = 0;
    for (const int * at = here + me(); at < here + threads + step; at += 32) {
        sum += *at;
    }
    to[me()] = sum + USE_ALL;
}
__global__ void either_array(int * to, const int * from, int step) { // which one is known while it runs
    THREE_ARRAYS;
    const int * one = from[0] % 2 == 0 ? here : behind;
    to[me()] = one[me() + step] + USE_ALL;
}
__global__ void four_at_once(int * to, const int * from, int step) {
    __shared__ alignas(16) int other[threads];
    __shared__ alignas(16) int here[threads];
    here[me()] = from[me()];
    other[me()] = from[me()] * 3;
    __syncthreads();
    const int4 four = *reinterpret_cast<const int4 *>(here + 4 * step);
    to[me()] = four.x + four.w + here[me() ^ 1] + other[me() ^ 1];
}
__global__ void counts_beyond(int * to, const int * from, int step) {
    THREE_ARRAYS;
    atomicAdd(&here[threads - 8 + step], 1);
    __syncthreads();
    to[me()] = USE_ALL;
}
__global__ void row_below(int * to, const int * from, int step) { // the whole of two dimensions is left
    __shared__ int rows[4][threads];
    __shared__ int behind[threads];
    for (int row = 0; row < 4; ++row) {
        rows[row][me()] = from[me()] + row;
    }
    behind[me()] = from[me()] * 5;
    __syncthreads();
    to[me()] = rows[step / 4][me() ^ 1] + behind[me() ^ 1];
}
struct pair_of_arrays {
    int first[threads], second[threads];
};
__global__ void member(int * to, const int * from, int step) { // into the next member: by the index alone
    __shared__ pair_of_arrays both;
    both.first[me()] = from[me()];
    both.second[me()] = from[me()] * 5;
    __syncthreads();
    to[me()] = both.first[me() + step] + both.second[me() ^ 1];
}

// ---- None of these.

__global__ void neighbours(int * to, const int * from, int step) { // what is folded into one constant lies elsewhere
    THREE_ARRAYS;
    const int left = me() == 0 ? 0 : here[me() - 1], right = me() == threads - 1 ? 0 : here[me() + 1];
    to[me()] = left + right + here[(me() + step) % threads] + USE_ALL;
}
__global__ void end_pointer(int * to, const int * from, int) { // the end of an array is its neighbour's begin
    THREE_ARRAYS;
    int sum = 0;
    for (const int * at = here; at != here + threads; ++at) {
        sum += *at;
    }
    to[me()] = sum + USE_ALL;
}
__global__ void two_buffers(int * to, const int * from, int step) {
    THREE_ARRAYS;
    int *mine = here, *next = behind;
    for (int turn = 0; turn < step; ++turn) {
        next[me()] = mine[(me() + 1) % threads] + 1;
        __syncthreads();
        int * const kept = mine;
        mine = next;
        next = kept;
    }
    to[me()] = mine[me()] + USE_ALL;
}
extern __shared__ int asked_for[];
__global__ void sized_by_the_host(int * to, const int * from, int step) { // parts of one array that has no size here
    int *first = asked_for, *second = asked_for + threads;
    first[me()] = from[me()];
    second[me()] = from[me()] * 3;
    __syncthreads();
    to[me()] = first[me() + step] + second[me()];
}
__global__ void flat_rows(int * to, const int * from, int step) {
    __shared__ int rows[4][threads];
    int * flat = &rows[0][0];
    for (int row = 0; row < 4; ++row) {
        flat[row * threads + me()] = from[me()] + row;
    }
    __syncthreads();
    to[me()] = flat[me() + step * 8];
}
struct message {
    int size;
    int numbers[1]; // as many as there is room for
};
__global__ void room_behind(int * to, const int * from, int step) {
    __shared__ int room[threads + 1];
    auto * one = reinterpret_cast<message *>(room);
    one->numbers[me()] = from[me()];
    __syncthreads();
    to[me()] = one->numbers[(me() + step) % threads];
}
__global__ void not_taken(int * to, const int * from, int step) { // no lane comes to the access
    THREE_ARRAYS;
    to[me()] = (me() + step < threads ? here[me() + step] : 0) + USE_ALL;
}
__global__ void vectors(int * to, const int * from, int step) {
    __shared__ alignas(16) int other[threads];
    __shared__ alignas(16) int here[threads];
    here[me()] = from[me()];
    other[me()] = from[me()] * 3;
    __syncthreads();
    const int4 four = *reinterpret_cast<const int4 *>(here + 4 * (step - 1));
    to[me()] = four.x + four.w + other[me() ^ 1];
}

int main(int arguments, char ** words) {
    using kernel = void (*)(int *, const int *, int);
    const std::map<std::string, kernel> cases = {
        {"index too large", index_too_large}, {"index below", index_below}, {"writes beyond", writes_beyond},
        {"by pointer", by_pointer}, {"walks on", walks_on}, {"either array", either_array},
        {"four at once", four_at_once}, {"counts beyond", counts_beyond}, {"row below", row_below}, {"member", member},
        {"clean: neighbours", neighbours}, {"clean: end pointer", end_pointer}, {"clean: two buffers", two_buffers},
        {"clean: sized by the host", sized_by_the_host}, {"clean: flat rows", flat_rows},
        {"clean: room behind", room_behind}, {"clean: not taken", not_taken}, {"clean: vectors", vectors},
    };
    const auto found = cases.find(arguments > 1 ? words[1] : "");
    if (found == cases.end()) {
        for (const auto & one : cases) {
            std::printf("%s\n", one.first.c_str());
        }
        return arguments > 1;
    }
    int *to = nullptr, *from = nullptr;
    std::vector<int> numbers(threads, 2);
    (void) hipMalloc(&to, threads * sizeof(int));
    (void) hipMalloc(&from, threads * sizeof(int));
    (void) hipMemcpy(from, numbers.data(), threads * sizeof(int), hipMemcpyHostToDevice);
    found->second<<<1, threads, 2 * threads * sizeof(int)>>>(to, from, 16);
    return hipDeviceSynchronize() != hipSuccess;
}
