// Differences between the emulated GPU families, one row each. Other code depends on these properties, never on a GPU's
// name.
#pragma once

#include <cstdint>
#include <string_view>

namespace patchkit::gpu {

struct architecture {
    std::string_view prefix; // prefix of LLVM's names of its GPUs

    // MODE has bits for IEEE mode and for clamping of NaN (DX10_CLAMP). Otherwise min and max prefer numbers, and
    // clamping converts NaN to 0.
    bool has_ieee_mode;
    // A kernel gets the indices of its block and wave in trap registers; otherwise in SGPRs after its own ones, with
    // block information (TG_SIZE) on request.
    bool has_numbers_in_ttmps;
    uint32_t most_blocks_yz; // limit of the grid in y, and in z
    // Image samples have a separate counter, which is not tracked; otherwise they count as loads.
    bool has_sample_counter;
    // Dual-issue instructions can miss results of DPP instructions, see hazards.cpp.
    bool has_dual_hazard;
    // Memory instructions have three-dword encodings (such as VGLOBAL, VBUFFER).
    bool has_long_memory_encodings;
    // Memory instructions have a scope; otherwise GLC.
    bool has_scopes;
    // In words for findings: what an acquire at the scope of a block and of the GPU invalidates, and a load that does
    // not hit in caches.
    std::string_view block_acquire, device_acquire, device_load;
};

// By a GPU's name, such as gfx1151. Null if its family is not emulated.
const architecture * find_architecture(std::string_view gpu);

// The same, but throws std::runtime_error if its family is not emulated.
const architecture & architecture_of(std::string_view gpu);

} // namespace patchkit::gpu
