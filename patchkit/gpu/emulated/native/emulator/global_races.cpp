#include "global_races.hpp"

#include "access.hpp"
#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace patchkit::gpu {

// ---- What the blocks of a launch know of each other

namespace {

constexpr u32 first_of_block = u32(1) << 31;

// Kernels that give more signs are in an order that nobody can follow in reasonable time.
constexpr u64 most_signs = u64(1) << 23;
constexpr size_t most_followed = 4096;
constexpr size_t most_noticed = 4096, most_atomics = 1 << 16;

} // namespace

u32 launch_traces::draw(u32 block, bool is_first) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (order.next->load(std::memory_order_relaxed) >= most_numbers) {
        is_over = true;
        return 0;
    }
    const u32 who = order.next->fetch_add(1, std::memory_order_relaxed);
    owners.resize(std::max<size_t>(owners.size(), who - order.first + 1));
    owners[who - order.first] = block | (is_first ? first_of_block : 0);
    return who;
}

u32 launch_traces::block_of(u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    return owners[who - order.first] & ~first_of_block;
}

bool launch_traces::is_first_of_block(u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    return (owners[who - order.first] & first_of_block) != 0;
}

void launch_traces::give_sign(u64 place, u32 block, u32 bound) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (is_over || ((owners[bound - order.first] & first_of_block) != 0 && !known.contains(block))) {
        return; // there is nothing that it could say
    }
    meeting_place & here = places[place];
    std::vector<std::pair<size_t, u32>> & own = here.of_block[block];
    if (!own.empty() && own.back().second == bound) {
        return;
    }
    own.emplace_back(here.signs.size(), bound);
    here.signs.push_back({block, bound});
    signs += 1;
    is_over |= signs > most_signs;
    meetings.store(places.size(), std::memory_order_relaxed);
}

void launch_traces::see_signs(u64 place, u32 block) {
    const std::lock_guard<std::mutex> guard(mutex);
    const auto found = places.find(place);
    if (found != places.end()) {
        known[block].places[&found->second] = found->second.signs.size();
    }
}

void launch_traces::see_store(u32 block, u32 who) {
    const std::lock_guard<std::mutex> guard(mutex);
    u32 & bound = known[block].blocks[owners[who - order.first] & ~first_of_block];
    bound = std::max(bound, who);
}

bool launch_traces::knows(u32 block, u32 who, bool is_read) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (is_over) {
        return true;
    }
    const u32 wanted = owners[who - order.first] & ~first_of_block;
    const auto suffices = [&](u32 bound) { return is_read ? bound >= who : bound > who; };
    const auto says_so = [&](const knowledge & of) {
        const auto direct = of.blocks.find(wanted);
        if (direct != of.blocks.end() && suffices(direct->second)) {
            return true;
        }
        return std::any_of(of.places.begin(), of.places.end(), [&](const auto & one) {
            const auto own = one.first->of_block.find(wanted);
            return own != one.first->of_block.end() &&
                   std::any_of(own->second.begin(), own->second.end(), [&](const auto & sign) {
                       return sign.first < one.second && suffices(sign.second);
                   });
        });
    };
    // What those know whose signs it saw, it knows too.
    std::vector<u32> open{block};
    std::unordered_set<u32> seen{block};
    for (size_t n = 0; n < open.size(); ++n) {
        if (open.size() > most_followed) {
            return true;
        }
        const auto found = known.find(open[n]);
        if (found == known.end()) {
            continue;
        }
        if (says_so(found->second)) {
            u32 & bound = known[block].blocks[wanted]; // it is asked again
            bound = std::max(bound, is_read ? who : who + 1);
            return true;
        }
        const auto follow = [&](u32 other) {
            if (known.contains(other) && seen.insert(other).second) {
                open.push_back(other);
            }
        };
        for (const auto & [other, bound] : found->second.blocks) {
            follow(other);
        }
        for (const auto & [place, count] : found->second.places) {
            for (size_t k = 0; k < count && open.size() <= most_followed; ++k) {
                follow(place->signs[k].block);
            }
        }
    }
    return false;
}

void block_traces::begin(launch_traces * of, u32 number) {
    all = of;
    if (all == nullptr) {
        return;
    }
    block = number;
    run = previous = who = all->draw(block, true);
    is_touching = has_waited = false;
    unwaited = 0;
    atomics.clear();
    noticed.clear();
    noticed_at.clear();
    looked_at.clear();
    flags.clear();
}

// Flags that it looked at count from now on.
static void know_what_was_noticed(block_traces & b) {
    for (const u32 who : b.noticed) {
        b.all->see_store(b.block, who);
    }
    for (const u64 place : b.noticed_at) {
        b.all->see_signs(place, b.block);
    }
    b.noticed.clear();
    b.noticed_at.clear();
}

void block_traces::pass_barrier(bool is_spread) {
    if (all != nullptr) {
        unwaited = is_spread ? unwaited : 0;
        has_waited |= unwaited == 0;
        know_what_was_noticed(*this);
    }
}

void pass_store_wait(wave & w) {
    block_traces & b = checks_of(w).memory;
    b.has_waited = true;
    b.unwaited &= ~(1u << w.number);
}

// Behind it comes what others did. Compilers leave out the wait before it where a wave stored nothing.
void pass_fence(wave & w) {
    block_traces & b = checks_of(w).memory;
    if (b.all != nullptr) {
        b.has_waited |= (b.unwaited >> w.number & 1) == 0;
        know_what_was_noticed(b);
    }
}

namespace {

// ---- What one instruction of one wave touches

struct toucher {
    const instruction * i;
    wave & w;
    const facts & f;
    block_traces & b;
    launch_traces & all;
    u64 own, own_before; // touches of the block under its numbers, of no bytes
    u64 floor, first;
    bool is_store;
    bool may_see; // a sign

    toucher(const instruction * i, wave & w, const facts & f, block_traces & b)
        : i(i), w(w), f(f), b(b), all(*b.all), own(touch::made(b.who, 0)), own_before(touch::made(b.previous, 0)),
          floor(touch::made(all.order.floor, 0)), first(touch::made(all.order.first, 0)), is_store(f.is_store),
          may_see(f.is_flag || f.acquires) {}

    // Also under a number that the block had long ago: waves draw one after the other.
    bool is_mine(u64 t) const { return is_own(t) || touch::who(t) - b.run <= b.who - b.run; }
    // As is_own(), and of all four bytes.
    bool is_own_whole(u64 t) const {
        const u64 high = t >> touch::bytes_at;
        return high == (own >> touch::bytes_at | 15) || high == (own_before >> touch::bytes_at | 15);
    }
    bool is_free(u64 t) const { return t < floor || is_mine(t); }
    // Nobody else wrote there of whom it is not known that they come before.
    bool is_kept(u64 t) const { return t < floor || ((t >> touch::bytes_at & 15) == 15 && is_mine(t)); }
    u64 trace(u32 bytes) const { return own | u64(bytes) << touch::bytes_at | (i->number & touch::instruction_mask); }
    bool is_own(u64 t) const { return touch::who(t) == b.who || touch::who(t) == b.previous; }
    bool is_of_launch(u64 t) const { return t >= first; }
};

u64 get(const u64 & from) { return __atomic_load_n(&from, __ATOMIC_RELAXED); }
void put(u64 & to, u64 value) { __atomic_store_n(&to, value, __ATOMIC_RELAXED); }

u64 hash_of(u32 value) { return u64(value * 0x9e3779b1u >> 23) << touch::hash_at; }

// ---- Whole dwords that nobody else is in the way of: the usual case, without branches by dword. False when that is
// not so; then nothing was noted.

template <int n> using group = u64 __attribute__((ext_vector_type(n)));

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
    return is_own<n>(t, touches) | group<n>(((touches >> touch::who_at) - run) <= group<n>(t.b.who - run));
}

template <int n> bool touch_group(const toucher & t, const traces & to, size_t at, const group<n> & hashes) {
    const group<n> written = load<n>(to.written + at), read = load<n>(to.read + at);
    const group<n> is_whole = group<n>((written >> touch::bytes_at & 15) == 15);
    if (!all_of<n>(group<n>(written < t.floor) | (is_mine<n>(t, written) & is_whole))) {
        return false;
    }
    const group<n> now = group<n>(t.trace(15)) | hashes;
    const group<n> own_read = is_own<n>(t, read), free = group<n>(read < t.floor) | is_mine<n>(t, read);
    if (t.is_store) {
        const group<n> too = load<n>(to.read_too + at);
        if (!all_of<n>(free & (group<n>(too < t.floor) | is_mine<n>(t, too)))) {
            return false;
        }
        store<n>(to.written + at, now);
        return true;
    }
    if (!all_of<n>(free | group<n>(read >= t.first))) {
        return false;
    }
    if (all_of<n>(own_read & group<n>((read >> touch::bytes_at & 15) == 15))) {
        return true;
    }
    store<n>(to.read + at, (free & now) | (~free & read));
    if (!all_of<n>(free)) {
        const group<n> too = load<n>(to.read_too + at);
        const group<n> takes = ~free & (group<n>(too < t.floor) | is_mine<n>(t, too));
        store<n>(to.read_too + at, (takes & now) | (~takes & too));
    }
    return true;
}

// ---- One dword, whoever was there.

struct dword {
    const traces & to;
    size_t at;
    u64 place;   // of the access, which may begin before
    u32 bytes;   // that are touched
    u32 value;   // to be stored, in its place in the dword
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
    const dimensions & me = block_index(t.w);
    const std::string verb = t.f.is_atomic ? "changes " : t.is_store ? "writes " : "reads ";
    std::string who;
    if (is_of_launch) {
        who = "block (" + std::to_string(me.x) + ", " + std::to_string(me.y) + ", " + std::to_string(me.z) + ") ";
    }
    const u64 byte = d.address() + u64(std::countr_zero(d.bytes)) - d.range.begin;
    return who + verb + "byte " + std::to_string(byte) + " of an allocation of " +
           std::to_string(d.range.end - d.range.begin) + " bytes, which " +
           describe_touch(t.w, other, is_of_launch ? t.all.block_of(touch::who(other)) : 0) + did +
           ": nothing orders the two";
}

// The other one may be about to store the same. On a busy machine its thread waits for its turn: 256 yields were over
// before that on 2026-11-25 (two cores, seven processes), and blocks that store the same halves were told to race.
bool comes_to_memory(const dword & d) {
    using namespace std::chrono_literals;
    // Of the process. Where it is used up, a hundred dwords raced in earnest, and that was told: who waited for
    // good reason gives back what it took.
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
        report_touch(t.i, t.w, t.is_of_launch(other) ? kinds::races : kinds::asynchrony, words_of(t, d, did, other), other);
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
        // Many look at what others change by atomics before they do so themselves.
        if (!t.may_see && !was_atomic && !t.all.knows(t.b.block, who, false)) {
            conflict(t, d, did, other);
        }
        return;
    }
    // A flag that was set by a store and is looked at by atomics; a lock that is given back by a store.
    const bool is_flag = t.f.is_atomic && !t.f.writes.is_empty() && !t.all.is_first_of_block(who);
    const bool is_lock = was_atomic && t.b.atomics.contains(d.place);
    // Who saw a value there and writes the next one, as in a chain of blocks.
    const auto seen = t.b.flags.find(d.address());
    const bool is_next = seen != t.b.flags.end() && seen->second == who;
    if (is_flag || is_lock || is_next || t.all.knows(t.b.block, who, false)) {
        return;
    }
    const bool is_alike = d.bytes == 15 && touch::bytes(other) == 15 &&
                          touch::hash(other) == touch::hash(hash_of(d.value));
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

void note_writer(const toucher & t, const dword & d) {
    u64 & first = d.to.written[d.at];
    const u64 now = t.trace(d.bytes) | (t.f.is_atomic ? touch::atomic_bit : 0) |
                    (d.bytes == 15 ? hash_of(d.value) : 0);
    u64 before = get(first);
    for (;;) {
        const bool is_own = touch::who(before) == t.b.who;
        u64 wanted = now;
        if (is_own && t.f.is_atomic && !touch::is_atomic(before)) {
            return; // a plain store is not forgotten for an atomic
        }
        if (is_own) {
            wanted |= before & (u64(15) << touch::bytes_at);
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
            put(place, touch::who(there) == t.b.who ? now | (there & (u64(15) << touch::bytes_at)) : now);
        }
        return is_free;
    };
    if (!takes(first, one) && !takes(second, two) && !t.is_of_launch(one) && !t.is_of_launch(two)) {
        put(second, now); // of three operations the latest one
    }
}

void touch_dword(const toucher & t, const dword & d) {
    const u64 written = get(d.to.written[d.at]);
    meet_writer(t, d, written);
    if (touch::bytes(written) != 15) {
        meet_writer(t, d, get(d.to.written_too[d.at]));
    }
    if (t.is_store) {
        meet_reader(t, d, get(d.to.read[d.at]));
        meet_reader(t, d, get(d.to.read_too[d.at]));
        note_writer(t, d);
    } else if (!t.may_see) { // who writes a flag need not wait for who looked at it
        note_reader(t, d);
    }
}

// A lane's access, which may begin and end within dwords.
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

// Of an atomic or a flag, with the order that it makes.
void meet(const toucher & t, u64 place) {
    if (t.f.is_atomic) {
        if (t.b.atomics.size() < most_atomics) {
            t.b.atomics.insert(place);
        }
        t.all.give_sign(place, t.b.block, t.b.who);
    } else if (t.is_store && t.b.atomics.contains(place)) {
        t.all.give_sign(place, t.b.block, t.b.who);
    }
    if (t.may_see || (t.f.is_atomic && !t.f.writes.is_empty())) {
        t.b.looked_at.push_back(place);
    }
}

// Scalar loads have a cache of their own, which knows nothing of what vector instructions store. Many look at what is
// changed by atomics before they do so themselves.
void look_for_own_stores(const toucher & t, const memory_range & range, u64 place) {
    for (u64 at = place / 4 * 4; at < place + t.f.size; at += 4) {
        const u64 written = get(range.traced->written[(at - range.traced->begin) / 4]);
        const bool is_store = t.is_of_launch(written) && !touch::is_atomic(written);
        if (is_store && t.all.block_of(touch::who(written)) == t.b.block && t.w.checks->wanted.races) {
            report_touch(t.i, t.w, kinds::races,
                         "the wave reads byte " + std::to_string(at - range.begin) + " of an allocation of " +
                             std::to_string(range.end - range.begin) +
                             " bytes by a scalar load, which its own block wrote: scalar loads do not see that",
                         written);
            return;
        }
    }
}

// Of memory of the host the runtime is to know which part a kernel touched.
void note_touched(const memory_range & range, u64 place, u64 size) {
    if (range.is_host) [[unlikely]] {
        range.traced->note((place - range.traced->begin) / 4, (place + size + 3 - range.traced->begin) / 4);
    }
}

// Lanes that touch whole dwords side by side.
template <int words> bool touch_row(const toucher & t, const memory_range & range, u64 place, operand data) {
    for (int n = 0; n < words; ++n) {
        group<lanes> hashes = 0;
        if (t.is_store) { // dwords lie lane by lane
            alignas(128) u32 row[lanes];
            const u32 * values = reinterpret_cast<const u32 *>(&vector_at(t.w, data));
            for (int k = 0; k < lanes; ++k) {
                const int at = n * lanes + k;
                row[k] = values[at % words * lanes + at / words];
            }
            u32x row_values;
            std::memcpy(&row_values, row, sizeof(row));
            hashes = convert<u64x>(row_values * 0x9e3779b1u >> 23) << touch::hash_at;
        }
        if (!touch_group<lanes>(t, *range.traced, (place - range.traced->begin) / 4 + size_t(n) * lanes, hashes)) {
            return false;
        }
    }
    return true;
}

// One reader more, if that needs no look at the order of operations.
bool read_quickly(const toucher & t, const traces & to, size_t at, u64 now) {
    const u64 read = get(to.read[at]), bytes = now & u64(15) << touch::bytes_at;
    const auto note = [&](u64 & place, u64 there) {
        if (!t.is_own(there)) {
            put(place, now);
        } else if ((there & bytes) != bytes) {
            put(place, now | (there & u64(15) << touch::bytes_at));
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

// Loads of all lanes from one allocation, wherever each goes: first what is there, without branches, then the notes.
// False when somebody may be in the way; then nothing was noted.
bool read_scattered(const toucher & t, const memory_range & range, const u64x & addresses, u32 exec) {
    const u32 size = t.f.size;
    const u64x starts = addresses - range.traced->begin;
    const bool is_in_dwords = size < 4 ? !any((starts & 3) + size > 4) : size % 4 == 0 && !any((starts & 3) != 0);
    if (exec != ~0u || !is_in_dwords || lanes_outside(range, addresses, size, exec) != 0) {
        return false;
    }
    const traces & to = *range.traced;
    alignas(256) u64 at[lanes], bytes[lanes];
    const u64x dwords = starts >> 2;
    const u64x parts = size < 4 ? u64x((u64(1) << size) - 1) << (starts & 3) : u64x(15);
    const u64x whole = parts << touch::bytes_at;
    std::memcpy(at, &dwords, sizeof(at));
    std::memcpy(bytes, &whole, sizeof(bytes));
    const u64 own = t.own >> touch::who_at, own_before = t.own_before >> touch::who_at, run = t.b.run;
    const auto is_own = [&](u64 one) { return (one >> touch::who_at == own) | (one >> touch::who_at == own_before); };
    const auto is_mine = [&](u64 one) { return is_own(one) | ((one >> touch::who_at) - run <= own - run); };
    const u32 words = std::max(size / 4, u32(1));
    for (u32 n = 0; n < words; ++n) {
        u64 is_in_the_way = 0;
        for (int lane = 0; lane < lanes; ++lane) {
            const u64 written = to.written[at[lane] + n], read = to.read[at[lane] + n];
            const bool is_whole = (written >> touch::bytes_at & 15) == 15;
            const bool is_written_before = (written < t.floor) | (is_mine(written) & is_whole);
            const bool is_read_before = (read < t.floor) | (read >= t.first) | is_mine(read);
            is_in_the_way |= u64(!(is_written_before & is_read_before));
        }
        if (is_in_the_way != 0) {
            return false;
        }
    }
    const u64 now = t.trace(0);
    for (u32 n = 0; n < words; ++n) {
        for (int lane = 0; lane < lanes; ++lane) {
            u64 & first = to.read[at[lane] + n];
            const u64 there = get(first);
            u64 & place = (there < t.floor) | is_mine(there) ? first : to.read_too[at[lane] + n];
            const u64 before = get(place);
            if (is_own(before)) {
                if ((before & bytes[lane]) != bytes[lane]) {
                    put(place, now | bytes[lane] | (before & u64(15) << touch::bytes_at));
                }
            } else if ((before < t.floor) | is_mine(before)) {
                put(place, now | bytes[lane]);
            }
        }
    }
    return true;
}

// As touch_group(), for one lane.
bool touch_words(const toucher & t, const traces & to, size_t at, u32 words, const u32 * values, int lane) {
    for (u32 n = 0; n < words; ++n) {
        const u64 written = get(to.written[at + n]);
        if (!t.is_kept(written)) {
            return false;
        }
        if (t.is_store && !(t.is_free(get(to.read[at + n])) && t.is_free(get(to.read_too[at + n])))) {
            return false;
        }
    }
    const u64 now = t.trace(15);
    for (u32 n = 0; n < words; ++n) {
        if (t.is_store) {
            put(to.written[at + n], now | hash_of(values[n * lanes + u32(lane)]));
        } else if (!t.is_own_whole(get(to.read[at + n])) && !read_quickly(t, to, at + n, now)) {
            return false;
        }
    }
    return true;
}

// The same for some bytes of a dword.
bool touch_part(const toucher & t, const traces & to, size_t at, u32 bytes) {
    u64 written = get(to.written[at]);
    const bool is_alone = t.is_kept(written) ||
                          (t.is_own(written) && t.is_free(get(to.written_too[at])));
    if (!is_alone) {
        return false;
    }
    const u64 now = t.trace(bytes);
    if (!t.is_store) {
        return read_quickly(t, to, at, now);
    }
    if (!t.is_free(get(to.read[at])) || !t.is_free(get(to.read_too[at]))) {
        return false;
    }
    const u64 wanted = now | (t.is_own(written) ? written & u64(15) << touch::bytes_at : 0);
    return __atomic_compare_exchange_n(&to.written[at], &written, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void touch_lanes(const toucher & t, const u64x & addresses, u32 exec, operand data, bool has_data) {
    const u32 size = t.f.size;
    const bool is_simple = !t.f.is_atomic && !t.may_see;
    memory_range range = remembered_range(t.i, t.w);
    const u64 start = addresses[0];
    if (is_simple && exec == ~0u && start % 4 == 0 && range.holds(start, u64(size) * lanes) &&
        !any(addresses != convert<u64x>(lane_numbers()) * u64(size) + start)) {
        if (range.traced == nullptr) {
            return;
        }
        if (size == 4    ? touch_row<1>(t, range, start, data)
            : size == 8  ? touch_row<2>(t, range, start, data)
            : size == 16 ? touch_row<4>(t, range, start, data)
            : t.is_store ? false
            : size == 2  ? touch_group<lanes / 2>(t, *range.traced, (start - range.traced->begin) / 4, 0)
            : size == 1  ? touch_group<lanes / 4>(t, *range.traced, (start - range.traced->begin) / 4, 0)
                         : false) {
            note_touched(range, start, u64(size) * lanes);
            return;
        }
    }
    if (is_simple && !t.is_store && range.traced != nullptr && !range.is_host &&
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
            if (!look_for_range(t.i, t.w, place, size)) {
                continue;
            }
            range = remembered_range(t.i, t.w);
        }
        if (t.f.is_atomic || t.may_see || (t.is_store && !t.b.atomics.empty())) {
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
    if (f.is_store && b.has_waited) {
        if (b.is_touching) { // what it did until now was done before this
            b.previous = b.who;
            b.who = b.all->draw(b.block, false);
            b.run = b.who == b.previous + 1 ? b.run : b.who;
        }
        b.is_touching = b.has_waited = false;
    }
    if (f.is_store && !f.is_atomic) {
        b.unwaited |= 1u << w.number;
    }
    b.is_touching = true;
    b.looked_at.clear();
    touch_lanes(toucher(i, w, f, b), addresses, exec, checked->from[role::data], f.is_store);
    // Whoever sees what is stored next finds the trace of it.
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
        if (b.all->has_meetings() && b.noticed_at.size() < most_noticed) {
            b.noticed_at.insert(place);
        }
        const instruction * before = i - 2; // it found the allocation
        if (!remembered_range(before, w).holds(place, f.size) && !look_for_range(before, w, place, f.size)) {
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
            if (is_of_other && !touch::is_atomic(written) && b.noticed.size() < most_noticed) {
                b.noticed.insert(who);
                b.flags[at] = who;
            }
        }
    }
    b.looked_at.clear();
    if (at_once) {
        know_what_was_noticed(b);
    }
}

} // namespace patchkit::gpu
