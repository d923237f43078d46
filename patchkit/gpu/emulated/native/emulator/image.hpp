// Images: what a texture or a surface of the host is to a kernel.
//
// Eight scalar registers describe an image to the hardware. Here the first two of them hold a number that the runtime
// gave (memory_map::find_image), and the others count for nothing: no kernel makes descriptions of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace patchkit::gpu {

struct image {
    enum class channel : uint8_t { is_unsigned, is_signed, is_float };
    enum class edge : uint8_t { wrap, clamp, mirror, border };

    std::byte * data    = nullptr;
    uint32_t width      = 1; // elements; what it does not have is 1, and layers are its depth
    uint32_t height     = 1;
    uint32_t depth      = 1;
    uint64_t row_pitch   = 0; // bytes
    uint64_t slice_pitch = 0;
    uint32_t channels = 1; // 1, 2 or 4
    uint32_t bits     = 32; // of a channel: 8, 16 or 32
    channel kind      = channel::is_float;
    bool is_normalized        = false; // integers are read as 0 to 1, or as -1 to 1
    bool has_unit_coordinates = false; // from 0 to 1 across the image
    bool is_linear            = false; // between elements, not the nearest
    edge edges[3]             = {edge::clamp, edge::clamp, edge::clamp};
    float border[4]           = {};

    uint64_t element() const { return uint64_t(channels) * bits / 8; }

    // From its first byte to the last one.
    uint64_t extent() const {
        return slice_pitch * (depth - 1) + row_pitch * (height - 1) + uint64_t(width) * element();
    }
};

} // namespace patchkit::gpu
