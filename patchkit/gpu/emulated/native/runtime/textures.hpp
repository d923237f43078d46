// Arrays of the device, and the textures and surfaces by which kernels see them.
#pragma once

#include "../emulator/image.hpp"

#include <cstdint>

namespace patchkit {

// What a kernel finds behind the description of a texture or surface; null when that is none. For any thread.
const gpu::image * find_image(uint64_t number);

} // namespace patchkit
