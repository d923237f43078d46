// Says on stdout which attention kernels are launched, one line per launch, before what they compute is judged:
//
//   PATCHKIT-LAUNCH {"kernel": "...", "grid": [x,y,z], "block": [x,y,z], "static": bytes, "dynamic": bytes, ...}
//
// but only with PATCHKIT_LAUNCHES in the environment: a timed run launches thousands of times a second.
// The kernel's name is the mangled one; "static" is its __shared__ memory and "threads" its launch bound, both
// as compiled into the device code, so host and device are told apart. Linked with --wrap for the calls below:
// CUDA 12 launches through cudaLaunchKernel, CUDA 13 through __cudaGetKernel and __cudaLaunchKernel.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct known {
    std::mutex lock;
    std::map<const void *, std::string> names;       // stub in the host code -> mangled name
    std::map<const void *, const void *> stubs;      // handle of CUDA 13 -> stub in the host code
};

known & book() { // kernels register before main, in any order
    static known * found = new known;
    return *found;
}

void tell(const void * stub, dim3 grid, dim3 block, size_t dynamic) {
    static const bool asked = std::getenv("PATCHKIT_LAUNCHES") != nullptr;
    if (!asked) {
        return;
    }
    std::string name;
    {
        const std::lock_guard<std::mutex> guard(book().lock);
        const auto found = book().names.find(stub);
        name = found == book().names.end() ? "?" : found->second;
    }
    if (name.find("flash_attn") == std::string::npos || name.find("flash_attn_mask") != std::string::npos ||
        name.find("flash_attn_stream_k") != std::string::npos || name.find("flash_attn_combine") != std::string::npos) {
        return;
    }
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, stub) != cudaSuccess) {
        attributes.sharedSizeBytes = 0;
        attributes.maxThreadsPerBlock = 0;
    }
    std::printf("PATCHKIT-LAUNCH {\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"static\": %zu, "
                "\"dynamic\": %zu, \"threads\": %d, \"registers\": %d, \"local\": %zu}\n",
                name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, attributes.sharedSizeBytes, dynamic,
                attributes.maxThreadsPerBlock, attributes.numRegs, attributes.localSizeBytes);
    std::fflush(stdout);
}

} // namespace

extern "C" {

void __real___cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *,
                                   int *);
void __wrap___cudaRegisterFunction(void ** binary, const char * stub, char * code, const char * name, int limit,
                                   uint3 * tid, uint3 * bid, dim3 * block, dim3 * grid, int * size) {
    {
        const std::lock_guard<std::mutex> guard(book().lock);
        book().names[stub] = name;
    }
    __real___cudaRegisterFunction(binary, stub, code, name, limit, tid, bid, block, grid, size);
}

#if CUDART_VERSION >= 13000
cudaError_t __real___cudaGetKernel(cudaKernel_t *, const void *);
cudaError_t __wrap___cudaGetKernel(cudaKernel_t * kernel, const void * stub) {
    const cudaError_t status = __real___cudaGetKernel(kernel, stub);
    if (status == cudaSuccess) {
        const std::lock_guard<std::mutex> guard(book().lock);
        book().stubs[static_cast<const void *>(*kernel)] = stub;
    }
    return status;
}

cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void ** args, size_t dynamic,
                                      cudaStream_t stream) {
    const void * stub = nullptr;
    {
        const std::lock_guard<std::mutex> guard(book().lock);
        const auto found = book().stubs.find(static_cast<const void *>(kernel));
        stub = found == book().stubs.end() ? nullptr : found->second;
    }
    tell(stub, grid, block, dynamic);
    return __real___cudaLaunchKernel(kernel, grid, block, args, dynamic, stream);
}
#endif

cudaError_t __real_cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(const void * stub, dim3 grid, dim3 block, void ** args, size_t dynamic,
                                    cudaStream_t stream) {
    tell(stub, grid, block, dynamic);
    return __real_cudaLaunchKernel(stub, grid, block, args, dynamic, stream);
}

} // extern "C"
