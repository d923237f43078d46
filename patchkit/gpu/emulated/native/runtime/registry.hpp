// What host code registered: binaries, their kernels by host function address, and variables.
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
    std::shared_ptr<module> in; // keeps the code alive
};

struct registered_kernel {
    std::string name;                             // mangled
    std::vector<std::shared_ptr<module>> modules; // that registered it; a template may be in several
    int number = -1;                              // in the log, once launched
    loaded_kernel loaded;
};

// A __device__ or __constant__ variable.
struct registered_variable {
    std::string name;
    size_t size;
    std::shared_ptr<module> in;
    void * managed = nullptr; // its memory, if it is __managed__
};

// Number of a kernel in the log; -1, with a log entry, if no such function is registered. The first use logs a line
// that declares the number.
int number_in_log(const void * function);

// hipErrorInvalidDeviceFunction if it is not registered, otherwise the result of loading its module.
hipError_t find_kernel(const void * function, loaded_kernel & found);

// The mangled name of a registered function; empty if it is not registered.
std::string name_of_kernel(const void * function);

// The device address of a variable, by the address of its host counterpart: hipErrorInvalidSymbol or as above.
hipError_t find_variable(const void * host, gpu::symbol & found);

// Registers and LDS of a kernel: from its code when executing, from the kernel file when recording.
hipError_t find_resources(const void * function, resources & used);
resources resources_of(const gpu::kernel_code & kernel);

} // namespace patchkit
