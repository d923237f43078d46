// Arrays of the device, and the textures and surfaces by which kernels see them.
#pragma once

#include "../emulator/image.hpp"

#include <cstdint>

namespace patchkit {

// Elements along a side of an array, and its depth or layers, as OpenCL tells them of these GPUs.
constexpr int most_of_image = 16384, most_deep_of_image = 8192;

// What a kernel finds behind the description of a texture or surface; null when that is none. For any thread.
const gpu::image * find_image(uint64_t number);

} // namespace patchkit
