#include "program.hpp"

#include "access.hpp"
#include "executor.hpp"
#include "image_access.hpp"
#include "left_out.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <unordered_map>

namespace patchkit::gpu {

namespace {

struct not_understood {
    std::string why;
};

// ---- Constants

u16 half_bits(double value) { return as<u16>(_Float16(value)); }

u64 float_constant(double value, format form) {
    // 1 / (2 pi), which LLVM prints with reduced precision.
    if (std::fabs(value - 0.15915494309189532) < 1e-4) {
        switch (form) {
            case format::f16: case format::half_pairs: case format::bf16_pairs: return 0x3118;
            case format::bf16: return 0x3e23;
            case format::f64: case format::b64: case format::scalar_64: return 0x3fc45f306dc9c882;
            default: return 0x3e22f983;
        }
    }
    switch (form) {
        case format::f16: case format::half_pairs: case format::bf16_pairs: return half_bits(value);
        case format::bf16: return as<u32>(f32(value)) >> 16;
        case format::f64: case format::b64: case format::scalar_64: return as<u64>(value);
        default: return as<u32>(f32(value)); // also for 16-bit integers
    }
}

u64 literal_constant(u64 value, format form) {
    // An instruction's literal has 32 bits; for f64 these are the upper ones.
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
        std::from_chars(text.data(), text.data() + text.size(), value); // independent of the program's locale
        return float_constant(value, form);
    }
    return u64(std::strtoll(std::string(text).c_str(), nullptr, 10)); // the sign is extended to bit 63
}

} // namespace

namespace {

// ---- DPP: a source from other lanes.

struct lane_pattern {
    u32x from;
    u32 have_source; // lanes with a source
    u32 written;     // lanes enabled by row_mask and bank_mask
    bool zeroes;     // bound_ctrl: lanes without a source get 0; otherwise they keep their old value
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
    throw not_understood{"the DPP pattern " + name + " is not emulated"};
}

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

// Moves the second result of a dual-issue instruction to its destination, after the first was written.
void move_spare(const instruction * i, wave & w) {
    write_bits(w, vector_at(w, i->to[0]), vector_at(w, i->from[0]));
    PATCHKIT_NEXT(i, w);
}

// ---- Instructions that cannot be executed cause an error only when they are reached.

struct reason {
    std::string text;
};

void refuse_to_run(const instruction * i, wave & w) { w.on->fault(i, w, static_cast<const reason *>(i->extra)->text); }

// After an instruction in a trial run.
void stop(const instruction *, wave &) {}

void run_off(const instruction * i, wave & w) { w.on->fault(i, w, "the code ends here without s_endpgm or a jump"); }

// ---- One function

class decoder {
  public:
    decoder(program & to, disassembler & reader, float_mode mode, u32 vgprs, const observer * looks,
            const architecture & arch, u32 ttmps, std::vector<const facts *> & known)
        : to(to), reader(reader), mode(mode), initial_flush(mode.flushes_f32), vgprs(int(vgprs)), looks(looks), arch(arch), ttmps(ttmps),
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
                    throw not_understood{"this is not an instruction of the GPU"};
                }
                add_observed(parse_instructions(read.text));
            } catch (const not_understood & problem) {
                steps.resize(first);
                instruction & made = add(refuse_to_run);
                made.extra = kept(reason{problem.why + ", " + (read.text.empty() ? "unknown code" : read.text)});
            }
            at = behind;
        }
        restore_mode(to.end);
        number = to.first_number + u32(to.offsets.size());
        to.offsets.push_back(u32(to.end - to.begin));
        to.entries.push_back(u32(steps.size()));
        add(run_off);
        if (looks != nullptr && looks->follows_values() && !touches_any) {
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
    bool initial_flush;
    std::vector<std::pair<const std::byte *, const std::byte *>> changed; // code in which the mode is another one
    int vgprs;
    const observer * looks; // null: no checks
    const architecture & arch;
    u32 ttmps; // see library
    std::vector<const facts *> & all_known; // by number, if facts are kept
    const std::byte * here = nullptr;
    const std::byte * behind = nullptr;
    u32 number = 0;
    std::vector<instruction> steps;
    std::vector<u64> constants;
    std::unordered_map<u64, i32> constant_places;
    std::vector<std::pair<size_t, const std::byte *>> jumps; // step, target
    // Instructions that are also run separately (facts::alone), and their steps.
    std::vector<std::pair<facts *, std::vector<instruction>>> alone;
    std::vector<std::pair<facts *, size_t>> alone_at;
    register_set touched;
    bool touches_any = false; // it calls functions, or uses register indices in M0

    // Objects that live as long as the process: a few bytes per unusual instruction.
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

    // s_denorm_mode. The compiler puts it before and after the steps of a division, without a jump in between. So the mode
    // of each instruction is known when it is decoded; code where that is not so is refused.
    void change_mode() {
        u16 wanted;
        std::memcpy(&wanted, here, sizeof(wanted));
        const int of_f32 = wanted & 3, of_others = wanted >> 2; // RDNA3 and RDNA4 ISA guides, "MODE register", FP_DENORM
        if ((of_f32 != 0 && of_f32 != 3) || of_others != 3) {
            throw not_understood{"it sets a denormal mode that is not emulated"};
        }
        restore_mode(here);
        mode.flushes_f32 = of_f32 == 0;
        if (mode.flushes_f32 != initial_flush) {
            changed.emplace_back(behind, to.end);
        }
    }

    // Ends a changed mode at an address.
    void restore_mode(const std::byte * at) {
        if (mode.flushes_f32 != initial_flush) {
            changed.back().second = at;
            mode.flushes_f32 = initial_flush;
        }
    }

    bool is_changed_at(const std::byte * at) const {
        return std::any_of(changed.begin(), changed.end(), [at](const auto & one) { return one.first <= at && at < one.second; });
    }

    operand constant(u64 value) {
        const auto [found, is_new] = constant_places.emplace(value, i32(constants.size()));
        if (is_new) {
            constants.push_back(value);
        }
        // The offset from the instruction is filled in at the end.
        return {found->second << 3 | operand::constant};
    }

    operand register_operand(const registers & r, bool is_written) const {
        operand made;
        if (r.is_vector) {
            if (r.first + r.count > vgprs) {
                throw not_understood{"it uses a VGPR that the kernel does not have"};
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

    // A kernel may read the trap registers that the GPU initialises for it. Only a trap handler can write them.
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

    operand to_operand(const parsed_operand & o) const {
        if (o.named.size() != 1) {
            throw not_understood{"the destination " + o.text + " is not emulated"};
        }
        return register_operand(o.named[0], true);
    }

    // Decodes source `n`, and sets its sign modifiers.
    operand from_operand(instruction & made, const parsed_operand & o, int n, format form) {
        made.modifiers |= (o.is_negated ? modifier::neg_0 << n : 0) | (o.is_absolute ? modifier::abs_0 << n : 0);
        if (const auto value = parse_constant(o.text, form)) {
            return constant(*value);
        }
        if (o.text == "src_scc") {
            throw not_understood{"SCC as a source is not emulated"};
        }
        if (o.text == "null") {
            return constant(0);
        }
        if (o.named.size() != 1) {
            throw not_understood{"the source " + o.text + " is not emulated"};
        }
        return register_operand(o.named[0], false);
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

    // A source of a mixed instruction that is f16 takes inline constants as f16, in the low half (LLVM PR 183487).
    static format format_of_source(const statement & s, const definition & d, size_t n) {
        const bool is_half = d.is(trait::mixes) && (bit_list(s, "op_sel_hi", 0) >> n & 1) != 0;
        return is_half ? format::f16 : d.from[n];
    }

    static bool is_16(format form) { return form == format::b16 || form == format::f16 || form == format::bf16; }
    static bool is_pairs(format form) {
        return form == format::int_pairs || form == format::half_pairs || form == format::bf16_pairs;
    }

    void set_modifiers(instruction & made, const statement & s, const definition & d) {
        if (s.has("clamp")) {
            made.modifiers |= modifier::clamp;
        }
        // Output modifiers have no effect in IEEE mode, or if denormals are enabled.
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

    // 16-bit operands other than VGPRs encode their half only in op_sel.
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

    // A line with the observing steps around it.
    void add_observed(const std::vector<parsed_instruction> & parts) {
        if (looks == nullptr) {
            add_line(parts);
            return;
        }
        facts known = facts_of(parts, here, arch);
        known.acquires = known.where != space::none && !known.is_store && is_followed_by_invalidation();
        touched.join(known.touched);
        touches_any |= known.is_jump || known.is_moved;
        const handler before = looks->before(known), after = looks->behind(known);
        facts * kept_facts = nullptr;
        if (before != nullptr || looks->keeps_facts()) {
            kept_facts = new facts(known); // never freed, as above
            all_known.resize(number + 1);
            all_known.back() = kept_facts;
        }
        const bool is_buffer = parts[0].row != nullptr && parts[0].row->memory.by == route::buffer && known.where == space::global;
        if (is_buffer) {
            add_buffer_place(parts[0]);
        }
        if (before != nullptr) {
            instruction & made = add(before);
            made.extra = kept_facts;
            made.immediate = looks->at_hand(known);
        }
        const size_t first = steps.size();
        if (is_buffer) {
            add_buffer_access(parts[0]);
        } else {
            add_line(parts);
        }
        if (before != nullptr && looks->tries(known)) {
            kept_facts->alone_steps = int(steps.size() - first);
            alone.emplace_back(kept_facts, std::vector(steps.begin() + i64(first), steps.end()));
        }
        if (after != nullptr) {
            add(after).extra = kept_facts;
        }
        if (is_buffer) {
            add(end_buffer);
        }
    }

    // For observers, a buffer instruction becomes three steps: the addresses of the lanes in its range, the same access to
    // global memory, and the end. So observers need not know descriptors.
    void add_buffer_place(const parsed_instruction & p) {
        add_memory(p);
        instruction & made = steps.back();
        const memory_form & form = p.row->memory;
        made.run = place_buffer;
        made.to[1] = made.to[0]; // lanes out of range load 0
        made.to[0] = extra_registers();
        made.extra = kept(buffer_form{form.size, form.part});
    }

    void add_buffer_access(const parsed_instruction & p) {
        add_memory(p);
        instruction & made = steps.back();
        made.run = find_definition("global_" + p.name.substr(p.name.find('_') + 1))->run; // made for both, see memory.cpp
        made.from[role::address] = extra_registers();
        made.from[role::base] = made.from[role::more_data] = {};
        made.immediate = 0;
    }

    operand extra_registers() const { return {offset_of_vgpr(vgprs) << 3 | operand::vector}; }

    // Whether a cache invalidation follows this instruction with only waits in between: an acquire load.
    bool is_followed_by_invalidation() {
        constexpr int most_waits = 4;
        const std::byte * at = behind;
        for (int n = 0; n < most_waits && at < to.end; ++n) {
            const line read = reader.one({at, size_t(to.end - at)}, u64(at));
            const definition * row = parse_instructions(read.text)[0].row;
            if (row == nullptr || !row->is(trait::is_fence | trait::only_waits)) {
                return false;
            }
            if (row->is(trait::is_fence)) {
                return true;
            }
            at += read.size;
        }
        return false;
    }

    void add_line(const std::vector<parsed_instruction> & parts) {
        if (parts.size() == 1) {
            add_instruction(parts[0]);
            return;
        }
        const size_t first = steps.size();
        add_instruction(parts[0]);
        const size_t second = steps.size();
        add_instruction(parts[1]);
        if (second != first + 1 || steps.size() != first + 2) {
            throw not_understood{"a dual-issue (VOPD) instruction of this form is not emulated"};
        }
        // Both halves read their sources before either writes.
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
        // If each reads what the other writes, the first result goes to a spare register.
        const operand wanted = steps[first].to[0], spare{offset_of_vgpr(vgprs) << 3 | operand::vector};
        steps[first].to[0] = spare;
        instruction & made = add(move_spare);
        made.to[0] = wanted;
        made.from[0] = spare;
    }

    void add_instruction(const parsed_instruction & p) {
        if (p.row == nullptr) {
            const std::string_view reason = why_left_out(p.name);
            throw not_understood{"this instruction is not emulated" + (reason.empty() ? "" : " (" + std::string(reason) + ")")};
        }
        const definition & d = *p.row;
        if (p.name == "s_denorm_mode") {
            change_mode();
            return;
        }
        if (d.is(trait::branches | trait::jumps) && mode.flushes_f32 != initial_flush) {
            throw not_understood{"a jump after s_denorm_mode is not emulated"};
        }
        if (d.run == nullptr) {
            return; // nothing to execute
        }
        if (d.goes_to_memory()) {
            add_memory(p);
        } else if (d.is(trait::branches)) {
            instruction & made = add(d.run);
            if (!d.to.empty()) {
                made.to[0] = to_operand(p.operands.at(0));
            }
            i16 distance;
            std::memcpy(&distance, here, sizeof(distance));
            jumps.emplace_back(steps.size() - 1, behind + 4 * i64(distance));
        } else if (d.to.empty() && d.from.empty()) {
            instruction & made = add(d.run);
            i16 value;
            std::memcpy(&value, here, sizeof(value));
            made.immediate = value;
        } else if (p.name == "s_getreg_b32" || p.name == "s_sendmsg_rtn_b64") {
            add_clock(p);
        } else {
            add_computation(p);
        }
    }

    // Of the hardware registers, and of messages with a reply, those that return the time.
    void add_clock(const parsed_instruction & p) {
        if (p.operands.size() != 2) {
            throw not_understood{"its operands are not as expected"};
        }
        instruction made = add(p.row->run);
        steps.pop_back();
        made.to[0] = to_operand(p.operands[0]);
        const std::string & what = p.operands[1].text;
        made.immediate = p.name == "s_getreg_b32" ? clock_bits(what) : 0;
        if (made.immediate == 0 && what != "sendmsg(MSG_RTN_GET_REALTIME)") {
            throw not_understood{"of the values that it can request, only the clock is emulated"};
        }
        steps.push_back(made);
    }

    // See read_clock_bits. 0 if the text names another register.
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
            const auto offset = parse_number(rest.substr(2, comma - 2));
            const auto count = parse_number(rest.substr(comma + 2, rest.size() - comma - 3));
            if (offset && count && *offset >= 0 && *count > 0 && *offset + *count <= 32) {
                return (first + *offset) | *count << 8;
            }
        }
        return 0;
    }

    void add_computation(const parsed_instruction & p) {
        const definition & d = *p.row;
        const auto * dpp = p.text.lane_pattern();
        if (dpp != nullptr) {
            add(fetch_by_pattern).extra = kept(pattern_of(p.text, *dpp));
        }
        const size_t fetch = steps.size() - 1;
        instruction made = add(d.run);
        steps.pop_back();
        size_t next = 0;
        const auto take = [&]() -> const parsed_operand & {
            if (next >= p.operands.size()) {
                throw not_understood{"it has fewer operands than expected"};
            }
            return p.operands[next++];
        };
        for (size_t n = 0; n < d.to.size(); ++n) {
            made.to[n] = to_operand(take());
        }
        const bool accumulates = d.is(trait::accumulates), reads_vcc = d.is(trait::reads_vcc);
        const size_t written = d.from.size() - (accumulates ? 1 : 0) - (reads_vcc ? 1 : 0);
        for (size_t n = 0; n < written; ++n) {
            // A dual-issue v_cndmask does not print its VCC operand.
            if (d.from[n] == format::lanes && next >= p.operands.size()) {
                made.from[n] = register_operand({false, slot::vcc, 1}, false);
                continue;
            }
            made.from[n] = from_operand(made, take(), int(n), format_of_source(p.text, d, n));
        }
        if (accumulates) {
            made.from[written] = made.to[0];
        } else if (reads_vcc) {
            made.from[written] = register_operand({false, slot::vcc, 1}, false);
        }
        if (next != p.operands.size()) {
            throw not_understood{"it has more operands than expected"};
        }
        set_modifiers(made, p.text, d);
        pick_halves(made, d);
        if (const std::string * byte = p.text.modifier("byte_sel")) {
            made.immediate = std::strtol(byte->c_str(), nullptr, 10);
        }
        if (d.is(trait::of_wave)) {
            made.modifiers &= modifier::flush_f32 | modifier::ieee; // scalar instructions only have the kernel's modes
        }
        if (d.is(trait::short_constant | trait::unsigned_constant)) {
            const u64 value = *parse_constant(p.operands.back().text, format::scalar);
            made.from[written - 1] = constant(d.is(trait::unsigned_constant) ? value & 0xffff : u64(i64(i16(value))));
        }
        if (d.is(trait::is_matrix)) {
            made.immediate = p.operands[1].named.at(0).count;
        }
        if (d.is(trait::moves_source | trait::moves_target)) {
            made.immediate = registers_beyond(p);
        }
        if (dpp != nullptr) {
            const operand spare{offset_of_vgpr(vgprs) << 3 | operand::vector};
            if (!made.from[0].is(operand::vector)) {
                throw not_understood{"DPP on a source that is not a VGPR"};
            }
            steps[fetch].from[0] = {made.from[0].code & ~operand::high};
            steps[fetch].to[0] = spare;
            made.from[0] = {spare.code | (made.from[0].code & operand::high)};
        }
        steps.push_back(made);
        // Lanes disabled by DPP have no bit in the result, like inactive ones. An instruction without result is v_cmpx,
        // which writes EXEC.
        if (dpp != nullptr && !d.to.empty()) {
            add(restore_exec);
        }
    }

    // For register indices in M0: the number of registers after the named one. The value for the destination is above
    // bit 16 if both are indexed.
    i64 registers_beyond(const parsed_instruction & p) const {
        const definition & d = *p.row;
        const auto beyond = [&](size_t n) -> i64 {
            const bool is_of_wave = d.is(trait::of_wave);
            const std::vector<registers> & named = p.operands[n].named;
            if (named.empty() || named[0].is_vector == is_of_wave) {
                return 0;
            }
            const int words = d.to[0] == format::scalar_64 ? 2 : 1;
            return is_of_wave ? std::max(slot::vcc - words - named[0].first, 0) : vgprs - 1 - named[0].first;
        };
        if (d.is(trait::moves_source) && d.is(trait::moves_target)) {
            return beyond(1) | beyond(0) << 16;
        }
        return beyond(d.is(trait::moves_target) ? 0 : 1);
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

    operand optional_from(const parsed_operand & o) {
        if (o.text == "off") {
            return {};
        }
        if (o.named.size() != 1) {
            throw not_understood{"the operand " + o.text + " is not emulated"};
        }
        return register_operand(o.named[0], false);
    }

    // Registers with one value each: v[3:4], v3, or [v3, v[5:6]].
    std::vector<operand> one_by_one(const parsed_operand & o) {
        std::vector<operand> all;
        for (const registers & part : o.named) {
            if (!part.is_vector) {
                throw not_understood{"the operand " + o.text + " is not emulated"};
            }
            for (int n = 0; n < part.count; ++n) {
                all.push_back(register_operand({true, part.first + n, 1}, false));
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

    // See images.cpp.
    void add_image(const parsed_instruction & p) {
        const statement & s = p.text;
        const bool is_buffer = p.row->memory.by == route::buffer;
        const auto unusual = [&s](const char * modifier) { return s.has(modifier); };
        constexpr const char * modifiers[] = {"d16", "a16", "tfe", "lwe", "offen", "offset"};
        if (std::any_of(std::begin(modifiers), std::end(modifiers), unusual) || (is_buffer && !s.has("idxen")) ||
            p.operands.size() < 3) {
            throw not_understood{"an image instruction of this form is not emulated"};
        }
        using what = image_access::what;
        image_access how;
        how.does = p.row->memory.does == action::store   ? what::store
                   : !p.row->memory.is_sample            ? what::load
                   : p.name.starts_with("image_gather4") ? what::gather
                                                         : what::sample;
        if (is_buffer) {
            how.channels = (1u << p.name.substr(p.name.rfind('_') + 1).size()) - 1;
        } else {
            std::tie(how.dimensions, how.has_layer) = dimensions_of(s);
            how.channels = s.has("dmask") ? u32(offset_of(s, "dmask")) & 15 : 1;
        }
        const std::vector<operand> address = one_by_one(p.operands[1]), data = one_by_one(p.operands[0]);
        // Derivatives precede the coordinates, two per dimension; they are ignored, because images have a single level
        // here.
        const size_t before = p.name == "image_sample_d"       ? size_t(2 * how.dimensions)
                              : p.name == "image_sample_d_g16" ? size_t(how.dimensions == 3 ? 4 : 2)
                                                               : 0;
        const size_t wanted = size_t(how.dimensions + int(how.has_layer));
        const size_t moved = how.does == what::gather ? 4 : size_t(std::popcount(how.channels));
        if (address.size() < before + wanted || data.size() < moved || how.channels == 0) {
            throw not_understood{"its operands are not as expected"};
        }
        std::copy_n(address.begin() + i64(before), wanted, how.coordinates.begin());
        how.data = data[0];
        const std::vector<registers> & description = p.operands[2].named;
        if (description.size() != 1 || description[0].is_vector || description[0].count < (is_buffer ? 4 : 8)) {
            throw not_understood{"its operands are not as expected"};
        }
        how.description = register_operand(description[0], false);
        add(p.row->run).extra = kept(how);
    }

    // See access.hpp for the roles of operands.
    void add_memory(const parsed_instruction & p) {
        const statement & s = p.text;
        const memory_form & form = p.row->memory;
        if (s.has("gds") || s.has("lds")) {
            throw not_understood{"GDS and loads straight to LDS are not emulated"};
        }
        if (form.size == 0) { // the size follows from the descriptor and channels
            add_image(p);
            return;
        }
        if (!p.has_expected_operands || (form.by == route::buffer && s.has("tfe"))) {
            throw not_understood{"its operands are not as expected"};
        }
        instruction made = add(p.row->run);
        steps.pop_back();
        made.immediate = offset_of(s, "offset");
        if (form.by == route::buffer) {
            made.immediate |= (s.has("idxen") ? buffer_index : 0) | (s.has("offen") ? buffer_offset : 0);
        }
        if (form.by == route::lds || form.by == route::between_lanes) {
            made.immediate |= offset_of(s, "offset0") | (offset_of(s, "offset1") << 8);
        }
        for (const parsed_operand & o : p.operands) {
            switch (o.role) {
                case operand_role::source: break;
                case operand_role::result: made.to[0] = to_operand(o); break;
                case operand_role::data: made.from[role::data] = optional_from(o); break;
                case operand_role::result_and_data:
                    made.to[0] = to_operand(o);
                    made.from[role::data] = optional_from(o);
                    break;
                case operand_role::address: made.from[role::address] = optional_from(o); break;
                case operand_role::base: made.from[role::base] = optional_from(o); break;
                case operand_role::more_data: made.from[role::more_data] = optional_from(o); break;
                case operand_role::offset: add_offset(made, o, form.by); break;
            }
        }
        if (p.name == "ds_swizzle_b32") {
            u16 pattern;
            std::memcpy(&pattern, here, sizeof(pattern));
            made.extra = kept(swizzle_sources(pattern));
        }
        steps.push_back(made);
    }

    // The offset added to the address of all lanes.
    void add_offset(instruction & made, const parsed_operand & o, route by) {
        if (by == route::buffer) {
            if (o.text != "0" && o.text != "null") {
                made.from[role::more_data] = from_operand(made, o, role::more_data, format::scalar);
            }
        } else if (const auto value = parse_constant(o.text, format::scalar_64)) {
            made.immediate += i64(*value);
        } else if (o.text != "null") {
            made.from[role::data] = optional_from(o);
        }
    }

    // Copies constants and steps into one block of memory, so that their distance fits into the operand encoding.
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
            if (is_inside && is_changed_at(target)) {
                to.steps[step].run = refuse_to_run;
                to.steps[step].extra = kept(reason{"it jumps to code after an s_denorm_mode, which is not emulated"});
            } else if (is_inside) {
                to.steps[step].target = to.steps + to.entries[size_t(found - to.offsets.begin())];
            } else {
                to.steps[step].run = refuse_to_run;
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
        throw kernel_fault("there is no code at the address to execute");
    }
    auto made = std::make_unique<program>();
    made->name = where->name;
    made->begin = where->begin;
    made->end = where->end;
    made->first_number = next_number;
    decoder(*made, reader, mode, vgprs, looks, arch, ttmps, known).decode();
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

std::string why_refused(disassembler & reader, std::span<const std::byte> code, const architecture & arch) {
    constexpr u32 most_vgprs = 256;
    library own(reader, most_vgprs, arch);
    const program & made = own.at(code.data(), {false, false}, library::extent{"", code.data(), code.data() + code.size()});
    const instruction & first = made.steps[made.entries[0]];
    const bool is_refused = first.run == refuse_to_run && made.entries[0] != made.entries.back();
    const std::string why = is_refused ? static_cast<const reason *>(first.extra)->text : "";
    return why.starts_with("the branch leaves") ? "" : why; // a single instruction has no function
}

bool has_tolerance(std::string_view name) {
    const definition * found = find_definition(base_name(name));
    return found != nullptr && (found->traits & trait::has_tolerance) != 0;
}

} // namespace patchkit::gpu
