// Checks of a kernel while it runs. When a run looks for anything, decoding puts a step before each instruction that
// knows what the instruction is about to do, and one behind each memory instruction.
#pragma once

#include "assembly.hpp"
#include "global_races.hpp"
#include "hidden.hpp"
#include "machine.hpp"
#include "table.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace patchkit::gpu {

// Halves of VGPRs and whole scalar slots, two bits each; of a slot the first counts.
class register_set {
  public:
    void add_half(int vgpr, bool is_high) { add(2 * vgpr + int(is_high)); }
    void add_slot(int n) { add(2 * (most_vgprs + n)); }
    void add_vgpr(int n) {
        add_half(n, false);
        add_half(n, true);
    }
    void remove_vgpr(int n) { remove(n); }
    void remove_slot(int n) { remove(most_vgprs + n); }
    bool holds_vgpr(int n) const { return n < most_vgprs && holds(n); }
    bool holds_slot(int n) const { return holds(most_vgprs + n); }
    register_set both(const register_set & other) const {
        register_set result;
        result.set(all() & other.all());
        return result;
    }

    template <class F> void each_vgpr(F use) const { each(0, most_vgprs / 32, use); }
    template <class F> void each_slot(F use) const { each(most_vgprs / 32, 16, use); }

    bool meets(const register_set & other) const {
        return (hint & other.hint) != 0 && __builtin_reduce_or(all() & other.all()) != 0;
    }
    bool is_empty() const { return hint == 0; }

    // A bit for several registers each: sets without a common bit have no register in common.
    u64 hints() const { return hint; }
    void join(const register_set & other) {
        set(all() | other.all());
        hint |= other.hint;
    }

    // What the other has goes; renew_hints() is to follow.
    void cut(const register_set & other) { set(all() & ~other.all()); }

    // After sets were cut.
    void renew_hints();

    // As the assembler writes the first one that both have: v3, v3.h, s7.
    std::string first_of_both(const register_set & other) const;

  private:
    static constexpr int most_vgprs = 256;
    using words = vector_of<u64, 16>;
    alignas(64) u64 bits[16]{}; // an array: single words of a vector are slow to get at
    u64 hint = 0;

    words all() const {
        words result;
        std::memcpy(&result, bits, sizeof(result));
        return result;
    }
    void set(const words & to) { std::memcpy(bits, &to, sizeof(to)); }

    template <class F> void each(int first, int end, F use) const {
        for (int word = first; word < end; ++word) {
            for (u64 left = whole_registers(bits[word]); left != 0; left &= left - 1) {
                use(32 * (word - first) + std::countr_zero(left) / 2);
            }
        }
    }
    // A bit at the even places for each register of which any half is there.
    static u64 whole_registers(u64 word) { return (word | word >> 1) & 0x5555555555555555; }

    bool holds(int n) const { return (bits[n / 32] >> (2 * n % 64) & 3) != 0; }

    // Registers with one hint are 64 apart.
    void remove(int n) {
        bits[n / 32] &= ~(u64(3) << (2 * n % 64));
        u64 left = 0;
        for (int word = n / 32 % 2; word < 16; word += 2) {
            left |= bits[word];
        }
        if ((left >> (2 * n % 64) & 3) == 0) {
            hint &= ~(u64(1) << (n % 64));
        }
    }

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

// A step that computes floats, by its handler, with the formats of what it reads and leaves.
struct float_step {
    handler run = nullptr;
    format to = format::b32;
    std::array<format, 3> from{format::b32, format::b32, format::b32};
    int first = 0, sources = 0; // of them, that count
    bool is_mix = false;  // modifiers say which sources are halves
    bool is_high = false; // leaves its result in the upper half
};

// What the check of an instruction knows of it.
struct facts {
    register_set reads, writes, touched; // touched: either
    register_set address; // of those that it reads, what says where in memory
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

    // For what follows values that nobody gave, see uninitialised.cpp.
    bool is_scalar   = false;
    bool is_branch   = false; // by SCC or VCC
    bool is_jump     = false; // to an address in registers
    bool is_given    = false; // its result is known whatever it reads
    bool is_lanewise = false; // a lane's result depends on the same lane of its sources
    bool is_whole    = false; // writes whole registers, of the active lanes
    bool is_moved    = false; // which registers it touches stands in M0
    bool moves_bits  = false; // its results are bits of its sources, picked and put together
    bool is_exchange = false; // an atomic that puts its data there, whatever was there
    std::vector<u8> vgprs_read, vgprs_written, slots_read, slots_written; // once more, one by one
    int filled       = 0;     // bytes of a register that a load changes, from bit `shift` up; 0: all of them
    int shift        = 0;
    bool is_signed   = false;
    const instruction * alone = nullptr; // the instruction's steps once more, with an end behind them
    int alone_steps = 0;
    std::vector<float_step> floats; // of these
};

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

// Whether a modifier says which lanes a source comes from (DPP).
bool is_lane_pattern(const std::string & modifier);

// The facts of a line of the disassembler's, by its statements; `code` is where the instruction lies and
// `is_rdna4` says how it encodes waits.
facts facts_of(const std::vector<statement> & parts, const std::vector<std::string> & names, const std::byte * code,
               bool is_rdna4);

// The step before an instruction with such facts, null where nothing is to be checked; and the step behind it, null
// where none is needed.
handler check_before(const facts & known, const checks & wanted);

// The wave calls this function.
void check_call(const instruction * i, wave & w, std::string_view callee);

// No wave of the block goes on by itself: each waits at a barrier or has ended, as its state says. Asked before those at
// barriers go on, and once more when all have ended.
void check_halted(block_checks & b, const std::vector<wave *> & waves, const checks & wanted);

// Keeps it until the next barrier; of those who looked, a wave goes on to an atomic at these bytes.
void hold_look(block_checks & b, held_look one);
void redeem_looks(block_checks & b, u64 place, u32 size, u32 wave);

// What the step before has at hand as its immediate: the hints of the registers that are touched, or the waits.
i64 at_hand(const facts & known);
handler check_behind(const facts & known, const checks & wanted);

// ---- Values that nobody gave (uninitialised.cpp)

// What a wave begins without: of so many VGPRs all but the first, and the SGPRs but for the `given` user SGPRs and those
// from `ids` to `ids_end`. Only those that its code touches are followed, any when that is null.
register_set unknown_at_start(int vgprs, int given, int ids, int ids_end, const register_set * touched);

void begin_unknown(wave & w, int vgprs, const register_set & at_start);

// The instruction behind the check computes: what its results do not have a value for.
void follow_computation(const instruction * i, wave & w, const facts & f);

// The same of one that goes to memory, but for the lanes (one bit each) whose access is left out.
void follow_access(const instruction * i, wave & w, const facts & f, u32 left_out);

void follow_branch(const instruction * i, wave & w, const facts & f);

// ---- Numbers that are none (numbers.cpp)

std::vector<float_step> float_steps_of(const definition & d, std::string_view name);
void check_numbers(const instruction * i, wave & w, const facts & f);

// ---- What checks ask of the machine.

// Says that instruction i did this; `other` is the number of the instruction that it conflicts with. Counted once
// per place.
void report(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other = nullptr);

// The same for what is worth knowing, and no fault.
void report_note(const instruction * i, wave & w, const char * kind, const std::string & what);

// The same for a conflict by a write that changes nothing: decided when the launch is over. `other` is a number.
void note_hidden(const instruction * i, wave & w, const std::string & what, u32 other);

// An access was left out, without which the kernel may wait for ever.
void note_left_out(wave & w);
bool is_refused(const wave & w, u64 address); // see memory_map

// The same for what is a finding only if the host gets to see it: the number to ask for it by, see memory_range.
u32 hold_back(const instruction * i, wave & w, const char * kind, const std::string & what, const u32 * other);

// A wave of this worker's to try instructions with.
wave & spare_wave(wave & w);

std::string describe(const wave & w, u64 address, u32 size);
bool is_of_code(const wave & w, u64 address); // of the code object that runs, code or data
block_checks & checks_of(const wave & w);

} // namespace patchkit::gpu
