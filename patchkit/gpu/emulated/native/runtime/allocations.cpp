#include "allocations.hpp"

#include "calls.hpp"
#include "findings.hpp"
#include "guarded_pages.hpp"
#include "happens_before.hpp"
#include "known_bits.hpp"
#include "recorder.hpp"
#include "settings.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace patchkit {

namespace {

std::shared_mutex table_mutex;
size_t used = 0;
std::atomic<uint64_t> generation = 1; // incremented by each change

// Used in destructors of other libraries, so it is never destroyed.
std::map<uintptr_t, allocation> & table() {
    static auto * made = new std::map<uintptr_t, allocation>;
    return *made;
}

// Uninitialised memory of a GPU may contain anything, often zeros. With schedules that test what a program relies on,
// it is filled with NaN and -1: pages of this file are copied on write, so untouched memory costs nothing.

constexpr size_t piece        = 16 << 20;
constexpr size_t most_garbage = size_t(8) << 30; // more would exceed Linux's limit of mappings

int make_garbage() {
    const int file = memfd_create("patchkit-unwritten", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, piece) != 0) {
        return -1;
    }
    void * all = mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (all == MAP_FAILED) {
        return -1;
    }
    std::memset(all, 0xff, piece);
    munmap(all, piece);
    return file;
}

bool map_garbage(void * block, size_t size) {
    static const int file = make_garbage();
    if (file < 0 || size > most_garbage) {
        return false;
    }
    for (size_t at = 0; at < size; at += piece) {
        (void) mmap(static_cast<char *>(block) + at, std::min(piece, size - at), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0);
    }
    return true;
}

// With checks, allocations are far apart and freed memory is not reused, so that an address past the end, or of freed
// memory, is recognised as such.

constexpr size_t red_zone = size_t(1) << 20;

std::map<uintptr_t, allocation> & freed() {
    static auto * made = new std::map<uintptr_t, allocation>;
    return *made;
}

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Maps pages that are allocated when written; MAP_FAILED if there is no space.
void * map_block(size_t size) {
    if (!is_checking()) {
        return mmap(nullptr, size, PROT_READ | PROT_WRITE, reserved, -1, 0);
    }
    void * all = mmap(nullptr, size + 2 * red_zone, PROT_NONE, reserved, -1, 0);
    if (all == MAP_FAILED) {
        return all;
    }
    return mmap(static_cast<char *>(all) + red_zone, size, PROT_READ | PROT_WRITE, reserved | MAP_FIXED, -1, 0);
}

// Requires table_mutex.
void unmap_block(const allocation & of) {
    auto * const block = reinterpret_cast<void *>(of.begin);
    free_known_bits(of.known, of.size);
    if (!is_checking()) {
        munmap(block, of.size);
    } else if (mmap(block, of.size, PROT_NONE, reserved | MAP_FIXED, -1, 0) != MAP_FAILED) {
        freed()[of.begin] = of;
    }
}

bool wants_garbage() { return is_executing() && !is_sampling() && the_schedule().name != "in-order"; }

// Requires table_mutex.
allocation find(uintptr_t address) {
    const auto after = table().upper_bound(address);
    if (after == table().begin()) {
        return {};
    }
    const allocation & candidate = std::prev(after)->second;
    return address - candidate.begin < candidate.size ? candidate : allocation();
}

// Whether these bytes overlap red zones or freed memory.
bool is_kept_free(uintptr_t begin, size_t size) {
    if (!is_checking()) {
        return false;
    }
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    for (const auto * all : {&table(), &freed()}) {
        auto one = all->upper_bound(begin + size + red_zone);
        for (int n = 0; n < 4 && one != all->begin(); ++n) { // memory registered by the program may be in between
            const allocation & near = (--one)->second;
            const uintptr_t first = near.begin - red_zone, behind = near.begin + near.size + red_zone;
            if (near.whose == owner::program && begin < behind && first < begin + size) {
                return true;
            }
        }
    }
    return false;
}

bool overlaps(uintptr_t begin, size_t size) {
    const auto after = table().upper_bound(begin);
    return find(begin).size != 0 || (after != table().end() && after->first - begin < size);
}

} // namespace

const char * name_of(hipMemoryType type) {
    switch (type) {
        case hipMemoryTypeHost: return "host memory";
        case hipMemoryTypeManaged: return "managed memory";
        default: return "device memory";
    }
}

std::vector<allocation> allocations_of_program() {
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    std::vector<allocation> result;
    for (const auto & [begin, one] : table()) {
        if (one.whose == owner::program) {
            result.push_back(one);
        }
    }
    return result;
}

allocation freed_at(const void * pointer) {
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    const auto found = freed().find(uintptr_t(pointer));
    return found == freed().end() ? allocation() : found->second;
}

// Each thread caches the last allocation until something changes, so that kernels do not contend for a lock.
allocation allocation_of(uintptr_t address) {
    thread_local std::array<allocation, 8> found;
    thread_local uint64_t found_in = 0;
    thread_local size_t next       = 0;
    const uint64_t now = generation.load(std::memory_order_acquire);
    if (found_in == now) {
        for (const allocation & one : found) {
            if (address - one.begin < one.size) {
                return one;
            }
        }
    } else {
        found    = {};
        found_in = now;
    }
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    const allocation result = find(address);
    found[next++ % found.size()] = result;
    return result;
}

std::string describe(uintptr_t address, size_t size) {
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    const auto of = [](const allocation & one) { return std::to_string(one.size) + " bytes of " + name_of(one.type); };
    const auto before = [](const std::map<uintptr_t, allocation> & all, uintptr_t at) -> const allocation * {
        const auto after = all.upper_bound(at);
        return after == all.begin() ? nullptr : &std::prev(after)->second;
    };
    const allocation * old = before(freed(), address);
    if (old != nullptr && address - old->begin < old->size) {
        return std::to_string(address - old->begin) + " bytes into " + of(*old) + " that were freed";
    }
    const allocation * near = before(table(), address);
    if (near != nullptr && address - near->begin < near->size) {
        return std::to_string(size - (near->begin + near->size - address)) + " of them past the end of " + of(*near);
    }
    if (near != nullptr && address - (near->begin + near->size) < red_zone) {
        const size_t behind = address - (near->begin + near->size);
        return (behind == 0 ? "right" : std::to_string(behind) + " bytes") + " past the end of " + of(*near);
    }
    const auto next = table().upper_bound(address);
    if (next != table().end() && next->first - address <= red_zone) {
        return std::to_string(next->first - address) + " bytes before the start of " + of(next->second);
    }
    return "which is outside of any allocation";
}

bool is_known(const void * pointer, size_t size) {
    const allocation found = allocation_of(pointer);
    return found.size != 0 && found.holds(uintptr_t(pointer), size);
}

bool is_usable(const void * pointer, size_t size) {
    const allocation found = allocation_of(pointer);
    if (found.size != 0 && (found.whose != owner::registered || !found.holds(uintptr_t(pointer), size))) {
        return found.holds(uintptr_t(pointer), size);
    }
    // A program may unmap memory that it registered.
    return is_mapped(pointer, size) && !is_kept_free(uintptr_t(pointer), size);
}

// An unused KV cache of many GiB costs nothing.
hipError_t allocate(void ** pointer, size_t size, hipMemoryType type, unsigned flags) {
    if (pointer == nullptr) {
        return hipErrorInvalidValue;
    }
    *pointer = nullptr;
    if (size == 0) {
        return hipSuccess;
    }
    history * const of = make_history();
    const std::unique_lock<std::shared_mutex> guard(table_mutex);
    if (size > the_device().memory_bytes - used) {
        return refused(hipErrorOutOfMemory, std::to_string(size) + " bytes requested, but only " +
                                                std::to_string(the_device().memory_bytes - used) + " are left of " +
                                                std::to_string(the_device().memory_bytes));
    }
    static const uint64_t largest = number_of_setting("PATCHKIT_EMULATOR_LARGEST");
    if (largest != 0 && size > largest && type == hipMemoryTypeDevice) {
        return refused(hipErrorOutOfMemory, std::to_string(size) + " bytes requested, but PATCHKIT_EMULATOR_LARGEST is " +
                                                std::to_string(largest));
    }
    void * block = map_block(size);
    if (block == MAP_FAILED) {
        return hipErrorOutOfMemory;
    }
    if (wants_garbage()) {
        (void) map_garbage(block, size);
    }
    std::byte * const known = type == hipMemoryTypeDevice && !is_sampling() ? make_known_bits(size) : nullptr;
    table()[uintptr_t(block)] = {uintptr_t(block), size, type, owner::program, flags, known,
                                 make_traces(uintptr_t(block), size), of};
    generation.fetch_add(1, std::memory_order_release);
    used += size;
    *pointer = block;
    return hipSuccess;
}

// Like the real runtime, both calls free host memory and device memory.
hipError_t release(void * pointer, hipError_t unknown) {
    const std::unique_lock<std::shared_mutex> guard(table_mutex);
    const auto found = table().find(uintptr_t(pointer));
    if (found == table().end() || found->second.whose != owner::program) {
        return unknown;
    }
    if (found->second.of != nullptr && found->second.of->freed_by.empty()) {
        note_freed(found->second.of);
    }
    forget_guarded(pointer, found->second.size);
    unmap_block(found->second);
    drop_traces(found->second.traced);
    used -= found->second.size;
    table().erase(found);
    generation.fetch_add(1, std::memory_order_release);
    return hipSuccess;
}

void fill_pages(void * page, size_t size) {
    if (!map_garbage(page, size)) {
        std::memset(page, 0xff, size);
    }
}

bool make_zero(void * page, size_t size) {
    if (!wants_garbage()) {
        return madvise(page, size, MADV_DONTNEED) == 0;
    }
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap(page, size, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

size_t memory_used() {
    const std::shared_lock<std::shared_mutex> guard(table_mutex);
    return used;
}

void register_memory(void * pointer, size_t size, hipMemoryType type, owner whose, unsigned flags) {
    const std::unique_lock<std::shared_mutex> guard(table_mutex);
    if (size != 0 && !overlaps(uintptr_t(pointer), size)) {
        const bool is_traced =
            whose != owner::kernels && (whose != owner::runtime || type == hipMemoryTypeDevice);
        table()[uintptr_t(pointer)] = {uintptr_t(pointer), size, type, whose, flags, nullptr,
                                       is_traced ? make_traces(uintptr_t(pointer), size) : nullptr};
        generation.fetch_add(1, std::memory_order_release);
    }
}

bool unregister_memory(void * pointer, owner whose) {
    const std::unique_lock<std::shared_mutex> guard(table_mutex);
    const auto found = table().find(uintptr_t(pointer));
    if (found == table().end() || found->second.whose != whose) {
        return false;
    }
    forget_guarded(pointer, found->second.size);
    drop_traces(found->second.traced);
    table().erase(found);
    generation.fetch_add(1, std::memory_order_release);
    return true;
}

void retire_memory(void * pointer, owner whose) {
    const allocation gone = allocation_of(pointer);
    if (gone.begin == uintptr_t(pointer) && unregister_memory(pointer, whose)) {
        const std::unique_lock<std::shared_mutex> guard(table_mutex);
        freed()[gone.begin] = gone;
    }
}

bool is_mapped(const void * pointer, size_t size) {
    if (size == 0) {
        return true;
    }
    constexpr uintptr_t pages_at_once = 1024;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = uintptr_t(pointer) / page * page;
    const uintptr_t end = uintptr_t(pointer) + size;
    if (pointer == nullptr || end < uintptr_t(pointer)) {
        return false;
    }
    for (uintptr_t at = begin; at < end; at += pages_at_once * page) {
        unsigned char resident[pages_at_once]; // required by the call, not used
        const uintptr_t length = std::min(end - at, pages_at_once * page);
        if (mincore(reinterpret_cast<void *>(at), length, resident) != 0) {
            return false; // ENOMEM: a page is not mapped
        }
    }
    return true;
}

} // namespace patchkit
