// Whether a program uses the result of a call, determined from its machine code.
#pragma once

#include <vector>

namespace patchkit {

// `frames`: return addresses of the program, starting with that of the call. Also true if unknown: on CPUs other than
// x86-64, for code that cannot be disassembled, or if the code is too long.
bool is_result_used(const std::vector<void *> & frames);

} // namespace patchkit
