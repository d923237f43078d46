// The check for NaN and infinity, see numbers.cpp.
#pragma once

#include "facts.hpp"

namespace patchkit::gpu {

// Called before an instruction that computes floats.
void check_numbers(const instruction * i, wave & w, const facts & f);

} // namespace patchkit::gpu
