// What is known of one instruction where it stands: derived from its row of the table and its operands. Checks, hazards
// and recordings ask for it.
#pragma once

#include "architecture.hpp"
#include "operands.hpp"

#include <array>
#include <vector>

namespace patchkit::gpu {

// Waits until at most `left` of what went into these queues is under way.
struct wait {
    u8 queues = 0;
    u32 left  = 0;
};

enum class space : u8 { none, global, flat, lds, scratch, scalar };

// A step that computes floats, by its handler, with the formats of what it reads and leaves.
struct float_step {
    handler run = nullptr;
    format to = format::b32;
    std::array<format, 3> from{format::b32, format::b32, format::b32};
    int first = 0, sources = 0; // of them, that count
    bool is_mix = false;  // modifiers say which sources are halves
    bool is_high = false; // leaves its result in the upper half
};

struct facts {
    register_set reads, writes, touched; // touched: either
    register_set address; // of those that it reads, what says where in memory
    space where    = space::none;
    bool is_store  = false;
    bool is_atomic = false;
    bool is_flag   = false; // a load that looks past the caches: volatile, or atomic
    bool is_high   = false; // a store of the upper half of a register
    bool acquires  = false; // a load behind which caches are made invalid: an atomic one that orders what follows
    u8 queues      = 0;     // that it goes into
    u32 size       = 0;     // bytes of one access of a lane
    int accesses   = 1;     // of each lane: 2 for ds_load_2addr and its like
    u32 unit       = 0;     // of their offsets, in bytes
    std::array<wait, 2> waits{};
    bool is_barrier = false;
    bool is_fence = false; // makes caches invalid: what was seen before comes before what follows

    // For what follows values that nobody gave, see uninitialised.cpp.
    bool is_scalar   = false;
    bool is_branch   = false; // by SCC or VCC
    bool is_jump     = false; // to an address in registers
    bool is_given    = false; // its result is known whatever it reads
    bool is_lanewise = false; // a lane's result depends on the same lane of its sources
    bool is_whole    = false; // writes whole registers, of the active lanes
    bool is_moved    = false; // which registers it touches stands in M0
    bool moves_bits  = false; // its results are bits of its sources, picked and put together
    bool is_exchange = false; // an atomic that puts its data there, whatever was there
    std::vector<u8> vgprs_read, vgprs_written, slots_read, slots_written; // once more, one by one
    int filled       = 0;     // bytes of a register that a load changes, from bit `shift` up; 0: all of them
    int shift        = 0;
    bool is_signed   = false;
    const instruction * alone = nullptr; // the instruction's steps once more, with an end behind them
    int alone_steps = 0;
    std::vector<float_step> floats; // of these
};

bool is_float(format f);

// Of a line of the disassembler's, by its instructions; `code` is where it lies.
facts facts_of(const std::vector<parsed_instruction> & parts, const std::byte * code, const architecture & arch);

} // namespace patchkit::gpu
