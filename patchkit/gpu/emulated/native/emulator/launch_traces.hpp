// What the blocks of a launch know of each other.
//
// A block knows what comes before it: what other blocks had done when they gave a sign (an atomic, or a store behind a
// wait for the stores before it) that this one saw (by an atomic with a result, by a load that acquires, or by one that
// looks past the caches and a fence or barrier behind it). Blocks that know nothing of each other are in no order.
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

// An address by which blocks give signs to each other: who did, in this order. A sign of a block says that what it did
// under numbers below `bound` was done.
struct meeting_place {
    struct sign {
        u32 block, bound;
    };
    std::vector<sign> signs;
    std::unordered_map<u32, std::vector<std::pair<size_t, u32>>> of_block; // place among the signs, bound
};

// What a block saw: signs of others by stores (block and bound), and how many signs at which meeting places.
struct knowledge {
    std::unordered_map<u32, u32> blocks;
    std::unordered_map<const meeting_place *, size_t> places;
};

// What all blocks of a launch share.
class launch_traces {
  public:
    launch_traces(const operation_order & order, u64 blocks) : order(order), blocks(blocks) {}

    const operation_order & order;
    const u64 blocks;

    // A new number for what a block does from now on.
    u32 draw(u32 block, bool is_first);
    u32 block_of(u32 who);
    bool is_first_of_block(u32 who);

    void give_sign(u64 place, u32 block, u32 bound);
    void see_signs(u64 place, u32 block);
    void see_store(u32 block, u32 who);
    bool has_meetings() const { return meetings.load(std::memory_order_relaxed) != 0; }

    // Whether the block knows that what was done under this number comes before what it does now. Reads are taken to
    // be done when a sign is given under the same number.
    bool knows(u32 block, u32 who, bool is_read);

  private:
    std::mutex mutex;
    std::vector<u32> owners; // by number from the first on: block, and whether it was the block's first
    std::map<u64, meeting_place> places;
    std::unordered_map<u32, knowledge> known;
    std::atomic<u64> meetings{0};
    u64 signs = 0;
    bool is_over = false; // too many signs: all counts as ordered
};

// Of a block.
struct block_traces {
    launch_traces * all = nullptr; // null where nobody looks
    u32 block = 0, who = 0, previous = 0;
    u32 run = 0; // all numbers from here to `who` are its own
    bool is_touching = false; // under this number
    bool has_waited = false;  // for all its stores, since it got this number
    u32 unwaited = 0;         // waves with stores that they did not wait for, one bit each
    // Between which of its barriers it is: 1 to 7, then 1 again under a new number, so that number and epoch say it.
    u32 epoch = untracked;
    u32 since = 0; // its numbers in this epoch are not smaller
    bool needs_number = false;
    u32 barriers = 0;
    // Dwords, by address, that it changed by atomics: after how many barriers, and which of its waves did so since, and
    // looked by a plain load without going on to an atomic, one bit each.
    struct atomic_place {
        u32 barriers = 0, waves = 0, looking = 0;
    };
    std::unordered_map<u64, atomic_place> atomics;
    u32 last_atomic = ~0u; // after so many barriers
    std::unordered_set<u32> noticed;    // who wrote flags that it looked at, to be known behind a fence
    std::unordered_set<u64> noticed_at; // and where
    std::unordered_map<u64, u32> flags; // dwords by address, and whose store there it saw last
    std::vector<u64> looked_at;      // by the instruction at hand, which may see a sign there

    static constexpr u32 untracked = 8; // of one wave
    static constexpr u32 most_epochs = 7;

    void begin(launch_traces * of, u32 number, u32 waves);
    void know_what_was_noticed(); // flags that it looked at count from now on
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
    // Of waves that share a cache a barrier is enough.
    void pass_barrier(bool is_spread);
};

} // namespace patchkit::gpu
