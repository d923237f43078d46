// The table of instructions: by name what each does, and what its operands are.
#pragma once

#include "wave.hpp"

#include <string_view>
#include <vector>

namespace patchkit::gpu {

// What the decoder has to know besides the operands.
namespace trait {
constexpr u32 accumulates  = 1u << 0; // the destination is also the last source: v_fmac
constexpr u32 has_tolerance = 1u << 1; // its result is not defined to the bit
constexpr u32 reads_vcc    = 1u << 2; // as its last source, not written in the text
constexpr u32 memory       = 1u << 3; // operands as the text has them: see memory.cpp
} // namespace trait

struct definition {
    std::string_view name; // without the suffix of the encoding (_e32, _e64, _dpp)
    handler run;
    std::vector<format> to;
    std::vector<format> from;
    u32 traits = 0;
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

// The definition of an instruction by its name without suffix; null when there is none.
const definition * find_definition(std::string_view name);

} // namespace patchkit::gpu
