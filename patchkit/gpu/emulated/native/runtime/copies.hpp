// Copies of rows, for calls that specify memory by something other than a pointer.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>

namespace patchkit {

struct row_copy {
    void * to;
    size_t to_pitch;
    const void * from;
    size_t from_pitch;
    size_t width; // bytes
    size_t height;
};

// Like hipMemcpy2D and hipMemcpy2DAsync.
hipError_t copy_rows(const row_copy & wanted);
hipError_t copy_rows_async(const row_copy & wanted, hipStream_t stream);

} // namespace patchkit
