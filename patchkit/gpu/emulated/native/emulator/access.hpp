// Where memory instructions go: their operands, and the addresses of all lanes.
#pragma once

#include "wave.hpp"

namespace patchkit::gpu {

// Operands of memory instructions: to[0] what is loaded into, from[0] the address, from[1] the data, from[2] the scalar
// address, from[3] more data. Code 0 where there is none.
namespace role {
enum : int { address = 0, data = 1, base = 2, more_data = 3 };
}

// Of instructions with a buffer, beside the offset in its immediate: what its address register holds.
constexpr i64 buffer_index = i64(1) << 32, buffer_offset = i64(1) << 33;

inline bool has(operand o) { return o.code != 0; }

// Of global and flat instructions, in bytes; a flat one may mean LDS or scratch by its high half.
inline u64x global_addresses(const instruction * i, const wave & w) {
    if (has(i->from[role::base])) {
        const u64 start = read_scalar_64(i, w, i->from[role::base]) + u64(i->immediate);
        return convert<u64x>(read_bits(i, w, i->from[role::address])) + start;
    }
    return read_bits_64(i, w, i->from[role::address]) + u64(i->immediate);
}

// Active lanes whose access of so many bytes is not in the range, one bit each.
inline u32 lanes_outside(const memory_range & range, const u64x & addresses, u32 size, u32 exec) {
    const u64 length = range.end - range.begin;
    return length < size ? exec : lane_bits((addresses - range.begin) > length - size) & exec;
}

// Whether all lanes touch bytes side by side, so many each, in their order or in one with some bits of their numbers
// flipped, as butterflies do; and where these begin.
inline bool is_row(const u32x & offsets, u32 size, u32 exec, u32 & start) {
    if (exec != ~0u || size == 0) {
        return false;
    }
    start = (offsets[0] + offsets[lanes - 1] - (lanes - 1) * size) / 2; // a lane and its opposite
    const u32 flipped = (offsets[0] - start) / size;
    return flipped < lanes && !any(offsets != (lane_numbers() ^ flipped) * size + start);
}

// The active lanes but for those that go where one of the others does: all alike, or one half as the other, as fragments
// of matrices are loaded (RDNA3 ISA guide, "WMMA").
inline u32 lanes_with_places(const u32x & offsets, u32 exec) {
    if (exec != 0 && (lane_bits(offsets != offsets[std::countr_zero(exec)]) & exec) == 0) {
        return exec & (0 - exec);
    }
    return exec == ~0u && __builtin_reduce_or(first_half(offsets) ^ second_half(offsets)) == 0 ? exec >> (lanes / 2) : exec;
}

// Bytes from the start of the block's LDS.
inline u32x lds_addresses(const instruction * i, const wave & w) {
    return read_bits(i, w, i->from[role::address]) + u32(i->immediate);
}

// The same of access `n` (0 or 1) of an instruction with two, whose offsets count units of so many bytes.
inline u32x lds_addresses(const instruction * i, const wave & w, int n, u32 unit) {
    const u32 offset = n == 0 ? u32(i->immediate & 0xff) : u32(i->immediate >> 8);
    return read_bits(i, w, i->from[role::address]) + offset * unit;
}

// Bytes from the start of each lane's scratch.
inline u32x scratch_offsets(const instruction * i, const wave & w) {
    const u32 start = (has(i->from[role::base]) ? read_scalar(i, w, i->from[role::base]) : 0) + u32(i->immediate);
    return has(i->from[role::address]) ? read_bits(i, w, i->from[role::address]) + start : splat<u32x>(start);
}

// Of a scalar load; those of whole dwords ignore the two lowest bits.
inline u64 scalar_address(const instruction * i, const wave & w) {
    const u64 further = has(i->from[role::data]) ? read_scalar(i, w, i->from[role::data]) : 0;
    return read_scalar_64(i, w, i->from[role::address]) + further + u64(i->immediate);
}

} // namespace patchkit::gpu
