// Settings from environment variables; see emulation.hpp for their names.
#pragma once

#include <cstdint>
#include <string>

namespace patchkit {

// An environment variable; null if it is not set or empty.
const char * setting(const char * name);

// The same as a number, 0 if not set. Ends the process if it is not a number.
uint64_t number_of_setting(const char * name);

bool is_executing();

// Whether results are computed: not if only a few blocks of each launch are recorded.
bool is_computing();

// Whether only a sample of blocks runs, so that memory lacks the results of the others.
bool is_sampling();

// When asynchronous work runs, see schedule.hpp.
enum class schedule_mode { in_order, late, shuffle };
struct schedule_setting {
    schedule_mode how = schedule_mode::in_order;
    uint64_t seed     = 0; // for a shuffle
    std::string name  = "in-order"; // as configured
};
const schedule_setting & the_schedule();

// Whether the host waits for the stream before and after each kernel or copy. Users request it from ROCm's runtime
// with AMD_SERIALIZE_KERNEL and AMD_SERIALIZE_COPY (1: before, 2: after, 3: both) and with HIP_LAUNCH_BLOCKING=1, which
// is AMD_SERIALIZE_KERNEL=2 (clr f9f995c6d, flags.hpp).
struct host_waits {
    bool before = false, after = false;
};
const host_waits & waits_around_kernels();
const host_waits & waits_around_copies();

// CPU threads for computations in place of kernels.
unsigned number_of_threads();

// Exit status of a process with an unusable configuration.
constexpr int exit_misconfigured = 86;

// Prints the message and ends the process.
[[noreturn]] void misconfigured(const std::string & what);

} // namespace patchkit
