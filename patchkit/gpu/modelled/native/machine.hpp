// Timing figures of a GPU. Each comes from its timing file (arch_profiles/timing/), with its source; cycles are those
// of the shader clock.
#pragma once

#include <map>
#include <string>

namespace patchkit::timing {

struct machine {
    // Resources.
    double wgps = 0;             // work group processors, with two CUs and four SIMDs each
    double waves_per_simd = 0;
    double vgprs_per_simd = 0;   // per lane
    double vgpr_granule = 0;
    double lds_bytes = 0;        // per WGP
    double l0_bytes = 0;         // vector cache of a CU
    double l1_bytes = 0;         // per shader array
    double arrays = 0;           // shader arrays
    double l2_bytes = 0;
    double mall_bytes = 0;       // memory-side cache (MALL); 0: none
    // Shader clock in MHz: the maximum, and its reduction while all SIMDs execute only VALU, WMMA or LDS instructions,
    // or all time is spent on DRAM (because of heat).
    double clock_mhz = 0, clock_less_valu = 0, clock_less_wmma = 0, clock_less_lds = 0, clock_less_dram = 0;
    double sustained = 1;        // part of that clock that remains under a power limit while the units compute

    // Cycles that an instruction occupies its unit of a SIMD.
    double valu = 0, dual = 0, dot = 0, quarter = 0, double_float = 0, transcendental = 0, wmma = 0, wmma_int4 = 0,
           scalar = 0, branch = 0;
    // Cycles until a dependent instruction can issue.
    double valu_latency = 0, transcendental_latency = 0, wmma_latency = 0, scalar_latency = 0;
    // LDS: an instruction of any SIMD of the WGP takes the cycles of its banks, but at least lds_least.
    double lds_least = 0, lds_latency = 0;
    double load_register = 0; // VALU cycles lost per register that a load writes
    // Vector memory: cycles of a CU's L0 per line of 128 bytes; latencies of each level in nanoseconds (memory has its
    // own clocks), except for L0; bandwidths into all L0 and all L1 in bytes per cycle, others in GB/s. Each channel
    // has its share of the bandwidth of L2 and beyond, and addresses are interleaved every channel_bytes. DRAM has
    // another bandwidth if at most half of each page (dram_page_bytes per channel) is accessed at a time.
    double l0_line = 0, l0_latency = 0, l1_latency_ns = 0, l2_latency_ns = 0, mall_latency_ns = 0, dram_latency_ns = 0;
    double scalar_cache_latency = 0;
    double l1_bytes_per_cycle = 0, l2_bytes_per_cycle = 0, mall_gb_s = 0, dram_gb_s = 0, channels = 0, channel_bytes = 0,
           dram_pieces_gb_s = 0, dram_page_bytes = 0;
    // Instruction fetch: cache of a WGP in bytes, bytes per cycle into it, latency in cycles, and number of lines
    // prefetched.
    double code_bytes = 0, code_bytes_per_cycle = 0, code_latency = 0, code_ahead = 0;
    double barrier = 0;          // cycles from the last wave's arrival until the first continues
    double block_start = 0;      // cycles from the end of a block to the first instruction of the next
    double leftover = 0;         // surplus blocks of the busiest WGP in the last round, times the blocks it holds
    double launch_us = 0;        // of a kernel between others, before its first block
};

// Reads "name value" lines. Throws std::runtime_error for a missing or unknown name.
machine read_machine(const std::string & path);

} // namespace patchkit::timing
