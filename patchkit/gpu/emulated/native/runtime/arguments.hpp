// The kernarg segment of a launch: a kernel's arguments, laid out as its metadata defines.
#pragma once

#include "../emulator/code_object.hpp"

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace patchkit {

struct launch_shape {
    dim3 grid; // blocks
    dim3 block;
    uint32_t dynamic_lds; // bytes
    bool is_cooperative;
};

// An argument kind that this runtime does not support; the text names kernel and argument.
struct unknown_argument : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws unknown_argument if a kind of argument is not supported. The following functions require kernels that passed
// this.
void check_kinds(const gpu::kernel_code & kernel);

// Whether all argument values are readable: `values` contains a pointer to each.
bool are_readable(const gpu::kernel_code & kernel, void ** values);

// Throws unknown_argument.
std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape, void ** values);

// The same from the explicit arguments in segment layout, as hipModuleLaunchKernel takes them in `extra`.
std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape,
                                      const std::vector<std::byte> & segment);

} // namespace patchkit
