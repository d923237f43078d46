// Hazards of the chip that no run on an emulator shows: what the machine code of a function says about them, without
// executing it. A look at every path of the function, and at no value.
#pragma once

#include "architecture.hpp"
#include "assembly.hpp"
#include "wave.hpp"

#include <string>
#include <vector>

namespace patchkit::gpu {

// One instruction, bytes from the start of its function.
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
    u64 pairs = 0;        // dual instructions
    u64 same_parity = 0;  // of them, those whose two halves read registers of one parity at the same place
};

// Code that LLVM does not decode is stepped over.
function_look look_at(disassembler & reader, std::span<const std::byte> code, const architecture & arch);

} // namespace patchkit::gpu
