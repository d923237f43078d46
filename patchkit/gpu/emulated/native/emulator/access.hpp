// Operands of memory instructions, and the addresses of all lanes.
#pragma once

#include "table.hpp"
#include "wave.hpp"

namespace patchkit::gpu {

// Operands of memory instructions: to[0] is the loaded value, from[0] the address, from[1] the data, from[2] the scalar
// address, from[3] more data. Code 0 if absent.
namespace role {
enum : int { address = 0, data = 1, base = 2, more_data = 3 };
}

// For buffer instructions, in addition to the offset in the immediate: what the address register contains.
constexpr i64 buffer_index = i64(1) << 32, buffer_offset = i64(1) << 33;

// What a buffer instruction moves: bytes per lane, and the part of a register that it loads.
struct buffer_form {
    u32 size;
    into part;
};

// Puts the address of each lane into to[0], lets only the lanes in the buffer's range continue, and loads 0 into to[1] of
// the others. The operands are those of the instruction; `extra` is a buffer_form.
void place_buffer(const instruction * i, wave & w);
// All lanes of before continue.
void end_buffer(const instruction * i, wave & w);

inline bool has(operand o) { return o.code != 0; }

// Byte addresses of global and flat instructions; the high half of a flat address may select LDS or scratch.
inline u64x global_addresses(const instruction * i, const wave & w) {
    if (has(i->from[role::base])) {
        const u64 start = read_scalar_64(i, w, i->from[role::base]) + u64(i->immediate);
        return convert<u64x>(read_bits(i, w, i->from[role::address])) + start;
    }
    return read_bits_64(i, w, i->from[role::address]) + u64(i->immediate);
}

// Bit mask of active lanes whose access of `size` bytes is outside of the range.
inline u32 lanes_outside(const memory_range & range, const u64x & addresses, u32 size, u32 exec) {
    const u64 length = range.end - range.begin;
    return length < size ? exec : lane_bits((addresses - range.begin) > length - size) & exec;
}

// Whether all lanes access adjacent elements, in lane order or in an order with some bits of the lane number flipped
// (as in butterflies), and where these start.
inline bool is_row(const u32x & offsets, u32 size, u32 exec, u32 & start) {
    if (exec != ~0u || size == 0) {
        return false;
    }
    start = (offsets[0] + offsets[lanes - 1] - (lanes - 1) * size) / 2; // a lane and its mirror
    const u32 flipped = (offsets[0] - start) / size;
    return flipped < lanes && !any(offsets != (lane_numbers() ^ flipped) * size + start);
}

// Active lanes without those that access the same place as another one, if all places are equal, or those of one half
// of the wave equal those of the other, as when loading matrix fragments (RDNA3 ISA guide, "WMMA").
inline u32 lanes_with_places(const u32x & offsets, u32 exec) {
    if (exec != 0 && (lane_bits(offsets != offsets[std::countr_zero(exec)]) & exec) == 0) {
        return exec & (0 - exec);
    }
    return exec == ~0u && __builtin_reduce_or(first_half(offsets) ^ second_half(offsets)) == 0 ? exec >> (lanes / 2) : exec;
}

// Byte offsets in the block's LDS.
inline u32x lds_addresses(const instruction * i, const wave & w) {
    return read_bits(i, w, i->from[role::address]) + u32(i->immediate);
}

// The same for access `n` (0 or 1) of an instruction with two, whose offsets count units of `unit` bytes.
inline u32x lds_addresses(const instruction * i, const wave & w, int n, u32 unit) {
    const u32 offset = n == 0 ? u32(i->immediate & 0xff) : u32(i->immediate >> 8);
    return read_bits(i, w, i->from[role::address]) + offset * unit;
}

// Byte offsets in each lane's scratch.
inline u32x scratch_offsets(const instruction * i, const wave & w) {
    const u32 start = (has(i->from[role::base]) ? read_scalar(i, w, i->from[role::base]) : 0) + u32(i->immediate);
    return has(i->from[role::address]) ? read_bits(i, w, i->from[role::address]) + start : splat<u32x>(start);
}

// Address of a scalar load; loads of whole dwords ignore the two lowest bits.
inline u64 scalar_address(const instruction * i, const wave & w) {
    const u64 further = has(i->from[role::data]) ? read_scalar(i, w, i->from[role::data]) : 0;
    return read_scalar_64(i, w, i->from[role::address]) + further + u64(i->immediate);
}

} // namespace patchkit::gpu
