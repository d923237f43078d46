// Access to the emulator, if it was loaded, to query what launches left.
#pragma once

#include "../emulator/emulator.hpp"

#include <cstdint>
#include <string>

namespace patchkit {

// Null if it was not loaded.
gpu::emulator * loaded_emulator();
void set_loaded(gpu::emulator & one);

// See gpu::emulator::reveal.
void reveal(uint32_t left_by, const std::string & where);

// The kernel that left a touch, if it was one.
bool find_tracing(uint64_t touch, gpu::tracing & found);

} // namespace patchkit
