#include "facts.hpp"

#include <algorithm>
#include <cstring>

namespace patchkit::gpu {

namespace {

void add_registers(register_set & to, const registers & r, into part) {
    if (!r.is_vector && r.first == slot::null) { // written in pairs, followed by M0
        return;
    }
    for (int n = r.first; n < r.first + r.count; ++n) {
        if (!r.is_vector) {
            if (n < slot::null || n == slot::m0 || n == slot::exec) {
                to.add_slot(n);
            }
            continue;
        }
        if (r.is_half ? !r.is_high : part != into::high) {
            to.add_half(n, false);
        }
        if (r.is_half ? r.is_high : part != into::low) {
            to.add_half(n, true);
        }
    }
}

void add_operand(register_set & to, const parsed_operand & o, into part = into::whole) {
    for (const registers & one : o.named) {
        add_registers(to, one, part);
    }
}

// Typed and scalar buffers, counters, and addresses from M0 or the lane's number: only what is read and written counts;
// the access itself checks the address.
space space_of(route by, u32 size) {
    switch (by) {
        case route::global: return space::global;
        case route::buffer: return size != 0 ? space::global : space::none; // program.cpp gives it addresses
        case route::flat: return space::flat;
        case route::scratch: return space::scratch;
        case route::lds: return space::lds;
        case route::scalar: return space::scalar;
        default: return space::none;
    }
}

u8 queues_of(route by, bool gives) {
    switch (by) {
        case route::lds:
        case route::between_lanes:
        case route::lds_by_m0: return queue::lds;
        case route::scalar:
        case route::scalar_buffer: return queue::scalar;
        case route::flat: return (gives ? queue::vector_load : queue::vector_store) | queue::lds;
        default: return gives ? queue::vector_load : queue::vector_store;
    }
}

// RDNA3 has no scopes: with GLC, loads miss in L0 and L1; atomics always reach L2.
scope reach_of(const statement & s, const memory_form & form, const architecture & arch) {
    if (!arch.has_scopes) {
        return form.does == action::atomic || s.has("glc") ? scope::device : scope::cu;
    }
    const std::string * named = s.modifier("scope");
    return named == nullptr ? scope::cu : *named == "SCOPE_SE" ? scope::array : scope::device;
}

void add_invalidations(facts & to, const parsed_instruction & p, const architecture & arch) {
    const bool is_by_scope = p.row->is(trait::invalidates_by_scope);
    const scope reach = is_by_scope ? reach_of(p.text, p.row->memory, arch) : scope::cu;
    to.invalidates_l0 |= p.row->is(trait::invalidates_l0) || reach != scope::cu;
    to.invalidates_l1 |= p.row->is(trait::invalidates_l1) || reach == scope::device;
    to.invalidates_scalar |= p.row->is(trait::invalidates_scalar);
}

void add_memory_facts(facts & to, const parsed_instruction & p, const architecture & arch) {
    const memory_form & form = p.row->memory;
    const bool is_store = form.does == action::store, gives = p.gives();
    const bool has_part = form.part != into::whole;
    to.queues = form.is_sample && arch.has_sample_counter ? u8(0) : queues_of(form.by, gives);
    to.where = space_of(form.by, form.size);
    to.reach = reach_of(p.text, form, arch);
    const bool is_described = to.where == space::none && form.by != route::between_lanes;
    if (is_described) {
        to.is_given = true; // must not be tried with other values, because it changes memory
        to.is_unseen_store = form.does != action::load && form.by != route::lds_by_m0;
    } else {
        to.size = form.size;
        to.accesses = form.accesses;
        to.unit = form.unit;
        to.is_atomic = form.does == action::atomic;
        to.is_store = form.does != action::load;
        to.is_exchange = form.is_exchange;
        to.is_high = is_store && form.part == into::high;
        to.is_flag = !to.is_store && (p.text.has("glc") || p.text.has("scope"));
        to.is_signed = form.is_signed;
        to.moves_bits = true; // between lanes
        to.filled = has_part && gives ? 2 : 0; // loads into a half keep the other half
        to.shift = form.part == into::high ? 16 : 0;
    }
    const into stored = is_store && form.size < 4 && !has_part ? into::low : form.part;
    for (const parsed_operand & o : p.operands) {
        if (o.is_written()) {
            add_operand(to.writes, o, form.part);
        }
        if (!o.is_read()) {
            continue;
        }
        const bool is_data = o.role == operand_role::data || o.role == operand_role::more_data ||
                             o.role == operand_role::result_and_data;
        add_operand(to.reads, o, is_data ? stored : into::whole);
        if (!is_data && !is_described) {
            add_operand(to.address, o);
        }
    }
}

void add_computation_facts(facts & to, const parsed_instruction & p) {
    const definition & d = *p.row;
    for (const parsed_operand & o : p.operands) {
        if (o.is_written() || d.is(trait::swaps)) {
            add_operand(to.writes, o);
        }
        if (o.is_read() || (d.is(trait::accumulates) && &o == p.operands.data())) {
            add_operand(to.reads, o);
        }
    }
    if (d.is(trait::reads_vcc)) {
        to.reads.add_slot(slot::vcc);
    }
    const bool is_relative = d.is(trait::moves_source | trait::moves_target);
    const bool crosses = d.is(trait::crosses_lanes) || p.text.lane_pattern() != nullptr;
    const auto is_16 = [](format f) { return f == format::b16 || f == format::f16 || f == format::bf16; };
    to.is_scalar = d.is(trait::of_wave);
    to.is_branch = d.is(trait::decides);
    to.is_jump = d.is(trait::jumps);
    to.is_given = d.is(trait::is_given);
    to.is_moved = is_relative && !to.is_scalar;
    to.moves_bits = d.is(trait::moves_bits);
    to.is_lanewise = !to.is_scalar && !crosses;
    to.is_whole = !crosses && !d.is(trait::may_keep) && std::none_of(d.to.begin(), d.to.end(), is_16);
    to.queues = d.queues;
}

std::vector<float_step> float_steps_of(const definition & d) {
    const bool is_mix = d.is(trait::mixes);
    if (d.to.empty() || d.is(trait::is_step) || (!is_mix && !is_float(d.to[0]))) {
        return {};
    }
    float_step made;
    made.run = d.run;
    made.is_mix = is_mix;
    made.first = d.is(trait::is_fixup) ? 1 : 0;
    made.to = d.is(trait::mixes_low | trait::mixes_high) ? format::f16 : d.to[0];
    made.is_high = d.is(trait::mixes_high);
    for (size_t n = 0; n < d.from.size() && n < made.from.size(); ++n) {
        made.from[n] = is_mix ? format::f32 : d.from[n];
        made.sources = int(n) + 1;
    }
    return {made};
}

// From SIMM16 of a scalar instruction.
void add_waits(facts & to, const std::vector<counter> & counters, const std::byte * code) {
    u16 immediate;
    std::memcpy(&immediate, code, sizeof(immediate));
    for (size_t n = 0; n < counters.size(); ++n) {
        const counter & one = counters[n];
        const u32 most = (1u << one.bits) - 1, left = immediate >> one.first & most;
        to.waits.at(n) = {one.bits != 0 && left == most ? u8(0) : one.queues, left};
    }
}

} // namespace

bool is_float(format f) {
    switch (f) {
        case format::f16:
        case format::bf16:
        case format::f32:
        case format::f64:
        case format::half_pairs:
        case format::whole_halves: return true;
        default: return false;
    }
}

facts facts_of(const std::vector<parsed_instruction> & parts, const std::byte * code, const architecture & arch) {
    facts result;
    // Both parts of a dual-issue instruction compute in the same way; properties of one apply to both.
    for (const parsed_instruction & one : parts) {
        if (one.row == nullptr) {
            continue;
        }
        if (one.row->goes_to_memory()) {
            add_memory_facts(result, one, arch);
        } else {
            add_computation_facts(result, one);
            add_waits(result, one.row->waits, code);
            const std::vector<float_step> floats = float_steps_of(*one.row);
            result.floats.insert(result.floats.end(), floats.begin(), floats.end());
        }
        add_invalidations(result, one, arch);
        result.is_fence |= one.row->is(trait::is_fence);
        result.is_barrier |= one.row->is(trait::is_barrier);
    }
    result.touched = result.reads;
    result.touched.join(result.writes);
    result.reads.each_vgpr([&](int n) { result.vgprs_read.push_back(u8(n)); });
    result.writes.each_vgpr([&](int n) { result.vgprs_written.push_back(u8(n)); });
    result.reads.each_slot([&](int n) { result.slots_read.push_back(u8(n)); });
    result.writes.each_slot([&](int n) { result.slots_written.push_back(u8(n)); });
    return result;
}

} // namespace patchkit::gpu
