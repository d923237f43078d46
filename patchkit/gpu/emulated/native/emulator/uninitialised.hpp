// Values that nobody gave: the check that follows them, see uninitialised.cpp.
#pragma once

#include "check_state.hpp"

namespace patchkit::gpu {

// What a wave begins without: of so many VGPRs all but the first, and the SGPRs but for the `given` user SGPRs and those
// from `ids` to `ids_end`. Only those that its code touches are followed, any when that is null.
register_set unknown_at_start(int vgprs, int given, int ids, int ids_end, const register_set * touched);

void begin_unknown(wave & w, int vgprs, const register_set & at_start);

// The instruction behind the check computes: what its results do not have a value for.
void follow_computation(const instruction * i, wave & w, const facts & f);

// The same of one that goes to memory, but for the lanes (one bit each) whose access is left out.
void follow_access(const instruction * i, wave & w, const facts & f, u32 left_out);

void follow_branch(const instruction * i, wave & w, const facts & f);

} // namespace patchkit::gpu
