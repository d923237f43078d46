// Order between the blocks of a launch.
//
// A block knows what happened before it: everything that another block did before a signal (an atomic, or a store after
// waiting for earlier stores) that this one observed (by an atomic with a result, an acquire load, or a load that
// bypasses caches followed by a fence or barrier). Blocks without such knowledge are unordered.
#pragma once

#include "traces.hpp"
#include "values.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace patchkit::gpu {

// An address at which blocks signal each other, with the signals in order. A signal means that the block's accesses
// under numbers below `bound` have completed.
struct meeting_place {
    struct sign {
        u32 block, bound;
    };
    std::vector<sign> signs;
    std::unordered_map<u32, std::vector<std::pair<size_t, u32>>> of_block; // index of the signal, bound
};

// What a block observed: signals by stores (block and bound), and the number of signals observed per meeting place.
struct knowledge {
    std::unordered_map<u32, u32> blocks;
    std::unordered_map<const meeting_place *, size_t> places;
};

// State shared by all blocks of a launch.
class launch_traces {
  public:
    launch_traces(const operation_order & order, u64 blocks) : order(order), blocks(blocks) {}

    const operation_order & order;
    const u64 blocks;

    // A new number for the block's next accesses.
    u32 draw(u32 block, bool is_first);
    u32 block_of(u32 who);
    bool is_first_of_block(u32 who);

    void give_sign(u64 place, u32 block, u32 bound);
    void note_poll(u64 place); // by an atomic with a result
    bool is_polled(u64 place);
    void see_signs(u64 place, u32 block);
    void see_store(u32 block, u32 who);
    bool has_meetings() const { return meetings.load(std::memory_order_relaxed) != 0; }

    // Whether accesses under this number are known to come before the block's next ones. Reads count as complete when a
    // signal is given under the same number. `otherwise`: the answer if there are too many signals to know.
    bool knows(u32 block, u32 who, bool is_read, bool otherwise = true);

  private:
    std::mutex mutex;
    std::vector<u32> owners; // by number, starting with the first: block, and whether it was the block's first
    std::map<u64, meeting_place> places;
    std::unordered_set<u64> polled;
    std::unordered_map<u32, knowledge> known;
    std::atomic<u64> meetings{0};
    u64 signs = 0;
    bool is_over = false; // too many signals: everything counts as ordered
};

// State of one block.
struct block_traces {
    launch_traces * all = nullptr; // null if not tracked
    u32 block = 0, who = 0, previous = 0;
    u32 run = 0; // all numbers from here to `who` belong to the block
    bool is_touching = false; // whether there were accesses under the current number
    bool has_waited = false;  // for all of its stores since it got this number
    u32 unwaited = 0;         // bit mask of waves with stores that were not waited for
    // Barrier epoch: 1 to 7, then 1 again with a new number, so that number and epoch are unique.
    u32 epoch = untracked;
    u32 since = 0; // its numbers in this epoch start here
    bool needs_number = false;
    u32 barriers = 0;
    // Dwords changed by atomics, by address: after how many barriers, and bit masks of the waves that did so since, or
    // that read by a plain load without a following atomic.
    struct atomic_place {
        u32 barriers = 0, waves = 0, looking = 0;
    };
    std::unordered_map<u64, atomic_place> atomics;
    u32 last_atomic = ~0u; // barrier count at the time
    std::unordered_set<u32> noticed;    // writers of flags that it read, effective after a fence
    std::unordered_set<u64> noticed_at; // and the addresses
    std::unordered_map<u64, u32> flags; // by dword address, the writer whose store it last observed
    std::vector<u64> looked_at;      // by the current instruction, which may observe a signal

    static constexpr u32 untracked = 8; // for a single wave
    static constexpr u32 most_epochs = 7;
    static constexpr size_t most_noticed = 4096;

    void begin(launch_traces * of, u32 number, u32 waves);
    void notice(u64 dword, u32 writer) { // of a flag that it observed there
        if (noticed.size() < most_noticed) {
            noticed.insert(writer);
            flags[dword] = writer;
        }
    }
    void know_what_was_noticed(); // applies the observed flags from now on
    bool has_atomics() const { return last_atomic == barriers; } // since the last barrier
    bool was_atomic(u64 place) const { return !atomics.empty() && atomics.contains(place / 4 * 4); }
    void note_atomic(u64 place, u32 wave) {
        last_atomic = barriers;
        atomic_place & at = atomics[place / 4 * 4];
        if (at.barriers != barriers) {
            at = {barriers, 0, 0};
        }
        at.waves |= 1u << wave;
        at.looking &= ~(1u << wave);
    }
    void note_look(u64 place, u32 wave) {
        if (const auto found = atomics.find(place / 4 * 4); found != atomics.end() && found->second.barriers == barriers) {
            found->second.looking |= 1u << wave;
        }
    }
    atomic_place recent_atomics_at(u64 place) const {
        const auto found = atomics.find(place / 4 * 4);
        return found != atomics.end() && found->second.barriers == barriers ? found->second : atomic_place{};
    }
    // For waves that share a cache, a barrier is sufficient.
    void pass_barrier(bool is_spread);
};

} // namespace patchkit::gpu
