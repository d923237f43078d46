// The instruction table: everything that is known of each instruction, by name.
#pragma once

#include "wave.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

// Properties of an instruction beyond its operands.
namespace trait {
constexpr u32 accumulates   = 1u << 0; // the destination is also the last source, as in v_fmac
constexpr u32 has_tolerance = 1u << 1; // its result is not defined to the bit
constexpr u32 reads_vcc     = 1u << 2; // implicitly, not in the text; as the last source, if it has any
constexpr u32 of_wave       = 1u << 3; // scalar: one value per wave; may read and write SCC
constexpr u32 crosses_lanes = 1u << 4; // a lane's result depends on other lanes
constexpr u32 moves_bits    = 1u << 5; // its results are bits of its sources, rearranged
constexpr u32 may_keep      = 1u << 6; // may leave its destination, or parts of it, unchanged
constexpr u32 swaps         = 1u << 7; // also writes its source
constexpr u32 moves_source  = 1u << 8; // M0 is an offset to the source register
constexpr u32 moves_target  = 1u << 9; // M0 is an offset to the destination register
constexpr u32 is_given      = 1u << 10; // its result does not depend on what it reads
// Control flow.
constexpr u32 branches  = 1u << 11; // to a target in the code
constexpr u32 decides   = 1u << 12; // conditional on SCC or VCC
constexpr u32 jumps     = 1u << 13; // to an address in registers
constexpr u32 ends      = 1u << 14; // does not continue with the next instruction
// Memory order.
constexpr u32 is_barrier = 1u << 15; // the first of two instructions: other waves may rely on what comes before it
constexpr u32 is_fence   = 1u << 16; // invalidates caches: what was observed before is ordered before what follows
constexpr u32 only_waits = 1u << 17;
// How program.cpp decodes its operands.
constexpr u32 short_constant    = 1u << 18; // the last one is a signed 16-bit constant
constexpr u32 unsigned_constant = 1u << 19; // the last one is an unsigned 16-bit constant
constexpr u32 is_matrix         = 1u << 20; // its immediate is the number of registers of its first source
// For numbers.cpp.
constexpr u32 is_step    = 1u << 21; // a step of a longer computation, meaningless by itself
constexpr u32 is_fixup   = 1u << 22; // the last step of one: its first source is the result of the steps
constexpr u32 mixes      = 1u << 23; // f32 and f16 operands, selected by modifiers
constexpr u32 mixes_low  = 1u << 24; // the same, with an f16 result
constexpr u32 mixes_high = 1u << 25;
// Caches that it invalidates, see stale_caches.hpp.
constexpr u32 invalidates_l0       = 1u << 26;
constexpr u32 invalidates_l1       = 1u << 27;
constexpr u32 invalidates_scalar   = 1u << 28;
constexpr u32 invalidates_by_scope = 1u << 29; // L0 and L1, as far as its scope requires
} // namespace trait

// How an instruction addresses memory: its operands, in the order of its text.
enum class route : u8 {
    none,
    global,         // [result,] address, [data,] scalar address
    flat,           // [result,] address[, data]
    scratch,        // as global
    lds,            // [result,] address[, data[, more data]]
    between_lanes,  // the same, but through the LDS hardware between lanes, without memory
    lds_by_m0,      // result or data; address from M0, or the lane's number times four after it
    global_by_lane, // result or data, scalar address; plus the lane's number times four
    scalar,         // result, address, offset
    scalar_buffer,  // result, descriptor, offset
    buffer,         // result or data, address, descriptor, offset
    image,          // result or data, address, descriptor[, sampler descriptor]
};

enum class action : u8 { load, store, atomic };

// Parts of a register. `high`: the upper half; loads into a half keep the other half.
enum class into : u8 { whole, low, high };

// The memory access of an instruction.
struct memory_form {
    route by    = route::none;
    action does = action::load;
    u32 size    = 0; // bytes per lane and access
    into part   = into::whole; // of the register
    bool is_signed   = false; // the loaded value is sign-extended
    bool returns     = false; // LDS: an atomic that returns the old value; for other memory the operands show it
    bool is_exchange = false; // an atomic that stores its data unconditionally
    bool is_sample   = false; // image access through a sampler
    int accesses = 1; // per lane
    u32 unit     = 0; // unit of the offsets in bytes, if there are several accesses
};

// Hardware queues with counters for outstanding work. RDNA3 counts LDS and scalar loads together (LGKM_CNT), RDNA4
// separately.
namespace queue {
constexpr u8 vector_load = 1, vector_store = 2, lds = 4, scalar = 8;
}

// A counter that an instruction waits for: until at most as much is outstanding in these queues as some bits of its
// code say. All ones: no wait. No bits: until nothing is outstanding.
struct counter {
    u8 queues;
    u8 first = 0, bits = 0;
};

// One instruction: what it computes, reads and writes, and all other properties.
struct definition {
    std::string_view name; // without the suffix of the encoding (_e32, _e64, _dpp)
    handler run;           // null: nothing to execute
    std::vector<format> to;
    std::vector<format> from;
    u32 traits = 0;
    memory_form memory{};
    std::vector<counter> waits{};
    u8 queues = 0; // queues that it enters without accessing memory

    bool is(u32 trait) const { return (traits & trait) != 0; }
    bool goes_to_memory() const { return memory.by != route::none; }
};

template <auto f, class To, class... From> void run_vector(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        To::write(i, w, f(From::template read<int(n)>(i, w)...));
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

// An instruction whose result is a function of its sources, lane by lane.
template <auto f, class To, class... From> definition op(std::string_view name, u32 traits = 0) {
    return {name, run_vector<f, To, From...>, {To::form}, {From::form...}, traits};
}

template <auto f, class To, class... From> void run_vector_modal(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        To::write(i, w, f(i->modifiers, From::template read<int(n)>(i, w)...));
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

// The same, if the result depends on the modifiers, which are the function's first parameter.
template <auto f, class To, class... From> definition modal(std::string_view name, u32 traits = 0) {
    return {name, run_vector_modal<f, To, From...>, {To::form}, {From::form...}, traits};
}

template <auto f, class... From> void run_compare(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        write_scalar(w, i->to[0], lane_bits(f(From::template read<int(n)>(i, w)...)) & w.exec());
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

template <auto f, class... From> void run_compare_exec(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        w.scalar[slot::exec] &= lane_bits(f(From::template read<int(n)>(i, w)...));
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

template <auto f, class To, class... From> void run_scalar(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        To::write(i, w, f(From::template read<int(n)>(i, w)...));
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

template <auto f, class To, class... From> void run_scalar_scc(const instruction * i, wave & w) {
    [&]<size_t... n>(std::index_sequence<n...>) {
        bool scc = w.scc;
        To::write(i, w, f(scc, From::template read<int(n)>(i, w)...));
        w.scc = scc;
    }(std::index_sequence_for<From...>{});
    PATCHKIT_NEXT(i, w);
}

// A scalar instruction, and one that reads or writes SCC, which is its function's first parameter.
template <auto f, class To, class... From> definition scalar(std::string_view name, u32 traits = 0) {
    return {name, run_scalar<f, To, From...>, {To::form}, {From::form...}, traits};
}
template <auto f, class To, class... From> definition scalar_scc(std::string_view name, u32 traits = 0) {
    return {name, run_scalar_scc<f, To, From...>, {To::form}, {From::form...}, traits};
}

using definitions = std::vector<definition>;

// One function per instruction family, each in its own file.
definitions scalar_instructions();
definitions integer_instructions();
definitions float_instructions();
definitions conversion_instructions();
definitions compare_instructions();
definitions packed_instructions();
definitions matrix_instructions();
definitions lane_instructions();
definitions memory_instructions();
definitions image_instructions();

// The source lane of each lane for a pattern of ds_swizzle.
u32x swizzle_sources(u32 pattern);

// The name in the table for a name as LLVM prints it: without encoding suffix, and RDNA3's name if RDNA4 has another.
std::string base_name(std::string_view name);

// The definition of an instruction by its name in the table, or null.
const definition * find_definition(std::string_view name);

} // namespace patchkit::gpu
