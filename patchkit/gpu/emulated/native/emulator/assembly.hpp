// Disassembles machine code with LLVM, and parses the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace patchkit::gpu {

struct line {
    std::string text; // as printed by LLVM
    uint32_t size;    // bytes of code
};

class disassembler {
  public:
    // `library`: path of libLLVM; `arch`: gfx1151. Throws std::runtime_error.
    disassembler(const std::string & library, const std::string & arch);
    ~disassembler();

    // One instruction at the start of `code`, which is at `address`. Empty text: not an instruction of this GPU.
    line one(std::span<const std::byte> code, uint64_t address);

  private:
    void * context = nullptr;
    void (*dispose)(void *) = nullptr;
    size_t (*decode)(void *, uint8_t *, uint64_t, uint64_t, char *, size_t) = nullptr;
    std::mutex mutex;
};

// One parsed instruction. A dual-issue instruction has two.
struct statement {
    std::string name;                  // with the suffix of its encoding
    std::vector<std::string> operands;
    std::vector<std::pair<std::string, std::string>> modifiers; // name and value after the colon

    const std::string * modifier(std::string_view name) const;
    bool has(std::string_view name) const { return modifier(name) != nullptr; }

    // The DPP modifier, which selects the source lanes; null if there is none.
    const std::pair<std::string, std::string> * lane_pattern() const;
};

// Elements of a list in brackets: v3 and v[5:6] for [v3, v[5:6]].
std::vector<std::string> parts_of_list(std::string_view list);

std::vector<statement> parse_line(std::string_view text);

// A decimal number; empty if the text is not one.
std::optional<int> parse_number(std::string_view text);

} // namespace patchkit::gpu
