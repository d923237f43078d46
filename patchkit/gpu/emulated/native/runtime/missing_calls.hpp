// Detects ROCm functions that a program calls but nothing provides, before it runs.
#pragma once

namespace patchkit {

// Checks every library loaded since the last call. Ends the process if one calls a missing function: with lazy binding
// it would run until that call, and the loader's message would contain only one function and not its caller. Does
// nothing while recording.
void refuse_missing_calls();

} // namespace patchkit
