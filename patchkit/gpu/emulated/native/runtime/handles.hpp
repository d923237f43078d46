// Handles of streams, events and hipBLAS: names that nobody can follow, and that are never given out twice.
//
// A destroyed handle therefore stays wrong for good, and one of another kind is wrong, too: what the real
// runtime leaves to luck when the heap reuses an address is an error here every time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace patchkit {

inline void * new_handle() {
    static std::atomic<uintptr_t> next = 0x1000; // of all kinds; 0, 1 and 2 are the default streams
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

// Handles of things that the runtime keeps.
template <typename T> class handle_map {
public:
    void * make(std::shared_ptr<T> value) {
        void * handle = new_handle();
        const std::lock_guard<std::mutex> guard(mutex_);
        live_.emplace(handle, std::move(value));
        return handle;
    }

    // Whether it was live until now.
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

    // Null when there is none.
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
