// Functions and kernels, decoded once: text of the disassembler to instructions that can be run.
#pragma once

#include "assembly.hpp"
#include "facts.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace patchkit::gpu {

// What looks at a kernel while it runs, by steps around its instructions.
class observer {
  public:
    virtual ~observer() = default;

    // The step before an instruction of which this is known; null where there is none. What it is given is in its `extra`
    // (the facts) and its immediate.
    virtual handler before(const facts & known) const = 0;
    virtual i64 at_hand(const facts & /*known*/) const { return 0; }

    // The step behind it, with the same `extra`; only where there is one before.
    virtual handler behind(const facts & /*known*/) const { return nullptr; }

    // Whether the step before runs the instruction by itself (facts::alone).
    virtual bool tries(const facts & /*known*/) const { return false; }

    // Whether it follows the values of registers (program::touched), and asks for facts by number.
    virtual bool follows_values() const { return false; }
    virtual bool keeps_facts() const { return false; }
};

// One function or kernel, ready to run. Its instructions are one after the other; an instruction that is run in
// several steps (a dual one, one with DPP) has several entries of the same number.
struct program {
    std::string name;
    const std::byte * begin;
    const std::byte * end;
    u32 first_number;               // of its instructions in its library
    std::vector<u32> offsets;       // of each instruction, by number, from begin
    std::vector<u32> entries;       // of each instruction, by number: the first of its steps
    std::unique_ptr<std::byte[]> memory; // constants, then steps
    instruction * steps = nullptr;
    size_t step_count   = 0;
    std::shared_ptr<const register_set> touched; // by its instructions, when values are followed; null: any may be

    bool holds(const std::byte * address) const { return begin <= address && address < end; }
};

// The float mode of a kernel, as the MODE register begins with it.
struct float_mode {
    bool flushes_f32;
    bool is_ieee;
};

// All that was decoded of one code object, or of a piece of code by itself.
class library {
  public:
    // `looks`: null when nothing does; it outlives this. `ttmps`: trap registers that the GPU sets before the first
    // instruction, one bit each.
    library(disassembler & reader, u32 vgprs, const architecture & arch, const observer * looks = nullptr, u32 ttmps = 0)
        : reader(reader), vgprs(vgprs), arch(arch), looks(looks), ttmps(ttmps) {}

    // The function that begins at or holds an address; `find` says where a function lies that was not seen yet.
    // Throws kernel_fault.
    struct extent {
        std::string name;
        const std::byte * begin;
        const std::byte * end;
    };
    const program & at(const std::byte * address, float_mode mode, const std::optional<extent> & where);

    // The one that holds this instruction; null when it is none of ours.
    const program * program_of(const instruction * i);

    // The one with the instruction of this number; null as above.
    const program * program_with(u32 number);

    // Text of an instruction by its number, with the suffixes that LLVM writes.
    std::string text(const program & p, u32 number);
    u32 numbers() const { return next_number; }

    // Where they are kept; null of what is none of its instructions.
    const facts * facts_of_number(u32 number) const {
        return number < known.size() ? known[number] : nullptr;
    }

    void each(const std::function<void(const program &)> & use);

  private:
    disassembler & reader;
    u32 vgprs; // of a wave: what lies behind them is no register
    const architecture & arch;
    const observer * looks;
    u32 ttmps;
    u32 next_number = 0;
    std::vector<const facts *> known; // by number
    std::mutex mutex;
    std::map<const std::byte *, std::unique_ptr<program>> programs; // by end
};

// Why an instruction cannot be run, in words, by its code; empty when it can.
std::string why_refused(disassembler & reader, std::span<const std::byte> code, const architecture & arch);

// Whether an instruction's result is not defined to the bit, by its name as LLVM writes it.
bool has_tolerance(std::string_view name);

} // namespace patchkit::gpu
