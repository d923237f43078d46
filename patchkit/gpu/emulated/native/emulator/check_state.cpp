#include "check_state.hpp"

#include <bit>

namespace patchkit::gpu {

// This wave observed a signal of another wave: after a fence, or immediately, the other wave's work, and what that wave
// knew, is ordered before what follows.
void wave_checks::see(u32 wave, const wave_checks & of, u32 below, bool at_once) {
    const u32 all = 1u << wave | of.met;
    for (u32 left = all; left != 0; left &= left - 1) {
        const int n = std::countr_zero(left);
        const u32 known = u32(n) == wave ? below : of.seen_below[n];
        seen_below[n] = ((seen | met) >> n & 1) != 0 ? std::max(seen_below[n], known) : known;
    }
    (at_once ? met : seen) |= all;
}

void hold_look(block_checks & b, held_look one) {
    constexpr size_t most_held = 4096;
    const bool is_known = std::any_of(b.looks.begin(), b.looks.end(), [&](const held_look & known) {
        return known.place == one.place && known.i == one.i && known.wave == one.wave && known.look == one.look;
    });
    if (!is_known && b.looks.size() < most_held && !b.first_looks.contains(one.look)) {
        b.looks.push_back(std::move(one));
    }
}

void redeem_looks(block_checks & b, u64 place, u32 size, u32 wave) {
    std::erase_if(b.looks, [&](held_look & one) {
        if (one.place < place / 4 * 4 || one.place >= place + size || (one.readers >> wave & 1) == 0) {
            return false;
        }
        if (std::has_single_bit(one.readers)) {
            b.first_looks.insert(one.look);
        }
        one.readers &= ~(1u << wave);
        return one.is_any || one.readers == 0;
    });
}

static void for_each_trace(lds_traces & lds, const auto & use) {
    for (lds_cells * cells : {&lds.dwords, &lds.bytes}) {
        for (std::vector<u32> * one : {&cells->written, &cells->read, &cells->readers}) {
            use(*one, cells == &lds.dwords ? 1 : 4);
        }
    }
    for (std::vector<u32> * one :
         {&lds.written_by, &lds.read_by, &lds.read_before, &lds.atomic, &lds.flagged, &lds.flagging, &lds.mixed}) {
        use(*one, 1);
    }
}

void lds_traces::resize(size_t dwords_in_all) {
    for_each_trace(*this, [&](std::vector<u32> & one, size_t per_dword) { one.resize(per_dword * dwords_in_all); });
}

void block_checks::begin(u32 lds_bytes, u32 wave_count, const checks & wanted, bool is_in_wgp_mode) {
    pass_barrier();
    is_spread = is_in_wgp_mode && wave_count > 1;
    hanging.clear();
    hanging_first = ~u64(0);
    hanging_end = 0;
    const size_t dwords = (lds_bytes + 3) / 4;
    lds.resize(dwords);
    again = nullptr;
    caches = nullptr;
    hidden.clear();
    looks.clear();
    lds_known.assign(wanted.uninitialised ? lds_bytes : 0, std::byte(0));
    waves.resize(wave_count);
    for (wave_checks & one : waves) {
        one.pending = {};
        one.queue.clear();
        one.overlaps = false;
        one.stores.clear();
        one.wanted = wanted;
        one.block = this;
        one.skipped = 0;
        one.stale = {};
        one.passed.clear();
        one.executed_then = 0;
        one.renew_hints();
    }
}

void block_checks::pass_barrier() {
    epoch += 1;
    reads.clear();
    constexpr u32 most_epochs = 1u << 22;
    if (epoch == most_epochs) {
        epoch = 1;
        last_odd = last_noted = 0;
        for_each_trace(lds, [](std::vector<u32> & one, size_t) { std::fill(one.begin(), one.end(), 0); });
    }
    for (wave_checks & one : waves) {
        one.met = one.seen = 0;
    }
    memory.pass_barrier(is_spread);
}

} // namespace patchkit::gpu
