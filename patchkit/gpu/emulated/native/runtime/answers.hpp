// What every call of the stub runtime answers with.
//
// A call refuses a bad pointer, handle or ordinal and never follows it. The code is the one that the HIP header
// names for it (@returns of hip_runtime_api.h 6.4); where it names none that fits, the one that the runtime
// returns (clr, hipamd/src, read at f9f995c6d of 2024-10); where the runtime would crash, hipErrorInvalidHandle
// for a handle and hipErrorInvalidValue for a pointer. What either of the two accepts is accepted.
// tests/integration/recorder/stub_calls.cpp has all of it as a table.
#pragma once

#include <hip/hip_runtime_api.h>

namespace patchkit {

// Returns `error`, and keeps it as this thread's last result: a launch that was refused is seen by its caller
// only through hipGetLastError.
hipError_t answered(hipError_t error);

// What an error is called; unlike hipGetErrorName, for the runtime itself.
const char * name_of(hipError_t error);

// There is one device.
inline bool is_device(int ordinal) { return ordinal == 0; }

} // namespace patchkit
