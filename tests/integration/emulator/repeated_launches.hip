// Launches that repeat an earlier one, and launches that only look so. Prints the sum of the output after each launch.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>
#include <hip/hiprtc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
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

constexpr int count = 8192, launches = 20;
constexpr int rounds = 2000; // milliseconds a launch, where its memory is read in microseconds
constexpr size_t bytes = count * sizeof(int);

__device__ int factor = 3;

__device__ int worked(int x) {
    for (int n = 0; n < rounds; ++n) {
        x = x * 5 + (x >> 3);
    }
    return x;
}
__device__ int place() { return int(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void compute(const int * from, int * to, int plus) { to[place()] = worked(from[place()]) + plus; }
__global__ void compute_in_place(int * in) { in[place()] = worked(in[place()]); }
__global__ void compute_with_factor(const int * from, int * to) { to[place()] = worked(from[place()]) * factor; }
__global__ void count_up(const int * from, int * to) { atomicAdd(&to[place()], worked(from[place()]) | 1); }
__global__ void tell_host(const int * from, int * to, int * told) {
    to[place()] = worked(from[place()]);
    if (place() == 0) {
        *told += 1;
    }
}
__global__ void print(const int * from, int * to) {
    to[place()] = worked(from[place()]);
    if (place() == 0) {
        printf("printed by a kernel\n");
    }
}
__global__ void allocate(const int * from, int * to) {
    int * made = place() % 1024 == 0 ? static_cast<int *>(malloc(sizeof(int))) : nullptr;
    to[place()] = worked(from[place()]);
    if (made != nullptr) {
        *made = to[place()];
        to[place()] = *made + 1;
        free(made);
    }
}
__global__ void fetch(hipTextureObject_t from, int * to) { to[place()] = worked(tex1Dfetch<int>(from, place())); }
__global__ void meet(const int * from, int * to) {
    to[place()] = worked(from[place()]);
    cooperative_groups::this_grid().sync();
    const int other = to[(place() + 4096) % count];
    cooperative_groups::this_grid().sync();
    to[place()] += other;
}
__global__ void follow(int * const * from, int * to) { to[place()] = worked((*from)[place()]); }

// Code for a kernel that adds a number, as if a program made it for its data.
std::vector<char> code_that_adds(int plus) {
    const std::string text = "extern \"C\" __global__ void made(const int * from, int * to) { int i = blockIdx.x * 256 + "
                             "threadIdx.x, x = from[i]; for (int n = 0; n < 2000; ++n) { x = x * 5 + (x >> 3); } "
                             "to[i] = x + " + std::to_string(plus) + "; }";
    hiprtcProgram made;
    size_t size          = 0;
    const char * options[] = {"--offload-arch=gfx1151"};
    if (hiprtcCreateProgram(&made, text.c_str(), "made.hip", 0, nullptr, nullptr) != HIPRTC_SUCCESS ||
        hiprtcCompileProgram(made, 1, options) != HIPRTC_SUCCESS || hiprtcGetCodeSize(made, &size) != HIPRTC_SUCCESS) {
        std::exit(2);
    }
    std::vector<char> code(size);
    if (hiprtcGetCode(made, code.data()) != HIPRTC_SUCCESS) {
        std::exit(2);
    }
    return code;
}

struct memory {
    int *from, *to;
    std::vector<int> host = std::vector<int>(count);

    memory() {
        NEED(hipMalloc(&from, bytes));
        NEED(hipMalloc(&to, bytes));
        NEED(hipMemset(to, 0, bytes));
        fill(1);
    }
    ~memory() {
        NEED(hipFree(from));
        NEED(hipFree(to));
    }

    void fill(int first) {
        for (int i = 0; i < count; ++i) {
            host[i] = first + i;
        }
        NEED(hipMemcpy(from, host.data(), bytes, hipMemcpyHostToDevice));
    }
    unsigned sum(const int * of) {
        std::vector<int> got(count);
        NEED(hipMemcpy(got.data(), of, bytes, hipMemcpyDeviceToHost));
        unsigned result = 0;
        for (const int one : got) {
            result = result * 31 + unsigned(one);
        }
        return result;
    }
};

const dim3 grid(count / 256), block(256);

void each(memory & m, const int * of, const std::function<void(int)> & launch) {
    for (int n = 0; n < launches; ++n) {
        launch(n);
        NEED(hipGetLastError());
        std::printf("%u\n", m.sum(of));
    }
}

int main(int argc, char ** argv) {
    const char * name = argc > 1 ? argv[1] : "";
    const auto is = [name](const char * wanted) { return std::strcmp(name, wanted) == 0; };
    memory m;
    if (is("the same")) {
        each(m, m.to, [&](int) { compute<<<grid, block>>>(m.from, m.to, 0); });
    } else if (is("begun anew")) {
        each(m, m.from, [&](int) {
            m.fill(1);
            compute_in_place<<<grid, block>>>(m.from);
        });
    } else if (is("two in turn")) {
        each(m, m.to, [&](int n) {
            m.fill(1 + n % 2);
            compute<<<grid, block>>>(m.from, m.to, 0);
        });
    } else if (is("in place")) {
        each(m, m.from, [&](int) { compute_in_place<<<grid, block>>>(m.from); });
    } else if (is("one byte differs")) {
        each(m, m.to, [&](int n) {
            NEED(hipMemset(reinterpret_cast<char *>(m.from) + bytes - 1, n, 1));
            compute<<<grid, block>>>(m.from, m.to, 0);
        });
    } else if (is("other arguments")) {
        each(m, m.to, [&](int n) { compute<<<grid, block>>>(m.from, m.to, n); });
    } else if (is("a variable changes")) {
        each(m, m.to, [&](int n) {
            NEED(hipMemcpyToSymbol(HIP_SYMBOL(factor), &n, sizeof(n)));
            compute_with_factor<<<grid, block>>>(m.from, m.to);
        });
    } else if (is("counts")) {
        each(m, m.to, [&](int) { count_up<<<grid, block>>>(m.from, m.to); });
    } else if (is("tells the host")) {
        int * told;
        NEED(hipHostMalloc(reinterpret_cast<void **>(&told), sizeof(int)));
        each(m, m.to, [&](int) {
            *told = 0;
            tell_host<<<grid, block>>>(m.from, m.to, told);
            NEED(hipDeviceSynchronize());
            std::printf("told %d ", *told);
        });
        NEED(hipHostFree(told));
    } else if (is("prints")) {
        each(m, m.to, [&](int) { print<<<grid, block>>>(m.from, m.to); });
    } else if (is("allocates")) {
        each(m, m.to, [&](int) { allocate<<<grid, block>>>(m.from, m.to); });
    } else if (is("an image changes")) {
        hipResourceDesc what{};
        what.resType                = hipResourceTypeLinear;
        what.res.linear.devPtr      = m.from;
        what.res.linear.sizeInBytes = bytes;
        what.res.linear.desc        = hipCreateChannelDesc<int>();
        hipTextureDesc how{};
        how.readMode = hipReadModeElementType;
        hipTextureObject_t image;
        NEED(hipCreateTextureObject(&image, &what, &how, nullptr));
        each(m, m.to, [&](int n) {
            m.fill(n);
            fetch<<<grid, block>>>(image, m.to);
        });
        NEED(hipDestroyTextureObject(image));
    } else if (is("meets")) {
        each(m, m.to, [&](int) {
            void * arguments[] = {&m.from, &m.to};
            NEED(hipLaunchCooperativeKernel(reinterpret_cast<void *>(meet), grid, block, arguments, 0, nullptr));
        });
    } else if (is("a pointer in memory changes")) {
        int **from, *other;
        NEED(hipMalloc(&from, sizeof(int *)));
        NEED(hipMalloc(&other, bytes));
        NEED(hipMemset(other, 1, bytes));
        each(m, m.to, [&](int n) {
            NEED(hipMemcpy(from, n % 2 == 0 ? &m.from : &other, sizeof(int *), hipMemcpyHostToDevice));
            follow<<<grid, block>>>(from, m.to);
        });
        NEED(hipFree(from));
        NEED(hipFree(other));
    } else if (is("memory comes anew")) {
        each(m, m.to, [&](int n) {
            NEED(hipFree(m.from));
            NEED(hipMalloc(&m.from, bytes));
            m.fill(n / 10);
            compute<<<grid, block>>>(m.from, m.to, 0);
        });
    } else if (is("code comes anew")) {
        const std::vector<char> codes[] = {code_that_adds(1), code_that_adds(2)};
        each(m, m.to, [&](int n) {
            hipModule_t loaded;
            hipFunction_t made;
            NEED(hipModuleLoadData(&loaded, codes[n % 2].data()));
            NEED(hipModuleGetFunction(&made, loaded, "made"));
            void * arguments[] = {&m.from, &m.to};
            NEED(hipModuleLaunchKernel(made, grid.x, 1, 1, block.x, 1, 1, 0, nullptr, arguments, nullptr));
            NEED(hipDeviceSynchronize());
            NEED(hipModuleUnload(loaded));
        });
    } else if (is("a graph")) {
        hipStream_t stream;
        hipGraph_t graph;
        hipGraphExec_t made;
        NEED(hipStreamCreate(&stream));
        NEED(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
        compute<<<grid, block, 0, stream>>>(m.from, m.to, 0);
        compute<<<grid, block, 0, stream>>>(m.to, m.from, 1);
        NEED(hipStreamEndCapture(stream, &graph));
        NEED(hipGraphInstantiate(&made, graph, nullptr, nullptr, 0));
        each(m, m.to, [&](int) {
            m.fill(1);
            NEED(hipGraphLaunch(made, stream));
            NEED(hipStreamSynchronize(stream));
        });
        NEED(hipGraphExecDestroy(made));
        NEED(hipGraphDestroy(graph));
        NEED(hipStreamDestroy(stream));
    } else if (is("two threads")) {
        unsigned sums[2] = {0, 0};
        const auto work = [&](int n) {
            memory own;
            own.fill(n);
            for (int k = 0; k < launches; ++k) {
                compute<<<grid, block, 0, hipStreamPerThread>>>(own.from, own.to, 0);
                NEED(hipStreamSynchronize(hipStreamPerThread));
                sums[n] = sums[n] * 31 + own.sum(own.to);
            }
        };
        std::thread one(work, 0), other(work, 1);
        one.join();
        other.join();
        std::printf("%u %u\n", sums[0], sums[1]);
    } else {
        return 2;
    }
}
