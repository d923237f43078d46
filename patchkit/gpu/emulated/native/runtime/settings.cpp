#include "settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace patchkit {

const char * setting(const char * name) {
    const char * value = std::getenv(name);
    return value == nullptr || *value == '\0' ? nullptr : value;
}

uint64_t number_of_setting(const char * name) {
    const char * value = setting(name);
    if (value == nullptr) {
        return 0;
    }
    char * end = nullptr;
    const uint64_t number = std::strtoull(value, &end, 10);
    if (*end != '\0') {
        misconfigured(std::string(name) + " is not a number: " + value);
    }
    return number;
}

bool is_executing() {
    static const bool result = setting("PATCHKIT_EMULATOR") != nullptr;
    return result;
}

bool is_sampling() {
    static const bool result = is_executing() && setting("PATCHKIT_EMULATOR_BLOCKS") != nullptr;
    return result;
}

bool is_computing() {
    static const bool result = is_executing() && setting("PATCHKIT_EMULATOR_RECORD") == nullptr;
    return result;
}

static schedule_setting read_schedule() {
    const char * text = is_executing() ? setting("PATCHKIT_EMULATOR_SCHEDULE") : nullptr;
    const std::string given = text == nullptr ? "in-order" : text;
    if (given == "in-order") {
        return {};
    }
    if (given == "late") {
        return {schedule_mode::late, 0, given};
    }
    const std::string prefix = "shuffle ";
    char * end = nullptr;
    const bool is_shuffle = given.compare(0, prefix.size(), prefix) == 0;
    const uint64_t seed = is_shuffle ? std::strtoull(given.c_str() + prefix.size(), &end, 10) : 0;
    if (seed == 0 || *end != '\0') {
        misconfigured("PATCHKIT_EMULATOR_SCHEDULE must be in-order, late or shuffle SEED (a positive number), but is: " +
                      given);
    }
    return {schedule_mode::shuffle, seed, given};
}

const schedule_setting & the_schedule() {
    static const schedule_setting result = read_schedule();
    return result;
}

// A variable of ROCm's, which ignores what is no number.
static unsigned long rocm_setting(const char * name) {
    const char * text = setting(name);
    return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
}

const host_waits & waits_around_kernels() {
    static const unsigned long given = rocm_setting("AMD_SERIALIZE_KERNEL");
    static const host_waits result   = {(given & 1) != 0, (given & 2) != 0 || rocm_setting("HIP_LAUNCH_BLOCKING") != 0};
    return result;
}

const host_waits & waits_around_copies() {
    static const unsigned long given = rocm_setting("AMD_SERIALIZE_COPY");
    static const host_waits result   = {(given & 1) != 0, (given & 2) != 0};
    return result;
}

unsigned number_of_threads() {
    static const auto given = unsigned(number_of_setting("PATCHKIT_EMULATOR_THREADS"));
    return given != 0 ? given : std::max(1u, std::thread::hardware_concurrency());
}

void misconfigured(const std::string & what) {
    std::fprintf(stderr, "%s: %s\n", is_executing() ? "patchkit emulator" : "launch recorder", what.c_str());
    std::fflush(nullptr);
    _exit(exit_misconfigured);
}

} // namespace patchkit
