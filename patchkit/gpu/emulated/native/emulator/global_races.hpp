// Detects unordered accesses to the same device memory by waves of a block, blocks of a launch, and operations.
//
// Waves of a block are ordered by barriers and by observing each other's atomics, as in LDS (see check.cpp); blocks by
// launch_traces.hpp.
#pragma once

#include "facts.hpp"

namespace patchkit::gpu {

// Called before a global, flat or scalar access of these lanes, and after one that may have observed a signal.
void trace_access(const instruction * i, wave & w, const facts & f, u32 exec);
void see_signs(const instruction * i, wave & w, const facts & f);

// The wave waited for its stores, or passed a fence.
void pass_store_wait(wave & w);
void pass_fence(wave & w);

} // namespace patchkit::gpu
