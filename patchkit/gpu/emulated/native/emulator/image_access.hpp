// A decoded image instruction.
#pragma once

#include "image.hpp"
#include "wave.hpp"

#include <array>

namespace patchkit::gpu {

struct image_access {
    enum class what : u8 { load, store, sample, gather };

    what does      = what::load;
    int dimensions = 1;
    bool has_layer = false; // after the coordinates
    u32 channels   = 1;     // bit mask of transferred channels
    std::array<operand, 3> coordinates{};
    operand data{};
    operand description{};
};

} // namespace patchkit::gpu
