// Computed hipBLAS calls, for the report.
#pragma once

#include <string>

namespace patchkit {

// A JSON array with one object per distinct call, shape and types, and its count.
std::string products_as_json();

} // namespace patchkit
