// Device arrays, and textures and surfaces for kernels.
#pragma once

#include "../emulator/image.hpp"

#include <cstdint>

namespace patchkit {

// Maximum size of an array's sides, and of its depth or number of layers, as reported by OpenCL for these GPUs.
constexpr int most_of_image = 16384, most_deep_of_image = 8192;

// The image for the number in a descriptor; null if it is invalid. Thread-safe.
const gpu::image * find_image(uint64_t number);

} // namespace patchkit
