// One wave, one decoded instruction, and how operands are read and written.
//
// An instruction is decoded once per kernel: its operands are offsets from the wave, its handler is a function that
// ends by tail-calling the next one. VALU results are written for lanes enabled in EXEC; 16-bit results leave the other
// half of the register unchanged.
#pragma once

#include "emulator.hpp"
#include "values.hpp"

#include <utility>

namespace patchkit::gpu {

struct wave;
struct instruction;
struct block;
class executor;
struct wave_checks;
struct watch;

using handler = void (*)(const instruction *, wave &);

// Location of an operand: byte offset from the wave for registers, from the instruction for constants.
struct operand {
    static constexpr i32 vector = 1;   // one value per lane; otherwise one for all lanes
    static constexpr i32 high   = 2;   // the upper 16 bits
    static constexpr i32 constant = 4;

    i32 code = 0; // offset << 3 | flags

    bool is(i32 flag) const { return (code & flag) != 0; }
    i32 offset() const { return code >> 3; }
};

// Modifiers of the operands of one instruction; those of source n are shifted left by n.
namespace modifier {
constexpr u32 abs_0 = 1u << 0, neg_0 = 1u << 3; // neg applies to the low half in packed instructions
constexpr u32 clamp = 1u << 6, times_2 = 1u << 7, times_4 = 1u << 8, half = 1u << 9;
constexpr u32 op_sel_0 = 1u << 10;    // 4 bits, the last one for the destination
constexpr u32 op_sel_hi_0 = 1u << 14; // 3 bits
constexpr u32 neg_hi_0 = 1u << 17;    // 3 bits
constexpr u32 flush_f32 = 1u << 20;   // float mode of the kernel: f32 subnormals are flushed to zero
constexpr u32 ieee = 1u << 21;        // float mode of the kernel: min and max return NaN for a signaling NaN
constexpr u32 output = clamp | times_2 | times_4 | half;
} // namespace modifier

struct instruction {
    handler run;
    operand to[2];
    operand from[4];
    u32 modifiers;
    u32 number;   // index of the instruction in its program; all steps of one instruction have the same
    i64 immediate;
    union {
        const instruction * target; // of a branch
        const void * extra;         // other data for the handler
    };
};

// Slots of the scalar register file, numbered as in the encoding (RDNA3 ISA guide, "SGPRs"), followed by slots that are
// not registers: discarded results, and one vector for splitting dual-issue (VOPD) instructions.
namespace slot {
constexpr int vcc = 106, ttmp = 108, null = 124, m0 = 125, exec = 126, shared_base = 128, private_base = 130,
              nowhere = 132, saved_exec = 134, exec_of_buffer = 158, count = 160;
} // namespace slot

// High halves of addresses from which on a flat access means LDS or scratch; no process has memory there.
constexpr u64 shared_aperture = 0x0001'0000'0000'0000, private_aperture = 0x0002'0000'0000'0000;

enum class standing : u32 {
    running,
    at_barrier,
    resting,  // in a long loop; other waves may run
    sleeping, // in s_sleep, waiting for others
    circling, // spinning: repeating a loop without changes to its registers
    ended,
};

// After the VGPRs of the kernel: for the result of half of a dual-issue instruction, or an address per lane.
constexpr u32 extra_vgprs = 2;

struct alignas(128) wave {
    const instruction * next; // the next instruction
    standing state;
    bool scc;
    u32 patience;      // taken backward branches until other waves may run
    u32 entered;       // index of the instruction at which the current straight-line code was entered
    u64 executed;      // instructions executed up to there
    i64 * marks;       // see leave(); null if instructions are not counted
    std::byte * lds;
    u32 lds_size;
    u32 scratch_size;   // bytes per lane
    u32 * scratch;      // [dword][lane]
    u32 mode;
    u32 given;          // patience at its last start
    block * owner;
    executor * on; // see executor.hpp
    const memory_range * ranges; // see remembered_range()
    u32 number; // in its block
    u32 state_then; // when it last rested, see rest()
    wave_checks * checks; // see check_state.hpp; null if no checks run
    watch * watched; // see executor.hpp; only set while the machine checks whether the kernel can make progress
    std::vector<u32> *spans, *accesses; // see recording.hpp; null if not recording
    alignas(64) u32 scalar[slot::count];
    // VGPRs follow, [register][lane], with `extra_vgprs` for dual-issue and buffer instructions.

    u32 exec() const { return scalar[slot::exec]; }
    u32x & vgpr(int n) { return reinterpret_cast<u32x *>(this + 1)[n]; }
};

static_assert(sizeof(wave) % alignof(u32x) == 0, "VGPRs lie behind it");

constexpr i32 offset_of_scalar(int n) { return i32(offsetof(wave, scalar)) + 4 * n; }
constexpr i32 offset_of_vgpr(int n) { return i32(sizeof(wave)) + i32(sizeof(u32x)) * n; }

// Ends a handler. If the compiler cannot guarantee a tail call, the loop in run_from makes the call instead.
#ifdef __clang__
#define PATCHKIT_GO_ON(at, w) [[clang::musttail]] return (at)->run(at, w)
#else
#define PATCHKIT_GO_ON(at, w) return void((w).next = (at))
#endif
#define PATCHKIT_NEXT(i, w) PATCHKIT_GO_ON((i) + 1, w)

// Runs from an instruction until the wave stops.
inline void run_from(const instruction * at, wave & w) {
#ifdef __clang__
    at->run(at, w);
#else
    while (at != nullptr && w.state == standing::running) {
        w.next = nullptr;
        at->run(at, w);
        at = w.next;
    }
#endif
}

inline const void * place_of(const instruction * i, const wave & w, operand o) {
    const void * base = o.is(operand::constant) ? static_cast<const void *>(i) : static_cast<const void *>(&w);
    return static_cast<const char *>(base) + o.offset();
}

inline u32 read_scalar(const instruction * i, const wave & w, operand o) {
    return *static_cast<const u32 *>(place_of(i, w, o));
}

// A register pair need not be aligned to 8 bytes.
inline u64 read_scalar_64(const instruction * i, const wave & w, operand o) {
    u64 value;
    std::memcpy(&value, place_of(i, w, o), sizeof(value));
    return value;
}

inline void write_scalar(wave & w, operand o, u32 value) {
    *reinterpret_cast<u32 *>(reinterpret_cast<char *>(&w) + o.offset()) = value;
}

inline void write_scalar_64(wave & w, operand o, u64 value) {
    std::memcpy(reinterpret_cast<char *>(&w) + o.offset(), &value, sizeof(value));
}

inline u32x & vector_at(wave & w, operand o, int further = 0) {
    return *(reinterpret_cast<u32x *>(reinterpret_cast<char *>(&w) + o.offset()) + further);
}

inline u32x read_bits(const instruction * i, const wave & w, operand o) {
    const void * place = place_of(i, w, o);
    return o.is(operand::vector) ? *static_cast<const u32x *>(place) : splat<u32x>(*static_cast<const u32 *>(place));
}

inline u64x read_bits_64(const instruction * i, const wave & w, operand o) {
    const void * place = place_of(i, w, o);
    if (o.is(operand::vector)) {
        const u32x * pair = static_cast<const u32x *>(place);
        return joined(pair[0], pair[1]);
    }
    return splat<u64x>(read_scalar_64(i, w, o));
}

inline u16x read_bits_16(const instruction * i, const wave & w, operand o) {
    const u32x bits = read_bits(i, w, o);
    return convert<u16x>(o.is(operand::high) ? bits >> 16 : bits);
}

inline void write_bits(wave & w, u32x & to, const u32x & value) {
    const u32 exec = w.exec();
    if (exec == ~0u) [[likely]] {
        to = value;
    } else {
        to = lane_mask(exec) ? value : to;
    }
}

inline void write_bits_64(wave & w, operand o, const u64x & value) {
    write_bits(w, vector_at(w, o), low_of(value));
    write_bits(w, vector_at(w, o, 1), high_of(value));
}

inline void write_bits_16(wave & w, operand o, const u16x & value) {
    u32x & to = vector_at(w, o);
    const u32x wide = convert<u32x>(value);
    write_bits(w, to, o.is(operand::high) ? (to & 0xffff) | (wide << 16) : (to & 0xffff0000) | wide);
}

// Applies abs, then neg, to sign bits.
template <class V> inline V with_sign_modifiers(V bits, u32 modifiers, int n, V sign) {
    if ((modifiers & (modifier::abs_0 << n)) != 0) {
        bits &= ~sign;
    }
    if ((modifiers & (modifier::neg_0 << n)) != 0) {
        bits ^= sign;
    }
    return bits;
}

inline u32x flushed(const u32x & bits) { return (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits; }

u32x with_input_modifiers(u32x bits, u32 modifiers, int n);
f32x with_output_modifiers(f32x value, u32 modifiers);
f64x with_output_modifiers(f64x value, u32 modifiers);

// How constants of an operand are encoded, and how many registers it has. `whole`: taken as it is; `whole_halves`: the
// same for two halves.
enum class format : u8 {
    b16, b32, b64, f16, f32, f64, bf16, int_pairs, half_pairs, bf16_pairs, lanes, scalar, scalar_64, whole, whole_halves
};

// Operand kinds. `read` returns source n of an instruction, `write` stores its result.
struct U32 {
    static constexpr format form = format::b32;
    template <int n> static u32x read(const instruction * i, const wave & w) {
        u32x bits = read_bits(i, w, i->from[n]);
        // Integers have no such modifiers, except for moves of floats.
        if ((i->modifiers & ((modifier::abs_0 | modifier::neg_0) << n)) != 0) [[unlikely]] {
            bits = with_sign_modifiers(bits, i->modifiers, n, splat<u32x>(0x80000000));
        }
        return bits;
    }
    static void write(const instruction * i, wave & w, const u32x & value) {
        write_bits(w, vector_at(w, i->to[0]), value);
    }
};

struct I32 {
    static constexpr format form = format::b32;
    template <int n> static i32x read(const instruction * i, const wave & w) { return as<i32x>(U32::read<n>(i, w)); }
    static void write(const instruction * i, wave & w, const i32x & value) { U32::write(i, w, as<u32x>(value)); }
};

struct F32 {
    static constexpr format form = format::f32;
    template <int n> static f32x read(const instruction * i, const wave & w) {
        u32x bits = read_bits(i, w, i->from[n]);
        constexpr u32 any_modifier = ((modifier::abs_0 | modifier::neg_0) << n) | modifier::flush_f32;
        if ((i->modifiers & any_modifier) != 0) [[unlikely]] {
            bits = with_input_modifiers(bits, i->modifiers, n);
        }
        return as<f32x>(bits);
    }
    static void write(const instruction * i, wave & w, f32x value) {
        if ((i->modifiers & (modifier::output | modifier::flush_f32)) != 0) [[unlikely]] {
            value = with_output_modifiers(value, i->modifiers);
        }
        write_bits(w, vector_at(w, i->to[0]), as<u32x>(value));
    }
};

struct U64 {
    static constexpr format form = format::b64;
    template <int n> static u64x read(const instruction * i, const wave & w) { return read_bits_64(i, w, i->from[n]); }
    static void write(const instruction * i, wave & w, const u64x & value) { write_bits_64(w, i->to[0], value); }
};

struct I64 {
    static constexpr format form = format::b64;
    template <int n> static i64x read(const instruction * i, const wave & w) { return as<i64x>(U64::read<n>(i, w)); }
    static void write(const instruction * i, wave & w, const i64x & value) { U64::write(i, w, as<u64x>(value)); }
};

struct F64 {
    static constexpr format form = format::f64;
    template <int n> static f64x read(const instruction * i, const wave & w) {
        const u64x bits = read_bits_64(i, w, i->from[n]);
        return as<f64x>(with_sign_modifiers(bits, i->modifiers, n, splat<u64x>(u64(1) << 63)));
    }
    static void write(const instruction * i, wave & w, f64x value) {
        if ((i->modifiers & modifier::output) != 0) [[unlikely]] {
            value = with_output_modifiers(value, i->modifiers);
        }
        write_bits_64(w, i->to[0], as<u64x>(value));
    }
};

struct U16 {
    static constexpr format form = format::b16;
    template <int n> static u16x read(const instruction * i, const wave & w) {
        return with_sign_modifiers(read_bits_16(i, w, i->from[n]), i->modifiers, n, splat<u16x>(0x8000));
    }
    static void write(const instruction * i, wave & w, const u16x & value) { write_bits_16(w, i->to[0], value); }
};

struct I16 {
    static constexpr format form = format::b16;
    template <int n> static i16x read(const instruction * i, const wave & w) { return as<i16x>(U16::read<n>(i, w)); }
    static void write(const instruction * i, wave & w, const i16x & value) { U16::write(i, w, as<u16x>(value)); }
};

// f16 as the f32 of the same value; results are rounded to f16 once. This is exact for sums, differences, products,
// quotients and square roots, because f32 has more than twice the bits of f16 plus two, but not for fused operations;
// these use H16.
struct F16 {
    static constexpr format form = format::f16;
    template <int n> static f32x read(const instruction * i, const wave & w) { return widened(U16::read<n>(i, w)); }
    static void write(const instruction * i, wave & w, f32x value) {
        if ((i->modifiers & modifier::output) != 0) [[unlikely]] {
            value = with_output_modifiers(value, i->modifiers & ~modifier::flush_f32);
        }
        write_bits_16(w, i->to[0], narrowed(value));
    }
};

// f16 as bits.
struct H16 : U16 {
    static constexpr format form = format::f16;
    static void write(const instruction * i, wave & w, u16x value) {
        if ((i->modifiers & modifier::output) != 0) [[unlikely]] {
            value = narrowed(with_output_modifiers(widened(value), i->modifiers & ~modifier::flush_f32));
        }
        write_bits_16(w, i->to[0], value);
    }
};

// The halves of source n of a packed instruction, selected by op_sel and op_sel_hi.
template <int n> inline u32x packed(const instruction * i, const wave & w) {
    u32x bits = read_bits(i, w, i->from[n]);
    const bool low = (i->modifiers & (modifier::op_sel_0 << n)) != 0;
    const bool high = (i->modifiers & (modifier::op_sel_hi_0 << n)) != 0;
    if (low || !high) [[unlikely]] {
        const u32x first = low ? bits >> 16 : bits & 0xffff;
        const u32x second = high ? bits >> 16 : bits & 0xffff;
        bits = first | (second << 16);
    }
    constexpr u32 either = (modifier::neg_0 | modifier::neg_hi_0) << n;
    if ((i->modifiers & either) != 0) [[unlikely]] {
        const u32 low_sign = (i->modifiers & (modifier::neg_0 << n)) != 0 ? 0x8000u : 0u;
        const u32 high_sign = (i->modifiers & (modifier::neg_hi_0 << n)) != 0 ? 0x80000000u : 0u;
        bits ^= low_sign | high_sign;
    }
    return bits;
}

struct PairsU16 {
    static constexpr format form = format::int_pairs;
    template <int n> static u16p read(const instruction * i, const wave & w) { return as<u16p>(packed<n>(i, w)); }
    static void write(const instruction * i, wave & w, const u16p & value) { U32::write(i, w, as<u32x>(value)); }
};

struct PairsI16 {
    static constexpr format form = format::int_pairs;
    template <int n> static i16p read(const instruction * i, const wave & w) { return as<i16p>(packed<n>(i, w)); }
    static void write(const instruction * i, wave & w, const i16p & value) { U32::write(i, w, as<u32x>(value)); }
};

struct PairsF16 {
    static constexpr format form = format::half_pairs;
    template <int n> static f32p read(const instruction * i, const wave & w) {
        return widened(as<u16p>(packed<n>(i, w)));
    }
    static void write(const instruction * i, wave & w, f32p value) {
        if ((i->modifiers & modifier::clamp) != 0) [[unlikely]] {
            value = value > 0.0f ? value : splat<f32p>(0.0f); // NaN becomes 0
            value = value < 1.0f ? value : splat<f32p>(1.0f);
        }
        U32::write(i, w, as<u32x>(narrowed(value)));
    }
};

// The same for results that are already rounded.
struct PairsH16 {
    static constexpr format form = format::half_pairs;
    template <int n> static u16p read(const instruction * i, const wave & w) { return as<u16p>(packed<n>(i, w)); }
    static void write(const instruction * i, wave & w, const u16p & value) {
        if ((i->modifiers & modifier::clamp) != 0) [[unlikely]] {
            return PairsF16::write(i, w, widened(value));
        }
        U32::write(i, w, as<u32x>(value));
    }
};

// Min and max of f16 as bits, for single and packed instructions; they select an operand and compute nothing. -0 is
// less than +0; with one NaN the number is selected, except for a signaling NaN in IEEE mode.
template <class U> struct half_types;
template <> struct half_types<u16x> {
    using wide = f32x;
    using sign = i32x;
    using mask = i16x;
};
template <> struct half_types<u16p> {
    using wide = f32p;
    using sign = i32p;
    using mask = i16p;
};

template <bool is_min, class U> U half_of_two(u32 modifiers, const U & a, const U & b) {
    using types = half_types<U>;
    const auto wide_a = widened(a), wide_b = widened(b);
    const auto is_negative = as<typename types::sign>(is_min ? wide_a : wide_b) < 0;
    const auto takes_a = (is_min ? wide_a < wide_b : wide_a > wide_b) | ((wide_a == wide_b) & is_negative);
    U result = convert<typename types::mask>(takes_a) ? a : b;
    const auto is_nan = [](const U & bits) { return (bits & 0x7fff) > 0x7c00; };
    const auto is_signaling = [&](const U & bits) { return is_nan(bits) & ((bits & 0x200) == 0); };
    result = is_nan(b) ? a : is_nan(a) ? b : result;
    if ((modifiers & modifier::ieee) != 0) {
        result = is_signaling(b) ? U(b | 0x200) : result;
        result = is_signaling(a) ? U(a | 0x200) : result;
    }
    return result;
}

// A bit mask with one bit per lane, in scalar registers.
struct Lanes {
    static constexpr format form = format::lanes;
    template <int n> static u32 read(const instruction * i, const wave & w) { return read_scalar(i, w, i->from[n]); }
    static void write(const instruction * i, wave & w, u32 value) { write_scalar(w, i->to[0], value); }
};

struct S32 {
    static constexpr format form = format::scalar;
    template <int n> static u32 read(const instruction * i, const wave & w) { return read_scalar(i, w, i->from[n]); }
    static void write(const instruction * i, wave & w, u32 value) { write_scalar(w, i->to[0], value); }
};

// f16 in the low bits of a scalar register.
struct S16 : S32 {
    static constexpr format form = format::f16;
};

struct S64 {
    static constexpr format form = format::scalar_64;
    template <int n> static u64 read(const instruction * i, const wave & w) {
        return read_scalar_64(i, w, i->from[n]);
    }
    static void write(const instruction * i, wave & w, u64 value) { write_scalar_64(w, i->to[0], value); }
};

} // namespace patchkit::gpu
