#include "ending.hpp"

#include "settings.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace patchkit {

namespace {

constinit endings the_endings{};

} // namespace

void fault(const std::string & what, const gpu::kernel_fault * stopped) {
    std::fflush(stdout);
    std::fprintf(stderr, "patchkit emulator: %s\n", what.c_str());
    the_endings.at_fault(what, stopped);
    std::fflush(nullptr);
    std::abort();
}

void watch_end_of_process() {
    static std::once_flag once;
    if (is_executing()) {
        std::call_once(once, [] { std::atexit(the_endings.at_end); });
    }
}

void set_endings(const endings & all) { the_endings = all; }

} // namespace patchkit
