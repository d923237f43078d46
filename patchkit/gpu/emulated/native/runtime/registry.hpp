// What host code registered: binaries, the kernels in them by the address of their host functions, and variables.
#pragma once

#include "modules.hpp"
#include "recorder.hpp"

#include <hip/hip_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

namespace patchkit {

struct loaded_kernel {
    gpu::code_object * code         = nullptr;
    const gpu::kernel_code * kernel = nullptr;
    std::shared_ptr<module> in; // keeps the code
};

struct registered_kernel {
    std::string name;                             // mangled
    std::vector<std::shared_ptr<module>> modules; // that registered it: a template may be in several
    int number = -1;                              // in the log, once launched
    loaded_kernel loaded;
};

// A __device__ or __constant__ variable.
struct registered_variable {
    std::string name;
    size_t size;
    std::shared_ptr<module> in;
    void * managed = nullptr; // where it lies, when it is __managed__
};

// Number of a kernel in the log; -1 when no such function was registered, which the log is told, too. The first time
// a line says what the number means.
int number_in_log(const void * function);

// hipErrorInvalidDeviceFunction when it is not registered, or else what loading its module gives.
hipError_t find_kernel(const void * function, loaded_kernel & found);

// The mangled name of a registered function; empty when it is none.
std::string name_of_kernel(const void * function);

// The place of a variable on the device, by the address of its host counterpart: hipErrorInvalidSymbol or as above.
hipError_t find_variable(const void * host, gpu::symbol & found);

// Registers and LDS of a kernel: of its code when it is executed, of the kernel file when it is recorded.
hipError_t find_resources(const void * function, resources & used);
resources resources_of(const gpu::kernel_code & kernel);

} // namespace patchkit
