// How the process ends: with all work done and the report written, or by a fault.
#pragma once

#include <string>

namespace patchkit::gpu {
struct kernel_fault;
}

namespace patchkit {

// The program did what a GPU would not survive: says so, writes the report and ends the process as ROCm does. `stopped`:
// where the waves of the kernel that did it were; null when it was none.
[[noreturn]] void fault(const std::string & what, const gpu::kernel_fault * stopped = nullptr);

// From now on the process ends with all work done and the report written; for any number of calls.
void watch_end_of_process();

// What is done at its end, and at a fault: set once, before the program begins.
struct endings {
    void (*at_end)();
    void (*at_fault)(const std::string & what, const gpu::kernel_fault * stopped);
};
void set_endings(const endings & all);

} // namespace patchkit
