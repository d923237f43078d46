// Device code that the program has compiled while it runs (hiprtc), and launches.

#include <hip/hip_runtime.h>
#include <hip/hiprtc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

const char * const text = R"(
#include "scale.h"
namespace inner {
template <typename T> __global__ void scaled(T * x, T by) { x[threadIdx.x] = by * FACTOR * T(threadIdx.x) + scale(1); }
}
__constant__ int table[4];
extern "C" __global__ void plain(int * x) { x[threadIdx.x] = table[threadIdx.x % 4]; }
)";
const char * const header = "__device__ inline int scale(int x) { return x + 6; }\n";

void must(int error, const char * what) {
    if (error != 0) {
        std::printf("wrong: %s is %d\n", what, error);
        std::exit(1);
    }
}
#define MUST(call) must(int(call), #call)

std::string log_of(hiprtcProgram program) {
    size_t size = 0;
    MUST(hiprtcGetProgramLogSize(program, &size));
    std::string log(size, '\0');
    if (size != 0) {
        MUST(hiprtcGetProgramLog(program, log.data()));
    }
    return log.c_str();
}

int compiles() {
    hiprtcProgram program;
    const char * name = "scale.h";
    const char * from = header;
    MUST(hiprtcCreateProgram(&program, text, "kernels.cu", 1, &from, &name));
    MUST(hiprtcAddNameExpression(program, "inner::scaled<float>"));
    MUST(hiprtcAddNameExpression(program, "&inner::scaled<int>"));
    MUST(hiprtcAddNameExpression(program, "&table"));
    const char * options[] = {"-DFACTOR=2", "--gpu-architecture=gfx1151"};
    const int made = hiprtcCompileProgram(program, 2, options);
    if (made != HIPRTC_SUCCESS) {
        std::printf("%s", log_of(program).c_str());
        return 1;
    }
    size_t size = 0;
    MUST(hiprtcGetCodeSize(program, &size));
    std::vector<char> code(size);
    MUST(hiprtcGetCode(program, code.data()));
    const char *floats, *integers, *table;
    MUST(hiprtcGetLoweredName(program, "inner::scaled<float>", &floats));
    MUST(hiprtcGetLoweredName(program, "&inner::scaled<int>", &integers));
    MUST(hiprtcGetLoweredName(program, "&table", &table));
    std::printf("%s %s %s\n", floats, integers, table);

    hipModule_t module;
    hipFunction_t scaled, plain;
    MUST(hipModuleLoadData(&module, code.data()));
    MUST(hipModuleGetFunction(&scaled, module, floats));
    MUST(hipModuleGetFunction(&plain, module, "plain"));
    hipDeviceptr_t place;
    MUST(hipModuleGetGlobal(&place, &size, module, table));
    const int values[4] = {5, 6, 7, 8};
    MUST(hipMemcpyHtoD(place, const_cast<int *>(values), sizeof(values)));
    float * x;
    MUST(hipMalloc(reinterpret_cast<void **>(&x), 32 * sizeof(float)));
    float by         = 1.5f;
    void * given[]   = {&x, &by};
    MUST(hipModuleLaunchKernel(scaled, 1, 1, 1, 32, 1, 1, 0, nullptr, given, nullptr));
    float back[32];
    MUST(hipMemcpy(back, x, sizeof(back), hipMemcpyDeviceToHost));
    std::printf("%g %g\n", double(back[0]), double(back[31]));
    void * others[] = {&x};
    MUST(hipModuleLaunchKernel(plain, 1, 1, 1, 32, 1, 1, 0, nullptr, others, nullptr));
    int numbers[32];
    MUST(hipMemcpy(numbers, x, sizeof(numbers), hipMemcpyDeviceToHost));
    std::printf("%d %d\n", numbers[0], numbers[31]);
    MUST(hiprtcDestroyProgram(&program));
    return hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS;
}

int refuses() {
    hiprtcProgram program;
    MUST(hiprtcCreateProgram(&program, "__global__ void wrong() { y = 1; }", "wrong.cu", 0, nullptr, nullptr));
    const char * name;
    std::printf("%d ", hiprtcGetLoweredName(program, "wrong", &name));
    std::printf("%d ", hiprtcCompileProgram(program, 0, nullptr));
    size_t size;
    std::printf("%d ", hiprtcGetCodeSize(program, &size));
    std::printf("%s\n", log_of(program).find("wrong.cu:1:27: error: use of undeclared identifier 'y'") != std::string::npos ? "named" : log_of(program).c_str());
    const char * outside = "../outside.h";
    const char * from    = "";
    std::printf("%d %d %d\n", hiprtcCreateProgram(&program, "", nullptr, 1, &from, &outside),
                hiprtcCreateProgram(&program, nullptr, nullptr, 0, nullptr, nullptr),
                hiprtcCompileProgram(reinterpret_cast<hiprtcProgram>(&size), 0, nullptr));
    return 0;
}

} // namespace

int main(int, char ** arguments) { return std::strcmp(arguments[1], "compiles") == 0 ? compiles() : refuses(); }
