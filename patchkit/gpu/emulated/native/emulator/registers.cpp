#include "registers.hpp"

#include "assembly.hpp"

#include <unordered_map>

namespace patchkit::gpu {

std::optional<registers> parse_registers(std::string_view text) {
    static const std::unordered_map<std::string_view, registers> named{
        {"vcc_lo", {false, slot::vcc, 1}},
        {"vcc_hi", {false, slot::vcc + 1, 1}},
        {"vcc", {false, slot::vcc, 2}},
        {"exec_lo", {false, slot::exec, 1}},
        {"exec_hi", {false, slot::exec + 1, 1}},
        {"exec", {false, slot::exec, 2}},
        {"m0", {false, slot::m0, 1}},
        {"null", {false, slot::null, 2}},
        {"src_shared_base", {false, slot::shared_base, 2}},
        {"src_private_base", {false, slot::private_base, 2}},
    };
    if (const auto found = named.find(text); found != named.end()) {
        return found->second;
    }
    registers result{text.starts_with("v"), 0, 1};
    const bool is_trap = text.starts_with("ttmp");
    if (!result.is_vector && !text.starts_with("s") && !is_trap) {
        return std::nullopt;
    }
    text.remove_prefix(is_trap ? 4 : 1);
    if (text.ends_with(".l") || text.ends_with(".h")) {
        result.is_high = text.ends_with(".h");
        result.is_half = true;
        text.remove_suffix(2);
    }
    if (text.starts_with("[") && text.ends_with("]")) {
        const size_t colon = text.find(':');
        const auto first = parse_number(text.substr(1, colon - 1));
        const auto last = colon == std::string_view::npos ? first : parse_number(text.substr(colon + 1, text.size() - colon - 2));
        if (!first || !last || *last < *first) {
            return std::nullopt;
        }
        result.first = *first;
        result.count = *last - *first + 1;
    } else if (const auto one = parse_number(text)) {
        result.first = *one;
    } else {
        return std::nullopt;
    }
    result.first += is_trap ? slot::ttmp : 0;
    if (!result.is_vector && result.first + result.count > slot::nowhere) {
        return std::nullopt;
    }
    return result;
}

std::string register_set::first_of_both(const register_set & other) const {
    const words both = all() & other.all();
    for (int n = 0; n < 1024; ++n) {
        if (((both[n / 64] >> (n % 64)) & 1) == 0) {
            continue;
        }
        if (n >= 2 * most_vgprs) {
            const int s = n / 2 - most_vgprs;
            return s == slot::vcc ? "vcc_lo" : s == slot::vcc + 1 ? "vcc_hi" : s == slot::m0 ? "m0"
                   : s == slot::exec ? "exec_lo" : "s" + std::to_string(s);
        }
        return "v" + std::to_string(n / 2) + (n % 2 == 1 ? ".h" : "");
    }
    return "a register";
}

void register_set::renew_hints() {
    u64 even = 0, odd = 0; // words for registers 0 to 31 modulo 64, and for the others
    for (int word = 0; word < 16; word += 2) {
        even |= whole_registers(bits[word]);
        odd |= whole_registers(bits[word + 1]);
    }
    // Compacts every second bit.
    const auto packed = [](u64 word) {
        for (int by = 1; by < 32; by *= 2) {
            const u64 kept = ~u64(0) / ((u64(1) << (2 * by)) + 1); // every second group of 2 * by bits
            word = (word | word >> by) & kept;
        }
        return word;
    };
    hint = packed(even) | packed(odd) << 32;
}

} // namespace patchkit::gpu
