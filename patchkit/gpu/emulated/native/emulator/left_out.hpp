// Instructions that are deliberately not emulated, with the reason.
#pragma once

#include <string_view>

namespace patchkit::gpu {

// By name without suffix. Empty: not in the list.
std::string_view why_left_out(std::string_view name);

} // namespace patchkit::gpu
