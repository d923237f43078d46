#include "table.hpp"

#include <unordered_map>

namespace patchkit::gpu {

const definition * find_definition(std::string_view name) {
    static const auto * table = [] {
        auto * made = new std::unordered_map<std::string_view, definition>;
        for (const auto & family :
             {scalar_instructions(), integer_instructions(), float_instructions(), conversion_instructions(),
              compare_instructions(), packed_instructions(), matrix_instructions(), lane_instructions(),
              memory_instructions(), image_instructions()}) {
            for (const definition & one : family) {
                made->emplace(one.name, one);
            }
        }
        return made;
    }();
    const auto found = table->find(name);
    return found == table->end() ? nullptr : &found->second;
}

namespace {

std::string_view without_suffix(std::string_view name) {
    for (const std::string_view suffix : {"_e64_dpp", "_e32", "_e64", "_dpp"}) {
        if (name.ends_with(suffix)) {
            return name.substr(0, name.size() - suffix.size());
        }
    }
    return name;
}

// RDNA4 renamed instructions with unchanged semantics. Its float min and max are called _num_: with one NaN the number
// is selected, as on RDNA3 outside of IEEE mode, which RDNA4 does not have.
std::string rdna3_name(std::string name) {
    static const std::unordered_map<std::string_view, std::string_view> renamed{
        {"s_add_co_u32", "s_add_u32"},      {"s_sub_co_u32", "s_sub_u32"},      {"s_add_co_i32", "s_add_i32"},
        {"s_sub_co_i32", "s_sub_i32"},      {"s_add_co_ci_u32", "s_addc_u32"},  {"s_sub_co_ci_u32", "s_subb_u32"},
        {"s_addk_co_i32", "s_addk_i32"},    {"v_mad_co_u64_u32", "v_mad_u64_u32"},
        {"v_mad_co_i64_i32", "v_mad_i64_i32"},
    };
    if (const auto found = renamed.find(name); found != renamed.end()) {
        return std::string(found->second);
    }
    if (const size_t number = name.find("_num_"); number != std::string::npos) {
        name.erase(number, 4);
    }
    return name;
}

} // namespace

std::string base_name(std::string_view name) {
    const std::string_view base = without_suffix(name);
    if (base.starts_with("v_dual_")) {
        return rdna3_name("v_" + std::string(base.substr(7)));
    }
    return rdna3_name(std::string(base));
}

} // namespace patchkit::gpu
