// What instructions, and checks of them, ask of the machine that runs them and share with it.
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

// The allocation that an instruction found its addresses in last, to be tried first.
constexpr size_t remembered_ranges = 8192; // of a worker, by the place of the instruction
inline size_t place_of_range(const instruction * i) {
    static_assert(sizeof(instruction) / 8 % 2 != 0, "else instructions side by side share places sooner");
    return u64(i) / 8 % remembered_ranges;
}
inline const memory_range & remembered_range(const instruction * i, const wave & w) {
    return w.ranges[place_of_range(i)];
}

// What instructions, and checks of them, ask of the machine that runs them.
class executor {
  public:
    executor() = default;
    executor(const executor &) = delete;
    executor & operator=(const executor &) = delete;
    virtual ~executor() = default;

    // Ends a kernel with a message that names the instruction. Throws kernel_fault.
    [[noreturn]] virtual void fault(const instruction * at, const wave & w, const std::string & what) = 0;

    // Lets other waves run; this one goes on at `next`.
    virtual void rest(const instruction * next, wave & w, standing how = standing::resting) = 0;

    // Address of the instruction behind i, and the instruction at an address. Throws kernel_fault when there is none.
    virtual const std::byte * address_behind(const instruction * i) = 0;
    virtual const instruction * instruction_at(const instruction * i, wave & w, u64 address) = 0;

    virtual void serve_host_calls(wave & w) = 0;

    // The image of that number, null when there is none.
    virtual const image * image_at(u64 number) = 0;

    // Looks for the allocation that holds these bytes and remembers it. False when there is none.
    virtual bool look_for_range(const instruction * i, wave & w, u64 address, u32 size) = 0;

    // The same. Throws kernel_fault when there is none, nor, for who only reads, a page that a GPU would read there.
    virtual void find_range(const instruction * i, wave & w, u64 address, u32 size, int lane,
                            bool reads = false) = 0;

    // ---- For checks.

    // Says that instruction i did this; `other` is the number of the instruction that it conflicts with. Counted once
    // per place.
    virtual void report(const instruction * i, wave & w, const char * kind, const std::string & what,
                        const u32 * other = nullptr) = 0;

    // The same for what is worth knowing, and no fault.
    virtual void report_note(const instruction * i, wave & w, const char * kind, const std::string & what) = 0;

    // The same for a conflict with whoever left this touch, and who that was in words: "block (0, 0, 0)", "kernel sums",
    // "the copy of 64 bytes".
    virtual void report_touch(const instruction * i, wave & w, const char * kind, const std::string & what,
                              u64 other) = 0;
    virtual std::string describe_touch(u64 other, u32 block) = 0;

    // The same for a conflict by a write that changes nothing: decided when the launch is over. `other` is a number.
    virtual void note_hidden(const instruction * i, wave & w, const std::string & what, u32 other) = 0;

    // The same for what is a finding only if the host gets to see it: the number to ask for it by, see memory_range.
    virtual u32 hold_back(const instruction * i, wave & w, const char * kind, const std::string & what,
                          const u32 * other) = 0;

    // An access was left out, without which the kernel may wait for ever.
    virtual void note_left_out() = 0;

    virtual bool is_refused(u64 address) = 0; // see memory_map
    virtual bool is_of_code(u64 address) = 0; // of the code object that runs, code or data
    virtual std::string describe(u64 address, u32 size) = 0;
    virtual const dimensions & block_index(const wave & w) = 0;

    // A wave of its own to try instructions with.
    virtual wave & spare_wave() = 0;
};

} // namespace patchkit::gpu
