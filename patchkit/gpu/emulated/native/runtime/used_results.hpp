// Whether a program looks at what a call returned, read off its own machine code.
#pragma once

#include <vector>

namespace patchkit {

// `frames`: return addresses of the program, the one of the call first. True as well where it cannot be told: on a CPU
// other than x86-64, in code that the disassembler does not know, or in code that goes on for too long.
bool is_result_used(const std::vector<void *> & frames);

} // namespace patchkit
