// What differs between the families of GPUs that are emulated, a row each: the rest of the emulator asks for what a GPU
// does, and never for its name.
#pragma once

#include <cstdint>
#include <string_view>

namespace patchkit::gpu {

struct architecture {
    std::string_view prefix; // of the names of its GPUs, as LLVM writes them

    // MODE has bits for IEEE mode and for what clamping makes of a NaN (DX10_CLAMP); else min and max prefer numbers, and
    // clamping makes 0 of a NaN.
    bool has_ieee_mode;
    // A kernel finds the numbers of its block and wave in trap registers; else in SGPRs behind its own, with information
    // on the block (TG_SIZE) where it wants that.
    bool has_numbers_in_ttmps;
    uint32_t most_blocks_yz; // of a grid in y, and in z
    // Samples of images have a counter of their own, which is not followed; else they count as loads.
    bool has_sample_counter;
    // Dual instructions can lose the interlock with what DPP wrote, see hazards.cpp.
    bool has_dual_hazard;
    // Memory instructions have encodings of three dwords (VGLOBAL, VBUFFER and the like).
    bool has_long_memory_encodings;
};

// By the name of a GPU: gfx1151. Null for one of no family that is emulated.
const architecture * find_architecture(std::string_view gpu);

// The same. Throws std::runtime_error where there is none.
const architecture & architecture_of(std::string_view gpu);

} // namespace patchkit::gpu
