// The interface of the machine to instructions and their checks.
#pragma once

#include "wave.hpp"

namespace patchkit::gpu {

// Straight-line code ends at i and continues elsewhere. Executed instructions are counted by such spans: the ends are
// marked, and the prefix sum of the marks up to an instruction is its count.
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

// What a wave does while no other wave runs, to detect endless spinning (machine.cpp, `spins`).
struct watch {
    bool changes = false;  // it changed memory, read a clock, or a host call was served
    bool is_for_host = false; // it read memory that the host may write at any time
    const instruction * at = nullptr; // its first access to device or host memory
    u64 address = 0;
    u32 size = 0; // bytes
};
inline void note_change(wave & w) {
    if (w.watched != nullptr) [[unlikely]] {
        w.watched->changes = true;
    }
}

// Cache of the last allocation that each instruction accessed.
constexpr size_t remembered_ranges = 8192; // per worker, indexed by the instruction's address
inline size_t place_of_range(const instruction * i) {
    static_assert(sizeof(instruction) / 8 % 2 != 0, "else instructions side by side share places sooner");
    return u64(i) / 8 % remembered_ranges;
}
inline const memory_range & remembered_range(const instruction * i, const wave & w) {
    return w.ranges[place_of_range(i)];
}

// The interface of the machine to instructions and their checks.
class executor {
  public:
    executor() = default;
    executor(const executor &) = delete;
    executor & operator=(const executor &) = delete;
    virtual ~executor() = default;

    // Ends the kernel with a message that names the instruction. Throws kernel_fault.
    [[noreturn]] virtual void fault(const instruction * at, const wave & w, const std::string & what) = 0;

    // Lets other waves run; this one continues at `next`.
    virtual void rest(const instruction * next, wave & w, standing how = standing::resting) = 0;

    // Address of the instruction after i, and the instruction at an address. Throws kernel_fault if there is none.
    virtual const std::byte * address_behind(const instruction * i) = 0;
    virtual const instruction * instruction_at(const instruction * i, wave & w, u64 address) = 0;

    virtual void serve_host_calls(wave & w) = 0;

    // The image with that number, or null.
    virtual const image * image_at(u64 number) = 0;

    // Finds the allocation that contains these bytes and caches it. Returns false if there is none.
    virtual bool look_for_range(const instruction * i, wave & w, u64 address, u32 size) = 0;

    // The same, but throws kernel_fault if there is none and, for a read, no page that a GPU could read there.
    virtual void find_range(const instruction * i, wave & w, u64 address, u32 size, int lane,
                            bool reads = false) = 0;

    // ---- For checks.

    // Reports that instruction i did this; `other` is the number of the instruction that it conflicts with. Counted per
    // pair of places.
    virtual void report(const instruction * i, wave & w, const char * kind, const std::string & what,
                        const u32 * other = nullptr) = 0;

    // The same for something worth knowing that is not a fault.
    virtual void report_note(const instruction * i, wave & w, const char * kind, const std::string & what) = 0;

    // The same for a conflict with the operation that left this touch, described as "block (0, 0, 0)", "kernel sums" or
    // "the copy of 64 bytes".
    virtual void report_touch(const instruction * i, wave & w, const char * kind, const std::string & what,
                              u64 other) = 0;
    virtual std::string describe_touch(u64 other, u32 block) = 0;

    // The same for a conflict by a write that changes nothing, decided after the launch. `other` is a number.
    virtual void note_hidden(const instruction * i, wave & w, const std::string & what, u32 other) = 0;

    // The same for a finding only if the host reads the value later; returns an id for that, see memory_range.
    virtual u32 hold_back(const instruction * i, wave & w, const char * kind, const std::string & what,
                          const u32 * other) = 0;

    // An access was skipped, so the kernel may wait forever for its effect.
    virtual void note_left_out() = 0;

    virtual bool is_refused(u64 address) = 0; // see memory_map
    virtual bool is_of_code(u64 address) = 0; // code or data of the running code object
    virtual std::string describe(u64 address, u32 size) = 0;
    virtual const dimensions & block_index(const wave & w) = 0;

    // A separate wave to try instructions with.
    virtual wave & spare_wave() = 0;
};

} // namespace patchkit::gpu
