// Checks of a kernel while it runs. When a run looks for anything, decoding puts a step before each instruction that
// knows what the instruction is about to do, and one behind each memory instruction.
#pragma once

#include "assembly.hpp"
#include "global_races.hpp"
#include "machine.hpp"
#include "table.hpp"

#include <array>
#include <vector>

namespace patchkit::gpu {

// Halves of VGPRs and whole scalar slots.
class register_set {
  public:
    void add_half(int vgpr, bool is_high) { add(2 * vgpr + int(is_high)); }
    void add_slot(int n) { add(2 * most_vgprs + n); }
    bool meets(const register_set & other) const {
        return (hint & other.hint) != 0 && __builtin_reduce_or(bits & other.bits) != 0;
    }
    bool is_empty() const { return hint == 0; }

    // A bit for several registers each: sets without a common bit have no register in common.
    u64 hints() const { return hint; }
    void join(const register_set & other) {
        bits |= other.bits;
        hint |= other.hint;
    }

    // As the assembler writes the first one that both have: v3, v3.h, s7.
    std::string first_of_both(const register_set & other) const;

  private:
    static constexpr int most_vgprs = 256;
    using words = u64 __attribute__((ext_vector_type(16)));
    words bits = 0;
    u64 hint = 0;

    void add(int n) {
        bits[n / 64] |= u64(1) << (n % 64);
        hint |= u64(1) << (n / 2 % 64);
    }
};

// Queues of the hardware that work goes into, for which counters tell how much is under way. RDNA3 counts LDS and
// scalar loads together (LGKM_CNT), RDNA4 each by itself.
namespace queue {
constexpr u8 vector_load = 1, vector_store = 2, lds = 4, scalar = 8;
}

// Waits until at most `left` of what went into these queues is under way.
struct wait {
    u8 queues = 0;
    u32 left  = 0;
};

enum class space : u8 { none, global, flat, lds, scratch, scalar };

// What the check of an instruction knows of it.
struct facts {
    register_set reads, writes, touched; // touched: either
    space where    = space::none;
    bool is_store  = false;
    bool is_atomic = false;
    bool is_flag   = false; // a load that looks past the caches: volatile, or atomic
    bool is_high   = false; // a store of the upper half of a register
    bool acquires  = false; // a load behind which caches are made invalid: an atomic one that orders what follows
    u8 queues      = 0;     // that it goes into
    u32 size       = 0;     // bytes of one access of a lane
    int accesses   = 1;     // of each lane: 2 for ds_load_2addr and its like
    u32 unit       = 0;     // of their offsets, in bytes
    std::array<wait, 2> waits{};
    bool is_barrier = false;
    bool is_fence = false; // makes caches invalid: what was seen before comes before what follows
};

// What one wave has under way.
struct pending_load {
    register_set to;
    u8 queues;  // that it is still in
    bool is_store;
    bool is_in_lds; // a barrier is no order for it
    u32 number;     // of the instruction
};

struct wave_checks {
    register_set pending; // the registers of all that follow
    std::vector<pending_load> queue; // in the order in which they began
    // Waves, one bit each: those of which this one saw what an atomic of it wrote in this epoch, and those whose work
    // is known to come before what this wave does now, because a fence followed.
    u32 seen = 0, met = 0;
    checks wanted;
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
};

struct block_checks {
    u32 epoch = 1; // barriers that the block passed
    u32 last_odd = 0; // epoch with an atomic in LDS, a load that acquires, or dwords that waves have parts of
    lds_traces lds;
    block_traces memory;
    std::vector<wave_checks> waves;

    // A new block, with nothing known.
    void begin(u32 lds_bytes, u32 wave_count, const checks & wanted);
    void pass_barrier();
};

// The facts of a line of the disassembler's, by its statements; `code` is where the instruction lies and
// `is_rdna4` says how it encodes waits.
facts facts_of(const std::vector<statement> & parts, const std::vector<std::string> & names, const std::byte * code,
               bool is_rdna4);

// The step before an instruction with such facts, null where nothing is to be checked; and the step behind it, null
// where none is needed.
handler check_before(const facts & known, const checks & wanted);

// What the step before has at hand as its immediate: the hints of the registers that are touched, or the waits.
i64 at_hand(const facts & known);
handler check_behind(const facts & known, const checks & wanted);

// ---- What checks ask of the machine.

// Says that instruction i did this; `other` is the number of the instruction that it conflicts with. Counted once
// per place.
void report(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other = nullptr);

std::string describe(const wave & w, u64 address, u32 size);
block_checks & checks_of(const wave & w);

} // namespace patchkit::gpu
