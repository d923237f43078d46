// Unordered accesses of two waves to one place, where the later one is a write that changes nothing: determines whether
// other values would reveal the race.
//
// After the launch, a block with such a pair is rerun alone with other values for what it loads from device memory; its
// stores are undone afterwards. If the pair recurs with a write that changes something, its values had hidden a race.
// If it never does, it is harmless.
#pragma once

#include "values.hpp"

#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace patchkit::gpu {

struct facts;
struct instruction;
struct lds_traces;
struct wave;

class replay {
  public:
    explicit replay(u32 variant) : variant(variant) {}
    ~replay();
    replay(const replay &) = delete;
    replay & operator=(const replay &) = delete;

    // Limit of instructions per wave, because its block may wait for another one.
    static constexpr u64 most_instructions = u64(1) << 23;

    // Saves these bytes before a store.
    void keep(u64 place, u64 size);
    // Undoes all stores.
    void put_back();

    // Instruction numbers of the later and the earlier access.
    using pair = std::pair<u32, u32>;
    void saw(const pair & which, bool changes) { came[which] |= changes; }
    // Pairs that recurred, and whether by a write that changed something.
    std::map<pair, bool> came;

    // Replaces the value of the current load, for the step after it.
    void begin_load(const instruction * i, wave & w, const facts & f, u32 exec);
    void end_load(wave & w, const facts & f);

    lds_traces & page_of(u64 place);

  private:
    const u32 variant;
    std::unordered_map<u64, u32> old; // old values of dwords by address / 4
    std::map<u64, lds_traces *> pages;
    alignas(256) u64 places[32];
    u32 lanes_at_hand = 0;

    u32 other_bits(u32 word, u64 place, u32 size) const;
};

} // namespace patchkit::gpu
