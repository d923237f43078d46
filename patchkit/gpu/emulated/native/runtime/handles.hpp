// Handles of streams, events and hipBLAS: opaque numbers that are never reused.
//
// So a destroyed handle stays invalid, and a handle of another kind is invalid, too. In the real runtime this depends
// on whether the heap reuses an address; here it is always an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace patchkit {

inline void * new_handle() {
    static std::atomic<uintptr_t> next = 0x1000; // for all kinds; 0, 1 and 2 are the default streams
    return reinterpret_cast<void *>(next.fetch_add(16));
}

class handle_table {
public:
    void * make() {
        void * handle = new_handle();
        const std::lock_guard<std::mutex> guard(mutex_);
        live_.insert(handle);
        return handle;
    }

    // Returns whether it was valid.
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

// Handles of objects owned by the runtime.
template <typename T> class handle_map {
public:
    void * make(std::shared_ptr<T> value) {
        void * handle = new_handle();
        const std::lock_guard<std::mutex> guard(mutex_);
        live_.emplace(handle, std::move(value));
        return handle;
    }

    // Returns whether it was valid.
    bool drop(const void * handle) {
        const std::lock_guard<std::mutex> guard(mutex_);
        return live_.erase(handle) != 0;
    }

    template <typename Is> void drop_if(Is unwanted) {
        const std::lock_guard<std::mutex> guard(mutex_);
        for (auto one = live_.begin(); one != live_.end();) {
            one = unwanted(*one->second) ? live_.erase(one) : std::next(one);
        }
    }

    // Null if it is invalid.
    std::shared_ptr<T> find(const void * handle) {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto found = live_.find(handle);
        return found == live_.end() ? nullptr : found->second;
    }

    template <typename Do> void for_each(Do todo) {
        const std::lock_guard<std::mutex> guard(mutex_);
        for (const auto & [handle, value] : live_) {
            todo(*value);
        }
    }

private:
    std::mutex mutex_;
    std::unordered_map<const void *, std::shared_ptr<T>> live_;
};

} // namespace patchkit
