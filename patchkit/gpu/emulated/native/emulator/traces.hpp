// Who touched each dword of memory last: what races between blocks and the order of asynchronous work are told by.
// Kernels leave traces in the emulator, copies and the like in the runtime.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace patchkit::gpu {

// One touch in one word, so that threads never see half of one: from the top who it was (a number that a block or a
// copy drew; 28 bits), which bytes of the dword (4), whether by an atomic (1), whether several waves of the block did
// so (1), which wave (5), between which of its barriers (3, see block_traces), and the number of the instruction (22).
namespace touch {
constexpr int bytes_at = 32, who_at = 36, wave_at = 25, epoch_at = 22;
constexpr uint64_t atomic_bit = uint64_t(1) << 31, several_bit = uint64_t(1) << 30;
constexpr uint64_t instruction_mask = (1u << epoch_at) - 1, epoch_mask = 7, wave_mask = 31;
constexpr uint64_t of_wave_mask = (epoch_mask << epoch_at) | (wave_mask << wave_at) | several_bit;

constexpr uint32_t who(uint64_t t) { return uint32_t(t >> who_at); }
constexpr uint32_t bytes(uint64_t t) { return uint32_t(t >> bytes_at) & 15; }
constexpr bool is_atomic(uint64_t t) { return (t & atomic_bit) != 0; }
constexpr bool is_several(uint64_t t) { return (t & several_bit) != 0; }
constexpr uint32_t wave(uint64_t t) { return uint32_t(t >> wave_at & wave_mask); }
constexpr uint32_t epoch(uint64_t t) { return uint32_t(t >> epoch_at & epoch_mask); }
constexpr uint32_t instruction(uint64_t t) { return uint32_t(t & instruction_mask); }
constexpr uint64_t made(uint32_t who, uint32_t bytes) {
    return uint64_t(who) << who_at | uint64_t(bytes) << bytes_at;
}
} // namespace touch

// Of one allocation, by dwords from its start: the last one who wrote, another one who wrote other bytes of it, two
// who read since, and what a kernel stored there last, if that was a whole dword.
struct traces {
    uintptr_t begin;
    size_t dwords;
    uint64_t *written, *written_too, *read, *read_too;
    uint32_t * stored;
    // Of memory of the host: the first dword that a kernel touched, and the one behind the last.
    std::atomic<size_t> lowest{~size_t(0)}, behind{0};

    void note(size_t first, size_t end) {
        size_t known = lowest.load(std::memory_order_relaxed);
        while (first < known && !lowest.compare_exchange_weak(known, first, std::memory_order_relaxed)) {
        }
        known = behind.load(std::memory_order_relaxed);
        while (end > known && !behind.compare_exchange_weak(known, end, std::memory_order_relaxed)) {
        }
    }
};

// An operation that the program asked for, in words, and where it did.
struct other_work {
    std::string words;
    std::vector<void *> called_from;
};

// The operation that runs now, among all others.
struct operation_order {
    virtual ~operation_order() = default;

    uint32_t first = 0; // it draws its numbers from here on
    uint32_t floor = 0; // who drew a smaller number comes before it
    std::atomic<uint32_t> * next = nullptr; // the number to be drawn next

    // Whether this one behind the floor, of another operation, comes before it all the same.
    virtual bool is_behind(uint32_t who) const = 0;
    virtual other_work work_of(uint32_t who) const = 0;
};

// Numbers that may be drawn; what begins behind `many_numbers` begins anew.
constexpr uint32_t most_numbers = (1u << 28) - 1, many_numbers = 1u << 27;

} // namespace patchkit::gpu
