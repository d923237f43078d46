// What checks keep of a wave and of a block while they run.
#pragma once

#include "facts.hpp"
#include "launch_traces.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace patchkit::gpu {

// What one wave has under way.
struct pending_load {
    const facts * what;
    u8 queues; // that it is still in
    bool is_told = false;
    bool is_in_lds; // a barrier is no order for it
    u32 number;     // of the instruction
};

// Stores to memory that a wave may not have done yet: the latest of those that VSCNT counts, in the order in which they
// began. A wave stops before it has more under way than the counter can tell.
class stores_under_way {
  public:
    static constexpr u32 most = 63;
    struct store {
        u64x addresses;
        u32 exec, size, number; // no lanes: one that nobody else can see, or an atomic
    };

    void begin(const store & one) {
        if (all.empty()) {
            all.resize(most);
        }
        all[begun % most] = one;
        begun += 1;
        done = std::max(done, begun - std::min(begun, most));
    }
    void wait(u32 left) {
        const u32 now_done = begun - std::min(begun, left);
        has_waited |= now_done > done;
        done = std::max(done, now_done);
    }
    void clear() {
        begun = done = told = 0;
        has_waited = false;
    }
    // Those that it was not asked for before, with their sequence numbers.
    template <class F> void each_new(F use) {
        for (u32 n = std::max(done, told); n != begun; ++n) {
            use(all[n % most], n);
        }
        told = begun;
    }
    // Stores with smaller sequence numbers are done; 0 if nothing was waited for since it was asked.
    u32 take_waited() { return std::exchange(has_waited, false) ? done : 0; }

  private:
    std::vector<store> all;
    u32 begun = 0, done = 0, told = 0;
    bool has_waited = false;
};

// Of registers, scratch and LDS: which bits nobody gave a value. In memory it is the other way round: bits that have
// one, so that new pages of zeros mean what they should.
struct unknown_bits {
    register_set registers; // with any such bit
    std::vector<u32x> vgprs;
    std::array<u32, slot::count> scalars{};
    bool scc = false;
    // The instruction that they came from: the load from memory, or who first used a register.
    std::vector<u32> vgprs_from;
    std::array<u32, slot::count> scalars_from{};
    u32 scc_from = 0;
    std::vector<u32x> scratch_known; // [dword]
};

class replay; // see hidden.hpp
struct block_checks;

struct wave_checks {
    // Bits of registers that are worth a look: with a load under way or unknown bits.
    u64 hints = 0;
    unknown_bits unknown;
    register_set pending; // the registers of all that follow
    std::vector<pending_load> queue; // in the order in which they began
    bool overlaps = false; // several of them may fill one register
    stores_under_way stores;
    // Waves, one bit each: those of which this one saw what an atomic of it wrote in this epoch, and those whose work
    // is known to come before what this wave does now, because a fence followed.
    u32 seen = 0, met = 0;
    // Of each wave that it saw: what it touched in memory of the device under the block's numbers below this.
    std::array<u32, 32> seen_below{};
    void see(u32 wave, const wave_checks & of, u32 below, bool at_once);
    checks wanted;
    block_checks * block = nullptr; // that it is of
    // Lanes that it began with; those that were left out where it came to a barrier, and where that was.
    u32 started = 0, skipped = 0;
    const instruction * skipped_at = nullptr;
    std::vector<u32> passed; // barriers that it came to, by the numbers of their instructions
    u64 executed_then = 0; // instructions, when it first rested after an access was left out; 0: it did not yet

    void renew_hints() { hints = unknown.scc ? ~u64(0) : pending.hints() | unknown.registers.hints(); }
};

// Who touched LDS last: epoch << 10 | wave << 4 | bytes. `readers` has a bit for each wave that read in the epoch of
// `read`.
struct lds_cells {
    std::vector<u32> written, read, readers;
};

// By dword, as long as one wave at most touches parts of it in an epoch; else by byte, where `mixed` is the epoch. With
// the numbers of the last instructions, the epoch of a last write that was atomic, and the last epoch with an atomic
// (`flagged`) with the waves that had one (`flagging`, one bit each).
struct lds_traces {
    lds_cells dwords, bytes;
    std::vector<u32> written_by, read_by, atomic, flagged, flagging, mixed;
    std::vector<u32> read_before; // as read_by, of the last reader that is another wave than that one

    void resize(size_t dwords_in_all);
};

// Who wrote a dword of memory before a barrier, and came there without waiting for it.
struct hanging_store {
    u32 wave, number, epoch, sequence;
};

// Waves that looked at a place by a plain load, while others change it by atomics: no race for those that go on to an
// atomic there, as a loop around a compare-and-swap begins.
struct held_look {
    u64 place;   // of a dword: its address, or its number in LDS
    u32 readers; // one bit each
    u32 look;    // the number of the load
    const instruction * i; // where it is told, by which wave, and the other one
    u32 wave;
    std::string what;
    u64 other;
    bool is_in_memory; // then `other` is a touch, else the number of an instruction
    bool is_any = false; // nobody knows which waves looked: one of `readers` suffices
};

// A plain read of LDS, as it was done.
struct lds_read {
    const instruction * i;
    wave * w;
    const facts * f;
    u32 exec;
    u32 offsets[lanes];
};

struct block_checks {
    u32 epoch = 1; // barriers that the block passed
    u32 last_odd = 0; // epoch with an atomic in LDS, a load that acquires, or dwords that waves have parts of
    // Between two barriers most kernels either write LDS or read it, and reads alone are no race: until something else
    // touches LDS they are kept as they were done, and the barrier forgets them. `last_noted`: epoch in which something
    // did, so that each access is noted at once.
    static constexpr size_t most_reads = 4096;
    std::vector<lds_read> reads;
    u32 last_noted = 0;
    lds_traces lds;
    std::vector<std::byte> lds_known; // bits that have a value
    block_traces memory;
    std::vector<wave_checks> waves;
    // Its waves are spread over the two halves of a WGP, each with a cache of its own: a barrier is no order for what
    // was not waited for.
    bool is_spread = false;
    std::unordered_map<u64, hanging_store> hanging; // by address / 4
    u64 hanging_first = ~u64(0), hanging_end = 0;   // all of them lie between
    std::vector<held_look> looks;        // since the last barrier
    replay * again = nullptr;            // with other bits; null as a rule
    std::unordered_set<u64> hidden;      // pairs of accesses that are noted
    bool is_new_hidden(u32 number, u32 other) { return hidden.insert(u64(number) << 32 | other).second; }
    std::unordered_set<u32> first_looks; // loads that a wave went on from to an atomic at the same place

    // A new block, with nothing known.
    void begin(u32 lds_bytes, u32 wave_count, const checks & wanted, bool is_in_wgp_mode);
    void pass_barrier();
};

inline block_checks & checks_of(const wave & w) { return *w.checks->block; }

// Keeps it until the next barrier; of those who looked, a wave goes on to an atomic at these bytes.
void hold_look(block_checks & b, held_look one);
void redeem_looks(block_checks & b, u64 place, u32 size, u32 wave);

} // namespace patchkit::gpu
