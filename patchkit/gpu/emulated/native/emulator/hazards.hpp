// Static analysis of a function's machine code for hardware hazards that emulation does not show. It considers every
// path of the function, but no values.
#pragma once

#include "architecture.hpp"
#include "assembly.hpp"
#include "wave.hpp"

#include <string>
#include <vector>

namespace patchkit::gpu {

// One instruction, by byte offset from the start of its function.
struct spot {
    u32 offset = 0;
    std::string text;
};

struct hazard {
    const char * kind; // one of hazards
    spot at, other;    // other: what it conflicts with
    std::string what;  // in words
};

namespace hazards {
inline constexpr const char * dual = "dual", *barrier = "barrier";
} // namespace hazards

struct function_look {
    std::vector<hazard> found;
    u64 instructions = 0;
    u64 pairs = 0;        // dual-issue instructions
    u64 same_parity = 0;  // those whose halves read registers of the same parity in the same operand position
};

// Skips code that LLVM cannot decode.
function_look look_at(disassembler & reader, std::span<const std::byte> code, const architecture & arch);

} // namespace patchkit::gpu
