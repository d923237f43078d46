#include "global_races.hpp"

#include "access.hpp"
#include "check_state.hpp"
#include "executor.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace patchkit::gpu {

void pass_store_wait(wave & w) {
    block_traces & b = checks_of(w).memory;
    b.has_waited = true;
    b.unwaited &= ~(1u << w.number);
}

// After a fence, other waves' accesses are ordered before the next ones. Compilers omit the wait before it if the wave
// stored nothing.
void pass_fence(wave & w) {
    block_traces & b = checks_of(w).memory;
    if (b.all != nullptr) {
        b.has_waited |= (b.unwaited >> w.number & 1) == 0;
        b.know_what_was_noticed();
    }
}

namespace {

constexpr size_t most_atomics = 1 << 16;

// ---- The accesses of one instruction of one wave

struct toucher {
    const instruction * i;
    wave & w;
    const facts & f;
    block_traces & b;
    launch_traces & all;
    u64 own, own_before; // touches of the block under its current and previous number, without bytes
    u64 floor, first;
    u64 of_wave; // with wave and epoch
    bool is_store;
    bool may_see; // a signal
    bool is_release; // a store by a wave that has waited for its earlier ones

    toucher(const instruction * i, wave & w, const facts & f, block_traces & b, bool is_release = false)
        : i(i), w(w), f(f), b(b), all(*b.all), own(touch::made(b.who, 0)), own_before(touch::made(b.previous, 0)),
          floor(touch::made(all.order.floor, 0)), first(touch::made(all.order.first, 0)),
          of_wave(u64(w.number) << touch::wave_at | u64(b.epoch & touch::epoch_mask) << touch::epoch_at),
          is_store(f.is_store), may_see(f.is_flag || f.acquires), is_release(is_release) {}

    // Includes earlier numbers of the block: waves get numbers in turn.
    bool is_mine(u64 t) const { return is_own(t) || touch::who(t) - b.run <= b.who - b.run; }
    bool is_free(u64 t) const { return t < floor || is_mine(t); }
    // Also not touched by another wave since the last barrier.
    bool is_clear(u64 t) const { return t < floor || (is_mine(t) && !is_of_others(t)); }
    // All writes by others are known to come before.
    bool is_kept(u64 t) const { return t < floor || ((t >> touch::bytes_at & 15) == 15 && is_mine(t)); }
    u64 trace(u32 bytes) const {
        return own | u64(bytes) << touch::bytes_at | of_wave | (i->number & touch::instruction_mask);
    }
    bool is_alike(u64 t) const { return ((t ^ of_wave) & touch::of_wave_mask) == 0; }
    // By a wave of the block since its last barrier, and not only by this one.
    bool is_recent(u64 t) const { return touch::epoch(t) == b.epoch && touch::who(t) >= b.since && is_mine(t); }
    bool is_of_others(u64 t) const { return !is_alike(t) && is_recent(t); }
    // Whether recording this read would add nothing.
    bool is_told(u64 before, u64 bytes) const {
        return is_own(before) && (before & bytes) == bytes &&
               (is_alike(before) || (touch::is_several(before) && touch::epoch(before) == b.epoch));
    }
    // The touch to record for a read if the block's last one is known. Parts of a dword that belong to different waves
    // or epochs count as belonging to none.
    u64 joined_read(u64 before, u64 now) const {
        constexpr u64 bytes = u64(15) << touch::bytes_at;
        if (is_of_others(before)) {
            if ((before & bytes) == (now & bytes)) {
                return before | touch::several_bit;
            }
            if ((now & ~before & bytes) == 0) {
                return before;
            }
        }
        const u64 more = touch::who(before) == b.who ? before & ~now & bytes : 0;
        return more == 0 || is_alike(before) ? now | more : (now | more) & ~touch::of_wave_mask;
    }
    bool is_own(u64 t) const { return touch::who(t) == b.who || touch::who(t) == b.previous; }
    bool is_of_launch(u64 t) const { return t >= first; }
};

u64 get(const u64 & from) { return __atomic_load_n(&from, __ATOMIC_RELAXED); }
void put(u64 & to, u64 value) { __atomic_store_n(&to, value, __ATOMIC_RELAXED); }

// ---- Whole dwords without possible conflicts: the usual case, without a branch per dword. Returns false, without
// recording anything, if that is not the case.

template <int n> using group = vector_of<u64, n>;

template <int n> group<n> load(const u64 * from) {
    group<n> result;
    std::memcpy(&result, from, sizeof(result));
    return result;
}
template <int n> void store(u64 * to, const group<n> & value) { std::memcpy(to, &value, 8 * n); }

template <int n> bool all_of(const group<n> & holds) { return __builtin_reduce_and(holds) != 0; }

template <int n> group<n> is_own(const toucher & t, const group<n> & touches) {
    return group<n>(((touches ^ t.own) >> touch::who_at) == 0) |
           group<n>(((touches ^ t.own_before) >> touch::who_at) == 0);
}

template <int n> group<n> is_mine(const toucher & t, const group<n> & touches) {
    const u64 run = t.b.run;
    return is_own<n>(t, touches) | group<n>(((touches >> touch::who_at) - run) <= splat<group<n>>(t.b.who - run));
}

// For touches of the block: whether they are by other waves since the last barrier.
template <int n> group<n> is_of_others(const toucher & t, const group<n> & touches) {
    const u64 since = t.b.since;
    return group<n>((touches >> touch::epoch_at & touch::epoch_mask) == u64(t.b.epoch)) &
           group<n>((touches >> touch::who_at) - since <= splat<group<n>>(t.b.who - since)) &
           group<n>(((touches ^ t.of_wave) & touch::of_wave_mask) != 0);
}

template <int n> group<n> is_whole(const group<n> & touches) {
    return group<n>((touches >> touch::bytes_at & 15) == 15);
}

// `values`: the stored values.
template <int n> bool touch_group(const toucher & t, const traces & to, size_t at, const u32 * values) {
    const group<n> written = load<n>(to.written + at), read = load<n>(to.read + at);
    const group<n> is_kept = is_mine<n>(t, written) & is_whole<n>(written) & ~is_of_others<n>(t, written);
    if (!all_of<n>(group<n>(written < t.floor) | is_kept)) {
        return false;
    }
    const group<n> now = splat<group<n>>(t.trace(15));
    const group<n> own_read = is_own<n>(t, read), free = group<n>(read < t.floor) | is_mine<n>(t, read);
    const group<n> is_others_read = is_mine<n>(t, read) & is_of_others<n>(t, read);
    if (t.is_store) {
        const group<n> too = load<n>(to.read_too + at);
        const group<n> is_clear = group<n>(too < t.floor) | (is_mine<n>(t, too) & ~is_of_others<n>(t, too));
        if (!all_of<n>(free & ~is_others_read & is_clear)) {
            return false;
        }
        std::memcpy(to.stored + at, values, n * sizeof(u32));
        store<n>(to.written + at, now);
        return true;
    }
    if (!all_of<n>(free | group<n>(read >= t.first))) {
        return false;
    }
    const group<n> is_told = group<n>(((read ^ t.of_wave) & touch::of_wave_mask) == 0) |
                             (is_others_read & group<n>((read & touch::several_bit) != 0));
    if (all_of<n>(own_read & is_whole<n>(read) & is_told)) {
        return true;
    }
    const auto joined = [&](const group<n> & before, const group<n> & is_of_others) {
        const group<n> by_several = is_of_others & is_whole<n>(before);
        return (by_several & (before | touch::several_bit)) | (~by_several & now);
    };
    store<n>(to.read + at, (free & joined(read, is_others_read)) | (~free & read));
    if (!all_of<n>(free)) {
        const group<n> too = load<n>(to.read_too + at), mine = is_mine<n>(t, too);
        const group<n> takes = ~free & (group<n>(too < t.floor) | mine);
        store<n>(to.read_too + at, (takes & joined(too, mine & is_of_others<n>(t, too))) | (~takes & too));
    }
    return true;
}

// ---- One dword, in the general case.

struct dword {
    const traces & to;
    size_t at;
    u64 place;   // address of the access, which may start before the dword
    u32 bytes;   // accessed bytes
    u32 value;   // value to store, at its position in the dword
    const memory_range & range;

    u64 address() const { return to.begin + 4 * at; }
};

bool is_in_memory(const dword & d) {
    u32 there = 0;
    for (u32 k = 0; k < 4; ++k) {
        if ((d.bytes >> k & 1) != 0) {
            u8 byte;
            std::memcpy(&byte, reinterpret_cast<const void *>(d.address() + k), 1);
            there |= u32(byte) << (8 * k);
        }
    }
    return there == d.value;
}

bool is_before(const toucher & t, u64 other) {
    return other < t.floor || (other < t.first && t.all.order.is_behind(touch::who(other)));
}

std::string words_of(const toucher & t, const dword & d, const char * did, u64 other) {
    const bool is_of_launch = t.is_of_launch(other);
    const dimensions & me = t.w.on->block_index(t.w);
    const std::string verb = t.f.is_atomic ? "changes " : t.is_store ? "writes " : "reads ";
    std::string who;
    if (is_of_launch) {
        who = "block (" + std::to_string(me.x) + ", " + std::to_string(me.y) + ", " + std::to_string(me.z) + ") ";
    }
    const u64 byte = d.address() + u64(std::countr_zero(d.bytes)) - d.range.begin;
    return who + verb + "byte " + std::to_string(byte) + " of an allocation of " +
           std::to_string(d.range.end - d.range.begin) + " bytes, which " +
           t.w.on->describe_touch(other, is_of_launch ? t.all.block_of(touch::who(other)) : 0) + did +
           ": the two are not ordered";
}

// The other block may be about to store the same value. On a busy machine, its thread waits to be scheduled: 256 yields
// were not enough on 2026-11-25 (two cores, seven processes), and blocks that store the same f16 values were reported
// to race.
bool comes_to_memory(const dword & d) {
    using namespace std::chrono_literals;
    // Budget per process. If it is used up, a hundred dwords had real races, which were reported. Waiting that was
    // justified is refunded.
    static std::atomic<int> patience = 20000; // ms
    for (int n = 0; n < 100; ++n) {
        if (is_in_memory(d)) {
            return true;
        }
        std::this_thread::yield();
    }
    int taken = 0;
    while (taken < 200 && !is_in_memory(d) && patience.fetch_sub(1, std::memory_order_relaxed) > 0) {
        ++taken;
        std::this_thread::sleep_for(1ms);
    }
    if (!is_in_memory(d)) {
        return false;
    }
    patience.fetch_add(taken, std::memory_order_relaxed);
    return true;
}

void conflict(const toucher & t, const dword & d, const char * did, u64 other) {
    const checks & wanted = t.w.checks->wanted;
    if (t.is_of_launch(other) ? wanted.races : wanted.asynchrony) {
        t.w.on->report_touch(t.i, t.w, t.is_of_launch(other) ? kinds::races : kinds::asynchrony,
                             words_of(t, d, did, other), other);
    }
}

void meet_writer(const toucher & t, const dword & d, u64 other) {
    if ((touch::bytes(other) & d.bytes) == 0 || t.is_own(other) || is_before(t, other)) {
        return;
    }
    const bool was_atomic = touch::is_atomic(other);
    const char * const did = was_atomic ? " changed" : " wrote";
    const u32 who = touch::who(other);
    if (t.is_store && was_atomic && t.f.is_atomic) {
        return;
    }
    if (!t.is_of_launch(other)) {
        const bool is_same = t.is_store && !t.f.is_atomic && is_in_memory(d);
        if (!is_same && !t.may_see) {
            conflict(t, d, did, other);
        }
        return;
    }
    if (t.all.block_of(who) == t.b.block) {
        return;
    }
    if (!t.is_store) {
        // Many kernels read by a plain load what others change by atomics before they do an atomic themselves.
        if (!t.may_see && !was_atomic && !t.all.knows(t.b.block, who, false)) {
            conflict(t, d, did, other);
        }
        return;
    }
    // A flag that is set by a store and read by atomics, before it is set or after; a lock that is released by a store.
    const bool is_flag = t.f.is_atomic && !t.f.writes.is_empty() && !t.all.is_first_of_block(who);
    if (is_flag) { // the atomic takes the place of the store in the trace
        t.b.notice(d.address(), who);
    }
    const bool is_set = t.is_release && !t.all.is_first_of_block(t.b.who) && t.all.is_polled(d.place);
    const bool is_lock = was_atomic && (is_set || t.b.was_atomic(d.place));
    // The block observed a value there and writes the next one, as in a chain of blocks.
    const auto seen = t.b.flags.find(d.address());
    const bool is_next = seen != t.b.flags.end() && seen->second == who;
    if (is_flag || is_lock || is_next || t.all.knows(t.b.block, who, false)) {
        return;
    }
    const bool is_alike = d.bytes == 15 && touch::bytes(other) == 15 &&
                          __atomic_load_n(&d.to.stored[d.at], __ATOMIC_RELAXED) == d.value;
    const bool is_same =
        !t.f.is_atomic && !was_atomic && (is_alike || !t.w.checks->wanted.races || comes_to_memory(d));
    if (!is_same) {
        conflict(t, d, did, other);
    }
}

void meet_reader(const toucher & t, const dword & d, u64 other) {
    if ((touch::bytes(other) & d.bytes) == 0 || t.is_own(other) || is_before(t, other)) {
        return;
    }
    const bool is_of_launch = t.is_of_launch(other);
    const u32 who = touch::who(other);
    if (is_of_launch && (t.f.is_atomic || t.all.block_of(who) == t.b.block)) {
        return;
    }
    if ((t.f.is_atomic || !is_in_memory(d)) && !(is_of_launch && t.all.knows(t.b.block, who, true))) {
        conflict(t, d, " read", other);
    }
}

// ---- Waves of one block, as in LDS.

std::string words_of_waves(const toucher & t, const dword & d, const char * did, u64 other) {
    const std::string verb = t.f.is_atomic ? "changes " : t.is_store ? "writes " : "reads ";
    const std::string who = touch::is_several(other) ? "other waves" : "wave " + std::to_string(touch::wave(other));
    const u64 byte = d.address() + u64(std::countr_zero(d.bytes)) - d.range.begin;
    return verb + "byte " + std::to_string(byte) + " of an allocation of " +
           std::to_string(d.range.end - d.range.begin) + " bytes, which " + who + did + " without a barrier in between";
}

void conflict_of_waves(const toucher & t, const dword & d, const char * did, u64 other) {
    if (t.is_store && !t.f.is_atomic && is_in_memory(d)) { // waves that always write equal values are harmless
        if (checks_of(t.w).is_new_hidden(t.i->number, touch::instruction(other))) {
            t.w.on->note_hidden(t.i, t.w, words_of_waves(t, d, did, other), touch::instruction(other));
        }
    } else if (t.w.checks->wanted.races) {
        t.w.on->report_touch(t.i, t.w, kinds::races, words_of_waves(t, d, did, other), other);
    }
}

// Reported if the waves that looked (bit mask) do not continue with an atomic there.
void hold_look(const toucher & t, const dword & d, const char * did, u64 other, u32 readers, u32 look, bool is_any) {
    if (t.w.checks->wanted.races) {
        hold_look(checks_of(t.w), {d.address(), readers, look, t.i, t.w.number, words_of_waves(t, d, did, other), other,
                                   true, is_any});
    }
}

// Whether a wave's access comes before what this one does now, by signals that it observed.
bool is_met(const toucher & t, u64 other) {
    const u32 n = touch::wave(other);
    const wave_checks & c = *t.w.checks;
    return (c.met >> n & 1) != 0 && touch::who(other) < c.seen_below[n];
}

void meet_writing_wave(const toucher & t, const dword & d, u64 other) {
    if ((touch::bytes(other) & d.bytes) == 0 || !t.is_of_others(other)) {
        return;
    }
    wave_checks & c = *t.w.checks;
    const u32 writer = 1u << touch::wave(other);
    const bool was_atomic = touch::is_atomic(other);
    // A signal covers what was done before a wait for earlier stores. Waves that share a cache need not wait.
    const auto see = [&](bool at_once) {
        const block_checks & b = checks_of(t.w);
        c.see(touch::wave(other), b.waves[touch::wave(other)], b.is_spread ? touch::who(other) : ~0u, at_once);
    };
    if (t.f.is_atomic && was_atomic) {
        see(false);
        return;
    }
    if (!t.is_store && t.may_see) {
        see(t.f.acquires);
        return;
    }
    if (is_met(t, other)) {
        return;
    }
    if (!t.is_store) {
        if (was_atomic) {
            hold_look(t, d, " changed", other, 1u << t.w.number, t.i->number, false);
        } else {
            conflict_of_waves(t, d, " wrote", other);
        }
        return;
    }
    // As between blocks: a flag set by a store and read by atomics, a lock that is released, and the next value after
    // the observed one.
    if (t.f.is_atomic && !t.f.writes.is_empty() && !t.all.is_first_of_block(touch::who(other))) {
        see(false);
        return;
    }
    const bool is_lock = was_atomic && (t.b.recent_atomics_at(d.place).waves >> t.w.number & 1) != 0;
    if (is_lock || (c.seen & writer) != 0) {
        return;
    }
    conflict_of_waves(t, d, was_atomic ? " changed" : " wrote", other);
}

void meet_reading_wave(const toucher & t, const dword & d, u64 & place) {
    const u64 other = get(place);
    const bool meets = (touch::bytes(other) & d.bytes) != 0 && t.is_of_others(other);
    const bool is_several = touch::is_several(other);
    // Reads are complete when a signal is given under the same number.
    const bool is_before = is_several ? t.w.checks->met != 0 : (t.w.checks->met >> touch::wave(other) & 1) != 0;
    if (meets && !is_before) {
        if (t.f.is_atomic) {
            const u32 me = 1u << t.w.number, looking = t.b.recent_atomics_at(d.address()).looking & ~me;
            const bool is_any = is_several && looking == 0;
            const u32 readers = is_any ? ~me : is_several ? looking : 1u << touch::wave(other);
            hold_look(t, d, " read", other, readers, touch::instruction(other), is_any);
        } else {
            conflict_of_waves(t, d, " read", other);
        }
    }
    // A look that is followed by an atomic on the same place needs no order.
    if (t.f.is_atomic && t.is_recent(other) && (is_several || touch::wave(other) == t.w.number)) {
        put(place, other & ~(touch::epoch_mask << touch::epoch_at));
    }
}

void note_writer(const toucher & t, const dword & d) {
    u64 & first = d.to.written[d.at];
    const u64 now = t.trace(d.bytes) | (t.f.is_atomic ? touch::atomic_bit : 0);
    if (d.bytes == 15) {
        __atomic_store_n(&d.to.stored[d.at], d.value, __ATOMIC_RELAXED);
    }
    u64 before = get(first);
    for (;;) {
        const bool is_own = touch::who(before) == t.b.who;
        u64 wanted = now;
        if (is_own && t.f.is_atomic && !touch::is_atomic(before)) {
            return; // a plain store stays recorded despite an atomic
        }
        if (is_own) {
            const u64 more = before & ~now & u64(15) << touch::bytes_at;
            // A part of another wave or epoch; recorded separately if there is room.
            if (more != 0 && !t.is_alike(before)) {
                u64 & too = d.to.written_too[d.at];
                if (const u64 there = get(too); t.is_free(there)) {
                    const u64 parts = t.is_own(there) ? there & ~before & u64(15) << touch::bytes_at : 0;
                    put(too, parts == 0 ? before : (before | parts) & ~touch::of_wave_mask);
                } else {
                    wanted = (now | more) & ~touch::of_wave_mask;
                }
            } else {
                wanted |= more;
            }
        } else if (d.bytes != 15 && t.is_of_launch(before) && (touch::bytes(before) & d.bytes) == 0) {
            u64 & too = d.to.written_too[d.at]; // two blocks with a part each
            const u64 there = get(too);
            put(too, touch::who(there) == t.b.who ? now | (there & (u64(15) << touch::bytes_at)) : now);
            return;
        }
        if (__atomic_compare_exchange_n(&first, &before, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return;
        }
    }
}

void note_reader(const toucher & t, const dword & d) {
    u64 &first = d.to.read[d.at], &second = d.to.read_too[d.at];
    const u64 now = t.trace(d.bytes), one = get(first), two = get(second);
    const auto takes = [&](u64 & place, u64 there) {
        const bool is_own = t.is_own(there);
        const bool is_free = is_own || there < t.floor || is_before(t, there);
        if (is_free) {
            put(place, t.joined_read(there, now));
        }
        return is_free;
    };
    if (!takes(first, one) && !takes(second, two) && !t.is_of_launch(one) && !t.is_of_launch(two)) {
        put(second, now); // of three operations, the last two
    }
}

void touch_dword(const toucher & t, const dword & d) {
    const u64 written = get(d.to.written[d.at]);
    meet_writer(t, d, written);
    // Scalar loads of stores of the same block are handled separately.
    const bool has_waves = t.b.epoch != block_traces::untracked && t.f.where != space::scalar;
    if (has_waves) {
        meet_writing_wave(t, d, written);
    }
    if (touch::bytes(written) != 15) {
        const u64 too = get(d.to.written_too[d.at]);
        meet_writer(t, d, too);
        if (has_waves) {
            meet_writing_wave(t, d, too);
        }
    }
    if (t.is_store) {
        meet_reader(t, d, get(d.to.read[d.at]));
        meet_reader(t, d, get(d.to.read_too[d.at]));
        if (has_waves) {
            meet_reading_wave(t, d, d.to.read[d.at]);
            meet_reading_wave(t, d, d.to.read_too[d.at]);
        }
        note_writer(t, d);
    } else if (!t.may_see) { // a block that writes a flag need not wait for its readers
        note_reader(t, d);
    }
}

// The access of one lane, which may start and end within dwords.
void touch_lane(const toucher & t, const memory_range & range, u64 place, const u32 * values, int lane, int shift) {
    const traces & to = *range.traced;
    const u64 end = place + t.f.size;
    for (u64 at = place; at < end;) {
        const u64 next = std::min(end, at / 4 * 4 + 4);
        const u32 bytes = ((1u << (next - at)) - 1) << (at % 4);
        u32 value = 0;
        if (t.is_store && !t.f.is_atomic) {
            u8 stored[4]{};
            for (u64 k = at; k < next; ++k) {
                const u64 n = k - place;
                const u32 word = values[n / 4 * lanes + u64(lane)] >> shift;
                stored[k % 4] = u8(word >> (8 * (n % 4)));
            }
            std::memcpy(&value, stored, 4);
        }
        touch_dword(t, {to, (at - to.begin) / 4, place, bytes, value, range});
        at = next;
    }
}

// Records an atomic or a flag, and the order that it establishes.
void meet(const toucher & t, u64 place) {
    if (t.f.is_atomic) {
        if (t.b.atomics.size() < most_atomics) {
            t.b.note_atomic(place, t.w.number);
        }
        redeem_looks(checks_of(t.w), place, t.f.size, t.w.number);
        t.all.give_sign(place, t.b.block, t.b.who);
    } else if (t.is_store && t.b.was_atomic(place)) {
        t.all.give_sign(place, t.b.block, t.b.who);
    } else if (!t.is_store && !t.may_see) {
        t.b.note_look(place, t.w.number);
    }
    const bool is_poll = t.f.is_atomic && !t.f.writes.is_empty();
    if (is_poll) {
        t.all.note_poll(place);
    }
    if (t.may_see || is_poll) {
        t.b.looked_at.push_back(place);
    }
}

// The scalar cache is not coherent with vector stores. Many kernels read what is changed by atomics before they do an
// atomic themselves.
void look_for_own_stores(const toucher & t, const memory_range & range, u64 place) {
    for (u64 at = place / 4 * 4; at < place + t.f.size; at += 4) {
        const u64 written = get(range.traced->written[(at - range.traced->begin) / 4]);
        const bool is_store = t.is_of_launch(written) && !touch::is_atomic(written);
        if (is_store && t.all.block_of(touch::who(written)) == t.b.block && t.w.checks->wanted.races) {
            t.w.on->report_touch(t.i, t.w, kinds::races,
                                 "the wave reads byte " + std::to_string(at - range.begin) + " of an allocation of " +
                                     std::to_string(range.end - range.begin) +
                                     " bytes by a scalar load, which its own block wrote: scalar loads do not see such writes",
                                 written);
            return;
        }
    }
}

// For host memory, the runtime needs to know which part was accessed by a kernel.
void note_touched(const memory_range & range, u64 place, u64 size) {
    if (range.is_host) [[unlikely]] {
        range.traced->note((place - range.traced->begin) / 4, (place + size + 3 - range.traced->begin) / 4);
    }
}

// Lanes that access adjacent whole dwords.
template <int words> bool touch_row(const toucher & t, const memory_range & range, u64 place, operand data) {
    for (int n = 0; n < words; ++n) {
        alignas(128) u32 row[lanes];
        if (t.is_store) { // the data is ordered by lane
            const u32 * values = reinterpret_cast<const u32 *>(&vector_at(t.w, data));
            for (int k = 0; k < lanes; ++k) {
                const int at = n * lanes + k;
                row[k] = values[at % words * lanes + at / words];
            }
        }
        if (!touch_group<lanes>(t, *range.traced, (place - range.traced->begin) / 4 + size_t(n) * lanes, row)) {
            return false;
        }
    }
    return true;
}

// Adds a reader, if this needs no comparison of operation order.
bool read_quickly(const toucher & t, const traces & to, size_t at, u64 now) {
    const u64 read = get(to.read[at]), bytes = now & u64(15) << touch::bytes_at;
    const auto note = [&](u64 & place, u64 there) {
        if (!t.is_told(there, bytes)) {
            put(place, t.joined_read(there, now));
        }
    };
    if (t.is_free(read)) {
        note(to.read[at], read);
        return true;
    }
    if (read < t.first) {
        return false;
    }
    if (const u64 too = get(to.read_too[at]); t.is_free(too)) {
        note(to.read_too[at], too);
    }
    return true;
}

// Scattered loads from one allocation: first checks for conflicts of all lanes at once, then records them. Returns
// false, without recording anything, if there may be a conflict.
bool read_scattered(const toucher & t, const memory_range & range, const u64x & addresses, u32 exec) {
    const u32 size = t.f.size;
    const u64x starts = addresses - range.traced->begin;
    const u32 is_split = size < 4        ? lane_bits((starts & 3) + size > 4)
                         : size % 4 == 0 ? lane_bits((starts & 3) != 0)
                                         : ~0u;
    if ((is_split & exec) != 0 || lanes_outside(range, addresses, size, exec) != 0) {
        return false;
    }
    const traces & to = *range.traced;
    // Inactive lanes use the place of an active one.
    const u64x dwords = (exec == ~0u ? starts : lane_mask_wide(exec) ? starts : splat<u64x>(starts[std::countr_zero(exec)])) >> 2;
    const u64x parts = size < 4 ? splat<u64x>((u64(1) << size) - 1) << (starts & 3) : splat<u64x>(15);
    const u64x bytes = parts << touch::bytes_at;
    const u32 words = std::max(size / 4, u32(1));
    u64x first; // of the last dword
    for (u32 n = 0; n < words; ++n) {
        const u64x written = gathered(to.written + n, dwords);
        first = gathered(to.read + n, dwords);
        const u64x is_written_before = u64x(written < t.floor) | (is_mine<lanes>(t, written) & is_whole<lanes>(written) &
                                                                  ~is_of_others<lanes>(t, written));
        const u64x is_read_before = u64x(first < t.floor) | u64x(first >= t.first) | is_mine<lanes>(t, first);
        if ((lane_bits((is_written_before & is_read_before) == 0) & exec) != 0) {
            return false;
        }
    }
    alignas(256) u64 at[lanes], part[lanes];
    std::memcpy(at, &dwords, sizeof(at));
    std::memcpy(part, &bytes, sizeof(part));
    const u64 now = t.trace(0);
    const auto is_taken = [&](const u64x & touches) { return u64x(touches < t.floor) | is_mine<lanes>(t, touches); };
    for (u32 n = 0; n < words; ++n) {
        first = words == 1 ? first : gathered(to.read + n, dwords);
        const u64x is_first = is_taken(first);
        const u32 others = lane_bits(is_first == 0) & exec;
        const u64x before = others == 0 ? first : is_first != 0 ? first : gathered(to.read_too + n, dwords);
        const u64x is_told = is_own<lanes>(t, before) & u64x((before & bytes) == bytes) &
                             (u64x(((before ^ t.of_wave) & touch::of_wave_mask) == 0) |
                              (u64x((before & touch::several_bit) != 0) &
                               u64x((before >> touch::epoch_at & touch::epoch_mask) == u64(t.b.epoch))));
        const u32 fresh = lane_bits((is_taken(before) & ~is_told) != 0) & exec;
        if (fresh == 0) {
            continue;
        }
        // Lanes that access parts of one dword affect each other.
        const bool is_simple =
            size >= 4 && (lane_bits((is_mine<lanes>(t, before) & is_of_others<lanes>(t, before)) != 0) & fresh) == 0;
        for (u32 left = size < 4 ? exec : fresh; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            u64 & own = to.read[at[lane] + n];
            if (is_simple) {
                put((others >> lane & 1) != 0 ? to.read_too[at[lane] + n] : own, now | part[lane]);
                continue;
            }
            const u64 there = get(own);
            u64 & place = there < t.floor || t.is_mine(there) ? own : to.read_too[at[lane] + n];
            const u64 latest = get(place);
            if ((latest < t.floor || t.is_mine(latest)) && !t.is_told(latest, part[lane])) {
                put(place, t.joined_read(latest, now | part[lane]));
            }
        }
    }
    return true;
}

// As touch_group(), for one lane.
bool touch_words(const toucher & t, const traces & to, size_t at, u32 words, const u32 * values, int lane) {
    for (u32 n = 0; n < words; ++n) {
        const u64 written = get(to.written[at + n]);
        if (!t.is_kept(written) || t.is_of_others(written)) {
            return false;
        }
        if (t.is_store && !(t.is_clear(get(to.read[at + n])) && t.is_clear(get(to.read_too[at + n])))) {
            return false;
        }
    }
    const u64 now = t.trace(15);
    for (u32 n = 0; n < words; ++n) {
        if (t.is_store) {
            __atomic_store_n(&to.stored[at + n], values[n * lanes + u32(lane)], __ATOMIC_RELAXED);
            put(to.written[at + n], now);
        } else if (!t.is_told(get(to.read[at + n]), u64(15) << touch::bytes_at) && !read_quickly(t, to, at + n, now)) {
            return false;
        }
    }
    return true;
}

// The same for some bytes of a dword.
bool touch_part(const toucher & t, const traces & to, size_t at, u32 bytes) {
    u64 written = get(to.written[at]);
    const u64 too = get(to.written_too[at]);
    const bool is_alone = t.is_kept(written) || (t.is_own(written) && t.is_free(too) && !t.is_of_others(too));
    if (!is_alone || t.is_of_others(written)) {
        return false;
    }
    const u64 now = t.trace(bytes);
    if (!t.is_store) {
        return read_quickly(t, to, at, now);
    }
    if (!t.is_clear(get(to.read[at])) || !t.is_clear(get(to.read_too[at]))) {
        return false;
    }
    const u64 more = t.is_own(written) ? written & ~now & u64(15) << touch::bytes_at : 0;
    if (more != 0 && !t.is_alike(written)) {
        return false;
    }
    const u64 wanted = now | more;
    return __atomic_compare_exchange_n(&to.written[at], &written, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void touch_lanes(const toucher & t, const u64x & addresses, u32 exec, operand data, bool has_data) {
    const u32 size = t.f.size;
    const bool is_simple = !t.f.is_atomic && !t.may_see;
    const bool is_seldom_atomic = t.is_store || !t.b.has_atomics();
    memory_range range = remembered_range(t.i, t.w);
    const u64 start = addresses[0];
    if (is_simple && is_seldom_atomic && exec == ~0u && start % 4 == 0 && range.holds(start, u64(size) * lanes) &&
        !any(addresses != convert<u64x>(lane_numbers()) * u64(size) + start)) {
        if (range.traced == nullptr) {
            return;
        }
        if (size == 4    ? touch_row<1>(t, range, start, data)
            : size == 8  ? touch_row<2>(t, range, start, data)
            : size == 16 ? touch_row<4>(t, range, start, data)
            : t.is_store ? false
            : size == 2  ? touch_group<lanes / 2>(t, *range.traced, (start - range.traced->begin) / 4, nullptr)
            : size == 1  ? touch_group<lanes / 4>(t, *range.traced, (start - range.traced->begin) / 4, nullptr)
                         : false) {
            note_touched(range, start, u64(size) * lanes);
            return;
        }
    }
    if (is_simple && is_seldom_atomic && !t.is_store && range.traced != nullptr && !range.is_host &&
        read_scattered(t, range, addresses, exec)) {
        return;
    }
    alignas(256) u64 places[lanes];
    std::memcpy(places, &addresses, sizeof(places));
    const u32 * const values = has_data ? reinterpret_cast<const u32 *>(&vector_at(t.w, data)) : nullptr;
    const int shift = has_data && (t.f.is_high || data.is(operand::high)) ? 16 : 0;
    u64 before = 0;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const u64 place = places[lane];
        if (place == before) {
            continue;
        }
        before = t.is_store && !t.f.is_atomic ? 0 : place; // stores of several lanes may differ
        if (!range.holds(place, size)) {
            if (!t.w.on->look_for_range(t.i, t.w, place, size)) {
                continue;
            }
            range = remembered_range(t.i, t.w);
        }
        if (t.f.is_atomic || t.may_see || (t.is_store ? !t.b.atomics.empty() : t.b.has_atomics())) {
            meet(t, place);
        }
        if (range.traced == nullptr) {
            continue;
        }
        note_touched(range, place, size);
        const size_t at = (place - range.traced->begin) / 4;
        const bool is_whole = (place | size) % 4 == 0, is_part = size < 4 && place % 4 + size <= 4;
        if (is_simple && ((is_whole && touch_words(t, *range.traced, at, size / 4, values, lane)) ||
                          (is_part && touch_part(t, *range.traced, at, ((1u << size) - 1) << (place % 4))))) {
            continue;
        }
        touch_lane(t, range, place, values, lane, shift);
    }
}

} // namespace

void trace_access(const instruction * i, wave & w, const facts & f, u32 exec) {
    block_traces & b = checks_of(w).memory;
    if (b.all == nullptr || exec == 0) {
        return;
    }
    const instruction * checked = i + 1;
    if (f.where == space::scalar) {
        const u64 place = scalar_address(checked, w) & (f.size < 4 ? ~u64(0) : ~u64(3));
        if (const memory_range range = remembered_range(i, w); range.traced != nullptr) {
            b.is_touching = true;
            const toucher now(i, w, f, b);
            look_for_own_stores(now, range, place);
            touch_lane(now, range, place, nullptr, 0, 0);
            note_touched(range, place, f.size);
        }
        return;
    }
    const u64x addresses = global_addresses(checked, w);
    if (f.where == space::flat) {
        exec &= lane_bits(addresses >> 48 == 0);
        if (exec == 0) {
            return;
        }
    }
    const bool is_release = f.is_store && !f.is_atomic && (b.unwaited >> w.number & 1) == 0;
    if (b.needs_number || (f.is_store && b.has_waited)) {
        if (b.is_touching) { // what it did so far comes before this
            const bool is_first = !b.has_waited && b.all->is_first_of_block(b.who);
            b.previous = b.who;
            b.who = b.all->draw(b.block, is_first);
            b.run = b.who == b.previous + 1 ? b.run : b.who;
        }
        b.since = b.needs_number ? b.who : b.since;
        b.is_touching = b.has_waited = b.needs_number = false;
    }
    if (f.is_store && !f.is_atomic) {
        b.unwaited |= 1u << w.number;
    }
    b.is_touching = true;
    b.looked_at.clear();
    touch_lanes(toucher(i, w, f, b, is_release), addresses, exec, checked->from[role::data], f.is_store);
    // A thread that observes the following store also observes this trace.
    std::atomic_thread_fence(std::memory_order_release);
}

void see_signs(const instruction * i, wave & w, const facts & f) {
    block_traces & b = checks_of(w).memory;
    if (b.all == nullptr || b.looked_at.empty()) {
        return;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool at_once = f.is_atomic || f.acquires;
    for (const u64 place : b.looked_at) {
        if (b.all->has_meetings() && b.noticed_at.size() < block_traces::most_noticed) {
            b.noticed_at.insert(place);
        }
        const instruction * before = i - 2; // the step that found the allocation
        if (!remembered_range(before, w).holds(place, f.size) && !w.on->look_for_range(before, w, place, f.size)) {
            continue;
        }
        const memory_range & range = remembered_range(before, w);
        if (range.traced == nullptr) {
            continue;
        }
        for (u64 at = place / 4 * 4; at < place + f.size; at += 4) {
            const u64 written = get(range.traced->written[(at - range.traced->begin) / 4]);
            const u32 who = touch::who(written);
            const bool is_of_other = who >= b.all->order.first && who != b.who && who != b.previous;
            if (is_of_other && !touch::is_atomic(written)) {
                b.notice(at, who);
            }
        }
    }
    b.looked_at.clear();
    if (at_once) {
        b.know_what_was_noticed();
    }
}

} // namespace patchkit::gpu
