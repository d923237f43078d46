// The emulator, once anything needed it: what its launches left is asked for here.
#pragma once

#include "../emulator/emulator.hpp"

#include <cstdint>
#include <string>

namespace patchkit {

// Null before.
gpu::emulator * loaded_emulator();
void set_loaded(gpu::emulator & one);

// See gpu::emulator::reveal.
void reveal(uint32_t left_by, const std::string & where);

// Who left a touch, if it was a kernel.
bool find_tracing(uint64_t touch, gpu::tracing & found);

} // namespace patchkit
