// Programs, by name, that call the HIP runtime wrongly and do not look, whose launches are refused, that free memory
// wrongly or never: what a check must find. And such as handle what goes wrong, of which it must say nothing.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
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

constexpr size_t bytes = 4096;

__device__ int table_of_device[16];
__constant__ float constants[8];

__global__ void put(int * to) { to[threadIdx.x] = int(threadIdx.x) + table_of_device[0] + int(constants[0]); }
__global__ void __launch_bounds__(128) put_bounded(int * to) { to[threadIdx.x] = 1; }
__global__ void put_lds(int * to) {
    __shared__ int part[12288]; // 48 KiB
    extern __shared__ int more[];
    part[threadIdx.x] = int(threadIdx.x);
    more[threadIdx.x] = 1;
    __syncthreads();
    to[threadIdx.x] = part[threadIdx.x ^ 1] + more[threadIdx.x ^ 1];
}
__global__ void meet(int * to) {
    cooperative_groups::this_grid().sync();
    to[threadIdx.x] = 1;
}

// What every program has: memory of the device and of the host.
struct memory {
    int *device = nullptr, *host = nullptr;

    memory() {
        NEED(hipMalloc(&device, bytes));
        NEED(hipHostMalloc(reinterpret_cast<void **>(&host), bytes, 0));
        NEED(hipMemset(device, 0, bytes));
    }
    ~memory() {
        NEED(hipFree(device));
        NEED(hipHostFree(host));
    }
};

void run_one(const memory & of) {
    put<<<1, 32>>>(of.device);
    NEED(hipGetLastError());
    NEED(hipDeviceSynchronize());
}

// ---- Wrappers, as programs have them.

[[gnu::noinline]] hipError_t copy_of(void * to, const void * from, size_t size) {
    return hipMemcpy(to, from, size, hipMemcpyDefault);
}
[[gnu::noinline]] hipError_t copy_and_count(void * to, const void * from, size_t size, int & calls) {
    const hipError_t result = hipMemcpy(to, from, size, hipMemcpyDefault);
    calls += 1;
    return result;
}
[[gnu::noinline]] void copy_without_result(void * to, const void * from, size_t size) {
    (void) hipMemcpy(to, from, size, hipMemcpyDefault);
}
void check(hipError_t error) {
    if (error != hipSuccess) {
        throw std::runtime_error(hipGetErrorString(error));
    }
}
struct device_memory {
    void * place = nullptr;
    explicit device_memory(size_t size) { check(hipMalloc(&place, size)); }
    ~device_memory() { (void) hipFree(place); }
    device_memory(const device_memory &) = delete;
};

std::vector<std::unique_ptr<device_memory>> kept; // until the program's own destructors run

// ---- The cases

std::map<std::string, std::function<void()>> & cases() {
    static std::map<std::string, std::function<void()>> all;
    return all;
}

struct add_case {
    add_case(const char * name, std::function<void()> run) { cases()[name] = std::move(run); }
};

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CASE(name, ...) const add_case JOIN(case_, __COUNTER__)(name, [] __VA_ARGS__);

// Errors that nobody looks at.
CASE("copy past end", { memory m; run_one(m); (void) hipMemcpy(m.device, m.host, bytes + 8, hipMemcpyHostToDevice); })
CASE("copy from past end", { memory m; run_one(m); (void) hipMemcpy(m.host, m.device + 1000, 200, hipMemcpyDeviceToHost); })
CASE("asynchronous copy past end", {
    memory m;
    run_one(m);
    (void) hipMemcpyAsync(m.device + 1, m.host, bytes, hipMemcpyHostToDevice, nullptr);
    NEED(hipDeviceSynchronize());
})
CASE("copy to freed", {
    memory m;
    run_one(m);
    int * old = nullptr;
    NEED(hipMalloc(&old, 64));
    NEED(hipFree(old));
    (void) hipMemcpy(old, m.host, 64, hipMemcpyHostToDevice);
})
CASE("memset past end", { memory m; run_one(m); (void) hipMemset(m.device, 0, bytes + 1); })
CASE("memset of the host", { memory m; run_one(m); int own[4]; (void) hipMemset(own, 0, sizeof(own)); })
CASE("rows past end", {
    memory m;
    run_one(m);
    (void) hipMemcpy2D(m.device, 1024, m.host, 512, 512, 5, hipMemcpyHostToDevice);
})
CASE("rows from past end", {
    memory m;
    run_one(m);
    (void) hipMemcpy2D(m.host, 128, m.device, 1024, 100, 6, hipMemcpyDeviceToHost);
})
CASE("rows longer than their pitch", {
    memory m;
    run_one(m);
    (void) hipMemcpy2D(m.device, 256, m.host, 512, 300, 2, hipMemcpyHostToDevice);
})
CASE("rows of a memset past end", { memory m; run_one(m); (void) hipMemset2D(m.device, 1024, 0, 1000, 5); })
CASE("pitch of one allocation for another", {
    memory m;
    run_one(m);
    void * rows = nullptr;
    size_t pitch = 0;
    NEED(hipMallocPitch(&rows, &pitch, 300, 4)); // 512 bytes each
    (void) hipMemcpy2D(rows, 2 * pitch, m.host, 300, 300, 4, hipMemcpyHostToDevice);
    NEED(hipFree(rows));
})
CASE("symbol past end", {
    memory m;
    run_one(m);
    (void) hipMemcpyToSymbol(HIP_SYMBOL(table_of_device), m.host, 68, 0, hipMemcpyHostToDevice);
})
CASE("symbol past end with offset", {
    memory m;
    run_one(m);
    (void) hipMemcpyToSymbol(HIP_SYMBOL(constants), m.host, 16, 20, hipMemcpyHostToDevice);
})
CASE("from symbol past end", {
    memory m;
    run_one(m);
    (void) hipMemcpyFromSymbol(m.host, HIP_SYMBOL(table_of_device), 128, 0, hipMemcpyDeviceToHost);
})
CASE("from symbol past end asynchronously", {
    memory m;
    run_one(m);
    (void) hipMemcpyFromSymbolAsync(m.host, HIP_SYMBOL(table_of_device), 4, 64, hipMemcpyDeviceToHost, nullptr);
    NEED(hipDeviceSynchronize());
})
CASE("no such device", { memory m; run_one(m); (void) hipSetDevice(7); })
CASE("event that is gone", {
    memory m;
    run_one(m);
    hipEvent_t event = nullptr;
    NEED(hipEventCreate(&event));
    NEED(hipEventDestroy(event));
    (void) hipEventRecord(event, nullptr);
})
CASE("too much memory", {
    memory m;
    run_one(m);
    void * all = nullptr;
    (void) hipMalloc(&all, size_t(1) << 50);
})
CASE("result of a wrapper", { memory m; run_one(m); (void) copy_of(m.device, m.host, bytes + 1); })
CASE("wrapper without result", { memory m; run_one(m); copy_without_result(m.device, m.host, bytes + 1); })
CASE("asked too late", {
    memory m;
    run_one(m);
    (void) hipMemcpy(m.device, m.host, bytes + 8, hipMemcpyHostToDevice);
    NEED(hipDeviceSynchronize());
    (void) hipGetLastError();
})
CASE("in a thread", {
    memory m;
    run_one(m);
    std::thread([&m] { (void) hipMemset(m.device, 0, bytes + 1); }).join();
    NEED(hipGetLastError()); // of this thread
})
CASE("often", {
    memory m;
    run_one(m);
    for (int i = 0; i < 5; ++i) {
        (void) hipMemset(m.device, 0, bytes + 1);
    }
})

// Launches that are refused.
CASE("launch: dynamic lds", { memory m; run_one(m); put<<<1, 32, 70000>>>(m.device); })
CASE("launch: lds together", { memory m; run_one(m); put_lds<<<1, 32, 20000>>>(m.device); })
CASE("launch: no blocks", { memory m; run_one(m); put<<<0, 32>>>(m.device); })
CASE("launch: no threads", { memory m; run_one(m); put<<<1, 0>>>(m.device); })
CASE("launch: too many threads", { memory m; run_one(m); put<<<1, 2048>>>(m.device); })
CASE("launch: too many threads in three directions", { memory m; run_one(m); put<<<1, dim3(32, 32, 2)>>>(m.device); })
CASE("launch: more than its bounds", { memory m; run_one(m); put_bounded<<<1, 256>>>(m.device); })
CASE("launch: too large a grid", { memory m; run_one(m); put<<<0x7fffffff, 1024>>>(m.device); })
CASE("launch: cooperative", {
    memory m;
    run_one(m);
    void * arguments[] = {&m.device};
    (void) hipLaunchCooperativeKernel(reinterpret_cast<void *>(meet), dim3(100000), dim3(256), arguments, 0, nullptr);
})
CASE("launch: by its handle", {
    memory m;
    run_one(m);
    hipFunction_t function = nullptr;
    NEED(hipGetFuncBySymbol(&function, reinterpret_cast<const void *>(put)));
    void * arguments[] = {&m.device};
    (void) hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1025, 0, nullptr, arguments, nullptr);
})
CASE("launch: asked after the wait", {
    memory m;
    run_one(m);
    put<<<1, 2048>>>(m.device);
    NEED(hipDeviceSynchronize());
    NEED(hipGetLastError());
})
CASE("launch: the only one", {
    memory m;
    put<<<1, 2048>>>(m.device);
    if (hipGetLastError() != hipSuccess) {
        std::puts("it is too large, never mind");
    }
})
CASE("launch: the only one and nobody waits", { int * const nowhere = nullptr; put<<<1, 2048>>>(nowhere); })

// Memory that is freed wrongly.
CASE("free: twice", { memory m; run_one(m); int * p; NEED(hipMalloc(&p, 256)); NEED(hipFree(p)); (void) hipFree(p); })
CASE("free: twice and looked at", {
    memory m;
    run_one(m);
    int * p = nullptr;
    NEED(hipMalloc(&p, 256));
    NEED(hipFree(p));
    if (hipFree(p) != hipSuccess) {
        std::puts("freed already");
    }
})
CASE("free: host memory twice", {
    memory m;
    run_one(m);
    void * p = nullptr;
    NEED(hipHostMalloc(&p, 512, 0));
    NEED(hipHostFree(p));
    (void) hipHostFree(p);
})
CASE("free: managed memory twice", {
    memory m;
    run_one(m);
    void * p = nullptr;
    NEED(hipMallocManaged(&p, 128, hipMemAttachGlobal));
    NEED(hipFree(p));
    (void) hipFree(p);
})
CASE("free: twice in order", {
    memory m;
    run_one(m);
    void * p = nullptr;
    NEED(hipMallocAsync(&p, 256, nullptr));
    NEED(hipFreeAsync(p, nullptr));
    (void) hipFreeAsync(p, nullptr);
    NEED(hipDeviceSynchronize());
})
CASE("free: in order and then at once", {
    memory m;
    run_one(m);
    void * p = nullptr;
    NEED(hipMallocAsync(&p, 256, nullptr));
    NEED(hipFreeAsync(p, nullptr));
    (void) hipFree(p);
})
CASE("free: by two owners", {
    memory m;
    run_one(m);
    void * p = nullptr;
    NEED(hipMalloc(&p, 96));
    const auto gives_back = [](void * place) { (void) hipFree(place); };
    const std::unique_ptr<void, decltype(gives_back)> one(p, gives_back), other(p, gives_back);
})
CASE("free: inside", { memory m; run_one(m); (void) hipFree(m.device + 4); })
CASE("free: of the stack", { memory m; run_one(m); int own[4]; (void) hipFree(own); })
CASE("free: of malloc", {
    memory m;
    run_one(m);
    void * own = std::malloc(64);
    (void) hipHostFree(own);
    std::free(own);
})
CASE("free: of a variable", {
    memory m;
    run_one(m);
    void * place = nullptr;
    NEED(hipGetSymbolAddress(&place, HIP_SYMBOL(table_of_device)));
    (void) hipFree(place);
})
CASE("free: registered memory", {
    memory m;
    run_one(m);
    std::vector<char> own(8192);
    NEED(hipHostRegister(own.data(), own.size(), 0));
    (void) hipHostFree(own.data());
    NEED(hipHostUnregister(own.data()));
})

// Memory that is never freed.
CASE("leak: device memory", { memory m; run_one(m); int * p; NEED(hipMalloc(&p, 256)); })
CASE("leak: host memory", { memory m; run_one(m); void * p; NEED(hipHostMalloc(&p, 512, 0)); })
CASE("leak: managed memory", { memory m; run_one(m); void * p; NEED(hipMallocManaged(&p, 128, hipMemAttachGlobal)); })
CASE("leak: rows", { memory m; run_one(m); void * p; size_t pitch; NEED(hipMallocPitch(&p, &pitch, 300, 4)); })
CASE("leak: of a pool", { memory m; run_one(m); void * p; NEED(hipMallocAsync(&p, 192, nullptr)); })
CASE("leak: pieces", {
    memory m;
    run_one(m);
    for (volatile int i = 0; i < 3; i = i + 1) { // one call, not three
        int * p;
        NEED(hipMalloc(&p, 100));
    }
})
CASE("leak: the pointer was taken for another", {
    memory m;
    run_one(m);
    int * p;
    NEED(hipMalloc(&p, 64));
    NEED(hipMalloc(&p, 32));
    NEED(hipFree(p));
})
CASE("leak: in a thread", { memory m; run_one(m); std::thread([] { int * p; NEED(hipMalloc(&p, 48)); }).join(); })
CASE("leak: released, not freed", {
    memory m;
    run_one(m);
    auto owner = std::make_unique<device_memory>(80);
    (void) owner.release();
})

// Programs that handle what goes wrong.
CASE("clean: all is well", { memory m; run_one(m); })
CASE("clean: less memory will do", {
    memory m;
    run_one(m);
    void * p = nullptr;
    for (size_t size = size_t(1) << 50; hipMalloc(&p, size) != hipSuccess; size /= 1024) {
    }
    NEED(hipFree(p));
})
CASE("clean: the error is cleared on purpose", {
    memory m;
    run_one(m);
    (void) hipMemset(m.device, 0, bytes + 1);
    (void) hipGetLastError();
})
CASE("clean: the error is peeked at", {
    memory m;
    run_one(m);
    (void) hipMemset(m.device, 0, bytes + 1);
    if (hipPeekAtLastError() != hipSuccess) {
        std::puts("no");
    }
})
CASE("clean: queries", {
    memory m;
    hipEvent_t event;
    NEED(hipEventCreate(&event));
    put<<<1, 32>>>(m.device);
    NEED(hipEventRecord(event, nullptr));
    (void) hipEventQuery(event);
    (void) hipStreamQuery(nullptr);
    NEED(hipEventSynchronize(event));
    NEED(hipEventDestroy(event));
})
CASE("clean: a wrapper and its caller looks", {
    memory m;
    run_one(m);
    if (copy_of(m.device, m.host, bytes + 1) == hipSuccess) {
        std::exit(3);
    }
})
CASE("clean: kept over another call of its own", {
    memory m;
    run_one(m);
    int calls = 0;
    if (copy_and_count(m.device, m.host, bytes + 1, calls) != hipErrorInvalidValue || calls != 1) {
        std::exit(3);
    }
})
CASE("clean: exceptions", {
    memory m;
    run_one(m);
    try {
        device_memory too_much(size_t(1) << 50);
    } catch (const std::runtime_error &) {
        std::puts("never mind");
    }
})
CASE("clean: gathered", {
    memory m;
    run_one(m);
    int any = 0;
    any |= hipMemset(m.device, 0, bytes);
    any |= hipMemset(m.device, 0, bytes + 1);
    any |= hipMemset(m.device, 0, bytes);
    std::printf("%d\n", any != 0);
})
CASE("clean: a list of results", {
    memory m;
    run_one(m);
    std::vector<hipError_t> all;
    for (size_t more = 0; more < 3; ++more) {
        all.push_back(hipMemset(m.device, 0, bytes + more));
    }
    for (const hipError_t one : all) {
        std::puts(hipGetErrorName(one));
    }
})
CASE("clean: of several kinds", {
    memory m;
    run_one(m);
    switch (hipMemset(m.device, 0, bytes + 1)) {
        case hipSuccess: std::exit(3);
        case hipErrorInvalidValue: std::puts("invalid"); break;
        default: std::exit(4);
    }
})
CASE("clean: as a condition", {
    memory m;
    run_one(m);
    const bool is_done = hipMemset(m.device, 0, bytes + 1) == hipSuccess && hipMemset(m.device, 0, bytes) == hipSuccess;
    std::printf("%d\n", is_done);
})
CASE("clean: through a function object", {
    memory m;
    run_one(m);
    const std::function<hipError_t(size_t)> clear = [&m](size_t size) { return hipMemset(m.device, 0, size); };
    if (clear(bytes + 1) == hipSuccess) {
        std::exit(3);
    }
})
CASE("clean: kept in a member", {
    memory m;
    run_one(m);
    struct {
        hipError_t last = hipSuccess;
        int failed      = 0;
    } state;
    for (size_t more = 0; more < 2; ++more) {
        state.last = hipMemset(m.device, 0, bytes + more);
        state.failed += state.last != hipSuccess;
    }
    if (state.failed != 1) {
        std::exit(3);
    }
})
CASE("clean: given to a function", {
    memory m;
    run_one(m);
    const auto say = [](hipError_t error, const char * what) { std::printf("%s: %d\n", what, int(error)); };
    say(hipMemset(m.device, 0, bytes + 1), "too many");
    say(hipSetDevice(3), "no device");
})
CASE("clean: each thread looks at its own", {
    memory m;
    run_one(m);
    std::vector<std::thread> all;
    for (int n = 0; n < 4; ++n) {
        all.emplace_back([&m] {
            (void) hipMemset(m.device, 0, bytes + 1);
            if (hipGetLastError() != hipErrorInvalidValue) {
                std::exit(3);
            }
        });
    }
    for (std::thread & one : all) {
        one.join();
    }
})
CASE("clean: no such variable", {
    memory m;
    run_one(m);
    int own = 0;
    void * place = nullptr;
    const bool is_there = hipGetSymbolAddress(&place, &own) == hipSuccess;
    std::puts(is_there ? "there" : "not there");
})
CASE("clean: a smaller launch will do", {
    memory m;
    for (int threads = 4096; threads >= 32; threads /= 2) {
        put<<<1, threads>>>(m.device);
        if (hipGetLastError() == hipSuccess) {
            break;
        }
    }
    NEED(hipDeviceSynchronize());
})
CASE("clean: as many blocks as fit", {
    memory m;
    run_one(m);
    void * arguments[] = {&m.device};
    for (const unsigned blocks : {100000u, 8u}) {
        if (hipLaunchCooperativeKernel(reinterpret_cast<void *>(meet), dim3(blocks), dim3(32), arguments, 0, nullptr) ==
            hipSuccess) {
            break;
        }
    }
    NEED(hipDeviceSynchronize());
})
CASE("clean: nothing to free", { memory m; run_one(m); NEED(hipFree(nullptr)); NEED(hipHostFree(nullptr)); })
CASE("clean: is it the runtime's", {
    memory m;
    run_one(m);
    int own = 0;
    if (hipHostFree(&own) != hipSuccess) {
        std::puts("it is not");
    }
})
CASE("clean: what the runtime lacks", {
    memory m;
    run_one(m);
    (void) hipDeviceSetLimit(hipLimitStackSize, 1 << 20);
})
CASE("clean: freed in order", {
    memory m;
    void * p = nullptr;
    NEED(hipMallocAsync(&p, 256, nullptr));
    put<<<1, 32>>>(static_cast<int *>(p));
    NEED(hipFreeAsync(p, nullptr));
    NEED(hipDeviceSynchronize());
})
CASE("clean: the place is used again", {
    memory m;
    run_one(m);
    for (int i = 0; i < 20; ++i) {
        void * p = nullptr;
        NEED(hipMalloc(&p, 64));
        NEED(hipFree(p));
    }
})
CASE("clean: freed by a destructor at the end", {
    static memory m;
    run_one(m);
})
CASE("clean: freed by what outlives main", {
    memory m;
    run_one(m);
    kept.push_back(std::make_unique<device_memory>(64));
})
CASE("clean: gone with the device", {
    int * p = nullptr;
    NEED(hipMalloc(&p, 64));
    put<<<1, 16>>>(p);
    NEED(hipDeviceReset());
})
CASE("clean: rows", {
    memory m;
    run_one(m);
    NEED(hipMemcpy2D(m.device, 1024, m.host, 1000, 1000, 4, hipMemcpyHostToDevice));
    NEED(hipMemset2D(m.device, 1024, 0, 1024, 4));
    NEED(hipMemcpyToSymbol(HIP_SYMBOL(constants), m.host, 16, 16, hipMemcpyHostToDevice));
    NEED(hipMemcpyFromSymbol(m.host, HIP_SYMBOL(table_of_device), 64, 0, hipMemcpyDeviceToHost));
})

int main(int argc, char ** argv) {
    if (argc < 2) {
        for (const auto & [name, run] : cases()) {
            std::puts(name.c_str());
        }
        return 0;
    }
    cases().at(argv[1])();
    return 0;
}
