#include "check.hpp"

#include "access.hpp"
#include "bytes.hpp"
#include "executor.hpp"
#include "global_races.hpp"
#include "hidden.hpp"
#include "numbers.hpp"
#include "stale_caches.hpp"
#include "uninitialised.hpp"

#include <algorithm>

namespace patchkit::gpu {

namespace {

// Queues that complete in order, if nothing else is in them.
bool is_in_order(u8 queues) { return queues == queue::vector_load || queues == queue::lds; }

// ---- Waits

void use_of_pending(const instruction * i, wave & w, const facts & f) {
    wave_checks & c = *w.checks;
    for (pending_load & one : c.queue) {
        const register_set & to = one.what->writes;
        if (one.queues == 0 || one.is_told || !to.meets(f.touched)) {
            continue;
        }
        const bool reads = to.meets(f.reads);
        // A later load into the same register, through an in-order queue, also arrives later.
        if (!reads && one.queues == f.queues && is_in_order(f.queues)) {
            continue;
        }
        const std::string name = to.first_of_both(reads ? f.reads : f.writes);
        w.on->report(i, w, kinds::waits,
                     std::string(reads ? "reads " : "overwrites ") + name + " before the load that fills it has finished",
                     &one.number);
        one.is_told = true;
    }
}

// Removes those of the first `count` that are no longer in any queue.
void forget_done(wave_checks & c, size_t count) {
    const auto end = c.queue.begin() + std::ptrdiff_t(count);
    if (!c.overlaps) {
        for (auto one = c.queue.begin(); one != end; ++one) {
            if (one->queues == 0) {
                c.pending.cut(one->what->writes);
            }
        }
        c.pending.renew_hints();
    }
    c.queue.erase(std::remove_if(c.queue.begin(), end, [](const pending_load & one) { return one.queues == 0; }), end);
    if (c.overlaps || c.queue.empty()) {
        c.pending = {};
        for (const pending_load & one : c.queue) {
            c.pending.join(one.what->writes);
        }
        c.overlaps = c.overlaps && !c.queue.empty();
    }
    c.renew_hints();
}

void wait_for(wave_checks & c, const wait & wanted) {
    if (wanted.queues == 0) {
        return;
    }
    u32 count = 0;
    bool is_ordered = true;
    for (const pending_load & one : c.queue) {
        const bool is_meant = (one.queues & wanted.queues) != 0;
        count += is_meant;
        is_ordered &= !is_meant | is_in_order(one.queues);
    }
    // Of work that completes out of order nothing is known until all of it has completed.
    if (count <= wanted.left || (wanted.left != 0 && !is_ordered)) {
        return;
    }
    size_t looked_at = 0;
    for (; count > wanted.left; ++looked_at) {
        pending_load & one = c.queue[looked_at];
        count -= (one.queues & wanted.queues) != 0;
        one.queues &= u8(~wanted.queues);
    }
    forget_done(c, looked_at);
}

// Limit of the counters; a wave waits before more is outstanding.
constexpr size_t most_under_way = 64;

// A flat instruction counts in both queues, but its data arrive through the queue of the memory that its lanes access.
u8 queues_of(const instruction * i, const wave & w, const facts & f) {
    if (f.where != space::flat) {
        return f.queues;
    }
    const u32 exec = w.exec();
    const u32 is_shared = lane_bits(global_addresses(i + 1, w) >> 48 << 48 == shared_aperture) & exec;
    return is_shared == 0 ? f.queues & u8(~queue::lds) : is_shared == exec ? u8(queue::lds) : f.queues;
}

// Each half of a WGP has its own cache: after the wave has waited, its stores are visible to all other waves of the
// block.
void begin_store(const instruction * i, const wave & w, wave_checks & c, const facts & f) {
    const bool is_seen = !f.is_atomic && (f.where == space::global || f.where == space::flat);
    const u64x addresses = is_seen ? global_addresses(i + 1, w) : splat<u64x>(0);
    u32 exec = is_seen ? w.exec() : 0;
    if (f.where == space::flat) {
        exec &= lane_bits(addresses >> 48 == 0);
    }
    c.stores.begin({addresses, exec, f.size, i->number});
}

void begin(const instruction * i, const wave & w, wave_checks & c, const facts & f) {
    if ((f.queues & queue::vector_store) != 0 && checks_of(w).is_spread) {
        begin_store(i, w, c, f);
    }
    // Stores to memory write no register.
    const u8 queues = queues_of(i, w, f) & u8(~queue::vector_store);
    if (queues == 0) {
        return;
    }
    if (c.queue.size() >= most_under_way) {
        const auto oldest = std::find_if(c.queue.begin(), c.queue.end(),
                                         [&](const pending_load & one) { return one.queues == queues; });
        if (oldest != c.queue.end() && is_in_order(queues)) {
            oldest->queues = 0;
            forget_done(c, size_t(oldest - c.queue.begin()) + 1);
        }
    }
    const bool is_in_lds = (queues & queue::lds) != 0 && f.where != space::none;
    c.queue.push_back({&f, queues, false, is_in_lds, i->number});
    const auto is_pending = [&](int n) { return c.pending.holds_vgpr(n); };
    c.overlaps |= !f.slots_written.empty() || std::any_of(f.vgprs_written.begin(), f.vgprs_written.end(), is_pending);
    c.pending.join(f.writes);
    c.hints |= f.writes.hints();
}

// ---- Memory

const char * verb_of(const facts & f) { return f.is_atomic ? "changes " : f.is_store ? "writes " : "reads "; }

std::string goes_to(const facts & f, int lane) {
    const std::string who = lane < 0 ? "the wave" : "lane " + std::to_string(lane);
    return who + " " + verb_of(f) + std::to_string(f.size) + (f.size == 1 ? " byte " : " bytes ");
}

void report_memory(const instruction * i, wave & w, const std::string & what) {
    if (w.checks->wanted.memory) {
        w.on->report(i, w, kinds::memory, what);
    }
}

const char * what_is_constant(const wave & w, u64 address) {
    return w.on->is_of_code(address) ? "code or constants" : "the arguments of the kernel";
}

// Lanes whose access is outside of any allocation; reports the first of them.
u32 outside_of_allocations(const instruction * i, wave & w, const facts & f, const u64x & addresses, u32 exec) {
    const u32 unsure = lanes_outside(remembered_range(i, w), addresses, f.size, exec);
    u32 outside = 0;
    for (u32 left = unsure; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        if (!remembered_range(i, w).holds(addresses[lane], f.size) &&
            !w.on->look_for_range(i, w, addresses[lane], f.size)) {
            outside |= 1u << lane;
        }
    }
    if (outside != 0) {
        const int lane = std::countr_zero(outside);
        if (w.on->is_refused(addresses[lane])) [[unlikely]] {
            w.on->find_range(i + 1, w, addresses[lane], f.size, lane);
        }
        report_memory(i, w,
               goes_to(f, lane) + "at " + hex(addresses[lane]) + ", " + w.on->describe(addresses[lane], f.size));
    }
    const u32 rest = exec & ~outside;
    if (f.is_store && rest != 0 && remembered_range(i, w).is_constant) {
        const u32 constant = rest & ~lanes_outside(remembered_range(i, w), addresses, f.size, rest);
        const int lane = std::countr_zero(constant);
        report_memory(i, w, goes_to(f, lane) + "at " + hex(addresses[lane]) + ", which kernels must not change: " +
                                what_is_constant(w, addresses[lane]));
        outside |= constant;
    }
    return outside;
}

u32 outside_of(const instruction * i, wave & w, const facts & f, const u32x & offsets, u32 exec, u32 size,
               const char * where) {
    const u32 outside = (size < f.size ? ~0u : lane_bits(offsets > size - f.size)) & exec;
    if (outside != 0) {
        const int lane = std::countr_zero(outside);
        report_memory(i, w,
               goes_to(f, lane) + "at byte " + std::to_string(i32(offsets[lane])) + " of " + where + ", which has " +
                   std::to_string(size));
    }
    return outside;
}

u32 misaligned(const instruction * i, wave & w, const facts & f, const u64x & places, u32 exec) {
    const u32 wrong = lane_bits((places & u64(f.size - 1)) != 0) & exec;
    if (wrong != 0) {
        const int lane = std::countr_zero(wrong);
        report_memory(i, w,
               goes_to(f, lane) + "by an atomic at " + hex(places[lane]) + ", which is not a multiple of " +
                   std::to_string(f.size));
    }
    return wrong;
}

// Lanes for which the instruction after the check must be skipped.
u32 bad_lanes(const instruction * i, wave & w, const facts & f) {
    const instruction * checked = i + 1;
    const u32 exec = w.exec();
    u32 bad = 0;
    switch (f.where) {
        case space::global:
        case space::flat: {
            const u64x addresses = global_addresses(checked, w);
            u32 rest = exec;
            if (f.where == space::flat) {
                const u64x high = addresses >> 48 << 48;
                const u32 is_shared = lane_bits(high == shared_aperture) & exec;
                const u32 is_private = lane_bits(high == private_aperture) & exec;
                const u32x offsets = low_of(addresses);
                rest &= ~(is_shared | is_private);
                bad |= outside_of(i, w, f, offsets, is_shared, w.lds_size, "the LDS of its block");
                bad |= outside_of(i, w, f, offsets, is_private, w.scratch_size, "its scratch");
            }
            bad |= outside_of_allocations(i, w, f, addresses, rest);
            if (f.is_atomic) {
                bad |= misaligned(i, w, f, addresses, exec & ~bad);
            }
            return bad;
        }
        case space::lds:
            for (int n = 0; n < f.accesses; ++n) {
                const u32x offsets =
                    f.accesses == 1 ? lds_addresses(checked, w) : lds_addresses(checked, w, n, f.unit);
                bad |= outside_of(i, w, f, offsets, exec, w.lds_size, "the LDS of its block");
                if (f.is_atomic) {
                    bad |= misaligned(i, w, f, convert<u64x>(offsets), exec & ~bad);
                }
            }
            return bad;
        case space::scratch:
            return outside_of(i, w, f, scratch_offsets(checked, w), exec, w.scratch_size, "its scratch");
        default:
            return 0;
    }
}

// ---- Races between the waves of a block

// Whether a store would leave LDS or memory unchanged.
bool changes_nothing(wave & w, const facts & f, operand data, int lane, const std::byte * place) {
    if (f.is_atomic) {
        return false;
    }
    const u32 * values = reinterpret_cast<const u32 *>(&vector_at(w, data));
    const int shift = f.is_high || data.is(operand::high) ? 16 : 0;
    for (u32 n = 0; n < f.size; n += 4) {
        const u32 value = values[n / 4 * lanes + u32(lane)] >> shift;
        if (std::memcmp(&value, place + n, std::min<u32>(4, f.size - n)) != 0) {
            return false;
        }
    }
    return true;
}

u64 place_of_dword(u32 n) { return 4 * u64(n); }

// One access of one lane.
struct touching {
    const instruction * i;
    wave & w;
    const facts & f;
    u32 dword;
    u32 at;       // byte address
    bool is_same; // a store that changes nothing
    lds_traces & traces;
};

// Tracks the access of a wave to a cell: a dword, or a byte of one.
void touch_cell(const touching & now, block_checks & b, u32 & written, u32 & read, u32 & readers) {
    const auto & [i, w, f, n, at, is_same, t] = now;
    const u32 epoch = b.epoch, me = epoch << 6 | w.number;
    wave_checks & c = *w.checks;
    const u32 strangers = ~(c.met | 1u << w.number);
    const u32 writers = written >> 10 == epoch ? 1u << (written >> 4 & 31) : 0;
    const u32 others = (read >> 10 == epoch ? readers : 0) & strangers;
    const auto words = [&](const char * what, u32 waves) {
        const std::string who =
            std::popcount(waves) > 1 ? "other waves" : "wave " + std::to_string(std::countr_zero(waves));
        return verb_of(f) + ("byte " + std::to_string(at)) + " of LDS, which " + who + what + " without a barrier in between";
    };
    const auto conflict = [&](const char * what, u32 waves, u32 by) {
        if (is_same) { // waves that always write equal values to one place are harmless
            if (b.is_new_hidden(i->number, by)) {
                w.on->note_hidden(i, w, words(what, waves), by);
            }
        } else {
            w.on->report(i, w, kinds::races, words(what, waves), &by);
        }
    };
    const bool was_atomic = t.atomic[n] == epoch;
    const u32 flagging = t.flagged[n] == epoch ? t.flagging[n] : 0;
    // A lock is released by a plain store.
    const bool is_atomic = f.is_atomic || (f.is_store && (flagging >> w.number & 1) != 0);
    const u32 writer = written >> 4 & 63;
    if (f.is_atomic) {
        t.flagged[n] = epoch;
        t.flagging[n] = flagging | 1u << w.number;
        if (was_atomic && written >> 10 == epoch && writer != w.number) {
            c.see(writer & 31, b.waves[writer & 31], ~0u, false);
        }
    }
    if ((writers & strangers) != 0) {
        if (is_same) {
            if (!(is_atomic && was_atomic)) {
                conflict(was_atomic ? " changed" : " wrote", writers, t.written_by[n]);
            }
            return;
        }
        if (f.acquires && !f.is_store) {
            c.see(writer & 31, b.waves[writer & 31], ~0u, true);
        } else if (!f.is_store && was_atomic) {
            hold_look(b, {place_of_dword(n), 1u << w.number, i->number, i, w.number, words(" changed", writers),
                          t.written_by[n], false});
        } else if (!(is_atomic && was_atomic)) {
            conflict(was_atomic ? " changed" : " wrote", writers, t.written_by[n]);
        }
    }
    if (f.is_store) {
        const u32 reader = t.dwords.read[n] >> 4 == me ? t.read_before[n] : t.read_by[n];
        if (others != 0 && f.is_atomic) {
            hold_look(b, {place_of_dword(n), others, reader, i, w.number, words(" read", others), reader, false});
        } else if (others != 0) {
            conflict(" read", others, reader);
        }
        // A look that is followed by an atomic on the same place needs no order.
        if (f.is_atomic && read >> 10 == epoch) {
            readers &= ~(1u << w.number);
            read = readers == 0 ? 0 : read;
        }
        // A plain store stays recorded even if the same wave does an atomic: others may not have observed it.
        if (!(is_atomic && written >> 4 == me && !was_atomic)) {
            written = me << 4 | 15;
            t.written_by[n] = i->number;
            t.atomic[n] = is_atomic ? epoch : 0;
        }
    } else if (!f.acquires) { // a wave that writes a flag need not be ordered after readers of the old value
        readers = (read >> 10 == epoch ? readers : 0) | 1u << w.number;
        u32 & last = t.dwords.read[n]; // also when tracking by byte
        t.read_before[n] = last >> 4 == me ? t.read_before[n] : t.read_by[n];
        last = read = me << 4 | 15;
        t.read_by[n] = i->number;
    }
}

// Tracks this dword by byte for the rest of the epoch.
void spread(block_checks & b, lds_traces & t, u32 n) {
    t.mixed[n] = b.last_odd = b.epoch;
    for (u32 k = 0; k < 4; ++k) {
        for (auto cells : {&lds_cells::written, &lds_cells::read}) {
            const u32 trace = (t.dwords.*cells)[n];
            (t.bytes.*cells)[4 * n + k] = (trace >> k & 1) != 0 ? trace | 15 : 0;
        }
        t.bytes.readers[4 * n + k] = t.dwords.readers[n];
    }
}

// Tracks the access of a wave to `bytes` of a dword of LDS.
void touch(const touching & now, block_checks & b, u32 bytes) {
    const u32 n = now.dword;
    lds_traces & t = now.traces;
    const auto is_part = [&](u32 trace) { return trace >> 10 == b.epoch && (trace & 15) != 15; };
    if (t.mixed[n] != b.epoch && (bytes != 15 || is_part(t.dwords.written[n]) || is_part(t.dwords.read[n]))) {
        spread(b, t, n);
    }
    if (t.mixed[n] != b.epoch) {
        touch_cell(now, b, t.dwords.written[n], t.dwords.read[n], t.dwords.readers[n]);
        return;
    }
    // Fast path: another read by the same instruction of the last reader changes nothing; common in loops over such
    // parts.
    const u32 mine = (b.epoch << 6 | now.w.number) << 4 | 15;
    const bool is_again = !now.f.is_store && !now.f.is_atomic && !now.f.acquires && t.dwords.read[n] == mine &&
                          t.read_by[n] == now.i->number;
    for (u32 left = bytes; left != 0; left &= left - 1) {
        const auto k = size_t(4 * n) + size_t(std::countr_zero(left));
        const u32 written = t.bytes.written[k];
        const bool has_read = t.bytes.read[k] == mine && (t.bytes.readers[k] >> now.w.number & 1) != 0;
        if (is_again && has_read && (written >> 10 != b.epoch || written >> 4 == mine >> 4)) {
            continue;
        }
        touch_cell(now, b, t.bytes.written[k], t.bytes.read[k], t.bytes.readers[k]);
    }
}

// Fast path for whole dwords that no other wave accessed in this epoch, or that are only read. Returns false, without
// recording anything, if that is not the case.
template <int words> bool touch_alone(block_checks & b, u32 first, u32 wave, bool is_store, u32 number) {
    using group = vector_of<u32, words>;
    const auto load = [&](const std::vector<u32> & from) {
        group result;
        std::memcpy(&result, &from[first], 4 * words);
        return result;
    };
    const auto store = [&](std::vector<u32> & to, const group & value) { std::memcpy(&to[first], &value, 4 * words); };
    const u32 me = b.epoch << 6 | wave;
    const group mine = splat<group>(me << 4 | 15);
    const auto is_of_other = [&](const group & trace) { return (trace >> 10 == b.epoch) & (trace >> 4 != me); };
    const group written = load(b.lds.dwords.written), read = load(b.lds.dwords.read);
    const group readers = (read >> 10 == b.epoch) ? load(b.lds.dwords.readers) : splat<group>(0);
    if (__builtin_reduce_or(is_of_other(written)) != 0) {
        return false;
    }
    if (is_store && __builtin_reduce_or(readers & ~(1u << wave)) != 0) {
        return false;
    }
    if (is_store) {
        store(b.lds.dwords.written, mine);
        store(b.lds.written_by, splat<group>(number));
        return true;
    }
    if (__builtin_reduce_or((readers ^ (1u << wave)) | (mine ^ read)) != 0) {
        if (__builtin_reduce_or(readers & ~(1u << wave)) != 0) {
            const group by = load(b.lds.read_by), before = load(b.lds.read_before);
            store(b.lds.read_before, is_of_other(read) != 0 ? by : before);
        }
        store(b.lds.dwords.read, mine);
        store(b.lds.dwords.readers, readers | (1u << wave));
        store(b.lds.read_by, splat<group>(number));
    }
    return true;
}

// The same for some bytes of a dword.
bool touch_part_alone(block_checks & b, u32 n, u32 bytes, u32 wave, bool is_store, u32 number) {
    const u32 me = b.epoch << 6 | wave;
    const u32 written = b.lds.dwords.written[n], read = b.lds.dwords.read[n];
    const auto is_of_other = [&](u32 trace) { return trace >> 10 == b.epoch && trace >> 4 != me; };
    if (is_of_other(written) || (read >> 10 == b.epoch && (b.lds.dwords.readers[n] & ~(1u << wave)) != 0)) {
        return false;
    }
    u32 & trace = is_store ? b.lds.dwords.written[n] : b.lds.dwords.read[n];
    trace = (trace >> 4 == me ? trace : me << 4) | bytes;
    b.lds.dwords.readers[n] = 1u << wave;
    (is_store ? b.lds.written_by : b.lds.read_by)[n] = number;
    return true;
}

bool touch_alone(block_checks & b, u32 words, u32 first, u32 wave, bool is_store, u32 number) {
    switch (words) {
        case 1: return touch_alone<1>(b, first, wave, is_store, number);
        case 2: return touch_alone<2>(b, first, wave, is_store, number);
        case 4: return touch_alone<4>(b, first, wave, is_store, number);
        default: return false;
    }
}

void note_lds(const instruction * i, wave & w, const facts & f, const u32x & offsets, u32 exec, operand data,
              bool is_simple) {
    block_checks & b = checks_of(w);
    alignas(128) u32 places[lanes];
    std::memcpy(places, &offsets, sizeof(places));
    u32 start = 0;
    if (is_simple && f.size == 4 && is_row(offsets, 4, exec, start) && start % 4 == 0 &&
        touch_alone<lanes>(b, start / 4, w.number, f.is_store, i->number)) {
        return;
    }
    u32 before = ~0u;
    for (u32 left = f.is_store ? exec : lanes_with_places(offsets, exec); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const u32 place = places[lane];
        if (f.is_atomic) {
            redeem_looks(b, place, f.size, w.number);
        }
        if (place == before) { // the same place as the previous lane, which no other lane has
            continue;
        }
        if (is_simple && (place | f.size) % 4 == 0 &&
            touch_alone(b, f.size / 4, place / 4, w.number, f.is_store, i->number)) {
            before = place;
            continue;
        }
        if (is_simple && f.size < 4 && place % 4 + f.size <= 4) {
            const u32 bytes = ((1u << f.size) - 1) << (place % 4);
            if (touch_part_alone(b, place / 4, bytes, w.number, f.is_store, i->number)) {
                before = place;
                continue;
            }
        }
        before = f.is_store ? ~0u : place; // stores of several lanes may differ
        const bool is_same = f.is_store && changes_nothing(w, f, data, lane, w.lds + place);
        const u32 end = place + f.size;
        for (u32 at = place; at < end;) {
            const u32 next = std::min(end, at / 4 * 4 + 4);
            const u32 bytes = ((1u << (next - at)) - 1) << (at % 4);
            touch({i, w, f, at / 4, at, is_same, b.lds}, b, bytes);
            at = next;
        }
    }
}

void trace_lds(const instruction * i, wave & w, const facts & f, const u32x & offsets, u32 exec, operand data) {
    block_checks & b = checks_of(w);
    const bool is_odd = f.is_atomic || f.acquires;
    const auto is_simple = [&] { return b.last_odd != b.epoch && w.checks->met == 0; };
    const bool is_plain_read = !is_odd && !f.is_store && is_simple();
    if (is_plain_read && b.last_noted != b.epoch && b.reads.size() < block_checks::most_reads) {
        lds_read & kept = b.reads.emplace_back();
        kept.i = i;
        kept.w = &w;
        kept.f = &f;
        kept.exec = exec;
        std::memcpy(kept.offsets, &offsets, sizeof(kept.offsets));
        return;
    }
    for (const lds_read & one : b.reads) { // in program order, by waves that had observed no others
        u32x places;
        std::memcpy(&places, one.offsets, sizeof(places));
        note_lds(one.i, *one.w, *one.f, places, one.exec, {}, b.last_odd != b.epoch);
    }
    b.reads.clear();
    b.last_noted = b.epoch;
    if (is_odd) {
        b.last_odd = b.epoch;
    }
    note_lds(i, w, f, offsets, exec, data, is_simple());
}

// While a block is rerun: device memory is tracked like LDS, and restored afterwards.
void trace_again(const instruction * i, wave & w, const facts & f, u32 exec) {
    block_checks & b = checks_of(w);
    replay & again = *b.again;
    if (!f.is_store) {
        again.begin_load(i, w, f, exec);
    }
    if (f.where == space::scalar) {
        return;
    }
    const u64x addresses = global_addresses(i + 1, w);
    if (f.where == space::flat) {
        exec &= lane_bits(addresses >> 48 == 0);
    }
    if (f.is_store && exec != 0 && remembered_range(i, w).is_host) {
        throw kernel_fault("memory of the host is not put back");
    }
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const u64 place = addresses[lane], end = place + f.size;
        const auto * there = reinterpret_cast<const std::byte *>(place);
        const bool is_same = f.is_store && changes_nothing(w, f, (i + 1)->from[role::data], lane, there);
        if (f.is_store) {
            again.keep(place, f.size);
        }
        for (u64 at = place; at < end;) {
            const u64 next = std::min(end, at / 4 * 4 + 4);
            const u32 bytes = ((1u << (next - at)) - 1) << (at % 4);
            lds_traces & page = again.page_of(at);
            touch({i, w, f, u32(at / 4 % page.written_by.size()), u32(at % 4096), is_same, page}, b, bytes);
            at = next;
        }
    }
}

void trace(const instruction * i, wave & w, const facts & f, u32 exec) {
    const instruction * checked = i + 1;
    if (f.where == space::lds) {
        for (int n = 0; n < f.accesses; ++n) {
            trace_lds(i, w, f, f.accesses == 1 ? lds_addresses(checked, w) : lds_addresses(checked, w, n, f.unit), exec,
                      checked->from[n == 0 ? role::data : role::more_data]);
        }
    } else if (f.where == space::flat) {
        const u64x addresses = global_addresses(checked, w);
        const u32 is_shared = lane_bits(addresses >> 48 << 48 == shared_aperture) & exec;
        if (is_shared != 0) {
            trace_lds(i, w, f, low_of(addresses), is_shared, checked->from[role::data]);
        }
    }
}

// ---- Stores that were not waited for before a barrier

constexpr size_t most_hanging = 1 << 16;

template <class F> void each_dword(const u64x & addresses, u32 size, u32 exec, F use) {
    alignas(256) u64 places[lanes];
    std::memcpy(places, &addresses, sizeof(places));
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        for (u64 n = places[lane] / 4; n <= (places[lane] + size - 1) / 4; ++n) {
            use(n, lane);
        }
    }
}

// The wave reaches a barrier: stores that it waited for are no longer pending.
void leave_stores(const wave & w) {
    block_checks & b = checks_of(w);
    stores_under_way & stores = w.checks->stores;
    if (const u32 done = stores.take_waited(); done != 0) {
        std::erase_if(b.hanging, [&](const auto & one) { return one.second.wave == w.number && one.second.sequence < done; });
    }
    if (b.hanging.empty()) {
        b.hanging_first = ~u64(0);
        b.hanging_end = 0;
    }
    stores.each_new([&](const stores_under_way::store & one, u32 sequence) {
        each_dword(one.addresses, one.size, one.exec, [&](u64 n, int) {
            if (b.hanging.size() < most_hanging) {
                b.hanging[n] = {w.number, one.number, b.epoch, sequence};
                b.hanging_first = std::min(b.hanging_first, n);
                b.hanging_end = std::max(b.hanging_end, n + 1);
            }
        });
    });
}

void meet_stores(const instruction * i, wave & w, const facts & f, u32 exec) {
    const block_checks & b = checks_of(w);
    const u64x addresses = global_addresses(i + 1, w), first = addresses >> 2, last = (addresses + (f.size - 1)) >> 2;
    if ((lane_bits((last >= b.hanging_first) & (first < b.hanging_end)) & exec) == 0) {
        return;
    }
    u32 reported = ~0u;
    each_dword(addresses, f.size, exec, [&](u64 n, int lane) {
        const auto found = b.hanging.find(n);
        if (found == b.hanging.end() || found->second.wave == w.number || found->second.epoch == b.epoch ||
            found->second.number == reported) {
            return;
        }
        reported = found->second.number;
        w.on->report(i, w, kinds::waits,
                     goes_to(f, lane) + "at " + hex(4 * n) + ", which wave " + std::to_string(found->second.wave) +
                         " stored to before it reached a barrier without waiting for the store",
                     &reported);
    });
}

bool waits_for_stores(const facts & f) {
    return std::any_of(f.waits.begin(), f.waits.end(),
                       [](const wait & one) { return (one.queues & queue::vector_store) != 0 && one.left == 0; });
}

const facts & facts_at(const instruction * i) { return *static_cast<const facts *>(i->extra); }

// ---- The steps

void check_pending(const instruction * i, wave & w) {
    const register_set & pending = w.checks->pending;
    if ((pending.hints() & u64(i->immediate)) != 0 && pending.meets(facts_at(i).touched)) [[unlikely]] {
        use_of_pending(i, w, facts_at(i));
    }
}

// Whether registers have uninitialised bits, or SCC is.
bool may_be_unknown(const wave_checks & c, const facts & f) {
    return c.wanted.uninitialised && (c.unknown.scc || f.is_moved || c.unknown.registers.meets(f.touched));
}

void check_registers(const instruction * i, wave & w) {
    if ((w.checks->hints & u64(i->immediate)) != 0) [[unlikely]] {
        check_pending(i, w);
        if (may_be_unknown(*w.checks, facts_at(i))) {
            follow_computation(i, w, facts_at(i));
        }
    }
    PATCHKIT_NEXT(i, w);
}

// Lanes continue that were disabled when the wave reached a barrier.
void come_back(wave & w) {
    wave_checks & c = *w.checks;
    const u32 lanes_there = c.started & ~c.skipped;
    w.on->report(c.skipped_at, w, kinds::barriers,
                 "reaches a barrier with " + std::to_string(std::popcount(lanes_there)) + " of its " +
                     std::to_string(std::popcount(c.started)) + " lanes: the others continue after it");
    c.skipped = 0;
}

// Where floats are checked.
void check_floats(const instruction * i, wave & w) {
    check_numbers(i, w, facts_at(i));
    check_registers(i, w);
}

void check_branch(const instruction * i, wave & w) {
    check_pending(i, w);
    follow_branch(i, w, facts_at(i));
    PATCHKIT_NEXT(i, w);
}

bool is_in_memory(const facts & f) {
    return f.where == space::global || f.where == space::flat || f.where == space::scalar;
}

void check_access(const instruction * i, wave & w) {
    const facts & f = facts_at(i);
    wave_checks & c = *w.checks;
    if (c.wanted.waits) {
        check_pending(i, w);
        begin(i, w, c, f);
    }
    u32 bad = 0;
    if (f.where != space::none) { // even if the check is off, because it would end the program
        if (f.where == space::scalar) {
            const u64 place = scalar_address(i + 1, w) & (f.size < 4 ? ~u64(0) : ~u64(3));
            if (!remembered_range(i, w).holds(place, f.size) && !w.on->look_for_range(i, w, place, f.size)) {
                if (w.on->is_refused(place)) {
                    w.on->find_range(i + 1, w, place, f.size, -1);
                }
                w.on->note_left_out();
                report_memory(i, w, goes_to(f, -1) + "at " + hex(place) + ", " + w.on->describe(place, f.size));
                if (c.wanted.uninitialised) {
                    follow_access(i, w, f, ~0u);
                }
                PATCHKIT_GO_ON(i + 3, w); // the destination of the load keeps its value
            }
            if (checks_of(w).caches != nullptr) {
                look_in_caches(i, w, f, 1);
            }
            trace_access(i, w, f, 1);
        } else {
            bad = bad_lanes(i, w, f);
        }
        if (bad != 0) [[unlikely]] {
            w.on->note_left_out();
        }
        if ((c.skipped & w.exec()) != 0 && f.where != space::scratch) [[unlikely]] { // spills use all lanes
            come_back(w);
        }
    }
    if (c.wanted.races || c.wanted.hidden) {
        trace(i, w, f, w.exec() & ~bad);
    }
    if (c.wanted.uninitialised) {
        if (f.where != space::none) {
            follow_access(i, w, f, bad);
        } else if (may_be_unknown(c, f)) {
            follow_computation(i, w, f);
        }
    }
    if (f.where == space::global || f.where == space::flat) {
        if (c.wanted.waits && !checks_of(w).hanging.empty()) [[unlikely]] {
            meet_stores(i, w, f, w.exec() & ~bad);
        }
        if (checks_of(w).caches != nullptr) {
            look_in_caches(i, w, f, w.exec() & ~bad);
        }
        trace_access(i, w, f, w.exec() & ~bad);
    } else if (f.is_unseen_store && checks_of(w).caches != nullptr) {
        invalidate_caches(w, f);
    }
    if (checks_of(w).again != nullptr && is_in_memory(f)) [[unlikely]] {
        trace_again(i, w, f, w.exec() & ~bad);
    }
    w.scalar[slot::saved_exec] = w.exec();
    w.scalar[slot::exec] &= ~bad;
    PATCHKIT_NEXT(i, w);
}

void check_done(const instruction * i, wave & w) {
    if (checks_of(w).again != nullptr && is_in_memory(facts_at(i)) && !facts_at(i).is_store) [[unlikely]] {
        checks_of(w).again->end_load(w, facts_at(i));
    }
    see_signs(i, w, facts_at(i));
    if (checks_of(w).caches != nullptr && is_in_memory(facts_at(i))) {
        leave_in_caches(i, w, facts_at(i));
    }
    w.scalar[slot::exec] = w.scalar[slot::saved_exec];
    PATCHKIT_NEXT(i, w);
}

void check_wait(const instruction * i, wave & w) {
    wave_checks & c = *w.checks;
    if (!c.queue.empty()) {
        const auto waits = u64(i->immediate);
        wait_for(c, {u8(waits), u32(waits >> 8 & 0xff)});
        wait_for(c, {u8(waits >> 16), u32(waits >> 24 & 0xff)});
    }
    for (const wait & one : facts_at(i).waits) {
        if ((one.queues & queue::vector_store) != 0) {
            c.stores.wait(one.left);
            if (one.left == 0) {
                pass_store_wait(w);
            }
        }
    }
    PATCHKIT_NEXT(i, w);
}

void check_store_wait(const instruction * i, wave & w) {
    pass_store_wait(w);
    PATCHKIT_NEXT(i, w);
}

void check_fence(const instruction * i, wave & w) {
    w.checks->met |= w.checks->seen; // up to what it observed
    pass_fence(w);
    if (checks_of(w).caches != nullptr) {
        invalidate_caches(w, facts_at(i));
    }
    PATCHKIT_NEXT(i, w);
}

void check_invalidation(const instruction * i, wave & w) {
    if (checks_of(w).caches != nullptr) {
        invalidate_caches(w, facts_at(i));
    }
    PATCHKIT_NEXT(i, w);
}

void check_barrier(const instruction * i, wave & w) {
    wave_checks & c = *w.checks;
    if (c.wanted.barriers) {
        if ((c.skipped & w.exec()) != 0) {
            come_back(w);
        }
        if (const u32 missing = c.started & ~w.exec(); missing != 0 && c.skipped == 0) {
            c.skipped = missing;
            c.skipped_at = i;
        }
    }
    if (!c.wanted.waits) {
        PATCHKIT_NEXT(i, w);
    }
    for (pending_load & one : c.queue) {
        if (one.is_in_lds && one.queues != 0) {
            w.on->report(i, w, kinds::waits,
                         std::string("reaches the barrier before ") + (one.what->is_store ? "a write to" : "a read of") +
                             " LDS has finished, which other waves may overtake",
                         &one.number);
        }
    }
    leave_stores(w);
    PATCHKIT_NEXT(i, w);
}

} // namespace

handler checker::before(const facts & known) const {
    if (known.where != space::none || (known.queues != 0 && wanted.waits) || (known.is_unseen_store && wanted.caches)) {
        return check_access;
    }
    if (known.is_branch && wanted.uninitialised) {
        return check_branch;
    }
    if (known.waits[0].queues != 0 || known.waits[1].queues != 0) {
        const bool orders = (wanted.races || wanted.caches) && waits_for_stores(known);
        return wanted.waits ? check_wait : orders ? check_store_wait : nullptr;
    }
    if (known.is_barrier) {
        return wanted.waits || wanted.barriers ? check_barrier : nullptr;
    }
    if (known.is_fence) {
        return wanted.races || wanted.hidden || wanted.caches ? check_fence : nullptr;
    }
    if (known.invalidates_l1 || known.invalidates_scalar) {
        return wanted.caches ? check_invalidation : nullptr;
    }
    if (wanted.numbers && !known.floats.empty()) {
        return check_floats;
    }
    const bool looks_at_registers = wanted.waits || wanted.uninitialised;
    return looks_at_registers && !known.touched.is_empty() ? check_registers : nullptr;
}

i64 checker::at_hand(const facts & known) const {
    const auto & [first, second] = known.waits;
    if (first.queues == 0 && second.queues == 0) {
        return known.is_moved ? ~i64(0) : i64(known.touched.hints());
    }
    return i64(first.queues | first.left << 8 | u32(second.queues) << 16 | u64(second.left) << 24);
}

handler checker::behind(const facts & known) const { return before(known) == check_access ? check_done : nullptr; }

bool checker::tries(const facts & known) const {
    const bool computes = known.where == space::none && !known.touched.is_empty();
    return (wanted.uninitialised || wanted.numbers) && computes && !known.is_given && !known.is_branch;
}

// With -fsanitize=array-bounds or local-bounds and -fsanitize-minimal-runtime, the compiler calls one of these
// functions with the lanes that are about to access memory outside of an array, or of the object their pointer is based
// on. Nothing else shows where one `__shared__` variable ends and the next begins.
void check_call(const instruction * i, wave & w, std::string_view callee) {
    const bool is_index = callee == "__ubsan_handle_out_of_bounds_minimal";
    if (!is_index && callee != "__ubsan_handle_local_out_of_bounds_minimal") {
        return;
    }
    if (w.checks != nullptr && w.checks->wanted.memory && w.exec() != 0) {
        w.on->report(i, w, kinds::memory,
               "lane " + std::to_string(std::countr_zero(w.exec())) +
                   (is_index ? " uses an index out of the bounds of its array"
                         : " goes past the end of the variable that its address is based on"));
    }
}

// Waves of the block wait at barriers: checks that it is the same one, and whether others have ended.
static void check_meeting(const std::vector<wave *> & waves) {
    const wave * first = nullptr;
    const wave * ended = nullptr;
    for (const wave * one : waves) {
        const wave *& what = one->state == standing::at_barrier ? first : ended;
        what = what == nullptr ? one : what;
    }
    if (first == nullptr) {
        return;
    }
    const auto barrier_of = [](const wave & w) { return w.next - 1; };
    for (wave * one : waves) {
        if (one->state != standing::at_barrier) {
            continue;
        }
        const u32 number = barrier_of(*one)->number, other = barrier_of(*first)->number;
        if (number != other) {
            one->on->report(barrier_of(*one), *one, kinds::barriers,
                   "waits at a barrier while wave " + std::to_string(first->number) + " waits at another one", &other);
        }
        std::vector<u32> & passed = one->checks->passed;
        if (std::find(passed.begin(), passed.end(), number) == passed.end()) {
            passed.push_back(number);
        }
    }
    if (ended == nullptr) {
        return;
    }
    wave & waiting = *waves[first->number];
    const u32 number = barrier_of(waiting)->number;
    for (const wave * one : waves) {
        const std::vector<u32> & passed = one->checks->passed;
        if (one->state == standing::ended && std::find(passed.begin(), passed.end(), number) != passed.end()) {
            waiting.on->report(barrier_of(waiting), waiting, kinds::barriers,
                               "waits again at a barrier that wave " + std::to_string(one->number) +
                                   " reached before, but which has ended");
            return;
        }
    }
    waiting.on->report_note(barrier_of(waiting), waiting, kinds::barriers,
                            "waits at a barrier that wave " + std::to_string(ended->number) +
                                " does not reach, because it has ended; not portable");
}

// The wave has ended: lanes that were disabled at a barrier did not continue.
static void check_ended(wave & w) {
    wave_checks & c = *w.checks;
    if (c.skipped != 0) {
        w.on->report_note(c.skipped_at, w, kinds::barriers,
                          "reaches a barrier without " + std::to_string(std::popcount(c.skipped)) + " of its " +
                              std::to_string(std::popcount(c.started)) + " lanes, which have ended; not portable");
        c.skipped = 0;
    }
}

// Reports looks that were not followed by an atomic of the same wave.
static void tell_looks(block_checks & b, const std::vector<wave *> & waves) {
    for (const held_look & one : b.looks) {
        // Another wave continued from the same load with an atomic, so this one only found no reason to.
        if (b.first_looks.contains(one.look)) {
            continue;
        }
        wave & w = *waves[one.wave];
        const u32 number = u32(one.other);
        one.is_in_memory ? w.on->report_touch(one.i, w, kinds::races, one.what, one.other)
                         : w.on->report(one.i, w, kinds::races, one.what, &number);
    }
    b.looks.clear();
}

void check_halted(block_checks & b, const std::vector<wave *> & waves, const checks & wanted) {
    tell_looks(b, waves);
    if (!wanted.barriers) {
        return;
    }
    if (std::any_of(waves.begin(), waves.end(), [](const wave * w) { return w->state == standing::at_barrier; })) {
        check_meeting(waves);
        return;
    }
    for (wave * one : waves) {
        check_ended(*one);
    }
}

} // namespace patchkit::gpu
