// State of checks for a wave and for a block while they run.
#pragma once

#include "facts.hpp"
#include "launch_traces.hpp"
#include "stale_caches.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace patchkit::gpu {

// Outstanding work of one wave.
struct pending_load {
    const facts * what;
    u8 queues; // queues that it is still in
    bool is_told = false;
    bool is_in_lds; // barriers do not order it
    u32 number;     // instruction number
};

// Stores to memory that may not have completed: the latest ones that VSCNT counts, in issue order. A wave waits before
// more are outstanding than the counter can represent.
class stores_under_way {
  public:
    static constexpr u32 most = 63;
    struct store {
        u64x addresses;
        u32 exec, size, number; // no lanes: not visible to others, or an atomic
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
    // Calls `use` for stores since the last call, with their sequence numbers.
    template <class F> void each_new(F use) {
        for (u32 n = std::max(done, told); n != begun; ++n) {
            use(all[n % most], n);
        }
        told = begun;
    }
    // Stores with smaller sequence numbers have completed; 0 if nothing was waited for since the last call.
    u32 take_waited() { return std::exchange(has_waited, false) ? done : 0; }

  private:
    std::vector<store> all;
    u32 begun = 0, done = 0, told = 0;
    bool has_waited = false;
};

// For registers, scratch and LDS: uninitialised bits. In memory the meaning is inverted (initialised bits), so that
// newly mapped zero pages are correct.
struct unknown_bits {
    register_set registers; // with any such bit
    std::vector<u32x> vgprs;
    std::array<u32, slot::count> scalars{};
    bool scc = false;
    // The instruction of origin: the load from memory, or the first use of the register.
    std::vector<u32> vgprs_from;
    std::array<u32, slot::count> scalars_from{};
    u32 scc_from = 0;
    std::vector<u32x> scratch_known; // [dword]
};

class replay; // see hidden.hpp
struct block_checks;

struct wave_checks {
    // Hint bits of registers with an outstanding load or uninitialised bits.
    u64 hints = 0;
    unknown_bits unknown;
    register_set pending; // union of the registers of all loads below
    std::vector<pending_load> queue; // in issue order
    bool overlaps = false; // several of them may write the same register
    stores_under_way stores;
    // Bit masks of waves: those whose atomic this wave observed in this epoch (seen), and those whose earlier work is
    // ordered before this wave's next one because a fence followed (met).
    u32 seen = 0, met = 0;
    // For each observed wave: its accesses to device memory under block numbers below this are ordered.
    std::array<u32, 32> seen_below{};
    void see(u32 wave, const wave_checks & of, u32 below, bool at_once);
    checks wanted;
    block_checks * block = nullptr; // the block it belongs to
    // Lanes at its start; lanes that were disabled when it reached a barrier, and that barrier.
    u32 started = 0, skipped = 0;
    const instruction * skipped_at = nullptr;
    std::vector<u32> passed; // barriers that it reached, by instruction number
    stale_look stale;
    u64 executed_then = 0; // instructions executed when it first rested after a skipped access; 0: not yet

    void renew_hints() { hints = unknown.scc ? ~u64(0) : pending.hints() | unknown.registers.hints(); }
};

// Last accesses to LDS: epoch << 10 | wave << 4 | bytes. `readers` has a bit for each wave that read in the epoch of
// `read`.
struct lds_cells {
    std::vector<u32> written, read, readers;
};

// Tracked by dword as long as at most one wave accesses parts of it per epoch, else by byte (`mixed` is that epoch).
// Also stored: instruction numbers of the last accesses, the epoch of the last write that was atomic, and the last
// epoch with an atomic (`flagged`) with a bit mask of its waves (`flagging`).
struct lds_traces {
    lds_cells dwords, bytes;
    std::vector<u32> written_by, read_by, atomic, flagged, flagging, mixed;
    std::vector<u32> read_before; // like read_by, for the last reader other than that wave

    void resize(size_t dwords_in_all);
};

// A store to a dword that its wave did not wait for before a barrier.
struct hanging_store {
    u32 wave, number, epoch, sequence;
};

// Plain loads of a place that others change by atomics. It is no race if the wave continues with an atomic on that
// place, like the start of a compare-and-swap loop.
struct held_look {
    u64 place;   // a dword: its address, or its index in LDS
    u32 readers; // bit mask
    u32 look;    // instruction number of the load
    const instruction * i; // where to report it, with the wave and the other access
    u32 wave;
    std::string what;
    u64 other;
    bool is_in_memory; // if so, `other` is a touch, otherwise an instruction number
    bool is_any = false; // which waves read is unknown: one of `readers` is sufficient
};

// A plain read of LDS, stored for later analysis.
struct lds_read {
    const instruction * i;
    wave * w;
    const facts * f;
    u32 exec;
    u32 offsets[lanes];
};

struct block_checks {
    u32 epoch = 1; // number of barriers passed by the block
    u32 last_odd = 0; // last epoch with an atomic in LDS, an acquire load, or dwords shared by waves
    // Between two barriers most kernels either write or read LDS, and reads alone cannot race. So reads are only stored
    // until something else accesses LDS; the barrier discards them. `last_noted`: the last epoch with other accesses,
    // in which each access is tracked at once.
    static constexpr size_t most_reads = 4096;
    std::vector<lds_read> reads;
    u32 last_noted = 0;
    lds_traces lds;
    std::vector<std::byte> lds_known; // initialised bits
    block_traces memory;
    std::vector<wave_checks> waves;
    // Its waves are spread over both halves of a WGP, which have separate caches: a barrier does not order stores that
    // were not waited for.
    bool is_spread = false;
    wgp_caches * caches = nullptr; // of the WGP that it runs on; null if caches hold nothing back
    u32 first_cu = 0;              // the CU of its first wave
    line_cache & l0_of(u32 wave) const { return caches->l0[is_spread ? (first_cu + wave) % 2 : first_cu]; }
    std::unordered_map<u64, hanging_store> hanging; // by address / 4
    u64 hanging_first = ~u64(0), hanging_end = 0;   // address range of all of them
    std::vector<held_look> looks;        // since the last barrier
    replay * again = nullptr;            // when rerunning with other values; usually null
    std::unordered_set<u64> hidden;      // recorded pairs of accesses
    bool is_new_hidden(u32 number, u32 other) { return hidden.insert(u64(number) << 32 | other).second; }
    std::unordered_set<u32> first_looks; // loads followed by an atomic of the same wave at the same place

    // Initialises the state for a new block.
    void begin(u32 lds_bytes, u32 wave_count, const checks & wanted, bool is_in_wgp_mode);
    void pass_barrier();
};

inline block_checks & checks_of(const wave & w) { return *w.checks->block; }

// Keeps a look until the next barrier; removes those whose wave continues with an atomic on these bytes.
void hold_look(block_checks & b, held_look one);
void redeem_looks(block_checks & b, u64 place, u32 size, u32 wave);

} // namespace patchkit::gpu
