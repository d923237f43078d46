#include "operands.hpp"

#include <utility>

namespace patchkit::gpu {

namespace {

using role_list = std::vector<operand_role>;

// RDNA3 has a bit for atomics that return the old value, RDNA4 uses a temporal hint.
bool gives_what_was_there(const statement & s) {
    const std::string * temporal = s.modifier("th");
    return s.has("glc") || (temporal != nullptr && temporal->find("RETURN") != std::string::npos);
}

// Roles of the operands of a memory instruction, in text order; `count`: operands in the text.
role_list roles_of(const memory_form & form, const statement & s, size_t count) {
    using enum operand_role;
    const bool is_load = form.does == action::load;
    role_list roles;
    switch (form.by) {
        case route::none: break;
        case route::global:
        case route::scratch:
        case route::flat: {
            roles = is_load ? role_list{address} : role_list{address, data};
            if (form.by != route::flat) {
                roles.push_back(base);
            }
            if (is_load || (form.does == action::atomic && count > roles.size())) {
                roles.insert(roles.begin(), result);
            }
            break;
        }
        case route::lds:
        case route::between_lanes:
            roles = is_load || form.returns ? role_list{result, address} : role_list{address};
            for (const operand_role more : {data, more_data}) {
                if (roles.size() < count) {
                    roles.push_back(more);
                }
            }
            break;
        case route::lds_by_m0: roles = {is_load ? result : data}; break;
        case route::global_by_lane: roles = {is_load ? result : data, base}; break;
        case route::scalar:
        case route::scalar_buffer: roles = {result, address, offset}; break;
        case route::buffer:
            roles = {is_load ? result : gives_what_was_there(s) && form.does == action::atomic ? result_and_data : data,
                     address, base, offset};
            break;
        case route::image:
            roles = {is_load ? result : data, address, base};
            roles.resize(std::max(roles.size(), count), base);
            break;
    }
    return roles;
}

// Registers of an operand: v3, v[5:6], or a list.
std::vector<registers> registers_of(std::string_view text) {
    const bool is_list = text.starts_with("[") && text.ends_with("]");
    std::vector<registers> result;
    for (const std::string & part : is_list ? parts_of_list(text) : std::vector<std::string>{std::string(text)}) {
        if (const auto found = parse_registers(part)) {
            result.push_back(*found);
        }
    }
    return result;
}

parsed_operand parse_operand(operand_role role, std::string_view text) {
    const auto unwrap = [&text](std::string_view begin, std::string_view end) {
        if (text.size() <= begin.size() + end.size() || !text.starts_with(begin) || !text.ends_with(end)) {
            return false;
        }
        text = text.substr(begin.size(), text.size() - begin.size() - end.size());
        return true;
    };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool is_number = text.size() > 1 && is_digit(text[1]); // the minus is part of the number
    const bool is_negated = unwrap("neg(", ")") || (!is_number && unwrap("-", ""));
    const bool is_absolute = unwrap("|", "|") || unwrap("abs(", ")");
    return {role, std::string(text), is_negated, is_absolute, registers_of(text)};
}

} // namespace

parsed_instruction parse_instruction(statement text) {
    parsed_instruction made{std::move(text), {}, nullptr, {}};
    made.name = base_name(made.text.name);
    made.row = find_definition(made.name);
    if (made.row == nullptr) {
        return made;
    }
    const std::vector<std::string> & operands = made.text.operands;
    role_list roles;
    if (made.row->goes_to_memory()) {
        roles = roles_of(made.row->memory, made.text, operands.size());
        made.has_expected_operands = roles.size() == operands.size();
    } else {
        roles.assign(std::min(made.row->to.size(), operands.size()), operand_role::result);
    }
    roles.resize(operands.size(), operand_role::source);
    for (size_t n = 0; n < operands.size(); ++n) {
        made.operands.push_back(parse_operand(roles[n], operands[n]));
    }
    return made;
}

std::vector<parsed_instruction> parse_instructions(std::string_view line) {
    std::vector<parsed_instruction> result;
    for (statement & one : parse_line(line)) {
        result.push_back(parse_instruction(std::move(one)));
    }
    return result;
}

} // namespace patchkit::gpu
