// Instructions that the emulated GPU has on purpose not, each with its reason.
#pragma once

#include <string_view>

namespace patchkit::gpu {

// By the name without suffix. Empty: it is not left out, or nobody knew of it.
std::string_view why_left_out(std::string_view name);

} // namespace patchkit::gpu
