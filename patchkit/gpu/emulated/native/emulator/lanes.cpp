// Instructions that move values between lanes, or between a lane and a scalar register. Semantics: RDNA3 and RDNA3.5
// ISA guides, chapters 7 and 16.

#include "executor.hpp"
#include "table.hpp"

namespace patchkit::gpu {

namespace {

void readfirstlane(const instruction * i, wave & w) {
    const u32 exec = w.exec();
    const int lane = exec == 0 ? 0 : std::countr_zero(exec);
    write_scalar(w, i->to[0], read_bits(i, w, i->from[0])[lane]);
    PATCHKIT_NEXT(i, w);
}

void readlane(const instruction * i, wave & w) {
    write_scalar(w, i->to[0], read_bits(i, w, i->from[0])[read_scalar(i, w, i->from[1]) & 31]);
    PATCHKIT_NEXT(i, w);
}

void writelane(const instruction * i, wave & w) {
    const u32 value = read_scalar(i, w, i->from[0]), lane = read_scalar(i, w, i->from[1]) & 31;
    vector_at(w, i->to[0])[lane] = value;
    PATCHKIT_NEXT(i, w);
}

void swap(const instruction * i, wave & w) {
    u32x & a = vector_at(w, i->to[0]);
    u32x & b = vector_at(w, i->from[0]);
    const u32x first = a, second = b;
    write_bits(w, a, second);
    write_bits(w, b, first);
    PATCHKIT_NEXT(i, w);
}

void swap_halves(const instruction * i, wave & w) {
    const u16x first = read_bits_16(i, w, i->to[0]), second = read_bits_16(i, w, i->from[0]);
    write_bits_16(w, i->to[0], second);
    write_bits_16(w, i->from[0], first);
    PATCHKIT_NEXT(i, w);
}

// Number of lower lanes with a bit in the mask, which may differ per lane.
void mbcnt_lo(const instruction * i, wave & w) {
    const u32x below = (splat<u32x>(1) << lane_numbers()) - 1;
    const u32x bits = U32::read<0>(i, w) & below;
    U32::write(i, w, __builtin_elementwise_popcount(bits) + U32::read<1>(i, w));
    PATCHKIT_NEXT(i, w);
}

// Counts lanes from 32 on, which do not exist.
void mbcnt_hi(const instruction * i, wave & w) {
    U32::write(i, w, U32::read<1>(i, w));
    PATCHKIT_NEXT(i, w);
}

// Within rows of 16 lanes, or (exchanged) from the other row. op_sel[0]: also read inactive lanes; op_sel[1]: otherwise
// the result is 0 instead of the old value.
template <bool is_exchanged, class Selector> void permute_row(const instruction * i, wave & w, Selector selector_of) {
    const u32x source = read_bits(i, w, i->from[0]);
    const bool reads_inactive = (i->modifiers & modifier::op_sel_0) != 0;
    const bool zeroes = (i->modifiers & (modifier::op_sel_0 << 1)) != 0;
    u32x & to = vector_at(w, i->to[0]);
    u32x result = to;
    for (int lane = 0; lane < lanes; ++lane) {
        const int row = (lane & 16) ^ (is_exchanged ? 16 : 0);
        const int from = row + int(selector_of(lane) & 15);
        if (reads_inactive || ((w.exec() >> from) & 1) != 0) {
            result[lane] = source[from];
        } else if (zeroes) {
            result[lane] = 0;
        }
    }
    write_bits(w, to, result);
}

template <bool is_exchanged> void permlane16(const instruction * i, wave & w) {
    const u64 selectors = read_scalar(i, w, i->from[1]) | (u64(read_scalar(i, w, i->from[2])) << 32);
    permute_row<is_exchanged>(i, w, [&](int lane) { return selectors >> (4 * (lane & 15)); });
    PATCHKIT_NEXT(i, w);
}

// The _var forms have the selectors of each lane in a VGPR.
template <bool is_exchanged> void permlane16_var(const instruction * i, wave & w) {
    const u32x selectors = read_bits(i, w, i->from[1]);
    permute_row<is_exchanged>(i, w, [&](int lane) { return selectors[lane]; });
    PATCHKIT_NEXT(i, w);
}

// Swaps the halves of a 64-lane wave; a no-operation with 32 lanes (pseudocode).
void permlane64(const instruction * i, wave & w) { PATCHKIT_NEXT(i, w); }

int moved(const instruction * i, wave & w) {
    const u32 by = w.scalar[slot::m0];
    if (by > 255) {
        w.on->fault(i, w, "M0 offsets the register by " + std::to_string(by) + ", past the last one");
    }
    return int(by);
}

// Register index plus M0. `immediate` is the number of registers after the operand.
u32x & moved_register(const instruction * i, wave & w, operand o) {
    const int by = moved(i, w);
    if (by > i->immediate) {
        w.on->fault(i, w, "M0 offsets the register by " + std::to_string(by) + ", past the last one of the kernel");
    }
    return vector_at(w, o, by);
}

void movreld(const instruction * i, wave & w) {
    write_bits(w, moved_register(i, w, i->to[0]), U32::read<0>(i, w));
    PATCHKIT_NEXT(i, w);
}

void movrels(const instruction * i, wave & w) {
    U32::write(i, w, moved_register(i, w, i->from[0]));
    PATCHKIT_NEXT(i, w);
}

// Both are indexed, each by its part of M0. `immediate` is the number of registers after the source, and above bit 16
// after the destination.
u32x & moved_by(const instruction * i, wave & w, operand o, u32 by, u32 most) {
    if (by > most) {
        w.on->fault(i, w, "M0 offsets the register by " + std::to_string(by) + ", past the last one of the kernel");
    }
    return vector_at(w, o, int(by));
}
u32x & moved_source(const instruction * i, wave & w, u32 by) {
    return moved_by(i, w, i->from[0], by, u32(i->immediate) & 0xffff);
}
u32x & moved_target(const instruction * i, wave & w, u32 by) {
    return moved_by(i, w, i->to[0], by, u32(i->immediate) >> 16);
}

void movrelsd(const instruction * i, wave & w) {
    const u32 by = w.scalar[slot::m0];
    const u32x value = moved_source(i, w, by);
    write_bits(w, moved_target(i, w, by), value);
    PATCHKIT_NEXT(i, w);
}

u32 source_move(const wave & w) { return w.scalar[slot::m0] & 0x3ff; }
u32 target_move(const wave & w) { return (w.scalar[slot::m0] >> 16) & 0x3ff; }

void movrelsd_2(const instruction * i, wave & w) {
    const u32x value = moved_source(i, w, source_move(w));
    write_bits(w, moved_target(i, w, target_move(w)), value);
    PATCHKIT_NEXT(i, w);
}

void swaprel(const instruction * i, wave & w) {
    u32x & a = moved_target(i, w, target_move(w));
    u32x & b = moved_source(i, w, source_move(w));
    const u32x first = a, second = b;
    write_bits(w, a, second);
    write_bits(w, b, first);
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions lane_instructions() {
    return {
        {"v_readfirstlane_b32", readfirstlane, {format::scalar}, {format::b32}, trait::crosses_lanes | trait::moves_bits},
        {"v_readlane_b32", readlane, {format::scalar}, {format::b32, format::scalar},
         trait::crosses_lanes | trait::moves_bits},
        {"v_writelane_b32", writelane, {format::b32}, {format::scalar, format::scalar},
         trait::crosses_lanes | trait::moves_bits},
        {"v_swap_b32", swap, {format::b32}, {format::b32}, trait::swaps | trait::may_keep | trait::moves_bits},
        {"v_swap_b16", swap_halves, {format::b16}, {format::b16}, trait::swaps | trait::moves_bits},
        {"v_mbcnt_lo_u32_b32", mbcnt_lo, {format::b32}, {format::b32, format::b32}},
        {"v_mbcnt_hi_u32_b32", mbcnt_hi, {format::b32}, {format::b32, format::b32}},
        {"v_permlane16_b32", permlane16<false>, {format::b32}, {format::b32, format::scalar, format::scalar},
         trait::crosses_lanes | trait::moves_bits},
        {"v_permlanex16_b32", permlane16<true>, {format::b32}, {format::b32, format::scalar, format::scalar},
         trait::crosses_lanes | trait::moves_bits},
        {"v_permlane16_var_b32", permlane16_var<false>, {format::b32}, {format::b32, format::b32},
         trait::crosses_lanes | trait::moves_bits},
        {"v_permlanex16_var_b32", permlane16_var<true>, {format::b32}, {format::b32, format::b32},
         trait::crosses_lanes | trait::moves_bits},
        {"v_permlane64_b32", permlane64, {format::b32}, {format::b32}, trait::crosses_lanes | trait::moves_bits},
        {"v_movreld_b32", movreld, {format::b32}, {format::b32},
         trait::moves_target | trait::crosses_lanes | trait::moves_bits},
        {"v_movrels_b32", movrels, {format::b32}, {format::b32},
         trait::moves_source | trait::crosses_lanes | trait::moves_bits},
        {"v_movrelsd_b32", movrelsd, {format::b32}, {format::b32},
         trait::moves_source | trait::moves_target | trait::crosses_lanes | trait::moves_bits},
        {"v_movrelsd_2_b32", movrelsd_2, {format::b32}, {format::b32},
         trait::moves_source | trait::moves_target | trait::crosses_lanes | trait::moves_bits},
        {"v_swaprel_b32", swaprel, {format::b32}, {format::b32},
         trait::moves_source | trait::moves_target | trait::swaps | trait::moves_bits},
        {"v_nop", nullptr, {}, {}},
        {"v_pipeflush", nullptr, {}, {}},
    };
}

} // namespace patchkit::gpu
