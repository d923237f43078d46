#include "kernel_heap.hpp"

#include "allocations.hpp"
#include "ending.hpp"
#include "findings.hpp"
#include "recorder.hpp"
#include "settings.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace patchkit {

namespace {

constexpr uint64_t heap_size = 128 << 10;
// Slabs find their start from addresses; pieces larger than a block are recognised by their alignment to 4 KiB.
constexpr uint64_t slab_size = uint64_t(2) << 20, page = 4096;
constexpr uint64_t at_once   = uint64_t(64) << 20;
// Distance between pieces with checks, so that an overrun does not reach the next one.
constexpr uint64_t far_apart = 64 << 10;
constexpr uint64_t most_filled = uint64_t(1) << 30;

struct pieces {
    std::unordered_map<uint64_t, uint64_t> in_use; // size by address
    std::map<uint64_t, std::vector<uint64_t>> free; // addresses by size
    uint64_t bytes = 0;
    uint64_t next = 0, end = 0; // the memory from which pieces are cut
};

pieces & all_pieces() {
    static auto * made = new pieces;
    return *made;
}

uint64_t rounded_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void * pointer_to(uint64_t address) { return reinterpret_cast<void *>(address); } // NOLINT(performance-no-int-to-ptr)

bool map_more(pieces & all, uint64_t size) {
    constexpr int kind   = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const uint64_t whole = std::max(at_once, rounded_up(size + slab_size + far_apart, page));
    void * place         = mmap(nullptr, whole, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (place == MAP_FAILED) {
        return false;
    }
    if (the_schedule().name != "in-order" && whole <= most_filled) {
        fill_pages(place, whole);
    }
    all.next = uint64_t(place);
    all.end  = all.next + whole;
    return true;
}

// Accesses to it are not tracked: the heap passes memory between waves by relaxed atomics, which establish no order,
// and its own accesses would look like races.
uint64_t cut_piece(pieces & all, uint64_t size) {
    const auto begin = [&] {
        return rounded_up(all.next + (is_checking() ? far_apart : 0), size == slab_size ? slab_size : page);
    };
    if (all.end == 0 || begin() > all.end || size > all.end - begin()) {
        if (!map_more(all, size)) {
            return 0;
        }
    }
    const uint64_t address = begin();
    all.next               = rounded_up(address + size, page);
    register_memory(pointer_to(address), size, hipMemoryTypeDevice, owner::kernels);
    return address;
}

uint64_t take(uint64_t size) {
    pieces & all = all_pieces();
    if (auto found = all.free.find(size); found != all.free.end() && !found->second.empty()) {
        const uint64_t address = found->second.back();
        found->second.pop_back();
        all.in_use[address] = size;
        return address;
    }
    const uint64_t most = the_device().memory_bytes, used = memory_used();
    if (size == 0 || used > most || all.bytes > most - used || size > most - used - all.bytes) {
        return 0;
    }
    const uint64_t address = cut_piece(all, size);
    if (address != 0) {
        all.in_use[address] = size;
        all.bytes += size;
    }
    return address;
}

// It stays mapped, because waves that still have the address must not crash this process. With checks, it is not
// reused, so that such accesses are reported.
void give_back(uint64_t address) {
    pieces & all     = all_pieces();
    const auto found = all.in_use.find(address);
    if (found == all.in_use.end()) {
        char text[32];
        std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
        throw gpu::kernel_fault(std::string("a kernel frees ") + text +
                                ", which was not allocated by a kernel's malloc, or was already freed");
    }
    if (is_checking()) {
        retire_memory(pointer_to(address), owner::kernels);
        all.bytes -= found->second;
    } else {
        all.free[found->second].push_back(address);
    }
    all.in_use.erase(found);
}

} // namespace

uint64_t kernel_heap() {
    static const uint64_t made = [] {
        void * place = mmap(nullptr, heap_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED) {
            fault("out of memory for the heap of kernels");
        }
        register_memory(place, heap_size, hipMemoryTypeDevice, owner::kernels);
        return uint64_t(place);
    }();
    return made;
}

uint64_t serve_heap(uint64_t address, uint64_t size) {
    if (address == 0) {
        return take(size);
    }
    give_back(address);
    return 0;
}

} // namespace patchkit
