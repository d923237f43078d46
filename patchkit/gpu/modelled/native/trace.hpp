// What the emulated GPU recorded of a launch (emulator/recording.hpp), read back.
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

// Queues of work under way, one bit each, as emulator/check.hpp numbers them.
namespace queue {
constexpr uint32_t vector_load = 1, vector_store = 2, lds = 4, scalar = 8;
}

struct wait {
    uint32_t queues = 0, left = 0;
};

// Registers by number: VGPRs from 0, scalar slots from 256.
constexpr int first_scalar = 256, most_registers = 512;

struct instruction {
    space where = space::none;
    bool is_store = false;
    uint32_t size = 0; // bytes of each lane
    uint64_t offset = 0; // of its code, in bytes
    uint32_t queues = 0;
    std::array<wait, 2> waits;
    // Lines that it touches in some blocks behind those that were seen, and how many of these the blocks that were seen touch.
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
    std::vector<instruction> instructions; // by number; empty texts are those that did not run
    std::vector<uint64_t> sampled; // the numbers of these blocks
    std::vector<std::vector<wave_trace>> blocks;
    std::vector<std::vector<uint64_t>> seen; // lines of 128 bytes of each block, sorted

    uint64_t count() const { return grid[0] * grid[1] * grid[2]; }
};

// Throws bad_trace.
trace read_trace(const std::string & path);

} // namespace patchkit::timing
