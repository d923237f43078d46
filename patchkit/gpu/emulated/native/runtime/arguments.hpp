// The kernarg segment of a launch: what a kernel's code reads its arguments from, laid out as its metadata says.
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

// An argument that this runtime cannot make; the text names kernel and argument.
struct unknown_argument : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws unknown_argument when this runtime does not know what one of the arguments is. What follows takes kernels that
// passed.
void check_kinds(const gpu::kernel_code & kernel);

// Whether there is something to be read for each argument: `values` points at one pointer each.
bool are_readable(const gpu::kernel_code & kernel, void ** values);

// Throws unknown_argument.
std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape, void ** values);

// The same from the explicit arguments as they lie in the segment, as hipModuleLaunchKernel takes them in `extra`.
std::vector<std::byte> pack_arguments(const gpu::kernel_code & kernel, const launch_shape & shape,
                                      const std::vector<std::byte> & segment);

} // namespace patchkit
