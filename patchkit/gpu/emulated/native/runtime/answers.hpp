// Error codes returned by the calls of the stub runtime.
//
// A call rejects an invalid pointer, handle or ordinal and never dereferences it. The error code is the one documented
// in the HIP header (@returns of hip_runtime_api.h 6.4); if none fits, the one returned by the real runtime (clr,
// hipamd/src, read at f9f995c6d of 2024-10); where the real runtime would crash, hipErrorInvalidHandle for a handle and
// hipErrorInvalidValue for a pointer. What either of the two accepts is accepted.
// tests/integration/recorder/stub_calls.cpp contains all of this as a table.
#pragma once

#include <hip/hip_runtime_api.h>

namespace patchkit {

// Returns `error` and stores it as this thread's last error: a rejected launch is visible to its caller only through
// hipGetLastError.
hipError_t answered(hipError_t error);

// The name of an error; unlike hipGetErrorName, for internal use.
const char * name_of(hipError_t error);

// There is one device.
inline bool is_device(int ordinal) { return ordinal == 0; }

} // namespace patchkit
