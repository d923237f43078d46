// The last accesses to each dword of memory, from which races between blocks and unordered asynchronous operations are
// detected. Traces are recorded by the emulator for kernels, and by the runtime for copies and similar operations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace patchkit::gpu {

// An access packed into one word, so that it is read and written atomically. From the top: who (a number assigned to a
// block or copy; 28 bits), accessed bytes of the dword (4), atomic (1), several waves of the block (1), wave (5),
// barrier epoch (3, see block_traces), instruction number (22).
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

// Traces of one allocation by dword: the last writer, another writer of other bytes, two readers since, and the value
// last stored by a kernel if that was a whole dword.
struct traces {
    uintptr_t begin;
    size_t dwords;
    uint64_t *written, *written_too, *read, *read_too;
    uint32_t * stored;
    // For host memory: the range of dwords accessed by kernels.
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

// An operation requested by the program: its description, and its call stack.
struct other_work {
    std::string words;
    std::vector<void *> called_from;
};

// The running operation's order relative to all others.
struct operation_order {
    virtual ~operation_order() = default;

    uint32_t first = 0; // first number that it may use
    uint32_t floor = 0; // operations with smaller numbers come before it
    std::atomic<uint32_t> * next = nullptr; // the next free number

    // Whether another operation with a number above the floor nevertheless comes before this one.
    virtual bool is_behind(uint32_t who) const = 0;
    virtual other_work work_of(uint32_t who) const = 0;
};

// Available numbers; after `many_numbers`, numbering starts again.
constexpr uint32_t most_numbers = (1u << 28) - 1, many_numbers = 1u << 27;

} // namespace patchkit::gpu
