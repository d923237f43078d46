// Simulates one WGP that executes recorded blocks, cycle by cycle.
#pragma once

#include "machine.hpp"
#include "trace.hpp"

namespace patchkit::timing {

struct result {
    double cycles = 0;       // of the whole launch, without launch overhead
    double resident = 0;     // blocks per WGP at a time
    double waves_per_simd = 0;
    uint64_t blocks = 0;     // blocks of the launch that have work
    uint64_t simulated = 0;  // blocks
    double instructions = 0; // of the launch, by waves
    // Busy cycles of each unit (of the busiest WGP, averaged over its SIMDs or CUs).
    double valu = 0, wmma = 0, scalar = 0, lds = 0, l0 = 0, l1 = 0, l2 = 0, mall = 0, dram = 0, code = 0;
    double dram_bytes = 0, l1_request_bytes = 0; // of the launch: from DRAM, and requested by L0
    double channels = 0; // effective number of memory channels in use
};

// `cold`: fraction of the data from beyond L2 that the memory-side cache does not hold. `working`: fraction of the
// blocks that have work; others exit at once and take no time.
struct circumstances {
    double cold = 0, working = 1;
};

// Simulates `most` instructions; the remaining blocks are assumed to take as long as those of the last simulated
// rounds.
result simulate(const trace & of, const machine & m, const circumstances & in, uint64_t most);

} // namespace patchkit::timing
