// The end of the process: after all work is done and the report is written, or by a fault.
#pragma once

#include <string>

namespace patchkit::gpu {
struct kernel_fault;
}

namespace patchkit {

// The program did something that a GPU would not survive: prints the message, writes the report and ends the process as
// ROCm does. `stopped`: the state of the kernel's waves; null if no kernel was involved.
[[noreturn]] void fault(const std::string & what, const gpu::kernel_fault * stopped = nullptr);

// Ensures that the process completes all work and writes the report at its end; may be called repeatedly.
void watch_end_of_process();

// Actions at the end and at a fault: set once, before the program starts.
struct endings {
    void (*at_end)();
    void (*at_fault)(const std::string & what, const gpu::kernel_fault * stopped);
};
void set_endings(const endings & all);

} // namespace patchkit
