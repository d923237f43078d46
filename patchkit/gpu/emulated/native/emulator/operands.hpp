// Roles of the operands in an instruction's text, derived from its table row. Everything that needs an instruction's
// inputs and outputs uses this.
#pragma once

#include "assembly.hpp"
#include "registers.hpp"
#include "table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace patchkit::gpu {

// Role of an operand. Those from `address` on are for memory instructions, see route.
enum class operand_role : u8 { result, source, address, data, more_data, result_and_data, base, offset };

struct parsed_operand {
    operand_role role;
    std::string text; // without sign modifiers
    bool is_negated, is_absolute;
    std::vector<registers> named; // empty: a constant, or nothing; several: a list

    bool is_written() const { return role == operand_role::result || role == operand_role::result_and_data; }
    bool is_read() const { return role != operand_role::result; }
};

struct parsed_instruction {
    statement text;
    std::string name;               // in the table
    const definition * row;         // null: there is none
    std::vector<parsed_operand> operands;
    bool has_expected_operands = true; // for memory instructions: whether the number of operands matches the form

    bool gives() const { return !operands.empty() && operands[0].is_written(); }
};

parsed_instruction parse_instruction(statement text);

// A line of disassembly; two instructions if dual-issue.
std::vector<parsed_instruction> parse_instructions(std::string_view line);

} // namespace patchkit::gpu
