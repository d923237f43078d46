#include "trace.hpp"

#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

namespace patchkit::timing {

namespace {

uint64_t number(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw bad_trace("not a number: " + std::string(text));
    }
    return value;
}

std::vector<uint16_t> registers(std::string_view text) {
    std::vector<uint16_t> result;
    if (text == "-") {
        return result;
    }
    while (!text.empty()) {
        const size_t comma = std::min(text.find(','), text.size());
        const std::string_view word = text.substr(0, comma);
        text.remove_prefix(std::min(comma + 1, text.size()));
        const uint64_t n = number(word.substr(1)) + (word[0] == 's' ? first_scalar : 0);
        if (n >= most_registers) {
            throw bad_trace("not a register: " + std::string(word));
        }
        result.push_back(uint16_t(n));
    }
    return result;
}

wait wait_of(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == text.npos) {
        throw bad_trace("not a wait: " + std::string(text));
    }
    return {uint32_t(number(text.substr(0, colon))), uint32_t(number(text.substr(colon + 1)))};
}

space space_of(const std::string & name) {
    constexpr const char * names[] = {"none", "global", "flat", "lds", "scratch", "scalar"};
    for (size_t n = 0; n < std::size(names); ++n) {
        if (name == names[n]) {
            return space(n);
        }
    }
    throw bad_trace("not a memory space: " + name);
}

void add_instruction(trace & to, std::istringstream & words) {
    std::string n, offset, where, store, size, queues, waits, reads, writes;
    words >> n >> offset >> where >> store >> size >> queues >> waits >> reads >> writes;
    constexpr uint64_t most = 1u << 24;
    const uint64_t index = number(n);
    const size_t plus = waits.find('+');
    if (index >= most || plus == waits.npos || !words) {
        throw bad_trace("not an instruction: " + words.str());
    }
    if (to.instructions.size() <= index) {
        to.instructions.resize(index + 1);
    }
    instruction & made = to.instructions[index];
    made.offset = number(offset);
    made.where = space_of(where);
    made.is_store = store == "1";
    made.size = uint32_t(number(size));
    made.queues = uint32_t(number(queues));
    made.waits = {wait_of(std::string_view(waits).substr(0, plus)), wait_of(std::string_view(waits).substr(plus + 1))};
    made.reads = registers(reads);
    made.writes = registers(writes);
    std::getline(words >> std::ws, made.text);
}

class words_behind {
  public:
    explicit words_behind(std::ifstream & from) : from(from) {}

    uint32_t one() {
        uint32_t value;
        if (!from.read(reinterpret_cast<char *>(&value), sizeof(value))) {
            throw bad_trace("it is truncated");
        }
        return value;
    }

    std::vector<uint32_t> many(size_t count) {
        std::vector<uint32_t> result;
        constexpr size_t piece = 1 << 20; // so that a wrong count fails at the end of the file, not with a huge allocation
        while (result.size() < count) {
            const size_t at = result.size(), next = std::min(piece, count - at);
            result.resize(at + next);
            if (!from.read(reinterpret_cast<char *>(&result[at]), std::streamsize(4 * next))) {
                throw bad_trace("it is truncated");
            }
        }
        return result;
    }

  private:
    std::ifstream & from;
};

void read_blocks(trace & to, std::ifstream & file, uint64_t blocks, uint64_t seen) {
    words_behind words(file);
    for (uint64_t b = 0; b < blocks; ++b) {
        const std::vector<uint32_t> index = words.many(3);
        to.sampled.push_back(index[0] + to.grid[0] * (index[1] + to.grid[1] * index[2]));
        std::vector<wave_trace> waves(std::min(words.one(), 32u));
        if (waves.empty()) {
            throw bad_trace("a block has no waves");
        }
        for (wave_trace & one : waves) {
            one.spans = words.many(size_t(words.one()) * 2);
            one.accesses = words.many(words.one());
            for (size_t n = 0; n < one.spans.size(); n += 2) {
                if (one.spans[n + 1] >= to.instructions.size() || one.spans[n] > one.spans[n + 1]) {
                    throw bad_trace("a wave executes an invalid instruction");
                }
            }
            if (one.spans.empty() || !to.instructions[one.spans.back()].text.starts_with("s_endpgm")) {
                throw bad_trace("a wave does not reach its end");
            }
        }
        to.blocks.push_back(std::move(waves));
    }
    for (uint64_t b = 0; b < seen; ++b) {
        const std::vector<uint32_t> halves = words.many(size_t(words.one()) * 2);
        std::vector<uint64_t> lines(halves.size() / 2);
        for (size_t n = 0; n < lines.size(); ++n) {
            lines[n] = halves[2 * n] | uint64_t(halves[2 * n + 1]) << 32;
        }
        to.seen.push_back(std::move(lines));
    }
}

} // namespace

trace read_trace(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    trace result;
    std::string line;
    if (!std::getline(file, line) || line != "patchkit-trace 4") {
        throw bad_trace(path + ": this is not a trace");
    }
    uint64_t blocks = 0, seen = 0;
    try {
        while (std::getline(file, line) && line != "end") {
            std::istringstream words(line);
            std::string key, value;
            words >> key;
            if (key == "at") {
                add_instruction(result, words);
                continue;
            }
            std::array<uint64_t, 3> values{};
            for (size_t n = 0; n < 3 && words >> value; ++n) {
                if (key == "kernel") {
                    result.kernel = value;
                    break;
                }
                values[n] = number(value);
            }
            if (key == "grid") {
                result.grid = values;
            } else if (key == "block") {
                result.block = values;
            } else if (key == "vgprs") {
                result.vgprs = uint32_t(values[0]);
            } else if (key == "lds") {
                result.lds = uint32_t(values[0]);
            } else if (key == "scratch") {
                result.scratch = uint32_t(values[0]);
            } else if (key == "again" && values[0] < result.instructions.size()) {
                instruction & of = result.instructions[values[0]];
                of.later_lines = values[1];
                of.known_lines = std::min(values[1], values[2]);
            } else if (key == "blocks") {
                blocks = values[0];
            } else if (key == "seen") {
                seen = values[0];
            }
        }
        if (line != "end" || blocks == 0) {
            throw bad_trace("it is truncated");
        }
        read_blocks(result, file, blocks, seen);
    } catch (const bad_trace & problem) {
        throw bad_trace(path + ": " + problem.what());
    }
    return result;
}

} // namespace patchkit::timing
