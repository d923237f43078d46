// Launching kernels, whoever asks for it.
#pragma once

#include "arguments.hpp"
#include "registry.hpp"

#include <hip/hip_runtime_api.h>

namespace patchkit {

// What a program launches a kernel with. Exactly one of `values` and `segment` is there for a kernel with arguments.
struct launch_request {
    dim3 grid;
    dim3 block;
    size_t lds; // dynamic, bytes
    bool is_cooperative              = false;
    void ** values                   = nullptr; // one pointer to each argument
    std::vector<std::byte> * segment = nullptr; // or all of them as they lie in the kernarg segment
};

// The kernel behind a handle of hipModuleGetFunction; false when it is none.
bool find_function(hipFunction_t handle, loaded_kernel & kernel);

// Checks the launch as the runtime does and puts it into the stream.
hipError_t launch(const loaded_kernel & kernel, const launch_request & request, hipStream_t stream);

} // namespace patchkit
