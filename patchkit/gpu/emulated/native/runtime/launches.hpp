// Launching kernels, for all launch functions.
#pragma once

#include "arguments.hpp"
#include "registry.hpp"

#include <hip/hip_runtime_api.h>

namespace patchkit {

// Parameters of a launch. For a kernel with arguments, exactly one of `values` and `segment` is set.
struct launch_request {
    dim3 grid;
    dim3 block;
    size_t lds; // dynamic, bytes
    bool is_cooperative              = false;
    void ** values                   = nullptr; // one pointer per argument
    std::vector<std::byte> * segment = nullptr; // or the contents of the kernarg segment
};

// The kernel for a handle of hipModuleGetFunction; returns false if it is invalid.
bool find_function(hipFunction_t handle, loaded_kernel & kernel);

// Checks the launch as the real runtime does, and enqueues it.
hipError_t launch(const loaded_kernel & kernel, const launch_request & request, hipStream_t stream);

} // namespace patchkit
