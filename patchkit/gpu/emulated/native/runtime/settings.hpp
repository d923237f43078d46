// What a run of the runtime was asked for, by variables of the environment: see emulation.hpp for their names.
#pragma once

#include <cstdint>
#include <string>

namespace patchkit {

// A variable of the environment; null when it is not set or empty.
const char * setting(const char * name);

// The same as a number, 0 without it. Ends the process when it is none.
uint64_t number_of_setting(const char * name);

bool is_executing();

// Whether results count: not when a few blocks of each launch are recorded.
bool is_computing();

// Whether blocks of launches are left out, so that memory lacks what they would have written there.
bool is_sampling();

// When asynchronous work runs, see schedule.hpp.
enum class schedule_mode { in_order, late, shuffle };
struct schedule_setting {
    schedule_mode how = schedule_mode::in_order;
    uint64_t seed     = 0; // of a shuffle
    std::string name  = "in-order"; // as it was asked for
};
const schedule_setting & the_schedule();

// Of the CPU, for what is computed in place of a kernel.
unsigned number_of_threads();

// The exit status of a process whose configuration is unusable.
constexpr int exit_misconfigured = 86;

// Says so and ends the process.
[[noreturn]] void misconfigured(const std::string & what);

} // namespace patchkit
