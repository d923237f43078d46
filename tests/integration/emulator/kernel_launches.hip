// Launches of every kind, by name. What the stand-in says of them goes to stdout.
#include <hip/hip_ext.h>
#include <hip/hip_runtime.h>

#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

struct odd {
    char a;
    int b;
    short c;
};

__device__ int counter = 41;
__constant__ float table[4] = {1, 2, 3, 4};
__managed__ int shared_counter = 7;

__global__ void describe(char a, odd b, const double * c, long long d, float e) {
    extern __shared__ double lds[];
    lds[threadIdx.x] = a + b.b + *c + d + e + blockDim.x + gridDim.y + table[1];
}
__global__ void put(int * to, int value) { *to = value; }
__global__ void count_up() { ++counter; }
__global__ void follow_managed() { ++shared_counter; }
__global__ void __launch_bounds__(64) small(int * to) { *to = 1; }
__global__ void big_lds(int * to) {
    __shared__ int lds[15 * 1024];
    lds[threadIdx.x] = *to;
    __syncthreads();
    *to = lds[threadIdx.x ^ 1];
}
__global__ void talk(const uint64_t * words, int calls) { printf("%d %d\n", int(words[0]), calls); }
__global__ void unknown_effect() {}
__global__ void halve(float * x) { *x = *x * 0.5f + 4.0f; }
__global__ void ill_named(int * to) asm("ill\xff\xc3named \"\xc3\xa4\"");
__global__ void ill_named(int * to) { *to = 1; }
__global__ void number_blocks(int * to) { to[blockIdx.x] += int(blockIdx.x); }
__global__ void clocks(long long * to) {
    to[0] = clock64();
    to[1] = wall_clock64();
    for (int n = 0; n < 100; ++n) {
        atomicAdd((int *) (to + 4), 1);
    }
    to[2] = clock64();
    to[3] = wall_clock64();
}
__global__ void leaves_scratch(int * to, int place) {
    volatile int own[4] = {1, 2, 3, 4};
    *to = own[place];
}
__global__ void leaves_lds(int * to, int place) {
    __shared__ int all[4];
    all[threadIdx.x + place] = 1;
    *to = all[0];
}

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        const hipError_t error = (call);                                                                               \
        if (error != hipSuccess) {                                                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorName(error));                                           \
            std::exit(2);                                                                                              \
        }                                                                                                              \
    } while (0)

static void arguments(char **) {
    double * c = nullptr;
    NEED(hipMalloc((void **) &c, 8));
    std::printf("pointer %llx\n", (unsigned long long) c);
    describe<<<dim3(2, 3, 4), dim3(32, 2, 1), 1000>>>('x', odd{1, -2, 3}, c, -5, 0.5f);
    NEED(hipGetLastError());
}

static void cooperative(char **) {
    char a = 'x';
    odd b = {1, -2, 3};
    const double * c = nullptr;
    long long d = -5;
    float e = 0.5f;
    void * arguments[] = {&a, &b, &c, &d, &e};
    NEED(hipLaunchCooperativeKernel((void *) describe, dim3(5), dim3(64), arguments, 0, nullptr));
    const hipError_t error = hipLaunchCooperativeKernel((void *) describe, dim3(100000), dim3(64), arguments, 0, nullptr);
    std::printf("%s\n", hipGetErrorName(error));
}

static void variables(char **) {
    int value = 0;
    count_up<<<1, 1>>>();
    NEED(hipMemcpyFromSymbol(&value, HIP_SYMBOL(counter), 4));
    std::printf("%d\n", value);
    value = 99;
    NEED(hipMemcpyToSymbol(HIP_SYMBOL(counter), &value, 4));
    count_up<<<1, 1>>>();
    NEED(hipMemcpyFromSymbolAsync(&value, HIP_SYMBOL(counter), 4, 0, hipMemcpyDeviceToHost, hipStreamPerThread));
    std::printf("%d\n", value);

    float two = 0;
    size_t size = 0;
    void * address = nullptr;
    NEED(hipGetSymbolSize(&size, HIP_SYMBOL(table)));
    NEED(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
    NEED(hipMemcpy(&two, (char *) address + 4, 4, hipMemcpyDeviceToHost));
    std::printf("%zu %g\n", size, two);
    float more[2] = {8, 9};
    NEED(hipMemcpyToSymbol(HIP_SYMBOL(table), more, 8, 8));
    NEED(hipMemcpyFromSymbol(&two, HIP_SYMBOL(table), 4, 12));
    std::printf("%g\n", two);
    std::printf("%s %s %s\n", hipGetErrorName(hipMemcpyToSymbol(HIP_SYMBOL(table), more, 8, 12)),
                hipGetErrorName(hipMemcpyToSymbol(HIP_SYMBOL(table), more, 8, 0, hipMemcpyDeviceToHost)),
                hipGetErrorName(hipGetSymbolSize(&size, &size)));
}

static void managed(char **) {
    shared_counter += 10;
    follow_managed<<<1, 1>>>();
    NEED(hipDeviceSynchronize());
    std::printf("%d\n", shared_counter);
}

static std::vector<char> bytes_of(const char * path) {
    FILE * file = std::fopen(path, "rb");
    std::vector<char> result(1 << 22);
    result.resize(std::fread(result.data(), 1, result.size(), file));
    std::fclose(file);
    return result;
}

static void use(hipModule_t module) {
    hipFunction_t kernel;
    NEED(hipModuleGetFunction(&kernel, module, "_Z3putPii"));
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    int value = 5, back = 0;
    void * params[] = {&place, &value};
    NEED(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    NEED(hipMemcpy(&back, place, 4, hipMemcpyDeviceToHost));
    std::printf("%d\n", back);

    struct {
        int * place;
        int value;
    } packed = {place, 6};
    size_t size = 12;
    void * extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                      HIP_LAUNCH_PARAM_END};
    NEED(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    NEED(hipMemcpy(&back, place, 4, hipMemcpyDeviceToHost));
    std::printf("%d\n", back);

    hipDeviceptr_t address;
    NEED(hipModuleGetGlobal(&address, &size, module, "counter"));
    NEED(hipMemcpy(&back, address, 4, hipMemcpyDeviceToHost));
    std::printf("%zu %d\n", size, back);

    hipFunction_t follow;
    NEED(hipModuleGetFunction(&follow, module, "_Z14follow_managedv"));
    NEED(hipModuleLaunchKernel(follow, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    NEED(hipModuleGetGlobal(&address, &size, module, "shared_counter"));
    int * there = nullptr;
    NEED(hipMemcpy(&there, address, 8, hipMemcpyDeviceToHost));
    NEED(hipDeviceSynchronize());
    std::printf("%d\n", *there);

    int registers = 0, threads = 0;
    NEED(hipFuncGetAttribute(&registers, HIP_FUNC_ATTRIBUTE_NUM_REGS, kernel));
    NEED(hipFuncGetAttribute(&threads, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel));
    std::printf("%d %d\n", registers > 0 && registers < 32, threads);
    std::printf("%s\n", hipGetErrorName(hipModuleGetFunction(&kernel, module, "nobody")));
    NEED(hipModuleUnload(module));
    std::printf("%s %s\n", hipGetErrorName(hipModuleUnload(module)),
                hipGetErrorName(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr)));
}

static void modules(char ** files) {
    for (char ** file = files; *file != nullptr; ++file) {
        hipModule_t module;
        NEED(hipModuleLoad(&module, *file));
        use(module);
        const std::vector<char> bytes = bytes_of(*file);
        NEED(hipModuleLoadData(&module, bytes.data()));
        use(module);
    }
}

static void load(char ** files) {
    hipModule_t module;
    std::printf("%s\n", hipGetErrorName(hipModuleLoad(&module, files[0])));
}

static void limits(char **) {
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    const auto said = [] { std::printf("%s\n", hipGetErrorName(hipGetLastError())); };
    put<<<0, 1>>>(place, 1);
    said();
    put<<<1, 0>>>(place, 1);
    said();
    put<<<1, 1025>>>(place, 1);
    said();
    put<<<1, 1, 65537>>>(place, 1);
    said();
    small<<<1, 65>>>(place);
    said();
    big_lds<<<1, 32, 8192>>>(place);
    said();
    put<<<dim3(1 << 22), 1024>>>(place, 1);
    said();
    NEED(hipLaunchKernel((void *) put, 1, 1, nullptr, 0, nullptr) == hipErrorInvalidValue ? hipSuccess
                                                                                          : hipErrorUnknown);
    void * nothing[] = {nullptr, nullptr};
    NEED(hipLaunchKernel((void *) put, 1, 1, nothing, 0, nullptr) == hipErrorInvalidValue ? hipSuccess
                                                                                          : hipErrorUnknown);
}

static void facts(char **) {
    hipFuncAttributes attributes;
    NEED(hipFuncGetAttributes(&attributes, (void *) big_lds));
    std::printf("%zu %d %d\n", attributes.sharedSizeBytes, attributes.maxThreadsPerBlock,
                attributes.maxDynamicSharedSizeBytes);
    NEED(hipFuncGetAttributes(&attributes, (void *) small));
    std::printf("%d %d\n", attributes.maxThreadsPerBlock, attributes.numRegs > 0 && attributes.numRegs < 64);
    int blocks = 0, block = 0;
    NEED(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, big_lds, 64, 0));
    std::printf("%d\n", blocks);
    NEED(hipOccupancyMaxPotentialBlockSize(&blocks, &block, put, 0, 0));
    std::printf("%d %d\n", blocks, block);
    for (const int lds : {4096, 4097, -1}) {
        std::printf("%s ", hipGetErrorName(hipFuncSetAttribute(
                               (void *) big_lds, hipFuncAttributeMaxDynamicSharedMemorySize, lds)));
    }
    std::printf("\n");
    hipFunction_t handle;
    NEED(hipGetFuncBySymbol(&handle, (void *) put));
    NEED(hipModuleOccupancyMaxPotentialBlockSize(&blocks, &block, handle, 0, 256));
    std::printf("%d %d\n", blocks, block);
}

static void timed(char **) {
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    hipEvent_t begin, end;
    NEED(hipEventCreate(&begin));
    NEED(hipEventCreate(&end));
    hipExtLaunchKernelGGL(put, 1, 1, 0, nullptr, begin, end, 0, place, 3);
    NEED(hipEventSynchronize(end));
    float milliseconds = 0;
    NEED(hipEventElapsedTime(&milliseconds, begin, end));
    hipFunction_t handle;
    NEED(hipGetFuncBySymbol(&handle, (void *) put));
    int value = 8, back = 0;
    void * params[] = {&place, &value};
    NEED(hipExtModuleLaunchKernel(handle, 64, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr, begin, end, 0));
    NEED(hipMemcpy(&back, place, 4, hipMemcpyDeviceToHost));
    std::printf("%d %d %s\n", milliseconds > 0, back,
                hipGetErrorName(hipExtModuleLaunchKernel(handle, 65, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr)));
}

static void device(char **) {
    hipDeviceProp_t properties;
    NEED(hipGetDeviceProperties(&properties, 0));
    int integrated = -1, pageable = -1, major = 0, concurrent = 0, atomics = 0;
    NEED(hipDeviceGetAttribute(&integrated, hipDeviceAttributeIntegrated, 0));
    NEED(hipDeviceGetAttribute(&pageable, hipDeviceAttributePageableMemoryAccess, 0));
    NEED(hipDeviceGetAttribute(&major, hipDeviceAttributeComputeCapabilityMajor, 0));
    NEED(hipDeviceGetAttribute(&concurrent, hipDeviceAttributeConcurrentManagedAccess, 0));
    NEED(hipDeviceGetAttribute(&atomics, hipDeviceAttributeHostNativeAtomicSupported, 0));
    std::printf("%s %d %d %d %d %d\n", properties.gcnArchName, properties.integrated, integrated, pageable, major,
                properties.clockRate);
    std::printf("%d %d %d %d\n", properties.concurrentManagedAccess, concurrent,
                properties.hostNativeAtomicSupported, atomics);
}

// The file has words: how many calls, then what the stand-in's talk wants. Each line of the program is one.
static void talks(char ** files) {
    const std::vector<char> bytes = bytes_of(files[0]);
    uint64_t * words = nullptr;
    NEED(hipHostMalloc((void **) &words, bytes.size() + 8, 0));
    std::memcpy(words, bytes.data(), bytes.size());
    const int calls = int(bytes.size() / 72);
    std::printf("before\n");
    talk<<<1, 64>>>(words, calls);
    NEED(hipDeviceSynchronize());
    std::printf("after\n");
}

static void faults(char **) {
    std::printf("printed before");
    put<<<1, 1>>>((int *) 0x1000, 1);
    NEED(hipDeviceSynchronize());
    std::printf("not reached\n");
}

static void launches_unknown(char **) {
    unknown_effect<<<1, 1>>>();
    std::printf("%s\n", hipGetErrorName(hipGetLastError()));
}

static void counts(char **) {
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    for (int i = 0; i < 3; ++i) {
        put<<<1, 1>>>(place, i);
    }
    count_up<<<1, 1>>>();
    std::printf("%s\n", hipGetErrorName(hipGetLastError()));
}

static void speaks(char ** locale) {
    std::printf("%s\n", std::setlocale(LC_ALL, locale[0]) == nullptr ? "no such locale" : std::localeconv()->decimal_point);
    float * x = nullptr;
    NEED(hipHostMalloc((void **) &x, 4, 0));
    *x = 10;
    halve<<<1, 1>>>(x);
    NEED(hipDeviceSynchronize());
    std::printf("%d\n", int(*x * 100));
}

static void has_odd_names(char **) {
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    ill_named<<<1, 1>>>(place);
    NEED(hipDeviceSynchronize());
}

static int status_of_child(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Counts the blocks that numbered themselves once more.
static int number_all(int * blocks, int count, int times) {
    number_blocks<<<count, 1>>>(blocks);
    NEED(hipDeviceSynchronize());
    int right = 0;
    for (int n = 0; n < count; ++n) {
        right += blocks[n] == n * times;
    }
    return right;
}

static void forks(char **) {
    constexpr int count = 64;
    int * blocks = nullptr;
    NEED(hipHostMalloc((void **) &blocks, count * sizeof(int), 0));
    std::memset(blocks, 0, count * sizeof(int));
    std::printf("%d\n", number_all(blocks, count, 1));
    std::fflush(stdout);
    const pid_t child = fork();
    const int right = number_all(blocks, count, 2);
    if (child == 0) {
        std::exit(right);
    }
    std::printf("%d %d\n", right, status_of_child(child));
}

struct gate {
    pthread_barrier_t begun, over;
};

static void forks_meanwhile(char **) {
    gate shared;
    pthread_barrier_init(&shared.begun, nullptr, 2);
    pthread_barrier_init(&shared.over, nullptr, 2);
    std::thread other([&shared] {
        NEED(hipLaunchHostFunc(nullptr, [](void * data) {
            auto * both = static_cast<gate *>(data);
            pthread_barrier_wait(&both->begun);
            pthread_barrier_wait(&both->over);
        }, &shared));
        NEED(hipDeviceSynchronize());
    });
    pthread_barrier_wait(&shared.begun);
    const pid_t without = fork();
    if (without == 0) {
        std::exit(7); // it uses nothing, and ends
    }
    const pid_t child = fork();
    if (child == 0) {
        count_up<<<1, 1>>>();
        std::exit(hipDeviceSynchronize());
    }
    std::printf("%d %d\n", status_of_child(without), status_of_child(child));
    pthread_barrier_wait(&shared.over);
    other.join();
}

static void tells_time(char **) {
    long long * at = nullptr;
    NEED(hipHostMalloc((void **) &at, 40, 0));
    clocks<<<1, 1>>>(at);
    NEED(hipDeviceSynchronize());
    std::printf("%d %d\n", at[2] - at[0] > 100, at[3] - at[1] > 100);
}

static void leaves(char ** which) {
    int * place = nullptr;
    NEED(hipMalloc((void **) &place, 4));
    if (std::strcmp(which[0], "scratch") == 0) {
        leaves_scratch<<<1, 1>>>(place, 1 << 20);
    } else if (std::strcmp(which[0], "lds") == 0) {
        leaves_lds<<<1, 1>>>(place, 1 << 12);
    } else {
        put<<<1, 1>>>(place + (1 << 20), 1);
    }
    NEED(hipDeviceSynchronize());
}

struct program {
    const char * name;
    void (*run)(char ** arguments);
};

#define PROGRAM(name) {#name, name}

static const program programs[] = {
    PROGRAM(arguments), PROGRAM(cooperative), PROGRAM(variables),        PROGRAM(managed), PROGRAM(modules),
    PROGRAM(load),      PROGRAM(limits),      PROGRAM(facts),            PROGRAM(timed),   PROGRAM(talks),
    PROGRAM(faults),    PROGRAM(counts),      PROGRAM(launches_unknown), PROGRAM(device),
    PROGRAM(speaks),    PROGRAM(has_odd_names), PROGRAM(forks), PROGRAM(forks_meanwhile), PROGRAM(tells_time),
    PROGRAM(leaves),
};

int main(int, char ** arguments) {
    for (const program & one : programs) {
        if (std::strcmp(one.name, arguments[1]) == 0) {
            one.run(arguments + 2);
            return 0;
        }
    }
    return 3;
}
