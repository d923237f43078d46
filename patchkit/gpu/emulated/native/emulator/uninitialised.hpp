// The check for uninitialised values, see uninitialised.cpp.
#pragma once

#include "check_state.hpp"

namespace patchkit::gpu {

// Registers that are uninitialised at the start of a wave: all VGPRs but the first, and the SGPRs except for the
// `given` user SGPRs and those from `ids` to `ids_end`. Only registers in `touched` are followed; null: all.
register_set unknown_at_start(int vgprs, int given, int ids, int ids_end, const register_set * touched);

void begin_unknown(wave & w, int vgprs, const register_set & at_start);

// Called before an instruction that computes: propagates uninitialised bits to its results.
void follow_computation(const instruction * i, wave & w, const facts & f);

// The same for a memory instruction, except for lanes (bit mask) whose access is skipped.
void follow_access(const instruction * i, wave & w, const facts & f, u32 left_out);

void follow_branch(const instruction * i, wave & w, const facts & f);

} // namespace patchkit::gpu
