// What the calls of hipBLAS computed, for the report.
#pragma once

#include <string>

namespace patchkit {

// A JSON array: one object per call, shape and types, with how often that was computed.
std::string products_as_json();

} // namespace patchkit
