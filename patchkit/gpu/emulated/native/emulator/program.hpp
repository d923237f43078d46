// Decodes functions and kernels once: from the disassembler's text to executable instructions.
#pragma once

#include "assembly.hpp"
#include "facts.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace patchkit::gpu {

// Adds steps around the instructions of a kernel, to observe it while it runs.
class observer {
  public:
    virtual ~observer() = default;

    // The step to insert before an instruction with these facts; null if there is none. It gets the facts in `extra`,
    // and its immediate.
    virtual handler before(const facts & known) const = 0;
    virtual i64 at_hand(const facts & /*known*/) const { return 0; }

    // The step after the instruction, with the same `extra`; only if there is one before.
    virtual handler behind(const facts & /*known*/) const { return nullptr; }

    // Whether the step before runs the instruction itself (facts::alone).
    virtual bool tries(const facts & /*known*/) const { return false; }

    // Whether it follows register values (program::touched), and needs facts by instruction number.
    virtual bool follows_values() const { return false; }
    virtual bool keeps_facts() const { return false; }
};

// One function or kernel, ready to run. Instructions are stored in sequence; one that consists of several steps
// (dual-issue, or with DPP) has several entries with the same number.
struct program {
    std::string name;
    const std::byte * begin;
    const std::byte * end;
    u32 first_number;               // number of its first instruction within its library
    std::vector<u32> offsets;       // byte offset of each instruction from begin, by number
    std::vector<u32> entries;       // first step of each instruction, by number
    std::unique_ptr<std::byte[]> memory; // constants, followed by steps
    instruction * steps = nullptr;
    size_t step_count   = 0;
    std::shared_ptr<const register_set> touched; // by its instructions, if values are followed; null: any register may be

    bool holds(const std::byte * address) const { return begin <= address && address < end; }
};

// Initial float mode of a kernel, as in the MODE register.
struct float_mode {
    bool flushes_f32;
    bool is_ieee;
};

// Everything decoded from one code object, or from a separate piece of code.
class library {
  public:
    // `looks`: null if nothing observes; must outlive this. `ttmps`: trap registers that the GPU sets before the first
    // instruction, as a bit mask.
    library(disassembler & reader, u32 vgprs, const architecture & arch, const observer * looks = nullptr, u32 ttmps = 0)
        : reader(reader), vgprs(vgprs), arch(arch), looks(looks), ttmps(ttmps) {}

    // The function that starts at or contains an address; `find` locates functions that were not decoded yet. Throws
    // kernel_fault.
    struct extent {
        std::string name;
        const std::byte * begin;
        const std::byte * end;
    };
    const program & at(const std::byte * address, float_mode mode, const std::optional<extent> & where);

    // The program that contains this instruction; null if there is none.
    const program * program_of(const instruction * i);

    // The program that contains the instruction with this number; null if there is none.
    const program * program_with(u32 number);

    // Text of an instruction by number, with LLVM's suffixes.
    std::string text(const program & p, u32 number);
    u32 numbers() const { return next_number; }

    // Null for a number that is not one of its instructions, or if facts are not kept.
    const facts * facts_of_number(u32 number) const {
        return number < known.size() ? known[number] : nullptr;
    }

    void each(const std::function<void(const program &)> & use);

  private:
    disassembler & reader;
    u32 vgprs; // per wave; higher registers do not exist
    const architecture & arch;
    const observer * looks;
    u32 ttmps;
    u32 next_number = 0;
    std::vector<const facts *> known; // by instruction number
    std::mutex mutex;
    std::map<const std::byte *, std::unique_ptr<program>> programs; // by end address
};

// Why an instruction cannot be executed, as text; empty if it can.
std::string why_refused(disassembler & reader, std::span<const std::byte> code, const architecture & arch);

// Whether an instruction's result has a tolerance (is not defined to the bit), by its LLVM name.
bool has_tolerance(std::string_view name);

} // namespace patchkit::gpu
