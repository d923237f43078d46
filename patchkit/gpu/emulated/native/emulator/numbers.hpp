// Numbers that are none: the check that looks for them, see numbers.cpp.
#pragma once

#include "facts.hpp"

namespace patchkit::gpu {

// Before an instruction that computes floats.
void check_numbers(const instruction * i, wave & w, const facts & f);

} // namespace patchkit::gpu
