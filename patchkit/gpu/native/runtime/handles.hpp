// Handles of streams, events and hipBLAS: names that nobody can follow, and that are never given out twice.
//
// A destroyed handle therefore stays wrong for good, and one of another kind is wrong, too: what the real
// runtime leaves to luck when the heap reuses an address is an error here every time.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace patchkit {

class handle_table {
public:
    void * make() {
        static std::atomic<uintptr_t> next = 0x1000; // of all kinds; 0, 1 and 2 are the default streams
        void * handle = reinterpret_cast<void *>(next.fetch_add(16));
        const std::lock_guard<std::mutex> guard(mutex_);
        live_.insert(handle);
        return handle;
    }

    // Whether it was live until now.
    bool drop(const void * handle) {
        const std::lock_guard<std::mutex> guard(mutex_);
        return live_.erase(handle) != 0;
    }

    bool has(const void * handle) {
        const std::lock_guard<std::mutex> guard(mutex_);
        return live_.count(handle) != 0;
    }

private:
    std::mutex mutex_;
    std::unordered_set<const void *> live_;
};

} // namespace patchkit
