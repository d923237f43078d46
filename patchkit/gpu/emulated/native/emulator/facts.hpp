// Facts about one instruction in its context, derived from its table row and operands; used by checks, hazards and
// recordings.
#pragma once

#include "architecture.hpp"
#include "operands.hpp"

#include <array>
#include <vector>

namespace patchkit::gpu {

// Waits until at most `left` of the work in these queues is outstanding.
struct wait {
    u8 queues = 0;
    u32 left  = 0;
};

enum class space : u8 { none, global, flat, lds, scratch, scalar };

// How far a memory instruction or an invalidation reaches: to the caches of its CU, to those shared by its shader
// array, or to memory that is shared by all.
enum class scope : u8 { cu, array, device };

// A step that computes floats, identified by its handler, with the formats of its operands and result.
struct float_step {
    handler run = nullptr;
    format to = format::b32;
    std::array<format, 3> from{format::b32, format::b32, format::b32};
    int first = 0, sources = 0; // range of the sources to consider
    bool is_mix = false;  // modifiers select which sources are f16
    bool is_high = false; // writes its result to the upper half
};

struct facts {
    register_set reads, writes, touched; // touched: read or written
    register_set address; // registers read for a memory address
    space where    = space::none;
    bool is_store  = false;
    bool is_atomic = false;
    bool is_flag   = false; // a load that bypasses caches: volatile, or atomic
    bool is_high   = false; // stores the upper half of a register
    bool acquires  = false; // a load followed by a cache invalidation: an acquire
    u8 queues      = 0;     // queues that it enters
    u32 size       = 0;     // bytes per lane and access
    int accesses   = 1;     // per lane; 2 for ds_load_2addr and similar
    u32 unit       = 0;     // unit of their offsets in bytes
    std::array<wait, 2> waits{};
    bool is_barrier = false;
    bool is_fence = false; // invalidates caches: what was observed before is ordered before what follows
    // For stale_caches.cpp. `reach`: a load does not hit in caches that are nearer.
    scope reach = scope::cu;
    bool invalidates_l0 = false, invalidates_l1 = false, invalidates_scalar = false;
    bool is_unseen_store = false; // to addresses that are not known (images)

    // For the uninitialised check, see uninitialised.cpp.
    bool is_scalar   = false;
    bool is_branch   = false; // by SCC or VCC
    bool is_jump     = false; // to an address in registers
    bool is_given    = false; // its result does not depend on what it reads
    bool is_lanewise = false; // a lane's result depends only on the same lane of its sources
    bool is_whole    = false; // writes whole registers of the active lanes
    bool is_moved    = false; // M0 selects the registers
    bool moves_bits  = false; // its results are bits of its sources, rearranged
    bool is_exchange = false; // an atomic that stores its data unconditionally
    std::vector<u8> vgprs_read, vgprs_written, slots_read, slots_written; // the same sets as lists
    int filled       = 0;     // bytes of a register that a load changes, starting at bit `shift`; 0: all
    int shift        = 0;
    bool is_signed   = false;
    const instruction * alone = nullptr; // a copy of the instruction's steps with an end after them
    int alone_steps = 0;
    std::vector<float_step> floats; // its float computations
};

bool is_float(format f);

// Facts of a line of disassembly, from its instructions; `code` is its location.
facts facts_of(const std::vector<parsed_instruction> & parts, const std::byte * code, const architecture & arch);

} // namespace patchkit::gpu
