#include "stale_caches.hpp"

#include "access.hpp"
#include "check_state.hpp"
#include "executor.hpp"

#include <algorithm>

namespace patchkit::gpu {

line_cache::line & line_cache::put(u64 place, u64 begin, u64 end) {
    if (all.empty()) {
        all.resize(mask + 1);
    }
    line & to = slot_of(place);
    to.address = start_of(place);
    to.generation = generation;
    to.first = u32(std::max(begin, to.address) - to.address);
    to.end = u32(std::min(end, to.address + line_size) - to.address);
    return to;
}

line_cache::line & line_cache::put_part(u64 place, u32 size) {
    const u32 first = offset_of(place), end = first + size;
    if (!all.empty()) {
        if (line & there = slot_of(place); there.generation == generation && there.address == start_of(place) &&
                                           first <= there.end && there.first <= end) {
            there.first = std::min(there.first, first);
            there.end = std::max(there.end, end);
            return there;
        }
    }
    return put(place, place, place + size);
}

void line_cache::evict(u64 place) {
    if (line * const found = all.empty() ? nullptr : &slot_of(place);
        found != nullptr && found->address == start_of(place)) {
        found->generation = 0;
    }
}

void wgp_caches::clear() {
    l0[0].clear();
    l0[1].clear();
    l1.clear();
    scalar.clear();
}

namespace {

const std::byte * memory_at(u64 place) { return reinterpret_cast<const std::byte *>(place); }

bool differs(const std::byte * a, const std::byte * b, u32 size) {
    switch (size) { // the usual ones, without a call
        case 2: return std::memcmp(a, b, 2) != 0;
        case 4: return std::memcmp(a, b, 4) != 0;
        case 8: return std::memcmp(a, b, 8) != 0;
        case 16: return std::memcmp(a, b, 16) != 0;
        case 128: return std::memcmp(a, b, 128) != 0;
        default: return std::memcmp(a, b, size) != 0;
    }
}

// Host memory is not cached here: its pages may be watched. Constants never change.
bool is_cached(const memory_range & range) {
    return range.traced != nullptr && !range.is_host && !range.is_constant;
}

// ---- The accesses of one instruction of one wave

struct accessor {
    const instruction * i;
    wave & w;
    const facts & f;
    block_checks & b;
    wgp_caches & caches;
    line_cache & l0;

    accessor(const instruction * i, wave & w, const facts & f)
        : i(i), w(w), f(f), b(checks_of(w)), caches(*b.caches), l0(b.l0_of(w.number)) {}

    bool is_scalar() const { return f.where == space::scalar; }

    // Null if the bytes are in no cached range.
    const memory_range * range_of(u64 place, u32 size) const {
        if (!remembered_range(i, w).holds(place, size) && !w.on->look_for_range(i, w, place, size)) {
            return nullptr;
        }
        const memory_range & found = remembered_range(i, w);
        return is_cached(found) ? &found : nullptr;
    }

    // What a load of these bytes of one line gets; fills the caches on the way to memory.
    line_cache::line & loaded(u64 place, u32 size, const memory_range & range) const {
        if (is_scalar()) {
            return from_memory(caches.scalar, place, size, range);
        }
        if (f.reach != scope::cu) {
            return from_memory(caches.l1, place, size, range);
        }
        if (line_cache::line * const hit = l0.find(place, size)) {
            return *hit;
        }
        const line_cache::line & from = from_memory(caches.l1, place, size, range);
        line_cache::line & to = l0.put(place, range.begin, range.end);
        std::memcpy(to.bytes, from.bytes, sizeof(to.bytes));
        return to;
    }

  private:
    static line_cache::line & from_memory(line_cache & through, u64 place, u32 size, const memory_range & range) {
        if (line_cache::line * const hit = through.find(place, size)) {
            return *hit;
        }
        line_cache::line & to = through.put(place, range.begin, range.end);
        std::memcpy(to.bytes + to.first, memory_at(to.address + to.first), to.end - to.first);
        return to;
    }
};

// Calls `use` for the parts of these bytes in each line.
template <class F> void each_line(u64 place, u64 size, F use) {
    for (u64 at = place, end = place + size; at < end;) {
        const u64 next = std::min(end, line_cache::start_of(at) + line_cache::line_size);
        use(at, u32(next - at));
        at = next;
    }
}

// Whether all lanes access adjacent elements, in lane order.
bool are_adjacent(const u64x & addresses, u32 size, u32 exec) {
    return exec == ~0u && !any(addresses != convert<u64x>(lane_numbers()) * u64(size) + addresses[0]);
}

// Calls `use` for all bytes of all lanes: rows at once, else lane by lane.
template <class F> void each_part(const u64x & addresses, u32 size, u32 exec, F use) {
    if (are_adjacent(addresses, size, exec)) {
        each_line(addresses[0], u64(size) * lanes, use);
        return;
    }
    if (exec != 0 && (lane_bits(addresses != addresses[std::countr_zero(exec)]) & exec) == 0) {
        exec &= 0 - exec;
    } else if (exec == ~0u && __builtin_reduce_or(first_half(addresses) ^ second_half(addresses)) == 0) {
        exec >>= lanes / 2;
    }
    alignas(256) u64 places[lanes];
    std::memcpy(places, &addresses, sizeof(places));
    u64 before = 0;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const u64 place = places[std::countr_zero(left)];
        if (place != before) {
            each_line(place, size, use);
        }
        before = place;
    }
}

u32 lanes_in_memory(const facts & f, const u64x & addresses, u32 exec) {
    return f.where == space::flat ? exec & lane_bits(addresses >> 48 == 0) : exec;
}

// ---- Loads that get an old value

// The last store to these bytes, or 0.
u64 last_store(const memory_range & range, u64 place, u32 bytes) {
    const size_t at = (place - range.traced->begin) / 4;
    for (const u64 * const from : {range.traced->written, range.traced->written_too}) {
        const u64 written = __atomic_load_n(&from[at], __ATOMIC_RELAXED);
        if ((touch::bytes(written) & bytes) != 0) {
            return written;
        }
    }
    return 0;
}

// Whether a store comes before what the wave does now, so that a load must see it.
bool comes_before(const wave & w, u64 written) {
    const block_checks & b = checks_of(w);
    const block_traces & t = b.memory;
    const u32 who = touch::who(written), n = touch::wave(written);
    if (who < t.all->order.first) {
        return false;
    }
    if (t.all->block_of(who) != t.block) {
        return t.all->knows(t.block, who, false, false);
    }
    const bool is_recent = touch::epoch(written) == t.epoch && who >= t.since;
    const bool is_seen = (w.checks->met >> n & 1) != 0 && who < w.checks->seen_below[n];
    return n != w.number && (!is_recent || is_seen);
}

std::string described(const accessor & a, const char * verb, const memory_range & range, u64 place, u64 written) {
    const block_traces & t = a.b.memory;
    const u32 block = t.all->block_of(touch::who(written));
    const std::string who = block != t.block ? a.w.on->describe_touch(written, block)
                                             : "wave " + std::to_string(touch::wave(written));
    return verb + (" byte " + std::to_string(place - range.begin)) + " of an allocation of " +
           std::to_string(range.end - range.begin) + " bytes, which " + who +
           (touch::is_atomic(written) ? " changed" : " wrote");
}

void report_stale(const accessor & a, const memory_range & range, u64 place, u64 written) {
    const architecture & arch = a.caches.arch;
    const bool is_own = a.b.memory.all->block_of(touch::who(written)) == a.b.memory.block;
    const std::string missing = a.is_scalar() ? "s_dcache_inv"
                                : is_own       ? "acquire at workgroup scope (" + std::string(arch.block_acquire) + ")"
                                               : "acquire at agent scope (" + std::string(arch.device_acquire) + ")";
    const std::string what = described(a, "reads", range, place, written) +
                             ", but a cache may still have the old value: missing " + missing + " before this load";
    a.w.on->report_touch(a.i, a.w, kinds::caches, what, written);
}

// The bytes that a lane, or the wave, gets. Returns where the first of them is old, or 0.
u64 read_old_bytes(const accessor & a, u64 place, stale_value & to) {
    u64 first = 0;
    std::memcpy(to.bytes, memory_at(place), a.f.size);
    each_line(place, a.f.size, [&](u64 at, u32 size) {
        const memory_range * const range = a.range_of(at, size);
        if (range == nullptr) {
            return;
        }
        const std::byte * const from = a.loaded(at, size, *range).at(at);
        std::byte * const now = to.bytes + (at - place);
        const auto changed = std::mismatch(from, from + size, now);
        first = first == 0 && changed.first != from + size ? at + u64(changed.first - from) : first;
        std::memcpy(now, from, size);
    });
    return first;
}

// Some lane of the load gets an old value: finds out which, and whether it must not.
void load_old_values(const accessor & a, const u64x & addresses, u32 exec) {
    bool is_reported = false;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        stale_value value{a.is_scalar() ? -1 : lane, {}};
        const u64 place = read_old_bytes(a, addresses[lane], value);
        if (place == 0) {
            continue;
        }
        a.caches.pending.push_back(value);
        const memory_range & range = *a.range_of(place, 1);
        const u64 written = last_store(range, place, 1u << place % 4);
        a.w.checks->stale.at = a.i;
        a.w.checks->stale.place = place;
        a.w.checks->stale.written = written;
        if (!is_reported && comes_before(a.w, written)) {
            is_reported = true;
            report_stale(a, range, place, written);
        }
    }
}

void load(const accessor & a, const u64x & addresses, u32 exec) {
    bool is_old = false;
    line_cache::line * last = nullptr;
    line_cache & nearest = a.is_scalar() ? a.caches.scalar : a.f.reach == scope::cu ? a.l0 : a.caches.l1;
    each_part(addresses, a.f.size, exec, [&](u64 place, u32 size) {
        if (last == nullptr || !last->holds(place, size)) {
            last = nearest.find(place, size);
        }
        if (last == nullptr) {
            const memory_range * const range = a.range_of(place, size);
            last = range == nullptr ? nullptr : &a.loaded(place, size, *range);
        }
        is_old |= last != nullptr && differs(last->at(place), memory_at(place), size);
    });
    if (is_old) [[unlikely]] {
        load_old_values(a, addresses, exec);
    }
}

// Atomics at workgroup scope, by blocks that nothing else orders.
void check_scope(const accessor & a, const u64x & addresses, u32 exec) {
    const block_traces & t = a.b.memory;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const u64 place = addresses[std::countr_zero(left)];
        const memory_range * const range = a.range_of(place, a.f.size);
        const u64 written = range == nullptr ? 0 : last_store(*range, place, 15);
        const u32 who = touch::who(written);
        if (who >= t.all->order.first && t.all->block_of(who) != t.block && !t.all->knows(t.block, who, false)) {
            a.w.on->report_touch(a.i, a.w, kinds::caches,
                                 described(a, "changes", *range, place, written) +
                                     ", by an atomic at workgroup scope, which other blocks may not see: missing " +
                                     std::string(a.caches.arch.device_load),
                                 written);
            return;
        }
    }
}

// Writes the old bytes of a lane into the registers of its load.
void put_bytes(const instruction * i, wave & w, const facts & f, const stale_value & value) {
    if (f.where == space::scalar) {
        std::memcpy(reinterpret_cast<char *>(&w) + i->to[0].offset(), value.bytes, f.size);
        return;
    }
    u32 words[4]{};
    std::memcpy(words, value.bytes, f.size);
    if (f.is_signed) {
        words[0] = u32(f.size == 1 ? i32(int8_t(words[0])) : i32(i16(words[0])));
    }
    if (f.filled != 0) {
        const u32 mask = 0xffffu << f.shift;
        words[0] = (vector_at(w, i->to[0])[value.lane] & ~mask) | (words[0] << f.shift & mask);
    }
    for (int n = 0; n < int(std::max(f.size / 4, u32(1))); ++n) {
        vector_at(w, i->to[0], n)[value.lane] = words[n];
    }
}

} // namespace

void look_in_caches(const instruction * i, wave & w, const facts & f, u32 exec) {
    if (exec == 0) {
        return;
    }
    const accessor a(i, w, f);
    if (f.where == space::scalar) {
        if (f.size >= 4) {
            load(a, splat<u64x>(scalar_address(i + 1, w) & ~u64(3)), 1);
        }
        return;
    }
    if (f.is_store && !f.is_atomic) {
        return;
    }
    const u64x addresses = global_addresses(i + 1, w);
    exec = lanes_in_memory(f, addresses, exec);
    if (!f.is_atomic && f.reach != scope::device) {
        if (f.reach == scope::array) {
            each_part(addresses, f.size, exec, [&](u64 place, u32) { a.l0.evict(place); });
        }
        load(a, addresses, exec);
        return;
    }
    w.checks->stale.looked_past = true;
    if (f.is_atomic && f.reach != scope::device) {
        check_scope(a, addresses, exec);
    }
    each_part(addresses, f.size, exec, [&](u64 place, u32) {
        a.l0.evict(place);
        a.caches.l1.evict(place);
    });
}

void leave_in_caches(const instruction * i, wave & w, const facts & f) {
    const instruction * const done = i - 1;
    wgp_caches & caches = *checks_of(w).caches;
    for (const stale_value & one : caches.pending) {
        put_bytes(done, w, f, one);
    }
    caches.pending.clear();
    if (!f.is_store || f.is_atomic || w.exec() == 0) {
        return;
    }
    const accessor a(done - 1, w, f); // the step that found the allocation
    const u64x addresses = global_addresses(done, w);
    each_part(addresses, f.size, lanes_in_memory(f, addresses, w.exec()), [&](u64 place, u32 size) {
        if (line_cache::line * const held = caches.l1.find(place, size)) {
            std::memcpy(held->at(place), memory_at(place), size);
        }
        if (f.reach == scope::cu && a.range_of(place, size) != nullptr) {
            std::memcpy(a.l0.put_part(place, size).at(place), memory_at(place), size);
        } else if (line_cache::line * const held = a.l0.find(place, size)) {
            std::memcpy(held->at(place), memory_at(place), size);
        }
    });
}

void invalidate_caches(wave & w, const facts & f) {
    wgp_caches * const caches = checks_of(w).caches;
    if (f.invalidates_l0 || f.is_unseen_store) {
        checks_of(w).l0_of(w.number).clear();
    }
    if (f.invalidates_l1 || f.is_unseen_store) {
        caches->l1.clear();
    }
    if (f.invalidates_scalar) {
        caches->scalar.clear();
    }
}

void rest_with_caches(wave & w, u64 state) {
    constexpr u32 most_rests = 4; // of a loop that also counts, after which a GPU would have evicted the line
    stale_look & s = w.checks->stale;
    const bool is_same = s.state == state;
    if (is_same || ++s.rests == most_rests) {
        const accessor a(s.at, w, *static_cast<const facts *>(s.at->extra));
        const memory_range * const range = a.range_of(s.place, 1);
        if (is_same && !s.looked_past && range != nullptr && touch::who(s.written) >= a.b.memory.all->order.first) {
            w.on->report_touch(s.at, w, kinds::caches,
                               described(a, "waits in a loop for", *range, s.place, s.written) +
                                   ", but a cache may have the old value forever: missing " +
                                   std::string(a.caches.arch.device_load) + " of an atomic or volatile load",
                               s.written);
        }
        a.l0.evict(s.place);
        a.caches.l1.evict(s.place);
        a.caches.scalar.evict(s.place);
        s = {};
        return;
    }
    s.state = state;
    s.at = nullptr;
    s.looked_past = false;
}

} // namespace patchkit::gpu
