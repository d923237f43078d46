#include "program.hpp"

#include "access.hpp"
#include "check.hpp"
#include "image_access.hpp"
#include "recording.hpp"
#include "left_out.hpp"
#include "machine.hpp"
#include "table.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
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

// RDNA4 renamed instructions that do what they did. There min and max of floats are called _num_: of a NaN and a number
// the number counts, as it does on RDNA3 outside of IEEE mode, which RDNA4 does not have.
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

namespace {

struct not_understood {
    std::string why;
};

// ---- Constants

u16 half_bits(double value) { return as<u16>(_Float16(value)); }

u64 float_constant(double value, format form) {
    // 1 / (2 pi), which is written with fewer digits than it has.
    if (std::fabs(value - 0.15915494309189532) < 1e-4) {
        switch (form) {
            case format::f16: case format::half_pairs: return 0x3118;
            case format::bf16: return 0x3e23;
            case format::f64: case format::b64: case format::scalar_64: return 0x3fc45f306dc9c882;
            default: return 0x3e22f983;
        }
    }
    switch (form) {
        case format::f16: case format::half_pairs: return half_bits(value);
        case format::bf16: return as<u32>(f32(value)) >> 16;
        case format::f64: case format::b64: case format::scalar_64: return as<u64>(value);
        default: return as<u32>(f32(value)); // also of 16-bit integers
    }
}

u64 literal_constant(u64 value, format form) {
    // The one literal of an instruction has 32 bits: of an f64 the upper ones.
    return form == format::f64 ? value << 32 : value;
}

std::optional<u64> parse_constant(std::string_view text, format form) {
    if (text.starts_with("lit(") && text.ends_with(")")) {
        text = text.substr(4, text.size() - 5);
    }
    const bool is_negative = text.starts_with("-");
    const std::string_view digits = is_negative ? text.substr(1) : text;
    if (digits.empty() || (std::isdigit(static_cast<unsigned char>(digits[0])) == 0)) {
        return std::nullopt;
    }
    if (digits.starts_with("0x")) {
        const u64 value = std::strtoull(std::string(digits.substr(2)).c_str(), nullptr, 16);
        return is_negative ? u64(0) - value : literal_constant(value, form);
    }
    if (digits.find('.') != std::string_view::npos || digits.find('e') != std::string_view::npos) {
        double value = 0;
        std::from_chars(text.data(), text.data() + text.size(), value); // whatever the program's locale is
        return float_constant(value, form);
    }
    return u64(std::strtoll(std::string(text).c_str(), nullptr, 10)); // the sign goes to bit 63
}

// ---- Registers

std::optional<int> number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

} // namespace

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
        const auto first = number(text.substr(1, colon - 1));
        const auto last = colon == std::string_view::npos ? first : number(text.substr(colon + 1, text.size() - colon - 2));
        if (!first || !last || *last < *first) {
            return std::nullopt;
        }
        result.first = *first;
        result.count = *last - *first + 1;
    } else if (const auto one = number(text)) {
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

namespace {

// ---- DPP: a source that comes from other lanes.

struct lane_pattern {
    u32x from;
    u32 have_source; // lanes that have one
    u32 written;     // lanes that row_mask and bank_mask allow
    bool zeroes;     // bound_ctrl: lanes without a source get 0, else they keep what they have
    bool reads_inactive;
};

int dpp_source(int lane, const std::string & name, const std::string & value) {
    const int in_row = lane & 15, row = lane & 16;
    const int by = value.empty() ? 0 : int(std::strtol(value.c_str(), nullptr, 0));
    if (name == "quad_perm" || name == "dpp8") {
        const int width = name == "dpp8" ? 8 : 4;
        const std::vector<std::string> picks = [&] {
            std::vector<std::string> made;
            for (size_t at = 1; at < value.size(); at = value.find(',', at) == std::string::npos
                                                            ? value.size()
                                                            : value.find(',', at) + 1) {
                made.push_back(value.substr(at));
            }
            return made;
        }();
        return (lane & ~(width - 1)) + int(std::strtol(picks.at(size_t(lane & (width - 1))).c_str(), nullptr, 10));
    }
    if (name == "row_shl") {
        return in_row + by < 16 ? lane + by : -1;
    }
    if (name == "row_shr") {
        return in_row - by >= 0 ? lane - by : -1;
    }
    if (name == "row_ror") {
        return row | ((in_row - by) & 15);
    }
    if (name == "row_mirror") {
        return row | (15 - in_row);
    }
    if (name == "row_half_mirror") {
        return (lane & ~7) | (7 - (lane & 7));
    }
    if (name == "row_share") {
        return row | by;
    }
    if (name == "row_xmask") {
        return row | (in_row ^ by);
    }
    throw not_understood{"the lane pattern " + name + " is not emulated"};
}

} // namespace

bool is_lane_pattern(const std::string & modifier) {
    return modifier == "dpp8" || modifier == "quad_perm" || modifier.starts_with("row_sh") ||
           modifier.starts_with("row_ro") || modifier.ends_with("mirror") || modifier == "row_xmask";
}

namespace {

void fetch_by_pattern(const instruction * i, wave & w) {
    const auto & pattern = *static_cast<const lane_pattern *>(i->extra);
    const u32 exec = w.exec();
    u32 have_source = pattern.have_source;
    if (exec != ~0u && !pattern.reads_inactive) {
        have_source &= lane_bits(picked(as<u32x>(lane_mask(exec)), pattern.from) != 0);
    }
    const u32x fetched = picked(read_bits(i, w, i->from[0]), pattern.from);
    vector_at(w, i->to[0]) = have_source == ~0u ? fetched : lane_mask(have_source) ? fetched : splat<u32x>(0);
    const u32 written = pattern.zeroes ? pattern.written : pattern.written & have_source;
    w.scalar[slot::saved_exec] = exec;
    w.scalar[slot::exec] = exec & written;
    PATCHKIT_NEXT(i, w);
}

void restore_exec(const instruction * i, wave & w) {
    w.scalar[slot::exec] = w.scalar[slot::saved_exec];
    PATCHKIT_NEXT(i, w);
}

// The second result of a dual instruction, written to its place once the first has been.
void move_spare(const instruction * i, wave & w) {
    write_bits(w, vector_at(w, i->to[0]), vector_at(w, i->from[0]));
    PATCHKIT_NEXT(i, w);
}

// ---- What cannot be run is an error only when it is reached.

struct reason {
    std::string text;
};

void refuse(const instruction * i, wave & w) { fault(i, w, static_cast<const reason *>(i->extra)->text); }

// Behind an instruction that is run by itself.
void stop(const instruction *, wave &) {}

void run_off(const instruction * i, wave & w) { fault(i, w, "the code ends here without s_endpgm or a jump"); }

// ---- One function

class decoder {
  public:
    decoder(program & to, disassembler & reader, float_mode mode, u32 vgprs, checks wanted, bool is_rdna4, u32 ttmps,
            std::vector<const facts *> * known)
        : to(to), reader(reader), mode(mode), vgprs(int(vgprs)), wanted(wanted), is_rdna4(is_rdna4), ttmps(ttmps),
          all_known(known) {}

    void decode() {
        for (const std::byte * at = to.begin; at < to.end;) {
            const line read = reader.one({at, size_t(to.end - at)}, u64(at));
            here = at;
            behind = at + read.size;
            to.offsets.push_back(u32(at - to.begin));
            to.entries.push_back(u32(steps.size()));
            number = to.first_number + u32(to.offsets.size()) - 1;
            const size_t first = steps.size();
            try {
                if (read.text.empty()) {
                    throw not_understood{"this is no instruction of the GPU"};
                }
                add_checked(read.text);
            } catch (const not_understood & problem) {
                steps.resize(first);
                instruction & made = add(refuse);
                made.extra = kept(reason{problem.why + ", " + (read.text.empty() ? "unknown code" : read.text)});
            }
            at = behind;
        }
        number = to.first_number + u32(to.offsets.size());
        to.offsets.push_back(u32(to.end - to.begin));
        to.entries.push_back(u32(steps.size()));
        add(run_off);
        if (wanted.uninitialised && !touches_any) {
            to.touched = std::make_shared<const register_set>(touched);
        }
        for (const auto & [of, copied] : alone) {
            alone_at.emplace_back(of, steps.size());
            steps.insert(steps.end(), copied.begin(), copied.end());
            add(stop);
        }
        finish();
    }

  private:
    program & to;
    disassembler & reader;
    float_mode mode;
    int vgprs;
    checks wanted;
    bool is_rdna4;
    u32 ttmps; // see library
    std::vector<const facts *> * all_known; // by number; null when they are not recorded
    const std::byte * here = nullptr;
    const std::byte * behind = nullptr;
    u32 number = 0;
    std::vector<instruction> steps;
    std::vector<u64> constants;
    std::unordered_map<u64, i32> constant_places;
    std::vector<std::pair<size_t, const std::byte *>> jumps; // step, target
    // Instructions that are also run by themselves (facts::alone), and where that is.
    std::vector<std::pair<facts *, std::vector<instruction>>> alone;
    std::vector<std::pair<facts *, size_t>> alone_at;
    register_set touched;
    bool touches_any = false; // it calls functions, or M0 says which register is meant

    // Things that live as long as the process: a few bytes per odd instruction.
    template <class T> static const T * kept(T value) { return new T(std::move(value)); }

    instruction & add(handler run) {
        instruction made{};
        made.run = run;
        made.number = number;
        if (mode.flushes_f32) {
            made.modifiers |= modifier::flush_f32;
        }
        if (mode.is_ieee) {
            made.modifiers |= modifier::ieee;
        }
        steps.push_back(made);
        return steps.back();
    }

    operand constant(u64 value) {
        const auto [found, is_new] = constant_places.emplace(value, i32(constants.size()));
        if (is_new) {
            constants.push_back(value);
        }
        // The distance from the instruction is filled in at the end.
        return {found->second << 3 | operand::constant};
    }

    operand register_operand(const registers & r, bool is_written) const {
        operand made;
        if (r.is_vector) {
            if (r.first + r.count > vgprs) {
                throw not_understood{"it names a VGPR that the kernel does not have"};
            }
            made.code = offset_of_vgpr(r.first) << 3 | operand::vector;
        } else {
            check_trap_registers(r, is_written);
            const int place = r.first == slot::null && is_written ? slot::nowhere : r.first;
            made.code = offset_of_scalar(place) << 3;
        }
        if (r.is_high) {
            made.code |= operand::high;
        }
        return made;
    }

    // A kernel may read the trap registers that the GPU set for it. Only a trap handler can write them.
    void check_trap_registers(const registers & r, bool is_written) const {
        for (int n = r.first; n < r.first + r.count; ++n) {
            const int which = n - slot::ttmp;
            if (which < 0 || which >= slot::null - slot::ttmp) {
                continue;
            }
            const std::string name = "ttmp" + std::to_string(which);
            if (is_written) {
                throw not_understood{"it writes " + name + ", which only a trap handler can"};
            }
            if ((ttmps >> which & 1) == 0) {
                throw not_understood{"it reads " + name + ", a register that the GPU does not set for this kernel"};
            }
        }
    }

    operand parse_to(const std::string & text) const {
        const auto found = parse_registers(text);
        if (!found) {
            throw not_understood{"the destination " + text + " is not emulated"};
        }
        return register_operand(*found, true);
    }

    // Source `n`; sets its sign modifiers.
    operand parse_from(instruction & made, std::string text, int n, format form) {
        const auto unwrap = [&](std::string_view begin, std::string_view end, u32 bit) {
            if (text.size() > begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end)) {
                text = text.substr(begin.size(), text.size() - begin.size() - end.size());
                made.modifiers |= bit << n;
                return true;
            }
            return false;
        };
        if (!unwrap("neg(", ")", modifier::neg_0) && !parse_constant(text, form)) {
            unwrap("-", "", modifier::neg_0);
        }
        if (!unwrap("|", "|", modifier::abs_0)) {
            unwrap("abs(", ")", modifier::abs_0);
        }
        if (const auto value = parse_constant(text, form)) {
            return constant(*value);
        }
        if (text == "src_scc") {
            throw not_understood{"SCC as a source is not emulated"};
        }
        if (text == "null") {
            return constant(0);
        }
        const auto found = parse_registers(text);
        if (!found) {
            throw not_understood{"the source " + text + " is not emulated"};
        }
        return register_operand(*found, false);
    }

    static u32 bit_list(const statement & s, std::string_view name, u32 otherwise) {
        const std::string * list = s.modifier(name);
        if (list == nullptr) {
            return otherwise;
        }
        u32 bits = 0;
        int n = 0;
        for (const char c : *list) {
            if (c == '0' || c == '1') {
                bits |= u32(c - '0') << n++;
            }
        }
        return bits;
    }

    static bool is_16(format form) { return form == format::b16 || form == format::f16 || form == format::bf16; }
    static bool is_pairs(format form) { return form == format::int_pairs || form == format::half_pairs; }

    void set_modifiers(instruction & made, const statement & s, const definition & d) {
        if (s.has("clamp")) {
            made.modifiers |= modifier::clamp;
        }
        // Output modifiers do nothing in IEEE mode, and where results may be subnormal.
        if (!mode.is_ieee && mode.flushes_f32) {
            made.modifiers |= s.has("mul") ? (*s.modifier("mul") == "2" ? modifier::times_2 : modifier::times_4) : 0;
            made.modifiers |= s.has("div") ? modifier::half : 0;
        }
        const bool has_pairs = std::any_of(d.from.begin(), d.from.end(), is_pairs);
        made.modifiers |= bit_list(s, "op_sel", 0) * modifier::op_sel_0;
        made.modifiers |= bit_list(s, "op_sel_hi", has_pairs ? 7 : 0) * modifier::op_sel_hi_0;
        made.modifiers |= bit_list(s, "neg_lo", 0) * modifier::neg_0;
        made.modifiers |= bit_list(s, "neg_hi", 0) * modifier::neg_hi_0;
    }

    // 16-bit operands that are no VGPR have their half in op_sel alone.
    void pick_halves(instruction & made, const definition & d) {
        if (std::any_of(d.from.begin(), d.from.end(), is_pairs)) {
            return;
        }
        for (size_t n = 0; n < d.from.size() && n < 3; ++n) {
            if (is_16(d.from[n]) && !made.from[n].is(operand::vector) &&
                (made.modifiers & (modifier::op_sel_0 << n)) != 0) {
                made.from[n].code |= operand::high;
            }
        }
    }

    // A line with the steps that check it, if anything is looked for.
    void add_checked(const std::string & text) {
        const std::vector<statement> parts = parse_line(text);
        if (!wanted.any() && all_known == nullptr) {
            add_line(parts);
            return;
        }
        std::vector<std::string> names;
        for (const statement & one : parts) {
            names.push_back(base_name(one.name));
        }
        facts known = facts_of(parts, names, here, is_rdna4);
        if (all_known != nullptr) {
            const facts * kept_known = kept(known);
            all_known->resize(number + 1);
            all_known->back() = kept_known;
            if (const handler record = record_before(known); record != nullptr) {
                add(record).extra = kept_known;
            }
            add_line(parts);
            return;
        }
        known.acquires = known.where != space::none && !known.is_store && is_followed_by_invalidation();
        touched.join(known.touched);
        touches_any |= known.is_jump || known.is_moved;
        const handler before = check_before(known, wanted), behind = check_behind(known, wanted);
        facts * kept_facts = before == nullptr ? nullptr : new facts(known); // kept, as above
        if (before != nullptr) {
            instruction & made = add(before);
            made.extra = kept_facts;
            made.immediate = at_hand(known);
        }
        const size_t first = steps.size();
        add_line(parts);
        const bool computes = kept_facts != nullptr && known.where == space::none && !known.touched.is_empty();
        if ((wanted.uninitialised || wanted.numbers) && computes && !known.is_given && !known.is_branch) {
            kept_facts->alone_steps = int(steps.size() - first);
            alone.emplace_back(kept_facts, std::vector(steps.begin() + i64(first), steps.end()));
        }
        if (behind != nullptr) {
            add(behind).extra = kept_facts;
        }
    }

    // Whether caches are made invalid behind this instruction, before anything but waits: an atomic load that orders
    // what follows it.
    bool is_followed_by_invalidation() {
        constexpr int most_waits = 4;
        const std::byte * at = behind;
        for (int n = 0; n < most_waits && at < to.end; ++n) {
            const line read = reader.one({at, size_t(to.end - at)}, u64(at));
            if (read.text.starts_with("buffer_gl0_inv") || read.text.starts_with("global_inv")) {
                return true;
            }
            if (!read.text.starts_with("s_wait")) {
                return false;
            }
            at += read.size;
        }
        return false;
    }

    void add_line(const std::vector<statement> & parts) {
        if (parts.size() == 1) {
            add_statement(parts[0]);
            return;
        }
        const size_t first = steps.size();
        add_statement(parts[0]);
        const size_t second = steps.size();
        add_statement(parts[1]);
        if (second != first + 1 || steps.size() != first + 2) {
            throw not_understood{"a dual instruction of this form is not emulated"};
        }
        // Both read before either writes.
        const auto reads = [](const instruction & reader, const instruction & writer) {
            return std::any_of(std::begin(reader.from), std::end(reader.from), [&](operand from) {
                return from.is(operand::vector) && (from.code >> 3) == (writer.to[0].code >> 3);
            });
        };
        if (!reads(steps[second], steps[first])) {
            return;
        }
        if (!reads(steps[first], steps[second])) {
            std::swap(steps[first], steps[second]);
            return;
        }
        // Each reads what the other writes: the first one's result waits in a register of ours.
        const operand wanted = steps[first].to[0], spare{offset_of_vgpr(vgprs) << 3 | operand::vector};
        steps[first].to[0] = spare;
        instruction & made = add(move_spare);
        made.to[0] = wanted;
        made.from[0] = spare;
    }

    void add_statement(const statement & s) {
        const std::string name = base_name(s.name);
        const definition * d = find_definition(name);
        if (d == nullptr) {
            const std::string_view reason = why_left_out(name);
            throw not_understood{"this instruction is not emulated" + (reason.empty() ? "" : " (" + std::string(reason) + ")")};
        }
        if ((d->traits & trait::memory) != 0) {
            add_memory(s, name, *d);
            return;
        }
        if (name.starts_with("s_branch") || name.starts_with("s_cbranch")) {
            add(d->run);
            i16 distance;
            std::memcpy(&distance, here, sizeof(distance));
            jumps.emplace_back(steps.size() - 1, behind + 4 * i64(distance));
            return;
        }
        if (name == "s_call_b64") {
            instruction & made = add(d->run);
            made.to[0] = parse_to(s.operands.at(0));
            i16 distance;
            std::memcpy(&distance, here, sizeof(distance));
            jumps.emplace_back(steps.size() - 1, behind + 4 * i64(distance));
            return;
        }
        if (d->to.empty() && d->from.empty()) {
            add_plain(name, *d);
            return;
        }
        if (name == "s_getreg_b32" || name == "s_sendmsg_rtn_b64") {
            add_clock(s, *d);
            return;
        }
        add_computation(s, name, *d);
    }

    // Of the registers of the hardware and of the messages with an answer, those that tell the time.
    void add_clock(const statement & s, const definition & d) {
        if (s.operands.size() != 2) {
            throw not_understood{"its operands are not as expected"};
        }
        instruction made = add(d.run);
        steps.pop_back();
        made.to[0] = parse_to(s.operands[0]);
        made.immediate = d.run == find_definition("s_getreg_b32")->run ? clock_bits(s.operands[1]) : 0;
        if (made.immediate == 0 && s.operands[1] != "sendmsg(MSG_RTN_GET_REALTIME)") {
            throw not_understood{"only the clock is emulated of what it can ask for"};
        }
        steps.push_back(made);
    }

    // See read_clock_bits. 0 when the text names another register.
    static i32 clock_bits(std::string_view text) {
        static const std::pair<std::string_view, int> clocks[] = {
            {"hwreg(HW_REG_SHADER_CYCLES", 0},
            {"hwreg(HW_REG_SHADER_CYCLES_LO", 0}, // RDNA4
            {"hwreg(HW_REG_SHADER_CYCLES_HI", 32},
        };
        for (const auto & [name, first] : clocks) {
            if (!text.starts_with(name)) {
                continue;
            }
            std::string_view rest = text.substr(name.size());
            if (rest == ")") {
                return first | 32 << 8;
            }
            const size_t comma = rest.find(", ", 1);
            if (!rest.starts_with(", ") || !rest.ends_with(")") || comma == std::string_view::npos) {
                continue;
            }
            const auto offset = gpu::number(rest.substr(2, comma - 2));
            const auto count = gpu::number(rest.substr(comma + 2, rest.size() - comma - 3));
            if (offset && count && *offset >= 0 && *count > 0 && *offset + *count <= 32) {
                return (first + *offset) | *count << 8;
            }
        }
        return 0;
    }

    // Instructions without operands that we look at. Those that do nothing here have no step at all.
    void add_plain(const std::string & name, const definition & d) {
        if (d.run == find_definition("s_nop")->run) {
            return;
        }
        instruction & made = add(d.run);
        if (name == "s_trap") {
            i16 value;
            std::memcpy(&value, here, sizeof(value));
            made.immediate = value;
        }
    }

    void add_computation(const statement & s, const std::string & name, const definition & d) {
        const auto dpp = std::find_if(s.modifiers.begin(), s.modifiers.end(),
                                      [](const auto & m) { return is_lane_pattern(m.first); });
        const bool has_dpp = dpp != s.modifiers.end();
        if (has_dpp) {
            add(fetch_by_pattern).extra = kept(pattern_of(s, *dpp));
        }
        const size_t fetch = steps.size() - 1;
        instruction made = add(d.run);
        steps.pop_back();
        size_t next = 0;
        const auto take = [&]() -> const std::string & {
            if (next >= s.operands.size()) {
                throw not_understood{"it has fewer operands than expected"};
            }
            return s.operands[next++];
        };
        for (size_t n = 0; n < d.to.size(); ++n) {
            made.to[n] = parse_to(take());
        }
        const bool accumulates = (d.traits & trait::accumulates) != 0;
        size_t written = d.from.size() - (accumulates ? 1 : 0);
        if ((d.traits & trait::reads_vcc) != 0) {
            written -= 1;
        }
        for (size_t n = 0; n < written; ++n) {
            // A dual v_cndmask does not write its VCC.
            if (d.from[n] == format::lanes && next >= s.operands.size()) {
                made.from[n] = register_operand({false, slot::vcc, 1}, false);
                continue;
            }
            made.from[n] = parse_from(made, take(), int(n), d.from[n]);
        }
        if (accumulates) {
            made.from[written] = made.to[0];
        } else if ((d.traits & trait::reads_vcc) != 0) {
            made.from[written] = register_operand({false, slot::vcc, 1}, false);
        }
        if (next != s.operands.size()) {
            throw not_understood{"it has more operands than expected"};
        }
        set_modifiers(made, s, d);
        pick_halves(made, d);
        if (const std::string * byte = s.modifier("byte_sel")) {
            made.immediate = std::strtol(byte->c_str(), nullptr, 10);
        }
        if (name.starts_with("s_")) {
            made.modifiers &= modifier::flush_f32 | modifier::ieee; // scalar instructions have the kernel's modes only
            extend_constant(made, name, s);
        }
        if (name.starts_with("v_wmma")) {
            made.immediate = parse_registers(s.operands[1])->count;
        }
        if (name.starts_with("v_movrel") || name == "v_swaprel_b32") {
            const auto behind = [&](size_t n) {
                const auto moved = parse_registers(s.operands[n]);
                return moved && moved->is_vector ? i64(vgprs - 1 - moved->first) : 0;
            };
            const bool moves_both = name.starts_with("v_movrelsd") || name == "v_swaprel_b32";
            made.immediate = moves_both ? behind(1) | behind(0) << 16 : behind(name == "v_movreld_b32" ? 0 : 1);
        }
        if (name.starts_with("s_movrel")) {
            const int words = name.ends_with("_b64") ? 2 : 1;
            const auto behind = [&](size_t n) {
                const auto moved = parse_registers(s.operands[n]);
                return moved && !moved->is_vector ? std::max(i64(slot::vcc) - words - moved->first, i64(0)) : 0;
            };
            made.immediate = name == "s_movrelsd_2_b32" ? behind(1) | behind(0) << 16
                                                        : behind(name.starts_with("s_movreld") ? 0 : 1);
        }
        if (has_dpp) {
            const operand spare{offset_of_vgpr(vgprs) << 3 | operand::vector};
            if (!made.from[0].is(operand::vector)) {
                throw not_understood{"a lane pattern on a source that is no VGPR"};
            }
            steps[fetch].from[0] = {made.from[0].code & ~operand::high};
            steps[fetch].to[0] = spare;
            made.from[0] = {spare.code | (made.from[0].code & operand::high)};
        }
        steps.push_back(made);
        // Lanes that the pattern leaves out have no bit in the result, as those that are not active have none: EXEC is
        // what v_cmpx left.
        if (has_dpp && !name.starts_with("v_cmpx")) {
            add(restore_exec);
        }
    }

    // The 16-bit constants of the K forms: signed, but for unsigned comparisons.
    void extend_constant(instruction & made, const std::string & name, const statement & s) {
        const bool is_k = name.starts_with("s_movk") || name.starts_with("s_cmovk") || name.starts_with("s_addk") ||
                          name.starts_with("s_mulk") || name.starts_with("s_cmpk");
        if (!is_k) {
            return;
        }
        const auto value = parse_constant(s.operands.back(), format::scalar);
        const size_t place = name.starts_with("s_cmpk") ? 1 : 0;
        const bool is_unsigned = name.ends_with("_u32");
        made.from[place] = constant(is_unsigned ? *value & 0xffff : u64(i64(i16(*value))));
    }

    lane_pattern pattern_of(const statement & s, const std::pair<std::string, std::string> & which) {
        lane_pattern result{};
        const auto mask = [&](const char * name) {
            const std::string * text = s.modifier(name);
            return text == nullptr ? 15u : u32(std::strtoul(text->c_str(), nullptr, 0));
        };
        const u32 rows = mask("row_mask"), banks = mask("bank_mask");
        for (int lane = 0; lane < lanes; ++lane) {
            const int source = dpp_source(lane, which.first, which.second);
            if (source >= 0) {
                result.from[lane] = u32(source);
                result.have_source |= 1u << lane;
            }
            if (((rows >> (lane / 16)) & 1) != 0 && ((banks >> (lane % 16 / 4)) & 1) != 0) {
                result.written |= 1u << lane;
            }
        }
        const std::string * bound = s.modifier("bound_ctrl");
        result.zeroes = bound != nullptr && *bound != "0";
        const std::string * fetches = s.modifier("fi");
        result.reads_inactive = fetches != nullptr && *fetches != "0";
        return result;
    }

    static i64 offset_of(const statement & s, const char * name) {
        const std::string * text = s.modifier(name);
        return text == nullptr ? 0 : std::strtoll(text->c_str(), nullptr, 0);
    }

    operand optional_from(const std::string & text) {
        if (text == "off") {
            return {};
        }
        const auto found = parse_registers(text);
        if (!found) {
            throw not_understood{"the operand " + text + " is not emulated"};
        }
        return register_operand(*found, false);
    }

    // Registers that hold one value each: v[3:4], v3, or [v3, v[5:6]].
    std::vector<operand> one_by_one(std::string_view text) {
        const bool is_list = text.starts_with("[") && text.ends_with("]");
        std::vector<operand> all;
        for (const std::string & part : is_list ? parts_of_list(text) : std::vector<std::string>{std::string(text)}) {
            const auto found = parse_registers(part);
            if (!found || !found->is_vector) {
                throw not_understood{"the operand " + part + " is not emulated"};
            }
            for (int n = 0; n < found->count; ++n) {
                all.push_back(register_operand({true, found->first + n, 1}, false));
            }
        }
        return all;
    }

    static std::pair<int, bool> dimensions_of(const statement & s) { // and whether there is a layer
        static const std::unordered_map<std::string_view, std::pair<int, bool>> known{
            {"SQ_RSRC_IMG_1D", {1, false}},      {"SQ_RSRC_IMG_2D", {2, false}},      {"SQ_RSRC_IMG_3D", {3, false}},
            {"SQ_RSRC_IMG_1D_ARRAY", {1, true}}, {"SQ_RSRC_IMG_2D_ARRAY", {2, true}},
        };
        const std::string * text = s.modifier("dim");
        const auto found = known.find(text == nullptr ? "" : *text);
        if (found == known.end()) {
            throw not_understood{"images of this kind are not emulated"};
        }
        return found->second;
    }

    // See image.cpp.
    void add_image(const statement & s, const std::string & name, const definition & d) {
        const bool is_buffer = name.starts_with("buffer_");
        const std::vector<std::string> & o = s.operands;
        const auto unusual = [&s](const char * modifier) { return s.has(modifier); };
        constexpr const char * modifiers[] = {"d16", "a16", "tfe", "lwe", "offen", "offset"};
        if (std::any_of(std::begin(modifiers), std::end(modifiers), unusual) || (is_buffer && !s.has("idxen")) ||
            o.size() < 3) {
            throw not_understood{"an image instruction of this form is not emulated"};
        }
        using what = image_access::what;
        image_access how;
        how.does = name == "image_store"                   ? what::store
                   : name.starts_with("image_sample")      ? what::sample
                   : name.starts_with("image_gather4")     ? what::gather
                                                           : what::load;
        if (is_buffer) {
            how.channels = (1u << name.substr(name.rfind('_') + 1).size()) - 1;
        } else {
            std::tie(how.dimensions, how.has_layer) = dimensions_of(s);
            how.channels = s.has("dmask") ? u32(offset_of(s, "dmask")) & 15 : 1;
        }
        const std::vector<operand> address = one_by_one(o[1]), data = one_by_one(o[0]);
        // Derivatives lie before the coordinates, in halves of two directions each: images have one level here.
        const size_t before = name == "image_sample_d"       ? size_t(2 * how.dimensions)
                              : name == "image_sample_d_g16" ? size_t(how.dimensions == 3 ? 4 : 2)
                                                             : 0;
        const size_t wanted = size_t(how.dimensions + int(how.has_layer));
        const size_t moved = how.does == what::gather ? 4 : size_t(std::popcount(how.channels));
        if (address.size() < before + wanted || data.size() < moved || how.channels == 0) {
            throw not_understood{"its operands are not as expected"};
        }
        std::copy_n(address.begin() + i64(before), wanted, how.coordinates.begin());
        how.data = data[0];
        const auto description = parse_registers(o[2]);
        if (!description || description->is_vector || description->count < (is_buffer ? 4 : 8)) {
            throw not_understood{"its operands are not as expected"};
        }
        how.description = register_operand(*description, false);
        add(d.run).extra = kept(how);
    }

    // See memory.cpp for what goes where.
    void add_memory(const statement & s, const std::string & name, const definition & d) {
        if (s.has("gds") || s.has("lds")) {
            throw not_understood{"GDS and loads straight to LDS are not emulated"};
        }
        if (name.starts_with("image_") || name.starts_with("buffer_load_format_")) {
            add_image(s, name, d);
            return;
        }
        instruction made = add(d.run);
        steps.pop_back();
        made.immediate = offset_of(s, "offset");
        const std::vector<std::string> & o = s.operands;
        const bool is_store = name.find("_store_") != std::string::npos && !name.starts_with("ds_storexchg");
        const auto expect = [&](bool holds) {
            if (!holds) {
                throw not_understood{"its operands are not as expected"};
            }
        };
        if (name.starts_with("buffer_")) {
            expect(o.size() == 4 && !s.has("tfe"));
            const bool is_atomic = name.find("_atomic_") != std::string::npos;
            const std::string * temporal = s.modifier("th"); // RDNA4
            const bool returns = s.has("glc") || (temporal != nullptr && temporal->find("RETURN") != std::string::npos);
            if (!is_store && (!is_atomic || returns)) {
                made.to[0] = parse_to(o[0]);
            }
            if (is_store || is_atomic) {
                made.from[1] = optional_from(o[0]);
            }
            made.from[0] = optional_from(o[1]);
            made.from[2] = optional_from(o[2]);
            if (o[3] != "0" && o[3] != "null") {
                made.from[3] = parse_from(made, o[3], 3, format::scalar);
            }
            made.immediate |= (s.has("idxen") ? buffer_index : 0) | (s.has("offen") ? buffer_offset : 0);
        } else if (name.starts_with("s_load") || name.starts_with("s_buffer_load")) {
            expect(o.size() == 3);
            made.to[0] = parse_to(o[0]);
            made.from[0] = optional_from(o[1]);
            if (const auto value = parse_constant(o[2], format::scalar_64)) {
                made.immediate += i64(*value);
            } else if (o[2] != "null") {
                made.from[1] = optional_from(o[2]);
            }
        } else if (name == "ds_append" || name == "ds_consume" || name == "ds_load_addtid_b32") {
            expect(o.size() == 1);
            made.to[0] = parse_to(o[0]);
        } else if (name == "ds_store_addtid_b32") {
            expect(o.size() == 1);
            made.from[1] = optional_from(o[0]);
        } else if (name == "global_load_addtid_b32" || name == "global_store_addtid_b32") {
            expect(o.size() == 2);
            (is_store ? made.from[1] : made.to[0]) = is_store ? optional_from(o[0]) : parse_to(o[0]);
            made.from[2] = optional_from(o[1]);
        } else if (name.starts_with("ds_")) {
            made.immediate |= offset_of(s, "offset0") | (offset_of(s, "offset1") << 8);
            if (name == "ds_swizzle_b32") {
                u16 pattern;
                std::memcpy(&pattern, here, sizeof(pattern));
                made.extra = kept(swizzle_sources(pattern));
            }
            const bool gives = name.find("_load_") != std::string::npos || name.find("_rtn_") != std::string::npos ||
                               name.find("perm") != std::string::npos || name == "ds_swizzle_b32";
            size_t next = 0;
            if (gives) {
                made.to[0] = parse_to(o.at(next++));
            }
            made.from[0] = optional_from(o.at(next++));
            if (next < o.size()) {
                made.from[1] = optional_from(o[next++]);
            }
            if (next < o.size()) {
                made.from[3] = optional_from(o[next++]);
            }
            expect(next == o.size());
        } else {
            const bool is_atomic = name.find("_atomic_") != std::string::npos;
            const bool is_flat = name.starts_with("flat_");
            const size_t without_result = (is_store || is_atomic ? 2 : 1) + (is_flat ? 0 : 1);
            size_t next = 0;
            if (o.size() > without_result || (!is_store && !is_atomic)) {
                made.to[0] = parse_to(o.at(next++));
            }
            made.from[0] = optional_from(o.at(next++));
            if (is_store || is_atomic) {
                made.from[1] = optional_from(o.at(next++));
            }
            if (!is_flat) {
                made.from[2] = optional_from(o.at(next++));
            }
            expect(next == o.size());
        }
        steps.push_back(made);
    }

    // Constants and steps into one piece of memory, so that the distance between them fits.
    void finish() {
        const size_t before = (constants.size() * sizeof(u64) + 63) / 64 * 64;
        const size_t size = before + steps.size() * sizeof(instruction);
        to.memory = std::make_unique<std::byte[]>(size + 64);
        std::byte * start = to.memory.get();
        std::memcpy(start, constants.data(), constants.size() * sizeof(u64));
        to.steps = reinterpret_cast<instruction *>(start + before);
        to.step_count = steps.size();
        for (size_t n = 0; n < steps.size(); ++n) {
            for (operand & from : steps[n].from) {
                if (from.is(operand::constant)) {
                    const i64 place = i64(from.code >> 3) * i64(sizeof(u64));
                    const i64 distance = place - i64(before + n * sizeof(instruction));
                    from.code = i32(distance << 3) | (from.code & 7);
                }
            }
            new (to.steps + n) instruction(steps[n]);
        }
        for (const auto & [of, step] : alone_at) {
            of->alone = to.steps + step;
        }
        for (const auto & [step, target] : jumps) {
            const auto found = std::lower_bound(to.offsets.begin(), to.offsets.end(), u32(target - to.begin));
            const bool is_inside = target >= to.begin && target < to.end && found != to.offsets.end() &&
                                   *found == u32(target - to.begin);
            if (is_inside) {
                to.steps[step].target = to.steps + to.entries[size_t(found - to.offsets.begin())];
            } else {
                to.steps[step].run = refuse;
                to.steps[step].extra = kept(reason{"the branch leaves its function"});
            }
        }
    }
};

} // namespace

const program & library::at(const std::byte * address, float_mode mode, const std::optional<extent> & where) {
    const std::lock_guard<std::mutex> guard(mutex);
    const auto found = programs.upper_bound(address);
    if (found != programs.end() && found->second->holds(address)) {
        return *found->second;
    }
    if (!where) {
        throw kernel_fault("there is no code at the address that is to be executed");
    }
    auto made = std::make_unique<program>();
    made->name = where->name;
    made->begin = where->begin;
    made->end = where->end;
    made->first_number = next_number;
    decoder(*made, reader, mode, vgprs, wanted, is_rdna4, ttmps, records ? &known : nullptr).decode();
    next_number += u32(made->offsets.size());
    return *(programs[made->end] = std::move(made));
}

const program * library::program_of(const instruction * i) {
    const std::lock_guard<std::mutex> guard(mutex);
    for (const auto & [end, one] : programs) {
        if (one->steps <= i && i < one->steps + one->step_count) {
            return one.get();
        }
    }
    return nullptr;
}

const program * library::program_with(u32 number) {
    const std::lock_guard<std::mutex> guard(mutex);
    for (const auto & [end, one] : programs) {
        if (one->first_number <= number && number < one->first_number + one->offsets.size()) {
            return one.get();
        }
    }
    return nullptr;
}

std::string library::text(const program & p, u32 number) {
    const u32 n = number - p.first_number;
    if (n + 1 >= p.offsets.size()) {
        return "the end of " + p.name;
    }
    const std::byte * at = p.begin + p.offsets[n];
    const std::string text = reader.one({at, size_t(p.end - at)}, u64(at)).text;
    return text.empty() ? "unknown code" : text;
}

void library::each(const std::function<void(const program &)> & use) {
    const std::lock_guard<std::mutex> guard(mutex);
    for (const auto & [end, one] : programs) {
        use(*one);
    }
}

std::string why_refused(disassembler & reader, std::span<const std::byte> code, bool is_rdna4) {
    constexpr u32 most_vgprs = 256;
    library own(reader, most_vgprs, {}, is_rdna4);
    const program & made = own.at(code.data(), {false, false}, library::extent{"", code.data(), code.data() + code.size()});
    const instruction & first = made.steps[made.entries[0]];
    const bool is_refused = first.run == refuse && made.entries[0] != made.entries.back();
    const std::string why = is_refused ? static_cast<const reason *>(first.extra)->text : "";
    return why.starts_with("the branch leaves") ? "" : why; // it is alone here
}

bool has_tolerance(std::string_view name) {
    const definition * found = find_definition(base_name(name));
    return found != nullptr && (found->traits & trait::has_tolerance) != 0;
}

} // namespace patchkit::gpu
