// What the operands of an instruction's text are to it, by its row of the table. All that has to know what an instruction
// reads and writes asks here.
#pragma once

#include "assembly.hpp"
#include "registers.hpp"
#include "table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

// What one operand is to its instruction. Those from `address` on are of memory instructions, see route.
enum class operand_role : u8 { result, source, address, data, more_data, result_and_data, base, offset };

struct parsed_operand {
    operand_role role;
    std::string text; // without its signs
    bool is_negated, is_absolute;
    std::vector<registers> named; // none: a constant, or nothing; several: a list

    bool is_written() const { return role == operand_role::result || role == operand_role::result_and_data; }
    bool is_read() const { return role != operand_role::result; }
};

struct parsed_instruction {
    statement text;
    std::string name;               // in the table
    const definition * row;         // null: there is none
    std::vector<parsed_operand> operands;
    bool has_expected_operands = true; // of one to memory: as many as its form has

    bool gives() const { return !operands.empty() && operands[0].is_written(); }
};

parsed_instruction parse_instruction(statement text);

// A line of the disassembler's: two of a dual instruction.
std::vector<parsed_instruction> parse_instructions(std::string_view line);

} // namespace patchkit::gpu
