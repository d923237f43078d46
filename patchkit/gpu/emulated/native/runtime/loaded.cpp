#include "loaded.hpp"

#include <atomic>

namespace patchkit {

namespace {

std::atomic<gpu::emulator *> loaded = nullptr;

} // namespace

gpu::emulator * loaded_emulator() { return loaded; }
void set_loaded(gpu::emulator & one) { loaded = &one; }

void reveal(uint32_t left_by, const std::string & where) {
    if (gpu::emulator * emulator = loaded; emulator != nullptr) {
        emulator->reveal(left_by, where);
    }
}

bool find_tracing(uint64_t touch, gpu::tracing & found) {
    gpu::emulator * emulator = loaded;
    return emulator != nullptr && emulator->find_tracing(touch, found);
}

} // namespace patchkit
