// Waves of a block, blocks of a launch, and operations that nothing orders, that touch the same memory of the device.
//
// Waves of a block are in order by its barriers, and by what they saw of each other, as in LDS (see check.cpp); blocks by
// what they know of each other (launch_traces.hpp).
#pragma once

#include "facts.hpp"

namespace patchkit::gpu {

// Before a global, flat or scalar access of these lanes, and behind one that may have seen a sign.
void trace_access(const instruction * i, wave & w, const facts & f, u32 exec);
void see_signs(const instruction * i, wave & w, const facts & f);

// The wave waited for its stores, or passed a fence.
void pass_store_wait(wave & w);
void pass_fence(wave & w);

} // namespace patchkit::gpu
