// Time that a GPU would take for a launch recorded by the emulated GPU.
//
//   timing MACHINE MOST COLD WORKING TRACE
//
// MACHINE: file described in machine.hpp; MOST: instructions to simulate; COLD and WORKING: see wgp.hpp. Prints one
// line of JSON.

#include "wgp.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>

namespace patchkit::timing {

machine read_machine(const std::string & path) {
    machine m;
    std::map<std::string, double *> known = {
        {"wgps", &m.wgps}, {"waves_per_simd", &m.waves_per_simd}, {"vgprs_per_simd", &m.vgprs_per_simd},
        {"vgpr_granule", &m.vgpr_granule}, {"lds_bytes", &m.lds_bytes}, {"l0_bytes", &m.l0_bytes}, {"l1_bytes", &m.l1_bytes},
        {"arrays", &m.arrays}, {"l2_bytes", &m.l2_bytes},
        {"mall_bytes", &m.mall_bytes}, {"clock_mhz", &m.clock_mhz}, {"clock_less_valu", &m.clock_less_valu},
        {"clock_less_wmma", &m.clock_less_wmma}, {"clock_less_lds", &m.clock_less_lds},
        {"clock_less_dram", &m.clock_less_dram}, {"sustained", &m.sustained}, {"valu", &m.valu}, {"dual", &m.dual}, {"dot", &m.dot},
        {"quarter", &m.quarter}, {"double_float", &m.double_float}, {"transcendental", &m.transcendental},
        {"wmma", &m.wmma}, {"wmma_int4", &m.wmma_int4}, {"scalar", &m.scalar}, {"branch", &m.branch},
        {"valu_latency", &m.valu_latency}, {"transcendental_latency", &m.transcendental_latency},
        {"wmma_latency", &m.wmma_latency}, {"scalar_latency", &m.scalar_latency}, {"lds_least", &m.lds_least},
        {"lds_latency", &m.lds_latency}, {"load_register", &m.load_register}, {"l0_line", &m.l0_line}, {"l0_latency", &m.l0_latency},
        {"l1_latency_ns", &m.l1_latency_ns}, {"l2_latency_ns", &m.l2_latency_ns}, {"mall_latency_ns", &m.mall_latency_ns},
        {"dram_latency_ns", &m.dram_latency_ns}, {"scalar_cache_latency", &m.scalar_cache_latency},
        {"l1_bytes_per_cycle", &m.l1_bytes_per_cycle}, {"l2_bytes_per_cycle", &m.l2_bytes_per_cycle},
        {"channels", &m.channels}, {"channel_bytes", &m.channel_bytes},
        {"mall_gb_s", &m.mall_gb_s}, {"dram_gb_s", &m.dram_gb_s}, {"dram_pieces_gb_s", &m.dram_pieces_gb_s},
        {"dram_page_bytes", &m.dram_page_bytes},
        {"barrier", &m.barrier}, {"code_bytes", &m.code_bytes},
        {"code_bytes_per_cycle", &m.code_bytes_per_cycle}, {"code_latency", &m.code_latency}, {"code_ahead", &m.code_ahead}, {"block_start", &m.block_start}, {"leftover", &m.leftover}, {"launch_us", &m.launch_us}};
    std::ifstream file(path);
    std::string name;
    double value = 0;
    while (file >> name >> value) {
        const auto found = known.find(name);
        if (found == known.end()) {
            throw std::runtime_error(path + ": " + name + " is unknown");
        }
        *found->second = value;
        known.erase(found);
    }
    if (!file.eof()) {
        throw std::runtime_error(path + ": a line is not a name and a number");
    }
    if (!known.empty()) {
        throw std::runtime_error(path + ": " + known.begin()->first + " is missing");
    }
    return m;
}

} // namespace patchkit::timing

int main(int argc, char ** argv) {
    using namespace patchkit::timing;
    if (argc != 6) {
        std::fprintf(stderr, "usage: timing MACHINE MOST COLD WORKING TRACE\n");
        return 2;
    }
    try {
        const machine m = read_machine(argv[1]);
        const uint64_t most = std::strtoull(argv[2], nullptr, 10);
        const circumstances in{std::strtod(argv[3], nullptr), std::strtod(argv[4], nullptr)};
        const trace read = read_trace(argv[5]);
        machine at = m;
        result r = simulate(read, at, in, most / 4); // utilisation determines the clock
        at.clock_mhz = m.clock_mhz - m.clock_less_valu * r.valu - m.clock_less_wmma * r.wmma - m.clock_less_lds * r.lds -
                       m.clock_less_dram * r.dram;
        // Waiting for memory takes little power: 62 W, where matmuls take 111.
        at.clock_mhz *= 1.0 - std::min(1.0, r.valu + r.wmma + r.lds) * (1.0 - m.sustained);
        r = simulate(read, at, in, most);
        std::printf("{\"kernel\":\"%s\",\"us\":%.3f,\"cycles\":%.1f,\"clock_mhz\":%.0f,\"blocks\":%llu,\"threads\":%llu,\"vgprs\":%u,\"lds\":%u,\"resident\":%g,"
                    "\"waves_per_simd\":%g,\"simulated\":%llu,\"instructions\":%.0f,\"busy\":{\"valu\":%.4f,\"wmma\":%.4f,"
                    "\"scalar\":%.4f,\"lds_banks\":%.4f,\"l0\":%.4f,\"l1\":%.4f,\"l2\":%.4f,\"mall\":%.4f,\"dram\":%.4f,\"code\":%.4f},\"dram_bytes\":%.0f,"
                    "\"l1_bytes\":%.0f,\"channels\":%.1f}\n",
                    read.kernel.c_str(), r.cycles / at.clock_mhz, r.cycles, at.clock_mhz, static_cast<unsigned long long>(r.blocks),
                    static_cast<unsigned long long>(read.block[0] * read.block[1] * read.block[2]), read.vgprs, read.lds,
                    r.resident, r.waves_per_simd, static_cast<unsigned long long>(r.simulated), r.instructions, r.valu, r.wmma,
                    r.scalar, r.lds, r.l0, r.l1, r.l2, r.mall, r.dram, r.code, r.dram_bytes, r.l1_request_bytes, r.channels);
    } catch (const std::exception & problem) {
        std::fprintf(stderr, "timing: %s\n", problem.what());
        return 1;
    }
    return 0;
}
