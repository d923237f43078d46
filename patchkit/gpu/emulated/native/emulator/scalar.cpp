// Scalar instructions: one value per wave, and control flow. Semantics: RDNA3, RDNA3.5 (scalar floats) and RDNA4 ISA
// guides, chapters 5 and 16.

#include "executor.hpp"
#include "table.hpp"

namespace patchkit::gpu {

namespace {

f32 float_of(u32 bits) { return as<f32>(bits); }
u32 bits_of(f32 value) { return as<u32>(value); }
f32 half_value(u32 bits) { return f32(as<_Float16>(u16(bits))); }
u32 half_bits(f32 value) { return as<u16>(_Float16(value)); }

template <auto f> constexpr auto with_scc_if_not_zero = [](bool & scc, auto... sources) {
    const auto result = f(sources...);
    scc = result != 0;
    return result;
};

constexpr auto and_of = [](auto a, auto b) { return a & b; };
constexpr auto or_of = [](auto a, auto b) { return a | b; };
constexpr auto xor_of = [](auto a, auto b) { return a ^ b; };
constexpr auto nand_of = [](auto a, auto b) { return ~(a & b); };
constexpr auto nor_of = [](auto a, auto b) { return ~(a | b); };
constexpr auto xnor_of = [](auto a, auto b) { return ~(a ^ b); };
constexpr auto and_not_of = [](auto a, auto b) { return a & ~b; };
constexpr auto or_not_of = [](auto a, auto b) { return a | ~b; };
constexpr auto not_of = [](auto a) { return ~a; };

u32 field(u32 value, u32 what) {
    const u32 first = what & 31, width = (what >> 16) & 127;
    const u32 moved = value >> first;
    return width == 0 ? 0 : width >= 32 ? moved : moved & ((1u << width) - 1);
}
u32 signed_field(u32 value, u32 what) {
    const u32 first = what & 31, width = std::min((what >> 16) & 127, 32 - first);
    return width == 0 ? 0 : u32(i32(value << (32 - first - width)) >> (32 - width));
}
u64 field_64(u64 value, u32 what) {
    const u32 first = what & 63, width = (what >> 16) & 127;
    const u64 moved = value >> first;
    return width == 0 ? 0 : width >= 64 ? moved : moved & ((u64(1) << width) - 1);
}
u64 signed_field_64(u64 value, u32 what) {
    const u32 first = what & 63, width = std::min((what >> 16) & 127, 64 - first);
    return width == 0 ? 0 : u64(i64(value << (64 - first - width)) >> (64 - width));
}

template <int by> u32 shifted_sum(bool & scc, u32 a, u32 b) {
    const u64 exact = (u64(a) << by) + b;
    scc = (exact >> 32) != 0;
    return u32(exact);
}

u32 whole_quads(u32 value) { // s_wqm: if any of four lanes is set, all are
    const u32 any = (value | (value >> 1) | (value >> 2) | (value >> 3)) & 0x11111111;
    return any * 15;
}

u32 quad_mask(u32 value) {
    u32 result = 0;
    for (u32 n = 0; n < 8; ++n) {
        result |= u32(((value >> (4 * n)) & 15) != 0) << n;
    }
    return result;
}

u64 doubled_bits(u32 value) {
    u64 result = 0;
    for (int n = 0; n < 32; ++n) {
        result |= u64((value >> n) & 1) * 3 << (2 * n);
    }
    return result;
}

u32 first_bit(u32 value) { return value == 0 ? ~0u : u32(std::countr_zero(value)); }
u32 first_bit_64(u64 value) { return value == 0 ? ~0u : u32(std::countr_zero(value)); }
u32 last_bit(u32 value) { return value == 0 ? ~0u : u32(std::countl_zero(value)); }
u32 last_bit_64(u64 value) { return value == 0 ? ~0u : u32(std::countl_zero(value)); }
u32 sign_bits_64(u64 value) { return last_bit_64(i64(value) < 0 ? ~value : value); }
u64 whole_quads_64(u64 value) { return whole_quads(u32(value)) | u64(whole_quads(u32(value >> 32))) << 32; }
u64 quad_mask_64(u64 value) { return quad_mask(u32(value)) | quad_mask(u32(value >> 32)) << 8; }
u32 sign_bits(u32 value) { return last_bit(i32(value) < 0 ? ~value : value); }

// ---- Floats (RDNA3.5)

u32 to_i32(f32 value) {
    return value != value ? 0 : value >= 2147483648.0f ? u32(INT32_MAX) : value <= -2147483648.0f ? u32(INT32_MIN)
                                                                                                : u32(i32(value));
}
u32 to_u32(f32 value) { return value != value || value <= 0.0f ? 0 : value >= 4294967296.0f ? ~0u : u32(value); }

bool is_below(f32 a, f32 b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }
// As min_of and max_of of float.cpp, and half_of_two, for one value.
template <bool is_min> u32 float_of_two(u32 modifiers, u32 a, u32 b) {
    const f32 x = float_of(a), y = float_of(b);
    constexpr u32 quiet = 1u << 22;
    if ((modifiers & modifier::ieee) != 0) {
        if (x != x && (a & quiet) == 0) {
            return a | quiet;
        }
        if (y != y && (b & quiet) == 0) {
            return b | quiet;
        }
    }
    return y != y ? a : x != x ? b : is_below(x, y) == is_min ? a : b;
}
// Minimum and maximum of IEEE 754-2019 (RDNA4): NaN if either operand is NaN.
template <bool is_min> u32 ieee_of_two(u32, u32 a, u32 b) {
    constexpr u32 quiet = 1u << 22;
    return float_of(a) != float_of(a) ? a | quiet : float_of(b) != float_of(b) ? b | quiet : float_of_two<is_min>(0, a, b);
}
template <bool is_min> u32 ieee_half_of_two(u32, u32 a, u32 b) {
    const auto is_nan = [](u32 bits) { return (bits & 0x7fff) > 0x7c00; };
    constexpr u32 quiet = 1u << 9;
    return is_nan(a)   ? (a & 0xffff) | quiet
           : is_nan(b) ? (b & 0xffff) | quiet
                       : half_of_two<is_min>(0, splat<u16x>(u16(a)), splat<u16x>(u16(b)))[0];
}
template <bool is_min> u32 scalar_half_of_two(u32 modifiers, u32 a, u32 b) {
    return half_of_two<is_min>(modifiers, splat<u16x>(u16(a)), splat<u16x>(u16(b)))[0];
}

// v_cvt_pk_rtz_f16_f32 for one value.
u32 half_towards_zero(f32 value) {
    const u32 nearest = half_bits(value);
    return std::fabs(half_value(nearest)) > std::fabs(value) ? nearest - 1 : nearest;
}

u32 fused_half(u32 a, u32 b, u32 c) {
    // Exact in f64: products of f16 have 22 bits, their sums with f16 at most 53.
    return as<u16>(_Float16(double(half_value(a)) * half_value(b) + half_value(c)));
}

template <auto f> definition float_2(std::string_view name, u32 traits = 0) {
    return scalar<[](u32 a, u32 b) { return bits_of(f(float_of(a), float_of(b))); }, S32, S32, S32>(name, traits);
}
template <auto f> definition float_1(std::string_view name) {
    return scalar<[](u32 a) { return bits_of(f(float_of(a))); }, S32, S32>(name);
}
template <auto f> definition half_2(std::string_view name) {
    return scalar<[](u32 a, u32 b) { return half_bits(f(half_value(a), half_value(b))); }, S32, S16, S16>(name);
}
template <auto f> definition half_1(std::string_view name) {
    return scalar<[](u32 a) { return half_bits(f(half_value(a))); }, S32, S16>(name);
}

// ---- Comparisons set SCC.

template <auto f, class K> void compare(const instruction * i, wave & w) {
    w.scc = f(K::template read<0>(i, w), K::template read<1>(i, w));
    PATCHKIT_NEXT(i, w);
}

template <auto f> void compare_bit(const instruction * i, wave & w) {
    w.scc = f((S32::read<0>(i, w) >> (S32::read<1>(i, w) & 31)) & 1);
    PATCHKIT_NEXT(i, w);
}

template <auto f> void compare_bit_64(const instruction * i, wave & w) {
    w.scc = f(u32(S64::read<0>(i, w) >> (S32::read<1>(i, w) & 63)) & 1);
    PATCHKIT_NEXT(i, w);
}

template <auto f, class K> definition comparing(std::string_view name, u32 traits = 0) {
    return {name, compare<f, K>, {}, {K::form, K::form}, traits};
}
template <auto f> definition comparing_floats(std::string_view name) {
    return comparing<[](u32 a, u32 b) { return f(float_of(a), float_of(b)); }, S32>(name);
}
template <auto f> definition comparing_halves(std::string_view name) {
    return comparing<[](u32 a, u32 b) { return f(half_value(a), half_value(b)); }, S16>(name);
}

constexpr auto is_less = [](auto a, auto b) { return a < b; };
constexpr auto is_equal = [](auto a, auto b) { return a == b; };
constexpr auto is_at_most = [](auto a, auto b) { return a <= b; };
constexpr auto is_more = [](auto a, auto b) { return a > b; };
constexpr auto is_different = [](auto a, auto b) { return a < b || a > b; };
constexpr auto is_at_least = [](auto a, auto b) { return a >= b; };
constexpr auto is_ordered = [](auto a, auto b) { return a == a && b == b; };
template <auto f> constexpr auto negated = [](auto a, auto b) { return !f(a, b); };
template <auto f> constexpr auto with_sign = [](u32 a, u32 b) { return f(i32(a), i32(b)); };

// ---- Saving and changing EXEC.

template <auto f, bool keeps_exec> void save_exec(const instruction * i, wave & w) {
    const u32 source = S32::read<0>(i, w), before = w.exec(), after = f(source, before);
    w.scalar[slot::exec] = after;
    w.scc = after != 0;
    write_scalar(w, i->to[0], keeps_exec ? before : after);
    PATCHKIT_NEXT(i, w);
}

template <auto f> definition saving(std::string_view name, u32 traits = 0) {
    return {name, save_exec<f, true>, {format::scalar}, {format::scalar}, traits};
}

// The same for 64 lanes, of which a wave has the lower 32.
template <auto f, bool keeps_exec> void save_exec_64(const instruction * i, wave & w) {
    const u64 source = S64::read<0>(i, w), before = w.exec() | u64(w.scalar[slot::exec + 1]) << 32;
    const u64 after = f(source, before);
    w.scalar[slot::exec] = u32(after);
    w.scalar[slot::exec + 1] = u32(after >> 32);
    w.scc = after != 0;
    write_scalar_64(w, i->to[0], keeps_exec ? before : after);
    PATCHKIT_NEXT(i, w);
}

template <bool wanted> void bitset_64(const instruction * i, wave & w) {
    const u64 bit = u64(1) << (S32::read<0>(i, w) & 63), old = read_scalar_64(i, w, i->from[1]);
    write_scalar_64(w, i->to[0], wanted ? old | bit : old & ~bit);
    PATCHKIT_NEXT(i, w);
}

// Register index plus M0. `immediate` is the number of SGPRs after the operand.
i32 moved_bytes(const instruction * i, wave & w, u32 by, i64 most) {
    if (i64(by) > most) {
        w.on->fault(i, w, "M0 offsets the register by " + std::to_string(by) + ", past the last one");
    }
    return i32(4 * by) << 3;
}
operand moved(const instruction * i, wave & w, operand o) {
    return {o.code + moved_bytes(i, w, w.scalar[slot::m0], i->immediate)};
}

template <bool is_target, bool is_wide> void move_relative(const instruction * i, wave & w) {
    const operand from = is_target ? i->from[0] : moved(i, w, i->from[0]);
    const operand to = is_target ? moved(i, w, i->to[0]) : i->to[0];
    if constexpr (is_wide) {
        write_scalar_64(w, to, read_scalar_64(i, w, from));
    } else {
        write_scalar(w, to, read_scalar(i, w, from));
    }
    PATCHKIT_NEXT(i, w);
}

// Both are indexed, each by its part of M0; `immediate` has the number of registers after the destination above bit 16.
void move_relative_both(const instruction * i, wave & w) {
    const u32 m0 = w.scalar[slot::m0];
    const operand from{i->from[0].code + moved_bytes(i, w, m0 & 0x3ff, i->immediate & 0xffff)};
    const operand to{i->to[0].code + moved_bytes(i, w, m0 >> 16 & 0x3ff, i->immediate >> 16)};
    write_scalar(w, to, read_scalar(i, w, from));
    PATCHKIT_NEXT(i, w);
}

// The target is decoded like that of a branch.
void call(const instruction * i, wave & w) {
    write_scalar_64(w, i->to[0], u64(w.on->address_behind(i)));
    const instruction * target = i->target;
    leave(i, w);
    enter(target, w);
    PATCHKIT_GO_ON(target, w);
}

template <bool wanted> void bitset(const instruction * i, wave & w) {
    const u32 bit = 1u << (S32::read<0>(i, w) & 31), old = S32::read<1>(i, w);
    write_scalar(w, i->to[0], wanted ? old | bit : old & ~bit);
    PATCHKIT_NEXT(i, w);
}

void cmovk(const instruction * i, wave & w) {
    if (w.scc) {
        write_scalar(w, i->to[0], read_scalar(i, w, i->from[0]));
    }
    PATCHKIT_NEXT(i, w);
}

void cmov_64(const instruction * i, wave & w) {
    if (w.scc) {
        write_scalar_64(w, i->to[0], read_scalar_64(i, w, i->from[0]));
    }
    PATCHKIT_NEXT(i, w);
}

// ---- Control flow.

enum class when : u8 { always, scc_0, scc_1, vcc_zero, vcc_not_zero, exec_zero, exec_not_zero };

template <when condition> bool holds(const wave & w) {
    switch (condition) {
        case when::always: return true;
        case when::scc_0: return !w.scc;
        case when::scc_1: return w.scc;
        case when::vcc_zero: return w.scalar[slot::vcc] == 0;
        case when::vcc_not_zero: return w.scalar[slot::vcc] != 0;
        case when::exec_zero: return w.exec() == 0;
        case when::exec_not_zero: return w.exec() != 0;
    }
}

template <when condition> void branch(const instruction * i, wave & w) {
    if (!holds<condition>(w)) {
        PATCHKIT_NEXT(i, w);
    }
    const instruction * target = i->target;
    leave(i, w);
    enter(target, w);
    if (target <= i && --w.patience == 0) [[unlikely]] {
        return w.on->rest(target, w);
    }
    PATCHKIT_GO_ON(target, w);
}

template <when condition> definition branching(std::string_view name, u32 traits = 0) {
    return {name, branch<condition>, {}, {}, trait::branches | traits};
}

void getpc(const instruction * i, wave & w) {
    write_scalar_64(w, i->to[0], u64(w.on->address_behind(i)));
    PATCHKIT_NEXT(i, w);
}

void setpc(const instruction * i, wave & w) {
    const instruction * target = w.on->instruction_at(i, w, read_scalar_64(i, w, i->from[0]));
    leave(i, w);
    enter(target, w);
    PATCHKIT_GO_ON(target, w);
}

void swappc(const instruction * i, wave & w) {
    const instruction * target = w.on->instruction_at(i, w, read_scalar_64(i, w, i->from[0]));
    write_scalar_64(w, i->to[0], u64(w.on->address_behind(i)));
    leave(i, w);
    enter(target, w);
    PATCHKIT_GO_ON(target, w);
}

void endpgm(const instruction * i, wave & w) {
    leave(i, w);
    w.state = standing::ended;
}

void barrier(const instruction * i, wave & w) {
    leave(i, w);
    enter(i + 1, w);
    w.next = i + 1;
    w.state = standing::at_barrier;
}

void sleep(const instruction * i, wave & w) {
    leave(i, w);
    enter(i + 1, w);
    w.on->serve_host_calls(w);
    w.on->rest(i + 1, w, standing::sleeping);
}

void trap(const instruction * i, wave & w) {
    w.on->fault(i, w, "the kernel trapped (s_trap " + std::to_string(i->immediate) +
                    "): an assertion, __trap() or __builtin_trap()");
}

void send_message(const instruction * i, wave & w) {
    w.on->serve_host_calls(w);
    PATCHKIT_NEXT(i, w);
}

// Clocks count instructions: the emulated GPU has no time, and programs can only rely on clocks advancing.
u64 clock_at(const instruction * i, const wave & w) { return w.executed + i->number - w.entered; }

void read_clock(const instruction * i, wave & w) {
    note_change(w);
    write_scalar_64(w, i->to[0], clock_at(i, w));
    PATCHKIT_NEXT(i, w);
}

// A bit field of the clock: the first bit and, in the next byte, the width.
void read_clock_bits(const instruction * i, wave & w) {
    note_change(w);
    const int first = int(i->immediate & 0xff), count = int(i->immediate >> 8);
    write_scalar(w, i->to[0], u32((clock_at(i, w) >> first) & ((u64(1) << count) - 1)));
    PATCHKIT_NEXT(i, w);
}

} // namespace

definitions scalar_instructions() {
    definitions made{
        scalar<[](u32 a) { return a; }, S32, S32>("s_mov_b32", trait::moves_bits),
        scalar<[](u64 a) { return a; }, S64, S64>("s_mov_b64", trait::moves_bits),
        scalar<[](u32 a) { return a; }, S32, S32>("s_movk_i32", trait::moves_bits | trait::short_constant),
        {"s_cmov_b32", cmovk, {format::scalar}, {format::scalar}, trait::may_keep},
        {"s_cmovk_i32", cmovk, {format::scalar}, {format::scalar}, trait::may_keep | trait::short_constant},
        {"s_cmov_b64", cmov_64, {format::scalar_64}, {format::scalar_64}, trait::may_keep},
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc ? a : b; }, S32, S32, S32>(
            "s_cselect_b32", trait::moves_bits),
        scalar_scc<[](bool & scc, u64 a, u64 b) { return scc ? a : b; }, S64, S64, S64>(
            "s_cselect_b64", trait::moves_bits),
        // sums
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = u32(a + b) < a, a + b; }, S32, S32, S32>("s_add_u32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = (b > a), a - b; }, S32, S32, S32>("s_sub_u32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) {
            i32 sum;
            scc = __builtin_add_overflow(i32(a), i32(b), &sum);
            return u32(sum);
        }, S32, S32, S32>("s_add_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) {
            i32 difference;
            scc = __builtin_sub_overflow(i32(a), i32(b), &difference);
            return u32(difference);
        }, S32, S32, S32>("s_sub_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) {
            const u64 exact = u64(a) + b + (scc ? 1 : 0);
            scc = (exact >> 32) != 0;
            return u32(exact);
        }, S32, S32, S32>("s_addc_u32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) {
            const u64 subtrahend = u64(b) + (scc ? 1 : 0);
            scc = (subtrahend > a);
            return u32(a - subtrahend);
        }, S32, S32, S32>("s_subb_u32"),
        scalar_scc<[](bool & scc, u32 b, u32 a) {
            i32 sum;
            scc = __builtin_add_overflow(i32(a), i32(b), &sum);
            return u32(sum);
        }, S32, S32, S32>("s_addk_i32", trait::accumulates | trait::short_constant),
        scalar<[](u32 b, u32 a) { return a * b; }, S32, S32, S32>(
            "s_mulk_i32", trait::accumulates | trait::short_constant),
        scalar<[](u64 a, u64 b) { return a + b; }, S64, S64, S64>("s_add_nc_u64"),
        scalar<[](u64 a, u64 b) { return a - b; }, S64, S64, S64>("s_sub_nc_u64"),
        scalar<[](u64 a, u64 b) { return a * b; }, S64, S64, S64>("s_mul_u64"),
        scalar<[](u32 a, u32 b) { return a * b; }, S32, S32, S32>("s_mul_i32"),
        scalar<[](u32 a, u32 b) { return u32((u64(a) * b) >> 32); }, S32, S32, S32>("s_mul_hi_u32"),
        scalar<[](u32 a, u32 b) { return u32((i64(i32(a)) * i32(b)) >> 32); }, S32, S32, S32>("s_mul_hi_i32"),
        scalar_scc<shifted_sum<1>, S32, S32, S32>("s_lshl1_add_u32", trait::moves_bits),
        scalar_scc<shifted_sum<2>, S32, S32, S32>("s_lshl2_add_u32", trait::moves_bits),
        scalar_scc<shifted_sum<3>, S32, S32, S32>("s_lshl3_add_u32", trait::moves_bits),
        scalar_scc<shifted_sum<4>, S32, S32, S32>("s_lshl4_add_u32", trait::moves_bits),
        scalar_scc<[](bool & scc, u32 a) {
            const u32 result = i32(a) < 0 ? 0 - a : a;
            scc = result != 0;
            return result;
        }, S32, S32>("s_abs_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) {
            const u32 d = a - b, result = i32(d) < 0 ? 0 - d : d;
            scc = result != 0;
            return result;
        }, S32, S32, S32>("s_absdiff_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = i32(a) < i32(b), scc ? a : b; }, S32, S32, S32>(
            "s_min_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = i32(a) >= i32(b), scc ? a : b; }, S32, S32, S32>(
            "s_max_i32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = a < b, scc ? a : b; }, S32, S32, S32>("s_min_u32"),
        scalar_scc<[](bool & scc, u32 a, u32 b) { return scc = a >= b, scc ? a : b; }, S32, S32, S32>("s_max_u32"),
        // shifts and fields
        scalar_scc<with_scc_if_not_zero<[](u32 a, u32 b) { return a << (b & 31); }>, S32, S32, S32>(
            "s_lshl_b32", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<[](u32 a, u32 b) { return (a >> (b & 31)); }>, S32, S32, S32>(
            "s_lshr_b32", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<[](u32 a, u32 b) { return u32(i32(a) >> (b & 31)); }>, S32, S32, S32>(
            "s_ashr_i32"),
        scalar_scc<with_scc_if_not_zero<[](u64 a, u32 b) { return a << (b & 63); }>, S64, S64, S32>(
            "s_lshl_b64", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<[](u64 a, u32 b) { return (a >> (b & 63)); }>, S64, S64, S32>(
            "s_lshr_b64", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<[](u64 a, u32 b) { return u64(i64(a) >> (b & 63)); }>, S64, S64, S32>(
            "s_ashr_i64"),
        scalar_scc<with_scc_if_not_zero<field>, S32, S32, S32>("s_bfe_u32", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<signed_field>, S32, S32, S32>("s_bfe_i32", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<field_64>, S64, S64, S32>("s_bfe_u64", trait::moves_bits),
        scalar_scc<with_scc_if_not_zero<signed_field_64>, S64, S64, S32>("s_bfe_i64", trait::moves_bits),
        scalar<[](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }, S32, S32, S32>(
            "s_bfm_b32", trait::moves_bits),
        scalar<[](u32 a, u32 b) { return ((u64(1) << (a & 63)) - 1) << (b & 63); }, S64, S32, S32>(
            "s_bfm_b64", trait::moves_bits),
        {"s_bitset0_b64", bitset_64<false>, {format::scalar_64}, {format::scalar, format::scalar_64},
         trait::accumulates | trait::may_keep},
        {"s_bitset1_b64", bitset_64<true>, {format::scalar_64}, {format::scalar, format::scalar_64},
         trait::accumulates | trait::may_keep},
        scalar<sign_bits_64, S32, S64>("s_cls_i32_i64"),
        scalar_scc<with_scc_if_not_zero<[](u64 a) { return u32(std::popcount(~a)); }>, S32, S64>("s_bcnt0_i32_b64"),
        scalar_scc<with_scc_if_not_zero<whole_quads_64>, S64, S64>("s_wqm_b64"),
        scalar_scc<with_scc_if_not_zero<quad_mask_64>, S64, S64>("s_quadmask_b64"),
        {"s_movrels_b32", move_relative<false, false>, {format::scalar}, {format::scalar},
         trait::moves_bits | trait::moves_source | trait::is_given},
        {"s_movrels_b64", move_relative<false, true>, {format::scalar_64}, {format::scalar_64},
         trait::moves_bits | trait::moves_source | trait::is_given},
        {"s_movreld_b32", move_relative<true, false>, {format::scalar}, {format::scalar},
         trait::moves_bits | trait::moves_target | trait::is_given},
        {"s_movreld_b64", move_relative<true, true>, {format::scalar_64}, {format::scalar_64},
         trait::moves_bits | trait::moves_target | trait::is_given},
        {"s_movrelsd_2_b32", move_relative_both, {format::scalar}, {format::scalar},
         trait::moves_bits | trait::moves_source | trait::moves_target | trait::is_given},
        modal<ieee_of_two<true>, S32, S32, S32>("s_minimum_f32"),
        modal<ieee_of_two<false>, S32, S32, S32>("s_maximum_f32"),
        modal<ieee_half_of_two<true>, S32, S16, S16>("s_minimum_f16"),
        modal<ieee_half_of_two<false>, S32, S16, S16>("s_maximum_f16"),
        {"s_bitset0_b32", bitset<false>, {format::scalar}, {format::scalar, format::scalar},
         trait::accumulates | trait::may_keep},
        {"s_bitset1_b32", bitset<true>, {format::scalar}, {format::scalar, format::scalar},
         trait::accumulates | trait::may_keep},
        scalar<[](u32 a) { return as<u32>(__builtin_bitreverse32(a)); }, S32, S32>("s_brev_b32"),
        scalar<[](u64 a) { return as<u64>(__builtin_bitreverse64(a)); }, S64, S64>("s_brev_b64"),
        scalar<first_bit, S32, S32>("s_ctz_i32_b32"),
        scalar<first_bit_64, S32, S64>("s_ctz_i32_b64"),
        scalar<last_bit, S32, S32>("s_clz_i32_u32"),
        scalar<last_bit_64, S32, S64>("s_clz_i32_u64"),
        scalar<sign_bits, S32, S32>("s_cls_i32"),
        scalar_scc<with_scc_if_not_zero<[](u32 a) { return u32(std::popcount(a)); }>, S32, S32>("s_bcnt1_i32_b32"),
        scalar_scc<with_scc_if_not_zero<[](u64 a) { return u32(std::popcount(a)); }>, S32, S64>("s_bcnt1_i32_b64"),
        scalar_scc<with_scc_if_not_zero<[](u32 a) { return u32(std::popcount(~a)); }>, S32, S32>("s_bcnt0_i32_b32"),
        scalar<[](u32 a) { return u32(i32(int8_t(a))); }, S32, S32>("s_sext_i32_i8"),
        scalar<[](u32 a) { return u32(i32(i16(a))); }, S32, S32>("s_sext_i32_i16"),
        scalar_scc<with_scc_if_not_zero<whole_quads>, S32, S32>("s_wqm_b32"),
        scalar_scc<with_scc_if_not_zero<quad_mask>, S32, S32>("s_quadmask_b32"),
        scalar<doubled_bits, S64, S32>("s_bitreplicate_b64_b32"),
        scalar<[](u32 a, u32 b) { return (a & 0xffff) | (b << 16); }, S32, S32, S32>(
            "s_pack_ll_b32_b16", trait::moves_bits),
        scalar<[](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }, S32, S32, S32>(
            "s_pack_lh_b32_b16", trait::moves_bits),
        scalar<[](u32 a, u32 b) { return (a >> 16) | (b & 0xffff0000); }, S32, S32, S32>(
            "s_pack_hh_b32_b16", trait::moves_bits),
        scalar<[](u32 a, u32 b) { return (a >> 16) | (b << 16); }, S32, S32, S32>("s_pack_hl_b32_b16", trait::moves_bits),
        // floats
        float_2<[](f32 a, f32 b) { return a + b; }>("s_add_f32"),
        float_2<[](f32 a, f32 b) { return a - b; }>("s_sub_f32"),
        float_2<[](f32 a, f32 b) { return a * b; }>("s_mul_f32"),
        modal<float_of_two<true>, S32, S32, S32>("s_min_f32"),
        modal<float_of_two<false>, S32, S32, S32>("s_max_f32"),
        scalar<[](u32 a, u32 b, u32 c) { return bits_of(std::fma(float_of(a), float_of(b), float_of(c))); }, S32, S32,
               S32, S32>("s_fmac_f32", trait::accumulates),
        scalar<[](u32 a, u32 b, u32 c) { return bits_of(std::fma(float_of(a), float_of(b), float_of(c))); }, S32, S32,
               S32, S32>("s_fmaak_f32"),
        scalar<[](u32 a, u32 b, u32 c) { return bits_of(std::fma(float_of(a), float_of(b), float_of(c))); }, S32, S32,
               S32, S32>("s_fmamk_f32"),
        float_1<[](f32 a) { return std::floor(a); }>("s_floor_f32"),
        float_1<[](f32 a) { return std::ceil(a); }>("s_ceil_f32"),
        float_1<[](f32 a) { return std::trunc(a); }>("s_trunc_f32"),
        float_1<[](f32 a) { return __builtin_roundevenf(a); }>("s_rndne_f32"),
        half_2<[](f32 a, f32 b) { return a + b; }>("s_add_f16"),
        half_2<[](f32 a, f32 b) { return a - b; }>("s_sub_f16"),
        half_2<[](f32 a, f32 b) { return a * b; }>("s_mul_f16"),
        modal<scalar_half_of_two<true>, S32, S16, S16>("s_min_f16"),
        modal<scalar_half_of_two<false>, S32, S16, S16>("s_max_f16"),
        scalar<fused_half, S32, S16, S16, S16>("s_fmac_f16", trait::accumulates),
        half_1<[](f32 a) { return std::floor(a); }>("s_floor_f16"),
        half_1<[](f32 a) { return std::ceil(a); }>("s_ceil_f16"),
        half_1<[](f32 a) { return std::trunc(a); }>("s_trunc_f16"),
        half_1<[](f32 a) { return __builtin_roundevenf(a); }>("s_rndne_f16"),
        scalar<[](u32 a) { return bits_of(f32(i32(a))); }, S32, S32>("s_cvt_f32_i32"),
        scalar<[](u32 a) { return bits_of(f32(a)); }, S32, S32>("s_cvt_f32_u32"),
        scalar<[](u32 a) { return to_i32(float_of(a)); }, S32, S32>("s_cvt_i32_f32"),
        scalar<[](u32 a) { return to_u32(float_of(a)); }, S32, S32>("s_cvt_u32_f32"),
        scalar<[](u32 a) { return half_bits(float_of(a)); }, S32, S32>("s_cvt_f16_f32"),
        scalar<[](u32 a) { return bits_of(half_value(a)); }, S32, S16>("s_cvt_f32_f16"),
        scalar<[](u32 a) { return bits_of(half_value(a >> 16)); }, S32, S32>("s_cvt_hi_f32_f16"),
        scalar<[](u32 a, u32 b) { return half_towards_zero(float_of(a)) | (half_towards_zero(float_of(b)) << 16); },
               S32, S32, S32>("s_cvt_pk_rtz_f16_f32"),
        // EXEC
        saving<and_of>("s_and_saveexec_b32", trait::moves_bits),
        saving<or_of>("s_or_saveexec_b32", trait::moves_bits),
        saving<xor_of>("s_xor_saveexec_b32"),
        saving<nand_of>("s_nand_saveexec_b32"),
        saving<nor_of>("s_nor_saveexec_b32"),
        saving<xnor_of>("s_xnor_saveexec_b32"),
        saving<[](u32 s, u32 exec) { return s & ~exec; }>("s_and_not1_saveexec_b32", trait::moves_bits),
        saving<[](u32 s, u32 exec) { return s | ~exec; }>("s_or_not1_saveexec_b32", trait::moves_bits),
        saving<[](u32 s, u32 exec) { return ~s & exec; }>("s_and_not0_saveexec_b32", trait::moves_bits),
        saving<[](u32 s, u32 exec) { return ~s | exec; }>("s_or_not0_saveexec_b32", trait::moves_bits),
        {"s_and_not1_wrexec_b32", save_exec<[](u32 s, u32 exec) { return s & ~exec; }, false>, {format::scalar},
         {format::scalar}, trait::moves_bits},
        {"s_and_not0_wrexec_b32", save_exec<[](u32 s, u32 exec) { return ~s & exec; }, false>, {format::scalar},
         {format::scalar}, trait::moves_bits},
        // bits
        {"s_bitcmp0_b32", compare_bit<[](u32 bit) { return bit == 0; }>, {}, {format::scalar, format::scalar}},
        {"s_bitcmp1_b32", compare_bit<[](u32 bit) { return bit != 0; }>, {}, {format::scalar, format::scalar}},
        {"s_bitcmp0_b64", compare_bit_64<[](u32 bit) { return bit == 0; }>, {}, {format::scalar_64, format::scalar}},
        {"s_bitcmp1_b64", compare_bit_64<[](u32 bit) { return bit != 0; }>, {}, {format::scalar_64, format::scalar}},
        comparing<is_equal, S64>("s_cmp_eq_u64"),
        comparing<is_different, S64>("s_cmp_lg_u64"),
        // control flow
        branching<when::always>("s_branch", trait::ends),
        branching<when::scc_0>("s_cbranch_scc0", trait::decides),
        branching<when::scc_1>("s_cbranch_scc1", trait::decides),
        branching<when::vcc_zero>("s_cbranch_vccz", trait::decides | trait::reads_vcc),
        branching<when::vcc_not_zero>("s_cbranch_vccnz", trait::decides | trait::reads_vcc),
        branching<when::exec_zero>("s_cbranch_execz"),
        branching<when::exec_not_zero>("s_cbranch_execnz"),
        {"s_getpc_b64", getpc, {format::scalar_64}, {}, trait::is_given},
        {"s_setpc_b64", setpc, {}, {format::scalar_64}, trait::jumps | trait::is_given | trait::ends},
        {"s_swappc_b64", swappc, {format::scalar_64}, {format::scalar_64}, trait::jumps | trait::is_given},
        {"s_call_b64", call, {format::scalar_64}, {}, trait::branches},
        {"s_endpgm", endpgm, {}, {}, trait::ends},
        {"s_barrier", barrier, {}, {}, trait::is_barrier},
        {"s_barrier_wait", barrier, {}, {}, trait::only_waits},
        {"s_sleep", sleep, {}, {}},
        {"s_sleep_var", sleep, {}, {format::scalar}},
        {"s_trap", trap, {}, {}, trait::ends},
        {"s_sendmsg", send_message, {}, {}, trait::is_given},
        {"s_memtime", read_clock, {format::scalar_64}, {}, trait::is_given},
        {"s_memrealtime", read_clock, {format::scalar_64}, {}, trait::is_given},
        // For one message and one register: see program.cpp.
        {"s_sendmsg_rtn_b64", read_clock, {format::scalar_64}, {}, trait::is_given, {}, {}, queue::scalar},
        {"s_getreg_b32", read_clock_bits, {format::scalar}, {}, trait::is_given},
    };
    made.push_back({"s_denorm_mode", nullptr, {}, {}}); // see program.cpp
    // Hints for waiting, prefetching and write-back: execution is in order, and there is only one memory.
    for (const std::string_view name :
         {"s_set_inst_prefetch_distance", "s_setprio", "s_icache_inv", "s_code_end",
          "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_ttracedata_imm", "s_prefetch_inst",
          "s_prefetch_inst_pc_rel", "s_prefetch_data", "s_prefetch_data_pc_rel", "s_buffer_prefetch_data", "s_version",
          "s_wakeup"}) {
        made.push_back({name, nullptr, {}, {}});
    }
    made.push_back({"s_dcache_inv", nullptr, {}, {}, trait::invalidates_scalar});
    made.push_back({"s_gl1_inv", nullptr, {}, {}, trait::invalidates_l1});
    made.push_back({"s_barrier_signal", nullptr, {}, {}, trait::is_barrier});
    // ISA guides, S_WAITCNT (RDNA3, 16.5) and S_WAIT_*CNT (RDNA4, 16.5).
    const auto add_wait = [&](std::string_view name, std::vector<counter> waits = {}) {
        made.push_back({name, nullptr, {}, {}, trait::only_waits, {}, std::move(waits)});
    };
    constexpr u8 lds_and_scalar = queue::lds | queue::scalar;
    for (const std::string_view name :
         {"s_nop", "s_delay_alu", "s_clause", "s_waitcnt_expcnt", "s_waitcnt_depctr", "s_wait_alu", "s_wait_event",
          "s_wait_expcnt", "s_wait_samplecnt", "s_wait_bvhcnt"}) {
        add_wait(name);
    }
    add_wait("s_waitcnt", {{queue::vector_load, 10, 6}, {lds_and_scalar, 4, 6}});
    add_wait("s_waitcnt_vmcnt", {{queue::vector_load, 0, 6}});
    add_wait("s_waitcnt_vscnt", {{queue::vector_store, 0, 6}});
    add_wait("s_waitcnt_lgkmcnt", {{lds_and_scalar, 0, 6}});
    add_wait("s_wait_loadcnt", {{queue::vector_load, 0, 6}});
    add_wait("s_wait_storecnt", {{queue::vector_store, 0, 6}});
    add_wait("s_wait_dscnt", {{queue::lds, 0, 6}});
    add_wait("s_wait_kmcnt", {{queue::scalar, 0, 5}});
    add_wait("s_wait_loadcnt_dscnt", {{queue::vector_load, 8, 6}, {queue::lds, 0, 6}});
    add_wait("s_wait_storecnt_dscnt", {{queue::vector_store, 8, 6}, {queue::lds, 0, 6}});
    add_wait("s_wait_idle", {{u8(queue::vector_load | queue::vector_store)}, {lds_and_scalar}});
    const auto add_saving = [&]<auto f>(std::string_view name, u32 traits = 0) {
        made.push_back({name, save_exec_64<f, true>, {format::scalar_64}, {format::scalar_64}, traits});
    };
    add_saving.operator()<and_of>("s_and_saveexec_b64", trait::moves_bits);
    add_saving.operator()<or_of>("s_or_saveexec_b64", trait::moves_bits);
    add_saving.operator()<xor_of>("s_xor_saveexec_b64");
    add_saving.operator()<nand_of>("s_nand_saveexec_b64");
    add_saving.operator()<nor_of>("s_nor_saveexec_b64");
    add_saving.operator()<xnor_of>("s_xnor_saveexec_b64");
    add_saving.operator()<and_not_of>("s_and_not1_saveexec_b64", trait::moves_bits);
    add_saving.operator()<or_not_of>("s_or_not1_saveexec_b64", trait::moves_bits);
    constexpr auto not_and_of = [](auto a, auto b) { return ~a & b; };
    constexpr auto not_or_of = [](auto a, auto b) { return ~a | b; };
    add_saving.operator()<not_and_of>("s_and_not0_saveexec_b64", trait::moves_bits);
    add_saving.operator()<not_or_of>("s_or_not0_saveexec_b64", trait::moves_bits);
    made.push_back({"s_and_not1_wrexec_b64", save_exec_64<and_not_of, false>, {format::scalar_64}, {format::scalar_64},
                    trait::moves_bits});
    made.push_back({"s_and_not0_wrexec_b64", save_exec_64<not_and_of, false>, {format::scalar_64}, {format::scalar_64},
                    trait::moves_bits});
    const auto add_bitwise = [&]<auto f>(std::string_view name_32, std::string_view name_64, u32 traits = 0) {
        made.push_back(scalar_scc<with_scc_if_not_zero<f>, S32, S32, S32>(name_32, traits));
        made.push_back(scalar_scc<with_scc_if_not_zero<f>, S64, S64, S64>(name_64, traits));
    };
    add_bitwise.operator()<and_of>("s_and_b32", "s_and_b64", trait::moves_bits);
    add_bitwise.operator()<or_of>("s_or_b32", "s_or_b64", trait::moves_bits);
    add_bitwise.operator()<xor_of>("s_xor_b32", "s_xor_b64");
    add_bitwise.operator()<nand_of>("s_nand_b32", "s_nand_b64");
    add_bitwise.operator()<nor_of>("s_nor_b32", "s_nor_b64");
    add_bitwise.operator()<xnor_of>("s_xnor_b32", "s_xnor_b64");
    add_bitwise.operator()<and_not_of>("s_and_not1_b32", "s_and_not1_b64", trait::moves_bits);
    add_bitwise.operator()<or_not_of>("s_or_not1_b32", "s_or_not1_b64", trait::moves_bits);
    made.push_back(scalar_scc<with_scc_if_not_zero<not_of>, S32, S32>("s_not_b32"));
    made.push_back(scalar_scc<with_scc_if_not_zero<not_of>, S64, S64>("s_not_b64"));
    // The K forms contain their constant.
    const auto add_compares = [&]<auto f>(std::string_view i32_name, std::string_view u32_name, std::string_view k_i32,
                                          std::string_view k_u32) {
        made.push_back(comparing<with_sign<f>, S32>(i32_name));
        made.push_back(comparing<f, S32>(u32_name));
        made.push_back(comparing<with_sign<f>, S32>(k_i32, trait::short_constant));
        made.push_back(comparing<f, S32>(k_u32, trait::unsigned_constant));
    };
    add_compares.operator()<is_equal>("s_cmp_eq_i32", "s_cmp_eq_u32", "s_cmpk_eq_i32", "s_cmpk_eq_u32");
    add_compares.operator()<is_different>("s_cmp_lg_i32", "s_cmp_lg_u32", "s_cmpk_lg_i32", "s_cmpk_lg_u32");
    add_compares.operator()<is_less>("s_cmp_lt_i32", "s_cmp_lt_u32", "s_cmpk_lt_i32", "s_cmpk_lt_u32");
    add_compares.operator()<is_at_most>("s_cmp_le_i32", "s_cmp_le_u32", "s_cmpk_le_i32", "s_cmpk_le_u32");
    add_compares.operator()<is_more>("s_cmp_gt_i32", "s_cmp_gt_u32", "s_cmpk_gt_i32", "s_cmpk_gt_u32");
    add_compares.operator()<is_at_least>("s_cmp_ge_i32", "s_cmp_ge_u32", "s_cmpk_ge_i32", "s_cmpk_ge_u32");
    const auto add_float_compares = [&]<auto f>(std::string_view name_32, std::string_view name_16) {
        made.push_back(comparing_floats<f>(name_32));
        made.push_back(comparing_halves<f>(name_16));
    };
    add_float_compares.operator()<is_less>("s_cmp_lt_f32", "s_cmp_lt_f16");
    add_float_compares.operator()<is_equal>("s_cmp_eq_f32", "s_cmp_eq_f16");
    add_float_compares.operator()<is_at_most>("s_cmp_le_f32", "s_cmp_le_f16");
    add_float_compares.operator()<is_more>("s_cmp_gt_f32", "s_cmp_gt_f16");
    add_float_compares.operator()<is_different>("s_cmp_lg_f32", "s_cmp_lg_f16");
    add_float_compares.operator()<is_at_least>("s_cmp_ge_f32", "s_cmp_ge_f16");
    add_float_compares.operator()<is_ordered>("s_cmp_o_f32", "s_cmp_o_f16");
    add_float_compares.operator()<negated<is_ordered>>("s_cmp_u_f32", "s_cmp_u_f16");
    add_float_compares.operator()<negated<is_at_least>>("s_cmp_nge_f32", "s_cmp_nge_f16");
    add_float_compares.operator()<negated<is_different>>("s_cmp_nlg_f32", "s_cmp_nlg_f16");
    add_float_compares.operator()<negated<is_more>>("s_cmp_ngt_f32", "s_cmp_ngt_f16");
    add_float_compares.operator()<negated<is_at_most>>("s_cmp_nle_f32", "s_cmp_nle_f16");
    add_float_compares.operator()<negated<is_equal>>("s_cmp_neq_f32", "s_cmp_neq_f16");
    add_float_compares.operator()<negated<is_less>>("s_cmp_nlt_f32", "s_cmp_nlt_f16");
    for (definition & one : made) {
        one.traits |= trait::of_wave;
    }
    return made;
}

} // namespace patchkit::gpu
