#include "architecture.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace patchkit::gpu {

namespace {

constexpr architecture all[] = {
    {
        .prefix                    = "gfx11", // RDNA3, RDNA3.5
        .has_ieee_mode             = true,
        .has_numbers_in_ttmps      = false,
        .most_blocks_yz            = UINT32_MAX,
        .has_sample_counter        = false,
        .has_dual_hazard           = true,
        .has_long_memory_encodings = false,
        .has_scopes                = false,
        .block_acquire             = "buffer_gl0_inv",
        .device_acquire            = "buffer_gl1_inv and buffer_gl0_inv",
        .device_load               = "glc",
    },
    {
        .prefix                    = "gfx12", // RDNA4
        .has_ieee_mode             = false,
        .has_numbers_in_ttmps      = true,
        .most_blocks_yz            = 1u << 16,
        .has_sample_counter        = true,
        .has_dual_hazard           = false,
        .has_long_memory_encodings = true,
        .has_scopes                = true,
        .block_acquire             = "global_inv scope:SCOPE_SE",
        .device_acquire            = "global_inv scope:SCOPE_DEV",
        .device_load               = "scope:SCOPE_DEV",
    },
};

} // namespace

const architecture * find_architecture(std::string_view gpu) {
    const auto * found = std::find_if(std::begin(all), std::end(all),
                                      [&](const architecture & one) { return gpu.starts_with(one.prefix); });
    return found == std::end(all) ? nullptr : found;
}

const architecture & architecture_of(std::string_view gpu) {
    const architecture * found = find_architecture(gpu);
    if (found == nullptr) {
        throw std::runtime_error("the GPU " + std::string(gpu) + " is not emulated");
    }
    return *found;
}

} // namespace patchkit::gpu
