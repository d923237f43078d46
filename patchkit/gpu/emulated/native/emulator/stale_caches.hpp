// Caches that keep old values as long as a GPU's may: until the code invalidates them.
//
// Each work-group processor (WGP) has two compute units (CUs) with an L0 each, an L1 of its own, as if it were alone in
// its shader array, and a scalar cache. A plain load that hits gets the cached line, whatever other WGPs have stored
// since. Stores go through to memory at once, a plain one leaves its bytes in L0, and atomics are done in memory.
// Sources: LLVM's AMDGPU user guide, "Memory Model GFX10-GFX11" and "GFX12"; SIMemoryLegalizer.cpp (MISS_LRU for
// stores); RDNA4 ISA guide, "Memory Scopes".
#pragma once

#include "facts.hpp"

#include <vector>


namespace patchkit::gpu {

// Copies of lines of memory, direct-mapped.
class line_cache {
  public:
    static constexpr u32 line_size = 128;

    struct line {
        u64 address = 0;        // of its first byte
        u32 generation = 0;     // in which it was filled
        u32 first = 0, end = 0; // bytes that are in the allocation
        std::byte bytes[line_size];

        bool holds(u64 place, u32 size) const {
            return address == start_of(place) && first <= offset_of(place) && offset_of(place) + size <= end;
        }
        std::byte * at(u64 place) { return bytes + offset_of(place); }
    };

    explicit line_cache(u32 lines) : mask(lines - 1) {}

    // The line with these bytes, or null.
    line * find(u64 place, u32 size) {
        line * const found = all.empty() ? nullptr : &slot_of(place);
        return found != nullptr && found->generation == generation && found->holds(place, size) ? found : nullptr;
    }
    // A line to fill: the one at this place, as far as the allocation goes.
    line & put(u64 place, u64 begin, u64 end);
    // A line to write these bytes to. If it is not there, or has no bytes next to these, it has no others then.
    line & put_part(u64 place, u32 size);
    void evict(u64 place);
    void clear() { generation += 1; }

    static u64 start_of(u64 place) { return place / line_size * line_size; }
    static u32 offset_of(u64 place) { return u32(place % line_size); }

  private:
    line & slot_of(u64 place) {
        const u64 n = place / line_size;
        return all[(n ^ n >> 10) & mask];
    }

    std::vector<line> all; // allocated when first used
    u32 mask, generation = 1;
};

// The bytes that a lane gets instead of those in memory.
struct stale_value {
    int lane;
    std::byte bytes[64];
};

struct wgp_caches {
    explicit wgp_caches(const architecture & arch) : arch(arch) {}

    const architecture & arch;
    line_cache l0[2]{line_cache(256), line_cache(256)}; // 32 KiB each
    line_cache l1{1024};
    line_cache scalar{128}; // 16 KiB
    std::vector<stale_value> pending; // of the current load

    void clear();
};

// A wave's last load that got an old value.
struct stale_look {
    const instruction * at = nullptr; // null: none since it last rested
    u64 place = 0, written = 0;       // the touch of the store
    bool looked_past = false;         // since then, it also looked at memory past the caches
    u64 state = 0;                    // of the wave when it last rested after such a load
    u32 rests = 0;
};

// Called before an access of these lanes to memory, and after it, if the block has caches.
void look_in_caches(const instruction * i, wave & w, const facts & f, u32 exec);
void leave_in_caches(const instruction * i, wave & w, const facts & f);

// The wave invalidates caches, or stores to addresses that are not known.
void invalidate_caches(wave & w, const facts & f);

// A wave gives way in a loop, in this state. Evicts the line of an old value that it may be waiting to change, and
// reports the loop if nothing else can end it.
void rest_with_caches(wave & w, u64 state);

} // namespace patchkit::gpu
