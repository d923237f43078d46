// Two waves that touch one place in no order, the later one by a write that changes nothing: whether other values would
// show it.
//
// When the launch is over, a block that showed such a pair runs once more, by itself, with other bits in what it loads
// from memory of the device. What it stores there is put back behind it. A pair that comes again with a write that
// changes something was hidden by its values; one that never does is in nobody's way.
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

    // So many instructions of a wave are enough: its block may wait for another one.
    static constexpr u64 most_instructions = u64(1) << 23;

    // A store of these bytes follows.
    void keep(u64 place, u64 size);
    // All that was stored is as before.
    void put_back();

    // Instructions, by their numbers: the later one and the one before.
    using pair = std::pair<u32, u32>;
    void saw(const pair & which, bool changes) { came[which] |= changes; }
    // Those that came again, and whether by a write that changed something.
    std::map<pair, bool> came;

    // What the load at hand gives instead, for the step behind it.
    void begin_load(const instruction * i, wave & w, const facts & f, u32 exec);
    void end_load(wave & w, const facts & f);

    lds_traces & page_of(u64 place);

  private:
    const u32 variant;
    std::unordered_map<u64, u32> old; // dwords by address / 4, before the first store
    std::map<u64, lds_traces *> pages;
    alignas(256) u64 places[32];
    u32 lanes_at_hand = 0;

    u32 other_bits(u32 word, u64 place, u32 size) const;
};

} // namespace patchkit::gpu
