// Functions and kernels, decoded once: text of the disassembler to instructions that can be run.
#pragma once

#include "assembly.hpp"
#include "code_object.hpp"
#include "wave.hpp"

#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace patchkit::gpu {

// One function or kernel, ready to run. Its instructions are one after the other; an instruction that is run in
// several steps (a dual one, one with DPP) has several entries of the same number.
class register_set; // see check.hpp

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

// Registers as the text of an operand names them; scalar ones by slot (wave.hpp). `is_high`: v1.h.
struct registers {
    bool is_vector;
    int first;
    int count;
    bool is_high = false;
    bool is_half = false;
};

// Nothing when the text names none.
std::optional<registers> parse_registers(std::string_view text);

// The name that the table of instructions has, by the one that LLVM writes: without the suffix of the encoding, and that
// of RDNA3 where RDNA4 has another one.
std::string base_name(std::string_view name);

// The float mode of a kernel, as the MODE register begins with it.
struct float_mode {
    bool flushes_f32;
    bool is_ieee;
};

// All that was decoded of one code object, or of a piece of code by itself.
class library {
  public:
    // `ttmps`: trap registers that the GPU sets before the first instruction, one bit each.
    library(disassembler & reader, u32 vgprs, checks wanted, bool is_rdna4, u32 ttmps = 0, bool records = false)
        : reader(reader), vgprs(vgprs), wanted(wanted), is_rdna4(is_rdna4), ttmps(ttmps), records(records) {}

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

    // Of a library that records; null of what is none of its instructions.
    const struct facts * facts_of_number(u32 number) const {
        return number < known.size() ? known[number] : nullptr;
    }

    void each(const std::function<void(const program &)> & use);

  private:
    disassembler & reader;
    u32 vgprs; // of a wave: what lies behind them is no register
    checks wanted;
    bool is_rdna4;
    u32 ttmps;
    bool records; // see recording.hpp
    u32 next_number = 0;
    std::vector<const facts *> known; // by number
    std::mutex mutex;
    std::map<const std::byte *, std::unique_ptr<program>> programs; // by end
};

// Why an instruction cannot be run, in words, by its code; empty when it can.
std::string why_refused(disassembler & reader, std::span<const std::byte> code, bool is_rdna4);

// Whether an instruction's result is not defined to the bit, by its name as LLVM writes it.
bool has_tolerance(std::string_view name);

} // namespace patchkit::gpu
