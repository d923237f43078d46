// The table of instructions: by name all that is known of each.
#pragma once

#include "wave.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

// What is known of an instruction besides its operands.
namespace trait {
constexpr u32 accumulates   = 1u << 0; // the destination is also the last source: v_fmac
constexpr u32 has_tolerance = 1u << 1; // its result is not defined to the bit
constexpr u32 reads_vcc     = 1u << 2; // not written in the text; as the last source, if it has any
constexpr u32 of_wave       = 1u << 3; // scalar: one value for the wave; it may read and write SCC
constexpr u32 crosses_lanes = 1u << 4; // a lane's result depends on other lanes
constexpr u32 moves_bits    = 1u << 5; // its results are bits of its sources, picked and put together
constexpr u32 may_keep      = 1u << 6; // may leave its destination, or parts of it, as it was
constexpr u32 swaps         = 1u << 7; // writes its source, too
constexpr u32 moves_source  = 1u << 8; // M0 says which register is read, counted from the one that is named
constexpr u32 moves_target  = 1u << 9; // the same of the one that is written
constexpr u32 is_given      = 1u << 10; // its result is known whatever it reads
// Where the wave goes on.
constexpr u32 branches  = 1u << 11; // at a target that is in its code
constexpr u32 decides   = 1u << 12; // by SCC or VCC
constexpr u32 jumps     = 1u << 13; // at an address in registers
constexpr u32 ends      = 1u << 14; // not behind it
// Order.
constexpr u32 is_barrier = 1u << 15; // of two instructions the first: what comes before it is what others may rely on
constexpr u32 is_fence   = 1u << 16; // makes caches invalid: what was seen before comes before what follows
constexpr u32 only_waits = 1u << 17;
// What program.cpp makes of its operands.
constexpr u32 short_constant    = 1u << 18; // the last one is a constant of 16 bits with a sign
constexpr u32 unsigned_constant = 1u << 19; // or without
constexpr u32 is_matrix         = 1u << 20; // its immediate is how many registers its first source has
// Which numbers.cpp looks at.
constexpr u32 is_step    = 1u << 21; // of a longer computation: its result by itself means nothing
constexpr u32 is_fixup   = 1u << 22; // of one, the last: its first source is the result of the steps
constexpr u32 mixes      = 1u << 23; // f32 and halves, as modifiers say
constexpr u32 mixes_low  = 1u << 24; // the same, with a half as result
constexpr u32 mixes_high = 1u << 25;
} // namespace trait

// How an instruction says where in memory it goes: by which operands, in this order in its text.
enum class route : u8 {
    none,
    global,         // [result,] address, [data,] scalar address
    flat,           // [result,] address[, data]
    scratch,        // as global
    lds,            // [result,] address[, data[, more data]]
    between_lanes,  // the same, by way of the LDS hardware and through no memory
    lds_by_m0,      // result or data; M0, or the lane's number behind it, says where
    global_by_lane, // result or data, scalar address; the lane's number behind it
    scalar,         // result, address, offset
    scalar_buffer,  // result, description, offset
    buffer,         // result or data, address, description, offset
    image,          // result or data, address, description[, description of a sampler]
};

enum class action : u8 { load, store, atomic };

// Parts of a register. `high`: the upper half is meant; loads into a half keep the other.
enum class into : u8 { whole, low, high };

// What an instruction does with memory.
struct memory_form {
    route by    = route::none;
    action does = action::load;
    u32 size    = 0; // bytes of one access of a lane
    into part   = into::whole; // of the register
    bool is_signed   = false; // what is loaded is extended by its sign
    bool returns     = false; // of LDS: an atomic that gives what was there; of others the operands say it
    bool is_exchange = false; // an atomic that puts its data there, whatever was there
    bool is_sample   = false; // of an image, by a sampler
    int accesses = 1; // of each lane
    u32 unit     = 0; // of the offsets of several, in bytes
};

// Queues of the hardware that work goes into, for which counters tell how much is under way. RDNA3 counts LDS and
// scalar loads together (LGKM_CNT), RDNA4 each by itself.
namespace queue {
constexpr u8 vector_load = 1, vector_store = 2, lds = 4, scalar = 8;
}

// What an instruction waits for: until no more is under way in these queues than some bits of its code say. All ones:
// it does not wait. No bits: until nothing is.
struct counter {
    u8 queues;
    u8 first = 0, bits = 0;
};

// One instruction: what it computes, what it reads and writes, and all else that anything asks of it.
struct definition {
    std::string_view name; // without the suffix of the encoding (_e32, _e64, _dpp)
    handler run;           // null: it does nothing here
    std::vector<format> to;
    std::vector<format> from;
    u32 traits = 0;
    memory_form memory{};
    std::vector<counter> waits{};
    u8 queues = 0; // that it goes into without going to memory

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

// The same when the result depends on the modifiers, the function's first parameter.
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

// A scalar instruction, and one that reads or writes SCC, its function's first parameter.
template <auto f, class To, class... From> definition scalar(std::string_view name, u32 traits = 0) {
    return {name, run_scalar<f, To, From...>, {To::form}, {From::form...}, traits};
}
template <auto f, class To, class... From> definition scalar_scc(std::string_view name, u32 traits = 0) {
    return {name, run_scalar_scc<f, To, From...>, {To::form}, {From::form...}, traits};
}

using definitions = std::vector<definition>;

// One function per family, each in its file.
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

// The lane that each lane reads under a pattern of ds_swizzle.
u32x swizzle_sources(u32 pattern);

// The name that the table has, by the one that LLVM writes: without the suffix of the encoding, and that of RDNA3 where
// RDNA4 has another one.
std::string base_name(std::string_view name);

// The definition of an instruction by its name in the table; null when there is none.
const definition * find_definition(std::string_view name);

} // namespace patchkit::gpu
