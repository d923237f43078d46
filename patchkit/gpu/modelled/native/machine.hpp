// The figures of a GPU that the model of its time goes by. Each is a fact of the profile ([timing] of arch_profiles/),
// where its source stands; cycles are of the shader clock.
#pragma once

#include <map>
#include <string>

namespace patchkit::timing {

struct machine {
    // What there is.
    double wgps = 0;             // work group processors, of two CUs and four SIMDs each
    double waves_per_simd = 0;
    double vgprs_per_simd = 0;   // registers of one lane
    double vgpr_granule = 0;
    double lds_bytes = 0;        // of a WGP
    double l0_bytes = 0;         // vector cache of a CU
    double l1_bytes = 0;         // of a shader array
    double arrays = 0;           // shader arrays
    double l2_bytes = 0;
    double mall_bytes = 0;       // memory-side cache; 0: none
    // The shader clock in MHz: at most, and how much less while all SIMDs do nothing but VALU, WMMA or LDS instructions,
    // or all is spent on DRAM (what keeps it down is heat).
    double clock_mhz = 0, clock_less_valu = 0, clock_less_wmma = 0, clock_less_lds = 0, clock_less_dram = 0;

    // Cycles that an instruction keeps its unit of a SIMD busy.
    double valu = 0, dual = 0, dot = 0, quarter = 0, double_float = 0, transcendental = 0, wmma = 0, wmma_int4 = 0,
           scalar = 0, branch = 0;
    // Cycles until what depends on it may begin.
    double valu_latency = 0, transcendental_latency = 0, wmma_latency = 0, scalar_latency = 0;
    // LDS: cycles of an instruction of any SIMD of the WGP are those of its banks, and at least so many.
    double lds_least = 0, lds_latency = 0;
    double load_register = 0; // cycles that the VALU loses for each register that a load fills
    // Vector memory: cycles of a CU's L0 for each line of 128 bytes, latencies of each level in nanoseconds (memory has
    // clocks of its own) but for L0, and bandwidths: what comes to all L0 and to all L1 in bytes per cycle, the others in
    // GB/s. Each channel has its part of what comes from L2 and from behind it, and channel_bytes further on comes the next
    // one. Of DRAM also where at most half of each page (dram_page_bytes of each channel) is wanted at a time.
    double l0_line = 0, l0_latency = 0, l1_latency_ns = 0, l2_latency_ns = 0, mall_latency_ns = 0, dram_latency_ns = 0;
    double scalar_cache_latency = 0;
    double l1_bytes_per_cycle = 0, l2_bytes_per_cycle = 0, mall_gb_s = 0, dram_gb_s = 0, channels = 0, channel_bytes = 0,
           dram_pieces_gb_s = 0, dram_page_bytes = 0;
    // Instructions: the cache of a WGP in bytes, bytes per cycle that come into it, cycles until they do, and how many lines
    // behind one that is asked for.
    double code_bytes = 0, code_bytes_per_cycle = 0, code_latency = 0, code_ahead = 0;
    double barrier = 0;          // cycles from the last wave that comes to the first that goes on
    double block_start = 0;      // cycles from the end of a block to the first instruction of the next
    double leftover = 0;         // of the last round, blocks that the busiest WGP has more than its share, times the blocks it holds
    double launch_us = 0;        // of a kernel among others, before its first block
};

// Reads "name value" lines. Throws std::runtime_error that names what is missing or not known.
machine read_machine(const std::string & path);

} // namespace patchkit::timing
