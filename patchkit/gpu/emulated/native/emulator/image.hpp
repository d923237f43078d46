// Images: textures and surfaces as seen by a kernel.
//
// Hardware describes an image in eight scalar registers. Here, the first two contain a number assigned by the runtime
// (memory_map::find_image) and the others are ignored, because kernels do not create descriptors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patchkit::gpu {

struct image {
    enum class channel : uint8_t { is_unsigned, is_signed, is_float };
    enum class edge : uint8_t { wrap, clamp, mirror, border };

    std::byte * data    = nullptr;
    uint32_t width      = 1; // elements; unused dimensions are 1, and layers are the depth
    uint32_t height     = 1;
    uint32_t depth      = 1;
    uint64_t row_pitch   = 0; // bytes
    uint64_t slice_pitch = 0;
    uint32_t channels = 1; // 1, 2 or 4
    uint32_t bits     = 32; // of a channel: 8, 16 or 32
    channel kind      = channel::is_float;
    bool is_normalized        = false; // integers are read as 0 to 1, or -1 to 1
    bool has_unit_coordinates = false; // coordinates from 0 to 1 across the image
    bool is_linear            = false; // linear interpolation instead of nearest
    edge edges[3]             = {edge::clamp, edge::clamp, edge::clamp};
    float border[4]           = {};

    uint64_t element() const { return uint64_t(channels) * bits / 8; }

    // From its first to its last byte.
    uint64_t extent() const {
        return slice_pitch * (depth - 1) + row_pitch * (height - 1) + uint64_t(width) * element();
    }
};

} // namespace patchkit::gpu
