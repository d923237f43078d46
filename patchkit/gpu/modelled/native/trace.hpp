// Reads launches recorded by the emulated GPU (emulator/recording.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace patchkit::timing {

struct bad_trace : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class space : uint8_t { none, global, flat, lds, scratch, scalar };

// Queues of outstanding work, one bit each, numbered as in emulator/check.hpp.
namespace queue {
constexpr uint32_t vector_load = 1, vector_store = 2, lds = 4, scalar = 8;
}

struct wait {
    uint32_t queues = 0, left = 0;
};

// Register numbers: VGPRs from 0, scalar slots from 256.
constexpr int first_scalar = 256, most_registers = 512;

struct instruction {
    space where = space::none;
    bool is_store = false;
    uint32_t size = 0; // per lane
    uint64_t offset = 0; // of its code, in bytes
    uint32_t queues = 0;
    std::array<wait, 2> waits;
    // Lines accessed in some blocks after the seen ones, and how many of these the seen blocks access.
    uint64_t later_lines = 0, known_lines = 0;
    std::vector<uint16_t> reads, writes;
    std::string text;
};

struct wave_trace {
    std::vector<uint32_t> spans, accesses;
};

struct trace {
    std::string kernel;
    std::array<uint64_t, 3> grid{}, block{};
    uint32_t vgprs = 0, lds = 0, scratch = 0;
    std::vector<instruction> instructions; // by number; those that did not run have empty texts
    std::vector<uint64_t> sampled; // block numbers
    std::vector<std::vector<wave_trace>> blocks;
    std::vector<std::vector<uint64_t>> seen; // sorted lines of 128 bytes, per block

    uint64_t count() const { return grid[0] * grid[1] * grid[2]; }
};

// Throws bad_trace.
trace read_trace(const std::string & path);

} // namespace patchkit::timing
