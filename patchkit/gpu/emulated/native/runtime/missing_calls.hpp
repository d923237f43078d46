// Which functions of ROCm a program calls and nobody has: told before it runs, all of them.
#pragma once

namespace patchkit {

// Looks at every library that was loaded since the last time. Ends the process when one calls what is not there: bound
// lazily it would run until that call, and then the loader names one function and nobody's name. Does nothing while
// launches are only recorded.
void refuse_missing_calls();

} // namespace patchkit
