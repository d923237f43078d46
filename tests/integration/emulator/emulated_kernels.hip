// Kernels with results that the host can compute, one per way in which kernels use the machine; and some that fail.
//
//   emulated_kernels NAME    prints "right" or the first wrong value
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

template <typename T> struct on_device {
    T * data = nullptr;
    size_t count;

    explicit on_device(const std::vector<T> & values) : count(values.size()) {
        NEED(hipMalloc((void **) &data, count * sizeof(T)));
        NEED(hipMemcpy(data, values.data(), count * sizeof(T), hipMemcpyHostToDevice));
    }
    std::vector<T> back() const {
        std::vector<T> values(count);
        NEED(hipMemcpy(values.data(), data, count * sizeof(T), hipMemcpyDeviceToHost));
        return values;
    }
};

template <typename T> static void expect(const std::vector<T> & found, const std::function<T(size_t)> & wanted) {
    for (size_t n = 0; n < found.size(); ++n) {
        if (!(found[n] == wanted(n))) {
            std::printf("value %zu is %g, must be %g\n", n, double(found[n]), double(wanted(n)));
            return;
        }
    }
    std::printf("right\n");
}

static std::vector<int> counting(size_t count) {
    std::vector<int> values(count);
    for (size_t n = 0; n < count; ++n) {
        values[n] = int(n);
    }
    return values;
}

// ---- where a thread is

__global__ void places(int * to) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    to[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}
static void run_places() {
    on_device<int> to(std::vector<int>(2 * 3 * 4 * 5 * 6 * 7, -1));
    places<<<dim3(2, 3, 4), dim3(5, 6, 7)>>>(to.data);
    expect<int>(to.back(), [](size_t n) { return int(n / 210 * 1000 + n % 210); });
}

// ---- LDS of fixed and of dynamic size, between waves

__global__ void sums(const int * from, int * to) {
    extern __shared__ int values[];
    __shared__ int total;
    values[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            values[threadIdx.x] += values[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        total = values[0];
    }
    __syncthreads();
    to[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
static void run_lds() {
    on_device<int> from(counting(1024)), to(std::vector<int>(1024));
    sums<<<4, 256, 256 * sizeof(int)>>>(from.data, to.data);
    expect<int>(to.back(), [](size_t n) { return int(n / 256 * 256 * 256 + 255 * 128); });
}

// ---- between lanes

__global__ void shuffles(int * to) {
    const int lane = threadIdx.x;
    int sum = lane;
    for (int by = 16; by > 0; by /= 2) {
        sum += __shfl_xor(sum, by, 32);
    }
    const int up = __shfl_up(lane, 3, 32), from_other = __shfl(lane, (lane * 7 + 5) % 32, 32);
    const int first = __builtin_amdgcn_readfirstlane(lane + 100);
    const int mirrored = __builtin_amdgcn_update_dpp(0, lane, 0x140, 0xf, 0xf, false); // row_mirror
    to[lane] = sum + 1000 * up + 100000 * from_other + (first == 100 ? 0 : 7) + (mirrored == (lane ^ 15) ? 0 : 11);
    to[lane + 32] = int(__ballot(lane % 3 == 0) == 0x49249249u);
}
static void run_lanes() {
    on_device<int> to(std::vector<int>(64));
    shuffles<<<1, 32>>>(to.data);
    expect<int>(to.back(), [](size_t n) {
        const int lane = int(n), up = lane < 3 ? lane : lane - 3;
        return n >= 32 ? 1 : 496 + 1000 * up + 100000 * ((lane * 7 + 5) % 32);
    });
}

// ---- calls, recursion, a stack with an index that only the run knows

__device__ __attribute__((noinline)) int factorial(int n) { return n <= 1 ? 1 : n * factorial(n - 1); }
__device__ int doubled(int n) { return 2 * n; }
__device__ int negated(int n) { return -n; }
__device__ int (*const functions[])(int) = {doubled, negated};

__global__ void calls(const int * which, int * to) {
    int local[20];
    for (int n = 0; n < 20; ++n) {
        local[n] = n * int(threadIdx.x);
    }
    local[which[threadIdx.x] % 20] += 5;
    to[threadIdx.x] = factorial(which[threadIdx.x] % 8) + local[which[threadIdx.x + 1] % 20] +
                      functions[threadIdx.x % 2](10);
}
static void run_calls() {
    on_device<int> which(counting(65)), to(std::vector<int>(64));
    calls<<<1, 64>>>(which.data, to.data);
    expect<int>(to.back(), [](size_t n) {
        int product = 1;
        for (int k = 2; k <= int(n % 8); ++k) {
            product *= k;
        }
        return product + int((n + 1) % 20 * n) + (n % 2 == 0 ? 20 : -10);
    });
}

// ---- atomics of blocks on several threads

__global__ void counts(const int * from, unsigned * bins, unsigned long long * total, float * sum, int * most) {
    __shared__ unsigned own[8];
    if (threadIdx.x < 8) {
        own[threadIdx.x] = 0;
    }
    __syncthreads();
    const int value = from[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&own[value % 8], 1u);
    __syncthreads();
    if (threadIdx.x < 8) {
        atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
    }
    atomicAdd(total, (unsigned long long) value);
    atomicAdd(sum, 0.5f);
    atomicMax(most, value);
}
static void run_atomics() {
    on_device<int> from(counting(64 * 256)), most(std::vector<int>(1, -1));
    on_device<unsigned> bins(std::vector<unsigned>(8));
    on_device<unsigned long long> total(std::vector<unsigned long long>(1));
    on_device<float> sum(std::vector<float>(1));
    counts<<<64, 256>>>(from.data, bins.data, total.data, sum.data, most.data);
    const bool is_right = total.back()[0] == 16384ull * 16383 / 2 && sum.back()[0] == 8192 && most.back()[0] == 16383;
    if (!is_right) {
        std::printf("wrong total, sum or largest\n");
        return;
    }
    expect<unsigned>(bins.back(), [](size_t) { return 2048u; });
}

// ---- blocks that wait for each other, in the order in which they do not start

__global__ void chain(volatile int * done, int * to) {
    const int block = gridDim.x - 1 - blockIdx.x;
    if (threadIdx.x == 0) {
        while (block > 0 && done[block - 1] == 0) {
            __builtin_amdgcn_s_sleep(1);
        }
        __threadfence();
        to[block] = block == 0 ? 1 : to[block - 1] + block;
        __threadfence();
        done[block] = 1;
    }
}
static void run_waiting() {
    on_device<int> done(std::vector<int>(16)), to(std::vector<int>(16));
    chain<<<16, 64>>>(done.data, to.data);
    expect<int>(to.back(), [](size_t n) { return int(1 + n * (n + 1) / 2); });
}

// ---- floats: division and roots must be IEEE's, halves are rounded once

__global__ void divides(const float * a, const float * b, float * quotient, float * root) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    quotient[n] = a[n] / b[n];
    root[n] = sqrtf(fabsf(a[n]));
}
static void run_division() {
    std::vector<float> a(1 << 16), b(1 << 16);
    uint64_t state = 1;
    for (size_t n = 0; n < a.size(); ++n) {
        for (std::vector<float> * to : {&a, &b}) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            const uint32_t bits = uint32_t(state >> 32);
            std::memcpy(&(*to)[n], &bits, sizeof(bits));
            (*to)[n] = std::isnan((*to)[n]) ? 1.0f : (*to)[n];
        }
    }
    on_device<float> left(a), right(b), quotient(std::vector<float>(a.size())), root(std::vector<float>(a.size()));
    divides<<<a.size() / 256, 256>>>(left.data, right.data, quotient.data, root.data);
    const auto quotients = quotient.back(), roots = root.back();
    for (size_t n = 0; n < a.size(); ++n) {
        const bool is_nan = std::isnan(a[n] / b[n]) && std::isnan(quotients[n]);
        if (!(is_nan || quotients[n] == a[n] / b[n]) || roots[n] != std::sqrt(std::fabs(a[n]))) {
            std::printf("%a / %a is %a, root %a\n", a[n], b[n], quotients[n], roots[n]);
            return;
        }
    }
    std::printf("right\n");
}

__global__ void halves(const __half2 * a, const __half2 * b, __half2 * to) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    to[n] = __hfma2(a[n], b[n], to[n]);
}
static void run_halves() {
    // (1 + 2^-10)^2 + 2^-11 lies between two halves; rounding the product first would give the lower one.
    const __half2 a = __float2half2_rn(1.0009765625f), c = __float2half2_rn(0.00048828125f);
    on_device<__half2> left(std::vector<__half2>(64, a)), right(std::vector<__half2>(64, a));
    on_device<__half2> to(std::vector<__half2>(64, c));
    halves<<<1, 64>>>(left.data, right.data, to.data);
    std::vector<float> values;
    for (const __half2 & one : to.back()) {
        values.push_back(__half2float(one.x));
        values.push_back(__half2float(one.y));
    }
    expect<float>(values, [](size_t) { return 1.0029296875f; });
}

// ---- a matrix product by WMMA

typedef float floats8 __attribute__((ext_vector_type(8)));
__global__ void product(const _Float16 * a, const _Float16 * b, float * to) {
    const int lane = threadIdx.x, line = lane % 16, half = lane / 16;
    floats8 sum = {};
#if defined(__GFX12__)
    typedef _Float16 halves8 __attribute__((ext_vector_type(8)));
    halves8 row, column;
    for (int k = 0; k < 8; ++k) {
        row[k] = a[line * 16 + 8 * half + k];
        column[k] = b[(8 * half + k) * 16 + line];
    }
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(row, column, sum);
#elif defined(__GFX11__)
    typedef _Float16 halves16 __attribute__((ext_vector_type(16)));
    halves16 row, column;
    for (int k = 0; k < 16; ++k) {
        row[k] = a[line * 16 + k];
        column[k] = b[k * 16 + line];
    }
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(row, column, sum);
#endif
    for (int n = 0; n < 8; ++n) {
#if defined(__GFX12__)
        to[(n + 8 * half) * 16 + line] = sum[n];
#else
        to[(2 * n + half) * 16 + line] = sum[n];
#endif
    }
}
static void run_wmma() {
    std::vector<_Float16> a(256), b(256);
    for (int n = 0; n < 256; ++n) {
        a[size_t(n)] = _Float16(n % 7 - 3);
        b[size_t(n)] = _Float16(n % 5 - 2);
    }
    on_device<_Float16> left(a), right(b);
    on_device<float> to(std::vector<float>(256));
    product<<<1, 32>>>(left.data, right.data, to.data);
    expect<float>(to.back(), [&](size_t n) {
        float sum = 0;
        for (size_t k = 0; k < 16; ++k) {
            sum += float(a[n / 16 * 16 + k]) * float(b[k * 16 + n % 16]);
        }
        return sum;
    });
}

__global__ void talks(int n) { printf("lane %d says %s %.2f\n", int(threadIdx.x), n == 7 ? "seven" : "?", 2.5); }
static void run_printf() {
    talks<<<1, 2>>>(7);
    NEED(hipDeviceSynchronize());
    std::printf("right\n");
}

// ---- which lanes go where: rows, halves of rows, one place, any; all lanes, the first ones, every other one, none

constexpr int held_count = 64;

template <typename T> __global__ void gathers(T * to, const T * from, const int * at, unsigned active) {
    if ((active >> threadIdx.x & 1) != 0) {
        to[threadIdx.x] = from[at[threadIdx.x]];
    }
}
template <typename T> __global__ void scatters(T * to, const T * from, const int * at, unsigned active) {
    if ((active >> threadIdx.x & 1) != 0) {
        to[at[threadIdx.x]] = from[threadIdx.x];
    }
}
template <typename T> __global__ void gathers_lds(T * to, const T * from, const int * at, unsigned active) {
    __shared__ T held[held_count];
    held[threadIdx.x] = from[threadIdx.x];
    held[threadIdx.x + 32] = from[threadIdx.x + 32];
    __syncthreads();
    if ((active >> threadIdx.x & 1) != 0) {
        to[threadIdx.x] = held[at[threadIdx.x]];
    }
}
template <typename T> __global__ void scatters_lds(T * to, const T * from, const int * at, unsigned active) {
    __shared__ T held[held_count];
    held[threadIdx.x] = to[threadIdx.x];
    held[threadIdx.x + 32] = to[threadIdx.x + 32];
    __syncthreads();
    if ((active >> threadIdx.x & 1) != 0) {
        held[at[threadIdx.x]] = from[threadIdx.x];
    }
    __syncthreads();
    to[threadIdx.x] = held[threadIdx.x];
    to[threadIdx.x + 32] = held[threadIdx.x + 32];
}
struct three_words {
    unsigned word[3];
};
struct alignas(16) four_words {
    unsigned word[4];
};
template <typename T> __device__ bool are_same(const T & a, const T & b) { return a == b; }
template <> __device__ bool are_same(const three_words & a, const three_words & b) {
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2];
}
template <> __device__ bool are_same(const four_words & a, const four_words & b) {
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] && a.word[3] == b.word[3];
}

// Through pointers of which the compiler does not know what memory they mean: the lane's own, LDS or the device's.
constexpr unsigned never = 12345;
template <typename T> __global__ void gathers_any(T * to, const T * from, const int * at, unsigned active) {
    __shared__ T held[held_count];
    T own[held_count];
    T * any_own = active == never ? to : own;
    const T * any_shared = active == never ? from : held;
    for (int n = 0; n < held_count; ++n) {
        any_own[n] = from[n];
    }
    held[threadIdx.x] = from[threadIdx.x];
    held[threadIdx.x + 32] = from[threadIdx.x + 32];
    __syncthreads();
    if ((active >> threadIdx.x & 1) != 0) {
        const int place = at[threadIdx.x];
        const T mirrored = from[held_count - 1 - place];
        any_own[place] = mirrored; // read again at once
        const bool agree = are_same(any_own[place], mirrored) && are_same(any_shared[place], from[place]);
        to[threadIdx.x] = agree ? from[place] : T{};
    }
}

// The first case that came out wrong, 0 when none did.
template <typename T> static int wrong_pattern(int number) {
    const int patterns[][3] = {{1, 0, 0}, {1, 31, 0}, {1, 44, 0}, {0, 5, 0}, {1, 16, 16}, {1, 0, -16}, {0, 3, 9}, {2, 1, 0},
                               {-1, 31, 0}, {3, 7, 0}, {5, 2, 1}}; // step, first, and how much further the upper half is
    const unsigned masks[] = {~0u, ~0u >> 12, 0xaaaaaaaau, 0x0ffffff0u, 1u, 1u << 31, 0u, 0xffff0000u, 0x0000ffffu};
    std::vector<T> source(held_count), before(held_count);
    for (int n = 0; n < held_count; ++n) {
        for (size_t byte = 0; byte < sizeof(T); ++byte) {
            reinterpret_cast<unsigned char *>(&source[n])[byte] = (unsigned char) (n * 7 + int(byte) * 31 + 1);
            reinterpret_cast<unsigned char *>(&before[n])[byte] = (unsigned char) (200 - n);
        }
    }
    const on_device<T> from(source);
    const auto kernels = {gathers<T>, scatters<T>, gathers_lds<T>, scatters_lds<T>, gathers_any<T>};
    for (const auto & pattern : patterns) {
        std::vector<int> at(32);
        for (int lane = 0; lane < 32; ++lane) {
            at[lane] = ((lane * pattern[0] + pattern[1] + (lane / 16) * pattern[2]) % held_count + held_count) % held_count;
        }
        const on_device<int> places(at);
        for (const unsigned mask : masks) {
            int which = 0;
            for (const auto kernel : kernels) {
                const on_device<T> to(before);
                kernel<<<1, 32>>>(to.data, from.data, places.data, mask);
                std::vector<T> wanted = before;
                for (int lane = 0; lane < 32; ++lane) {
                    if ((mask >> lane & 1) != 0) {
                        const bool puts = which == 1 || which == 3;
                        wanted[puts ? at[lane] : lane] = source[puts ? lane : at[lane]];
                    }
                }
                ++number;
                ++which;
                const std::vector<T> found = to.back();
                NEED(hipFree(to.data));
                if (std::memcmp(found.data(), wanted.data(), held_count * sizeof(T)) != 0) {
                    return number;
                }
            }
        }
    }
    return 0;
}
static void run_patterns() {
    const std::vector<int> wrong = {wrong_pattern<uint8_t>(0),         wrong_pattern<uint16_t>(10000),
                                    wrong_pattern<uint32_t>(20000),    wrong_pattern<uint64_t>(30000),
                                    wrong_pattern<three_words>(40000), wrong_pattern<four_words>(50000)};
    expect<int>(wrong, [](size_t) { return 0; });
}

// Reads behind the end of memory, in its last page.
__global__ void nearby(int * to, const int * from, int n) {
    const int there = from[n + threadIdx.x];
    to[threadIdx.x] = there == 7 ? 7 : 0;
}
static void run_nearby() {
    const std::vector<int> zeros(32);
    on_device<int> to(zeros), from(zeros);
    nearby<<<1, 32>>>(to.data, from.data, 32);
    expect<int>(to.back(), [](size_t) { return 0; });
}

// ---- what a GPU does not survive

static void run_far_away() {
    const std::vector<int> zeros(32);
    on_device<int> to(zeros), from(zeros);
    nearby<<<1, 32>>>(to.data, from.data, 100000000);
    NEED(hipDeviceSynchronize());
}

__global__ void beyond(int * to) { to[threadIdx.x + 100000000] = 1; }
__global__ void endless(volatile int * flag) {
    while (*flag == 0) {
    }
}
__global__ void gives_up() { __builtin_trap(); }

static void run_beyond() {
    on_device<int> to(std::vector<int>(32));
    beyond<<<1, 32>>>(to.data);
    NEED(hipDeviceSynchronize());
}
static void run_endless() {
    on_device<int> flag(std::vector<int>(1));
    endless<<<1, 64>>>(flag.data);
    NEED(hipDeviceSynchronize());
}
static void run_trap() {
    gives_up<<<1, 32>>>();
    NEED(hipDeviceSynchronize());
}

int main(int argc, char ** argv) {
    const std::map<std::string, void (*)()> all = {
        {"atomics", run_atomics}, {"beyond", run_beyond}, {"calls", run_calls},   {"division", run_division},
        {"endless", run_endless}, {"halves", run_halves}, {"lanes", run_lanes},   {"lds", run_lds},
        {"nearby", run_nearby},   {"far away", run_far_away},
        {"patterns", run_patterns},
        {"places", run_places},   {"printf", run_printf}, {"trap", run_trap},     {"waiting", run_waiting},
        {"wmma", run_wmma},
    };
    const auto found = all.find(argc == 2 ? argv[1] : "");
    if (found == all.end()) {
        return 2;
    }
    found->second();
    return 0;
}
