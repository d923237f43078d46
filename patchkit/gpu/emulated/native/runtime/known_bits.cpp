#include "known_bits.hpp"

#include "allocations.hpp"
#include "findings.hpp"
#include "loaded.hpp"
#include "settings.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace patchkit {

namespace {

constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

size_t rounded(size_t size) { return (size + 63) / 64 * 64; }
size_t size_of_both(size_t size) { return 2 * rounded(size); }

// Tracking data of one range of memory; null if it is not tracked.
struct bits_of {
    std::byte * known = nullptr;
    uint32_t * left_by = nullptr; // of the dword that the range starts in
    size_t into = 0;              // offset in that dword

    explicit bits_of(const void * begin) {
        const allocation found = allocation_of(begin);
        if (found.size != 0 && found.known != nullptr) {
            const size_t offset = uintptr_t(begin) - found.begin;
            known = found.known + offset;
            left_by = left_by_of(found.known, found.size) + offset / 4;
            into = offset % 4;
        }
    }
};

// A cleared cache of many GiB is completely initialised: pages that are not written are shared.
void fill(std::byte * known, size_t size) {
    constexpr size_t large = size_t(4) << 20;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = uintptr_t(known), end = begin + size;
    const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (size < large) {
        std::memset(known, 0xff, size);
        return;
    }
    std::memset(known, 0xff, first - begin);
    fill_pages(reinterpret_cast<void *>(first), last - first);
    std::memset(reinterpret_cast<void *>(last), 0xff, end - last);
}

bool is_all_known(const std::byte * known, size_t size) {
    return std::all_of(known, known + size, [](std::byte one) { return one == std::byte(0xff); });
}

// Reports values that kernels left uninitialised, by instruction, but not memory that was never written: a program may
// copy a whole buffer of which it used only a part.
void look_at(const bits_of & from, size_t size) {
    uint32_t last = 0;
    for (size_t n = 0; n < size; n = std::min(size, (from.into + n) / 4 * 4 + 4 - from.into)) {
        const uint32_t by = from.left_by[(from.into + n) / 4];
        const size_t bytes = std::min(size, (from.into + n) / 4 * 4 + 4 - from.into) - n;
        if (by != 0 && by != last && !is_all_known(from.known + n, bytes)) {
            reveal(by, ", and the host copies them");
            last = by;
        }
    }
}

} // namespace

std::byte * make_known_bits(size_t size) {
    if (!is_executing() || !read_checks().uninitialised) {
        return nullptr;
    }
    void * made = mmap(nullptr, size_of_both(size), PROT_READ | PROT_WRITE, reserved, -1, 0);
    return made == MAP_FAILED ? nullptr : static_cast<std::byte *>(made);
}

void free_known_bits(std::byte * known, size_t size) {
    if (known != nullptr) {
        munmap(known, size_of_both(size));
    }
}

uint32_t * left_by_of(std::byte * known, size_t size) {
    return known == nullptr ? nullptr : reinterpret_cast<uint32_t *>(known + rounded(size));
}

void note_written(const void * begin, size_t size) {
    const bits_of bits(begin);
    if (bits.known != nullptr) {
        fill(bits.known, size);
    }
}

void note_copied(const void * to, const void * from, size_t size) {
    const bits_of source(from), target(to);
    if (source.known == nullptr) {
        if (target.known != nullptr) {
            fill(target.known, size);
        }
        return;
    }
    if (target.known == nullptr) {
        look_at(source, size);
        return;
    }
    std::memmove(target.known, source.known, size);
    if (source.into == target.into) {
        std::memmove(target.left_by, source.left_by, (source.into + size + 3) / 4 * 4);
    }
}

} // namespace patchkit
