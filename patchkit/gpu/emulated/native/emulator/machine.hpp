// What handlers ask of the machine that runs them: counting, leaving a wave for later, other code, memory.
#pragma once

#include "wave.hpp"

namespace patchkit::gpu {

// Straight code ends at i and goes on at another place. What was executed is counted by these spans: their ends are
// marked, and the sum of the marks up to an instruction is how often it ran.
inline void leave(const instruction * i, wave & w) {
    w.executed += i->number + 1 - w.entered;
    if (w.marks != nullptr) {
        w.marks[w.entered] += 1;
        w.marks[i->number + 1] -= 1;
    }
    if (w.spans != nullptr) {
        w.spans->push_back(w.entered);
        w.spans->push_back(i->number);
    }
}
inline void enter(const instruction * target, wave & w) { w.entered = target->number; }

// What a wave does while no other wave runs, to tell whether it spins for ever (machine.cpp, `spins`).
struct watch {
    bool changes = false;  // it changed memory, read a clock, or a call to the host was served
    bool is_for_host = false; // it read memory that the host may write at any time
    const instruction * at = nullptr; // its first access to memory of the device or the host
    u64 address = 0;
    u32 size = 0; // bytes
};
inline void note_change(wave & w) {
    if (w.watched != nullptr) [[unlikely]] {
        w.watched->changes = true;
    }
}

// Lets other waves run; this one goes on at `next`.
void rest(const instruction * next, wave & w, standing how = standing::resting);

// Address of the instruction behind i, and the instruction at an address. Throws kernel_fault when there is none.
const std::byte * address_behind(const instruction * i, const wave & w);
const instruction * instruction_at(const instruction * i, wave & w, u64 address);

void serve_host_calls(wave & w);

// The image of that number, null when there is none.
const image * image_at(const wave & w, u64 number);

// The allocation that an instruction found its addresses in last, to be tried first.
constexpr size_t remembered_ranges = 8192; // of a worker, by the place of the instruction
inline size_t place_of_range(const instruction * i) {
    static_assert(sizeof(instruction) / 8 % 2 != 0, "else instructions side by side share places sooner");
    return u64(i) / 8 % remembered_ranges;
}
inline const memory_range & remembered_range(const instruction * i, const wave & w) {
    return w.ranges[place_of_range(i)];
}

// Looks for the allocation that holds these bytes and remembers it. False when there is none.
bool look_for_range(const instruction * i, wave & w, u64 address, u32 size);

// The same. Throws kernel_fault when there is none, nor, for who only reads, a page that a GPU would read there.
void find_range(const instruction * i, wave & w, u64 address, u32 size, int lane, bool reads = false);

} // namespace patchkit::gpu
