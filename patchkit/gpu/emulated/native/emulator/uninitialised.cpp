// Follows uninitialised values from where they are read to where they matter.
//
// Registers, LDS, scratch and device memory start uninitialised. Uninitialised bits may be read, moved and computed
// with: compilers and people do that and mask them out later. It is a finding if they decide an address, a branch, or
// what the host reads.
//
// The dependence of a result on uninitialised bits is not derived from rules per instruction. Instead, the instruction
// is run separately with different values for these bits, and result bits that differ are uninitialised. What is masked
// out, multiplied by zero or not selected does not differ, so it is no finding. A dependence that shows with none of
// the tried values is missed.
#include "uninitialised.hpp"

#include "access.hpp"
#include "executor.hpp"

#include <algorithm>

namespace patchkit::gpu {

namespace {

// The origin of bits is an instruction number: the load, or the first use of a register that was never written. With
// this flag, they were computed from such bits, and are not just copies.
constexpr u32 computed = 1u << 31;
constexpr u32 nowhere = ~computed; // no instruction: a register that was never written

int vgpr_of(operand o) { return (o.offset() - offset_of_vgpr(0)) / i32(sizeof(u32x)); }
int slot_of(operand o) { return (o.offset() - offset_of_scalar(0)) / 4; }

// ---- State of registers

void set_vgpr(wave_checks & c, int n, const u32x & unknown, u32 from) {
    unknown_bits & v = c.unknown;
    v.vgprs[size_t(n)] = unknown;
    if (__builtin_reduce_or(unknown) == 0) {
        v.registers.remove_vgpr(n);
    } else {
        v.registers.add_vgpr(n);
        v.vgprs_from[size_t(n)] = from;
    }
}

void set_slot(wave_checks & c, int n, u32 unknown, u32 from) {
    unknown_bits & v = c.unknown;
    v.scalars[size_t(n)] = unknown;
    if (unknown == 0) {
        v.registers.remove_slot(n);
    } else {
        v.registers.add_slot(n);
        v.scalars_from[size_t(n)] = from;
    }
}

void renew(wave_checks & c) { c.renew_hints(); }

// Registers of a set with uninitialised bits in relevant lanes, and the origin of the first.
struct sources {
    bool any = false;
    u32 from = nowhere; // without `computed`
    bool is_computed = false;
};

sources unknown_in(const wave_checks & c, const register_set & these, u32 which) {
    const unknown_bits & v = c.unknown;
    const register_set both = v.registers.both(these);
    sources result;
    const auto add = [&](u32 from) {
        result.from = result.any ? result.from : from & ~computed;
        result.is_computed |= (from & computed) != 0;
        result.any = true;
    };
    both.each_vgpr([&](int n) {
        const u32x & unknown = v.vgprs[size_t(n)];
        if (which == ~0u ? __builtin_reduce_or(unknown) != 0 : any((lane_mask(which) & as<i32x>(unknown)) != 0)) {
            add(v.vgprs_from[size_t(n)]);
        }
    });
    both.each_slot([&](int n) {
        if (v.scalars[size_t(n)] != 0) {
            add(v.scalars_from[size_t(n)]);
        }
    });
    return result;
}

void forget(wave_checks & c, const register_set & these) {
    const register_set both = c.unknown.registers.both(these);
    both.each_vgpr([&](int n) { set_vgpr(c, n, u32x{}, 0); });
    both.each_slot([&](int n) { set_slot(c, n, 0, 0); });
    renew(c);
}

// Reports the origin: the load that read the value, if there was one.
void tell(const instruction * i, wave & w, const std::string & what, u32 from) {
    from &= ~computed;
    w.on->report(i, w, kinds::uninitialised, from == nowhere ? what + ": a register that was never written" : what,
                 from == nowhere || from == i->number ? nullptr : &from);
}

// ---- Trial runs of an instruction

// Values to try for uninitialised bits: minimum and maximum, large floats (f32 and f16) of either sign, and values that
// differ between lanes. Then the values of the other sources, which decides comparisons for equality.
constexpr u32 guesses[] = {0, ~0u, 0x7f7f7bff, 0xfbfffbff, 0x3fc03e00};
constexpr int fixed_guesses = std::size(guesses), most_guesses = fixed_guesses + 3;

struct guess {
    u32x lanes_take;
    u32 scalars_take;
};

guess guess_of(int n, const instruction * alone, const wave & w) {
    if (n < fixed_guesses) {
        return {splat<u32x>(guesses[n]), guesses[n]};
    }
    if (n == fixed_guesses) {
        // The sources of a matrix instruction are equal in both halves of the wave.
        return {((lane_numbers() & 15) + 1) * 0x9e3779b9, 0x9e3779b9};
    }
    const operand o = alone->from[n - fixed_guesses - 1];
    const u32x value = has(o) ? read_bits(alone, w, o) : splat<u32x>(1);
    return {value, value[0]};
}

class trial {
  public:
    trial(const instruction * i, wave & w, const facts & f) : i(i), w(w), f(f), c(*w.checks), spare(w.on->spare_wave()) {
        const auto add = [this](int n) { vgprs[count++] = n; };
        if (f.is_moved) {
            for (int n = 0; n < int(c.unknown.vgprs.size()); ++n) {
                add(n);
            }
        } else {
            f.touched.each_vgpr(add);
        }
    }

    void run(u32 from) {
        unknown_bits & v = c.unknown;
        if (!run_once(nullptr)) {
            return; // the real execution will fault
        }
        // The registers that it writes, if known in advance.
        int compared[256], compared_count = 0;
        for (int n = 0; n < count; ++n) {
            if (f.is_moved || f.writes.holds_vgpr(vgprs[n])) {
                first[n] = spare.vgpr(vgprs[n]);
                differs[n] = u32x{};
                compared[compared_count++] = n;
            }
        }
        int slots[slot::count], slot_count = 0;
        f.writes.each_slot([&](int n) {
            if (n != slot::exec) {
                slots[slot_count++] = n;
            }
        });
        slots[slot_count++] = slot::exec; // which lanes are active
        u32 scalars[slot::count], scalars_differ[slot::count];
        for (int k = 0; k < slot_count; ++k) {
            scalars[slots[k]] = spare.scalar[slots[k]];
            scalars_differ[slots[k]] = 0;
        }
        const bool scc = spare.scc;
        bool scc_differs = false;
        for (int n = 0; n < most_guesses; ++n) {
            const guess taken = guess_of(n, f.alone, w);
            if (!run_once(&taken, n % 2 == 0)) {
                continue;
            }
            for (int k = 0; k < compared_count; ++k) {
                const int at = compared[k];
                differs[at] |= spare.vgpr(vgprs[at]) ^ first[at];
            }
            for (int k = 0; k < slot_count; ++k) {
                scalars_differ[slots[k]] |= spare.scalar[slots[k]] ^ scalars[slots[k]];
            }
            scc_differs |= spare.scc != scc;
        }
        register_set written = f.writes;
        for (int n = 0; f.is_moved && n < count; ++n) {
            const u32x & before = v.vgprs[size_t(vgprs[n])];
            if (__builtin_reduce_or(differs[n] ^ before) != 0) {
                written.add_vgpr(vgprs[n]);
            }
        }
        int at = 0;
        written.each_vgpr([&](int n) {
            while (vgprs[at] != n) {
                ++at;
            }
            set_vgpr(c, n, differs[at], from);
        });
        f.writes.each_slot([&](int n) { set_slot(c, n, n == slot::exec ? 0 : scalars_differ[n], from); });
        if (f.is_scalar) {
            v.scc = scc_differs;
            v.scc_from = from;
        }
        renew(c);
        if (scalars_differ[slot::exec] != 0) {
            tell(i, w, "decides which lanes are active by an uninitialised value", from);
        }
    }

  private:
    const instruction * i;
    wave & w;
    const facts & f;
    wave_checks & c;
    wave & spare;
    int count = 0;
    int vgprs[256];
    u32x first[256], differs[256];

    // Copies bytes, because a wave's registers follow it in memory. Returns false if a trial run is not possible: a
    // register number out of range, or halves of a matrix that differ.
    bool run_once(const guess * taken, bool flips_scc = false) {
        const unknown_bits & v = c.unknown;
        std::memcpy(static_cast<void *>(&spare), &w, sizeof(wave));
        spare.marks = nullptr;
        for (int k = 0; k < count; ++k) {
            const auto n = size_t(vgprs[k]);
            spare.vgpr(vgprs[k]) =
                taken == nullptr ? w.vgpr(vgprs[k]) : (w.vgpr(vgprs[k]) & ~v.vgprs[n]) | (taken->lanes_take & v.vgprs[n]);
        }
        if (taken != nullptr) {
            v.registers.both(f.touched).each_slot([&](int n) {
                const u32 unknown = v.scalars[size_t(n)];
                spare.scalar[n] = (w.scalar[n] & ~unknown) | (taken->scalars_take & unknown);
            });
            spare.scc = w.scc ^ (v.scc && flips_scc);
        }
        try {
            run_from(f.alone, spare);
        } catch (const kernel_fault &) {
            return false;
        }
        return true;
    }
};

} // namespace

register_set unknown_at_start(int vgprs, int given, int ids, int ids_end, const register_set * touched) {
    register_set result;
    for (int n = 1; n < vgprs; ++n) {
        result.add_vgpr(n);
    }
    for (int n = given; n < slot::vcc; ++n) {
        if (n < ids || n >= ids_end) {
            result.add_slot(n);
        }
    }
    for (const int n : {slot::vcc, slot::vcc + 1, slot::m0}) {
        result.add_slot(n);
    }
    if (touched != nullptr) {
        result = result.both(*touched);
        result.renew_hints();
    }
    return result;
}

void begin_unknown(wave & w, int vgprs, const register_set & at_start) {
    wave_checks & c = *w.checks;
    unknown_bits & v = c.unknown;
    const u32x active = as<u32x>(lane_mask(w.exec())); // lanes that are never active need no values
    v.registers = at_start;
    if (v.vgprs.size() != size_t(vgprs)) {
        v.vgprs.assign(size_t(vgprs), u32x{});
        v.vgprs_from.assign(size_t(vgprs), nowhere);
    }
    // Registers outside of the set keep their values: they are not examined, or are zero.
    v.vgprs[0] = u32x{};
    at_start.each_vgpr([&](int n) {
        v.vgprs[size_t(n)] = active;
        v.vgprs_from[size_t(n)] = nowhere;
    });
    v.scalars.fill(0);
    at_start.each_slot([&](int n) {
        v.scalars[size_t(n)] = ~0u;
        v.scalars_from[size_t(n)] = nowhere;
    });
    v.scc = false;
    v.scratch_known.assign(w.scratch_size / 4, u32x{});
    c.renew_hints();
}

// For a VALU instruction that moves bits: the sources that select among them.
static register_set masks_of(const facts & f) {
    register_set result;
    if (!f.is_scalar) {
        f.reads.each_slot([&](int n) { result.add_slot(n); });
    }
    return result;
}

// Marks a whole register as initialised in these lanes; requires renew() afterwards.
static void give_value(wave_checks & c, int n, const i32x & in) {
    unknown_bits & v = c.unknown;
    if (v.registers.holds_vgpr(n)) {
        u32x & unknown = v.vgprs[size_t(n)];
        unknown &= ~as<u32x>(in);
        if (__builtin_reduce_or(unknown) == 0) {
            v.registers.remove_vgpr(n);
        }
    }
}

// Fast path for most calls: everything that it reads is initialised in the relevant lanes, and so is what it writes.
// Returns false, without any effect, if that is not the case.
static bool gives_values(wave_checks & c, const facts & f, u32 which) {
    unknown_bits & v = c.unknown;
    if (!f.is_whole || f.is_moved || f.is_jump || f.is_given || (v.scc && f.is_scalar)) {
        return false;
    }
    for (const int n : f.slots_read) {
        if (v.registers.holds_slot(n) && v.scalars[size_t(n)] != 0) {
            return false;
        }
    }
    const i32x lanes_that_count = lane_mask(which);
    for (const int n : f.vgprs_read) {
        if (v.registers.holds_vgpr(n) && __builtin_reduce_or(as<i32x>(v.vgprs[size_t(n)]) & lanes_that_count) != 0) {
            return false;
        }
    }
    for (const int n : f.vgprs_written) {
        give_value(c, n, lanes_that_count);
    }
    for (const int n : f.slots_written) {
        if (v.registers.holds_slot(n)) {
            set_slot(c, n, 0, 0);
        }
    }
    renew(c);
    return true;
}

void follow_computation(const instruction * i, wave & w, const facts & f) {
    wave_checks & c = *w.checks;
    if (gives_values(c, f, f.is_lanewise ? w.exec() : ~0u)) {
        return;
    }
    const u32 which = f.is_lanewise ? w.exec() : ~0u;
    sources from = unknown_in(c, f.reads, which);
    if (f.is_moved) { // v_movrels also reads M0 and another register than the named one
        register_set read = f.reads;
        const int moved = vgpr_of(f.alone->from[0]) + int(w.scalar[slot::m0]);
        if (f.alone->from[0].is(operand::vector) && moved < int(c.unknown.vgprs.size())) {
            read.add_vgpr(moved);
        }
        read.add_slot(slot::m0);
        from = unknown_in(c, read, ~0u);
    }
    if (c.unknown.scc && f.is_scalar) {
        from = {true, from.any ? from.from : c.unknown.scc_from & ~computed, true};
    }
    if (f.is_jump && from.any) {
        tell(i, w, "jumps to an uninitialised address", from.from);
        forget(c, f.reads);
        return;
    }
    if (f.is_given) {
        forget(c, f.writes);
        return;
    }
    if (!from.any && !c.unknown.registers.meets(f.writes) && !f.is_moved) {
        return;
    }
    if (!from.any) { // a part of its destination is unchanged
        from = unknown_in(c, f.writes, ~0u);
    }
    // A selection by uninitialised bits is more than a move.
    const bool is_chosen = c.unknown.scc || unknown_in(c, masks_of(f), ~0u).any;
    const u32 number = from.from == nowhere ? i->number : from.from;
    trial(i, w, f).run(number | (from.is_computed || !f.moves_bits || is_chosen ? computed : 0));
}

void follow_branch(const instruction * i, wave & w, const facts & f) {
    wave_checks & c = *w.checks;
    unknown_bits & v = c.unknown;
    if (!f.reads.is_empty()) { // VCC: decided if any initialised bit is set
        const u32 unknown = v.scalars[slot::vcc];
        if (unknown != 0 && (w.scalar[slot::vcc] & ~unknown) == 0) {
            tell(i, w, "decides a branch by an uninitialised value", v.scalars_from[slot::vcc]);
            set_slot(c, slot::vcc, 0, 0);
            renew(c);
        }
    } else if (v.scc) {
        tell(i, w, "decides a branch by an uninitialised value", v.scc_from);
        v.scc = false;
        renew(c);
    }
}

// ---- Memory

namespace {

// For each lane's access, the bytes that describe which bits are initialised. Null: all are.
struct beside {
    std::byte * at[lanes]{};
    u32 scratch[lanes]; // offset, if a lane accesses scratch
    u32 is_scratch = 0;
    u32 is_lds = 0;
    u32 is_host = 0; // lanes that access host memory, so that the host reads what they write
    u32x * rows = nullptr;

    std::byte * byte(int lane, u32 n) const {
        if ((is_scratch >> lane & 1) == 0) {
            return at[lane] == nullptr ? nullptr : at[lane] + n;
        }
        const u32 offset = scratch[lane] + n;
        return reinterpret_cast<std::byte *>(rows) + (size_t(offset / 4) * lanes + size_t(lane)) * 4 + offset % 4;
    }
    bool is_followed(int lane) const { return (is_scratch >> lane & 1) != 0 || at[lane] != nullptr; }
};

template <class T> bool has_all_bits(const std::byte * at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value == T(~T(0));
}

bool is_known(const std::byte * at, u32 size) {
    switch (size) {
        case 1: return has_all_bits<u8>(at);
        case 2: return has_all_bits<u16>(at);
        case 4: return has_all_bits<u32>(at);
        case 8: return has_all_bits<u64>(at);
        case 12: return has_all_bits<u64>(at) && has_all_bits<u32>(at + 8);
        case 16: return has_all_bits<unsigned __int128>(at);
        default: return std::all_of(at, at + size, [](std::byte one) { return one == std::byte(0xff); });
    }
}

void make_known(std::byte * at, u32 size) {
    switch (size) {
        case 1: std::memset(at, 0xff, 1); break;
        case 2: std::memset(at, 0xff, 2); break;
        case 4: std::memset(at, 0xff, 4); break;
        case 8: std::memset(at, 0xff, 8); break;
        case 16: std::memset(at, 0xff, 16); break;
        default: std::memset(at, 0xff, size);
    }
}

void find_beside(const instruction * i, wave & w, const facts & f, const u64x & addresses, u32 exec, beside & to) {
    alignas(128) u64 places[lanes];
    std::memcpy(places, &addresses, sizeof(places));
    memory_range range = remembered_range(i, w);
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const u64 place = places[lane];
        if (!range.holds(place, f.size)) {
            if (!w.on->look_for_range(i, w, place, f.size)) {
                continue;
            }
            range = remembered_range(i, w);
        }
        to.at[lane] = range.known == nullptr ? nullptr : range.known + (place - range.begin);
        to.is_host |= u32(range.is_host) << lane;
    }
}

// For access `n` of an instruction with several.
void find_beside(const instruction * i, wave & w, const facts & f, int n, u32 exec, beside & to) {
    const instruction * checked = i + 1;
    to.rows = w.checks->unknown.scratch_known.data();
    const auto in_lds = [&](const u32x & offsets, u32 which) {
        to.is_lds = which;
        std::byte * start = checks_of(w).lds_known.data();
        for (u32 left = which; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            to.at[lane] = start + offsets[lane];
        }
    };
    const auto in_scratch = [&](const u32x & offsets, u32 which) {
        std::memcpy(to.scratch, &offsets, sizeof(to.scratch));
        to.is_scratch = which;
    };
    switch (f.where) {
        case space::global: find_beside(i, w, f, global_addresses(checked, w), exec, to); break;
        case space::flat: {
            const u64x addresses = global_addresses(checked, w);
            const u64x high = addresses >> 48 << 48;
            const u32 is_shared = lane_bits(high == shared_aperture) & exec;
            const u32 is_private = lane_bits(high == private_aperture) & exec;
            in_lds(low_of(addresses), is_shared);
            in_scratch(low_of(addresses), is_private);
            find_beside(i, w, f, addresses, exec & ~(is_shared | is_private), to);
            break;
        }
        case space::lds:
            in_lds(f.accesses == 1 ? lds_addresses(checked, w) : lds_addresses(checked, w, n, f.unit), exec);
            break;
        case space::scratch: in_scratch(scratch_offsets(checked, w), exec); break;
        default: break;
    }
}

// Uninitialised bits of dword n of a lane's access, which may be a part of one.
u32 unknown_of(const beside & places, int lane, u32 n, u32 size) {
    u32 known = 0;
    const u32 bytes = std::min<u32>(4, size - n);
    for (u32 k = 0; k < bytes; ++k) {
        known |= u32(*places.byte(lane, n + k)) << (8 * k);
    }
    return bytes == 4 ? ~known : ~known & ((1u << (8 * bytes)) - 1);
}

template <class T> u32 lanes_with_unknown(const beside & places, u32 exec) {
    u32 result = 0;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        if (places.at[lane] != nullptr) {
            result |= u32(!has_all_bits<T>(places.at[lane])) << lane;
        }
    }
    return result;
}

// Lanes whose access has uninitialised bits.
u32 lanes_with_unknown(const beside & places, u32 exec, u32 size) {
    if (places.is_scratch == 0) {
        switch (size) {
            case 1: return lanes_with_unknown<u8>(places, exec);
            case 2: return lanes_with_unknown<u16>(places, exec);
            case 4: return lanes_with_unknown<u32>(places, exec);
            case 8: return lanes_with_unknown<u64>(places, exec);
            case 16: return lanes_with_unknown<unsigned __int128>(places, exec);
            default: break;
        }
    }
    u32 result = 0;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        for (u32 n = 0; n < size && places.is_followed(lane); n += 4) {
            result |= u32(unknown_of(places, lane, n, size) != 0) << lane;
        }
    }
    return result;
}

void follow_load(const instruction * i, wave & w, const facts & f, u32 exec, const beside & places, int first) {
    wave_checks & c = *w.checks;
    const u32 count = std::max<u32>(1, f.size / 4);
    const u32 unknown_lanes = lanes_with_unknown(places, exec, f.size);
    register_set written;
    for (u32 n = 0; n < count; ++n) {
        written.add_vgpr(first + int(n));
    }
    if (unknown_lanes == 0 && !c.unknown.registers.meets(written)) {
        return;
    }
    const u32 mask = f.filled == 0 ? ~0u : ((1u << (8 * f.filled)) - 1) << f.shift;
    for (u32 n = 0; n < count; ++n) {
        u32x found{};
        for (u32 left = unknown_lanes; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            u32 unknown = unknown_of(places, lane, 4 * n, f.size);
            if (f.size < 4 && f.is_signed) {
                unknown = f.size == 1 ? u32(i32(int8_t(unknown))) : u32(i32(i16(unknown)));
            }
            found[lane] = unknown << f.shift & mask;
        }
        const u32x before = c.unknown.vgprs[size_t(first) + n];
        const u32x kept = f.filled == 0 ? splat<u32x>(0) : before & ~mask;
        const bool is_new = unknown_lanes != 0;
        set_vgpr(c, first + int(n), lane_mask(exec) ? found | kept : before,
                 is_new ? i->number : c.unknown.vgprs_from[size_t(first) + n]);
    }
    renew(c);
}

bool is_of_device(const facts & f, int lane, const beside & places) {
    return (f.where == space::global || f.where == space::flat) && (places.is_scratch >> lane & 1) == 0 &&
           !(f.where == space::flat && places.is_lds >> lane & 1);
}

void leave_unknown(const instruction * i, wave & w, const facts & f, int lane, const beside & places, u32 from) {
    if (!is_of_device(f, lane, places)) {
        return;
    }
    const std::string what = "lane " + std::to_string(lane) + (f.is_atomic ? " changes " : " writes ") + std::to_string(f.size) +
                             (f.size == 1 ? " byte" : " bytes") + " that are not all initialised";
    if ((places.is_host >> lane & 1) != 0) {
        tell(i, w, what + ", to host memory", from);
        return;
    }
    const memory_range & range = remembered_range(i, w);
    if (places.at[lane] == nullptr || range.known == nullptr || places.at[lane] < range.known) {
        return;
    }
    const auto offset = size_t(places.at[lane] - range.known);
    if (offset >= range.end - range.begin) {
        return;
    }
    const bool has_other = from != nowhere && from != i->number;
    const u32 number = w.on->hold_back(i, w, kinds::uninitialised, what, has_other ? &from : nullptr);
    for (size_t n = offset / 4; n <= (offset + f.size - 1) / 4; ++n) {
        range.left_by[n] = number;
    }
}

void follow_store(const instruction * i, wave & w, const facts & f, u32 exec, const beside & places, operand data) {
    wave_checks & c = *w.checks;
    const int first = vgpr_of(data);
    const u32 count = std::max<u32>(1, f.size / 4);
    const int shift = f.shift != 0 || data.is(operand::high) ? 16 : 0;
    register_set read;
    for (u32 n = 0; n < count; ++n) {
        read.add_vgpr(first + int(n));
    }
    const sources from = unknown_in(c, read, exec);
    if (!from.any) {
        for (u32 left = exec; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            if ((places.is_scratch >> lane & 1) != 0) {
                for (u32 n = 0; n < f.size; ++n) {
                    *places.byte(lane, n) = std::byte(0xff);
                }
            } else if (places.at[lane] != nullptr) {
                make_known(places.at[lane], f.size);
            }
        }
        return;
    }
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        u32 some = 0, all = ~0u;
        for (u32 n = 0; n < f.size; n += 4) {
            const u32 bits = f.size - n < 4 ? (1u << (8 * (f.size - n))) - 1 : ~0u;
            u32 unknown = c.unknown.vgprs[size_t(first) + n / 4][lane] >> shift & bits;
            if (is_of_device(f, lane, places) && from.is_computed && unknown != 0) {
                unknown = bits; // a later load does not know that they were computed
            }
            some |= unknown;
            all &= unknown | ~bits;
            for (u32 k = n; places.is_followed(lane) && k < std::min(n + 4, f.size); ++k) {
                *places.byte(lane, k) = std::byte(~(unknown >> (8 * (k - n))));
            }
        }
        // A mere copy is a finding only if it is completely uninitialised; otherwise the rest may be padding, or
        // unused.
        if (some != 0 && (from.is_computed || all == ~0u)) {
            leave_unknown(i, w, f, lane, places, from.from);
        }
    }
}

// The old value becomes the result, and the new value depends on the old one and on the data.
void follow_atomic(const instruction * i, wave & w, const facts & f, u32 exec, const beside & places, int nth) {
    wave_checks & c = *w.checks;
    const instruction * checked = i + 1;
    const int words = int(f.size / 4);
    const sources from = unknown_in(c, f.reads, exec);
    const bool returns = has(checked->to[0]);
    u32x results[2]{0, 0};
    bool is_new = false;
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        if (!places.is_followed(lane)) {
            continue;
        }
        u32 before = 0;
        for (int n = 0; n < words; ++n) {
            const u32 unknown = unknown_of(places, lane, u32(4 * n), f.size);
            results[n][lane] = unknown;
            before |= unknown;
        }
        is_new |= before != 0;
        const bool is_known = (f.is_exchange || before == 0) && !unknown_in(c, f.reads, 1u << lane).any;
        for (u32 n = 0; n < f.size; ++n) {
            *places.byte(lane, n) = std::byte(is_known ? 0xff : 0);
        }
        if (!is_known) {
            leave_unknown(i, w, f, lane, places, before != 0 ? i->number : from.from);
        }
    }
    if (returns) {
        const int first = vgpr_of(checked->to[0]) + nth * words;
        for (int n = 0; n < words; ++n) {
            const u32x old = c.unknown.vgprs[size_t(first + n)];
            set_vgpr(c, first + n, lane_mask(exec) ? results[n] : old,
                     is_new ? i->number : c.unknown.vgprs_from[size_t(first + n)]);
        }
        renew(c);
    }
}

void follow_scalar_load(const instruction * i, wave & w, const facts & f) {
    wave_checks & c = *w.checks;
    const u64 place = scalar_address(i + 1, w) & (f.size < 4 ? ~u64(0) : ~u64(3));
    const memory_range & range = remembered_range(i, w);
    const std::byte * known =
        range.known == nullptr || !range.holds(place, f.size) ? nullptr : range.known + (place - range.begin);
    const int first = slot_of(i[1].to[0]);
    const u32 count = std::max<u32>(1, f.size / 4);
    if (first >= slot::null) {
        return;
    }
    register_set written;
    for (u32 n = 0; n < count; ++n) {
        written.add_slot(first + int(n));
    }
    if ((known == nullptr || is_known(known, f.size)) && !c.unknown.registers.meets(written)) {
        return;
    }
    for (u32 n = 0; n < count; ++n) {
        u32 bits = ~0u;
        if (known != nullptr) {
            std::memcpy(&bits, known + 4 * n, std::min<u32>(4, f.size));
        }
        set_slot(c, first + int(n), ~bits, i->number);
    }
    renew(c);
}

template <class T> bool is_all_known(const std::byte * known, const u32 * offsets, u32 exec) {
    T all = T(~T(0));
    const auto look = [&](int lane) {
        T one;
        std::memcpy(&one, known + offsets[lane], sizeof(T));
        all = T(all & one);
    };
    if (exec == ~0u) { // no lane depends on the index of the previous one
        for (int lane = 0; lane < lanes; ++lane) {
            look(lane);
        }
    } else {
        for (u32 left = exec; left != 0; left &= left - 1) {
            look(std::countr_zero(left));
        }
    }
    return all == T(~T(0));
}

template <class T> void make_all_known(std::byte * known, const u32 * offsets, u32 exec) {
    const T all = T(~T(0));
    for (u32 left = exec; left != 0; left &= left - 1) {
        std::memcpy(known + offsets[std::countr_zero(left)], &all, sizeof(T));
    }
}

// For all lanes, with that many bytes each.
bool is_row_known(const std::byte * at, u32 size) {
    using chunk = vector_of<u64, 4>;
    static_assert(sizeof(chunk) == lanes);
    chunk all = ~chunk{};
    for (u32 n = 0; n < size; ++n) {
        chunk one;
        std::memcpy(&one, at + n * sizeof(chunk), sizeof(one));
        all &= one;
    }
    return __builtin_reduce_and(all) == ~u64(0);
}

// Fast path for most accesses: all lanes access one allocation, or LDS, and what they read is initialised. What they
// store counts as initialised from then on. Returns false, without any effect, if that is not the case.
bool is_known_access(const instruction * i, wave & w, const facts & f, u32 exec, int n) {
    const instruction * checked = i + 1;
    std::byte * known = nullptr;
    u32x places;
    if (f.where == space::lds) {
        known = checks_of(w).lds_known.data();
        places = f.accesses == 1 ? lds_addresses(checked, w) : lds_addresses(checked, w, n, f.unit);
    } else if (f.where == space::global) {
        const memory_range & range = remembered_range(i, w);
        const u64x addresses = global_addresses(checked, w);
        if (range.end - range.begin > ~u32(0) || lanes_outside(range, addresses, f.size, exec) != 0) {
            return false;
        }
        if (range.known == nullptr) {
            return true;
        }
        known = range.known;
        places = low_of(addresses - range.begin);
    } else {
        return false;
    }
    if (u32 start = 0; is_row(places, f.size, exec, start)) {
        if (f.is_store) {
            std::memset(known + start, 0xff, f.size * lanes);
            return true;
        }
        return is_row_known(known + start, f.size);
    }
    alignas(128) u32 offsets[lanes];
    std::memcpy(offsets, &places, sizeof(offsets));
    const auto with = [&](auto type) {
        using T = decltype(type);
        if (f.is_store) {
            make_all_known<T>(known, offsets, exec);
            return true;
        }
        return is_all_known<T>(known, offsets, lanes_with_places(places, exec));
    };
    switch (f.size) {
        case 1: return with(u8());
        case 2: return with(u16());
        case 4: return with(u32());
        case 8: return with(u64());
        case 16: return with((unsigned __int128) 0);
        default: return false;
    }
}

// The same if the stored registers are initialised as well; loaded registers are initialised afterwards.
bool is_simple_access(const instruction * i, wave & w, const facts & f, u32 exec, int n) {
    wave_checks & c = *w.checks;
    if (f.is_atomic) {
        return false;
    }
    if (!c.unknown.registers.meets(f.is_store ? f.reads : f.writes)) {
        return is_known_access(i, w, f, exec, n);
    }
    if (f.is_store || f.filled != 0 || !is_known_access(i, w, f, exec, n)) {
        return false;
    }
    const int count = int(std::max<u32>(1, f.size / 4)), first = vgpr_of(i[1].to[0]) + n * count;
    for (int k = first; k < first + count; ++k) {
        give_value(c, k, lane_mask(exec));
    }
    renew(c);
    return true;
}

} // namespace

void follow_access(const instruction * i, wave & w, const facts & f, u32 left_out) {
    wave_checks & c = *w.checks;
    const instruction * checked = i + 1;
    const bool is_of_wave = f.where == space::scalar;
    const u32 exec = w.exec() & ~left_out;
    if (c.unknown.registers.meets(f.address)) {
        const sources from = unknown_in(c, f.address, is_of_wave ? ~0u : exec);
        if (from.any) {
            const char * verb = f.is_atomic ? "changes " : f.is_store ? "writes " : "reads ";
            tell(i, w, std::string(verb) + std::to_string(f.size) + " bytes at an uninitialised address",
                 from.from);
            forget(c, f.address);
        }
    }
    // A skipped access is a finding of its own: the unchanged destination registers are not another one.
    if (left_out != 0 && c.unknown.registers.meets(f.writes)) {
        c.unknown.registers.both(f.writes).each_vgpr([&](int n) {
            const u32x & unknown = c.unknown.vgprs[size_t(n)];
            set_vgpr(c, n, lane_mask(left_out) ? splat<u32x>(0) : unknown, c.unknown.vgprs_from[size_t(n)]);
        });
        renew(c);
    }
    if (is_of_wave) {
        left_out == 0 ? follow_scalar_load(i, w, f) : forget(c, f.writes);
        return;
    }
    for (int n = 0; n < f.accesses; ++n) {
        if (is_simple_access(i, w, f, exec, n)) {
            continue;
        }
        beside places;
        find_beside(i, w, f, n, exec, places);
        if (f.is_atomic) {
            follow_atomic(i, w, f, exec, places, n);
        } else if (f.is_store) {
            follow_store(i, w, f, exec, places, checked->from[n == 0 ? role::data : role::more_data]);
        } else {
            follow_load(i, w, f, exec, places, vgpr_of(checked->to[0]) + n * int(std::max<u32>(1, f.size / 4)));
        }
    }
}

} // namespace patchkit::gpu
