// One WGP that executes blocks from a trace, cycle by cycle.
#pragma once

#include "machine.hpp"
#include "trace.hpp"

namespace patchkit::timing {

struct result {
    double cycles = 0;       // of the whole launch, without its overhead
    double resident = 0;     // blocks of a WGP at a time
    double waves_per_simd = 0;
    uint64_t blocks = 0;     // of the launch that have work
    uint64_t simulated = 0;  // blocks
    double instructions = 0; // of the launch, by waves
    // Of the cycles, how many each unit was busy (of the busiest WGP, mean of its SIMDs or CUs).
    double valu = 0, wmma = 0, scalar = 0, lds = 0, l0 = 0, l1 = 0, l2 = 0, mall = 0, dram = 0, code = 0;
    double dram_bytes = 0, l1_request_bytes = 0; // of the launch: from DRAM, and what L0 asked for
    double channels = 0; // of the memory that are as good as all that are asked at a time
};

// `cold`: of what must come from behind L2, the part that the memory-side cache does not have. `working`: of the blocks, the
// part that has work; the others end at once, and take no time here.
struct circumstances {
    double cold = 0, working = 1;
};

// `most` instructions are simulated; the rest of the blocks takes as long each as those of the last rounds did.
result simulate(const trace & of, const machine & m, const circumstances & in, uint64_t most);

} // namespace patchkit::timing
