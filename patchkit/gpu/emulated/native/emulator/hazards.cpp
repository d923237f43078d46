// Two hardware hazards, each searched on all paths of one function.
//
// Dual-issue (VOPD) after DPP (GFX11). According to LLVM's fix (pull request 220348), a dual-issue instruction whose
// halves both read an even, or both an odd VGPR as their first source (or both as their second) can miss the interlock
// with an instruction that is still writing one of these registers. On hardware it was seen after a DPP instruction
// (ROCm/aotriton issue 183): NaN in half of the runs; with 26 wait states in between all runs were correct, with 16
// not. So a finding is such a pair with a source written by a DPP instruction less than 26 wait states before, without
// a wait in between: any instruction that reads the register alone waits for it.
//
// A store that is not waited for before a barrier. The semantics of __syncthreads() require a wait for all stores
// before the barrier if the waves of a block can be on two CUs; code for that case invalidates caches right after the
// barrier. LLVM's pass si-insert-waitcnts (clang 22) omits the wait if it has not seen the store yet: in a loop whose
// only store is after the barrier. This matters if another wave of the block reads the stored value, which only a run
// can show.

#include "hazards.hpp"

#include "facts.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

namespace patchkit::gpu {

namespace {

constexpr u32 safe_wait_states = 26;
constexpr size_t behind_barrier = 6; // instructions after a barrier in which caches are invalidated

struct item {
    u32 offset = 0;
    std::string text;
    facts known;
    bool is_pair = false, has_dpp = false, waits_for_results = false;
    bool invalidates = false, skips_between = false;
    u32 wait_states = 1;
    std::optional<u32> target; // of a branch
    bool falls_through = true;
    std::array<std::vector<int>, 2> sources; // VGPRs of a dual-issue instruction in its first and its second source position
};

// Registers written by DPP instructions: the number of wait states since, and the instruction.
struct written {
    u32 ago;
    size_t by;
    bool operator==(const written &) const = default;
};
using fresh_registers = std::map<int, written>;

struct reader_of_function {
    disassembler & reader;
    std::span<const std::byte> code;
    const architecture & arch;

    std::vector<item> items() {
        std::vector<item> result;
        for (size_t at = 0; at + 4 <= code.size();) {
            const line read = reader.one(code.subspan(at), at);
            if (!read.text.empty()) {
                result.push_back(item_of(read.text, u32(at), read.size));
            }
            at += read.size;
        }
        return result;
    }

  private:
    item item_of(const std::string & text, u32 offset, u32 size) {
        item made;
        made.offset = offset;
        made.text = text;
        const std::vector<parsed_instruction> parts = parse_instructions(text);
        for (const parsed_instruction & one : parts) {
            made.has_dpp |= one.text.lane_pattern() != nullptr;
        }
        const std::byte * here = code.data() + offset;
        made.known = facts_of(parts, here, arch);
        made.is_pair = parts.size() == 2;
        if (made.is_pair) {
            add_sources(made, parts);
        }
        const definition * row = parts[0].row;
        const auto is = [row](u32 trait) { return row != nullptr && row->is(trait); };
        made.invalidates = made.known.is_fence;
        made.skips_between = is(trait::only_waits);
        made.falls_through = !is(trait::ends);
        i16 immediate;
        std::memcpy(&immediate, here, sizeof(immediate));
        const std::string & name = parts[0].name;
        if (name == "s_nop") {
            made.wait_states = 1 + u32(immediate & 15);
        }
        if (is(trait::branches) && row->to.empty()) {
            made.target = u32(i64(offset) + size + 4 * i64(immediate));
        }
        // VA_VDST is the upper 4 bits (RDNA3 ISA guide, S_WAITCNT_DEPCTR): 0 waits for all results.
        made.waits_for_results = (name == "s_waitcnt_depctr" || name == "s_wait_alu") && (immediate >> 12 & 15) == 0;
        return made;
    }

    // v_dual_fmac_f32 v0, v1, v2: the destination, then the two sources. A constant between them (fmamk) does not
    // count.
    static void add_sources(item & made, const std::vector<parsed_instruction> & parts) {
        for (const parsed_instruction & one : parts) {
            size_t place = 0;
            for (size_t n = 1; n < one.operands.size() && place < 2; ++n) {
                const std::vector<registers> & named = one.operands[n].named;
                if (!named.empty() && named[0].is_vector) {
                    made.sources[place].push_back(named[0].first);
                } else if (n != 1) {
                    continue;
                }
                place += 1;
            }
        }
    }
};

// Registers read by both halves of a dual-issue instruction in one source position, if they differ and have the same
// parity.
std::vector<int> of_one_parity(const item & one) {
    std::vector<int> result;
    for (const std::vector<int> & place : one.sources) {
        if (place.size() == 2 && place[0] != place[1] && place[0] % 2 == place[1] % 2) {
            result.insert(result.end(), place.begin(), place.end());
        }
    }
    return result;
}

// Dataflow: runs `step(n, state)` on all paths until no state changes; `join(to, from)` returns whether `to` changed.
template <class State, class Step, class Join>
void over_all_paths(const std::vector<item> & items, const std::map<u32, size_t> & by_offset, Step step, Join join) {
    std::vector<std::optional<State>> before(items.size());
    std::deque<size_t> waiting;
    const auto reach = [&](size_t n, const State & state) {
        if (n >= items.size()) {
            return;
        }
        if (!before[n]) {
            before[n] = state;
        } else if (!join(*before[n], state)) {
            return;
        }
        waiting.push_back(n);
    };
    reach(0, State{});
    while (!waiting.empty()) {
        const size_t n = waiting.front();
        waiting.pop_front();
        State state = *before[n];
        step(n, state);
        const item & one = items[n];
        if (one.target) {
            if (const auto found = by_offset.find(*one.target); found != by_offset.end()) {
                reach(found->second, state);
            }
        }
        if (one.falls_through) {
            reach(n + 1, state);
        }
    }
}

class looker {
  public:
    looker(std::vector<item> all, bool has_dual_hazard) : items(std::move(all)) {
        for (size_t n = 0; n < items.size(); ++n) {
            by_offset.emplace(items[n].offset, n);
        }
        result.instructions = items.size();
        bool has_dpp = false;
        for (const item & one : items) {
            result.pairs += one.is_pair;
            result.same_parity += one.is_pair && !of_one_parity(one).empty();
            has_dpp |= one.has_dpp;
        }
        if (has_dual_hazard && has_dpp && result.same_parity != 0) {
            look_for_lost_interlocks();
        }
        if (std::any_of(items.begin(), items.end(), [](const item & one) { return one.known.is_barrier; })) {
            look_for_stores_at_barriers();
        }
    }

    function_look result;

  private:
    std::vector<item> items;
    std::map<u32, size_t> by_offset;

    spot spot_of(size_t n) const { return {items[n].offset, items[n].text}; }

    void look_for_lost_interlocks() {
        std::map<size_t, std::pair<int, written>> lost; // by dual-issue instruction
        over_all_paths<fresh_registers>(
            items, by_offset,
            [&](size_t n, fresh_registers & fresh) {
                const item & one = items[n];
                const std::vector<int> open = one.is_pair ? of_one_parity(one) : std::vector<int>();
                for (const int reg : open) {
                    if (const auto found = fresh.find(reg); found != fresh.end()) {
                        lost.emplace(n, std::pair(reg, found->second));
                    }
                }
                if (one.waits_for_results || one.known.is_jump) {
                    fresh.clear(); // a called function takes long enough
                }
                for (auto at = fresh.begin(); at != fresh.end();) {
                    at->second.ago += one.wait_states;
                    const bool is_open = std::find(open.begin(), open.end(), at->first) != open.end();
                    const bool waited = one.known.touched.holds_vgpr(at->first) && !is_open;
                    at = waited || at->second.ago > safe_wait_states ? fresh.erase(at) : std::next(at);
                }
                if (one.has_dpp) {
                    for (const u8 reg : one.known.vgprs_written) {
                        fresh[reg] = {1, n};
                    }
                }
            },
            [](fresh_registers & to, const fresh_registers & from) {
                bool changed = false;
                for (const auto & [reg, when] : from) {
                    const auto [found, is_new] = to.emplace(reg, when);
                    if (is_new || when.ago < found->second.ago) {
                        found->second = when;
                        changed = true;
                    }
                }
                return changed;
            });
        for (const auto & [n, what] : lost) {
            const u32 ago = what.second.ago;
            result.found.push_back({hazards::dual, spot_of(n), spot_of(what.second.by),
                                    "reads v" + std::to_string(what.first) + " " + std::to_string(ago) +
                                        (ago == 1 ? " wait state" : " wait states") +
                                        " after the DPP instruction that writes it, next to another register of the same "
                                        "parity"});
        }
    }

    bool promises_memory(size_t barrier) const {
        for (size_t n = barrier + 1; n < items.size() && n <= barrier + behind_barrier; ++n) {
            if (items[n].invalidates) {
                // This also invalidates for stores of other CUs, which is not block-level synchronisation.
                return items[n].text.find("gl1") == std::string::npos;
            }
            if (!items[n].skips_between) {
                return false;
            }
        }
        return false;
    }

    void look_for_stores_at_barriers() {
        struct under_way {
            std::optional<size_t> store; // a store that was not waited for
        };
        std::map<size_t, size_t> hanging;
        over_all_paths<under_way>(
            items, by_offset,
            [&](size_t n, under_way & state) {
                const facts & known = items[n].known;
                if (known.is_barrier && state.store && promises_memory(n)) {
                    hanging.emplace(n, *state.store);
                }
                for (const wait & one : known.waits) {
                    if ((one.queues & queue::vector_store) != 0 && one.left == 0) {
                        state.store.reset();
                    }
                }
                if (known.is_jump) {
                    state.store.reset(); // a called function may have waited
                }
                const bool is_seen = known.where == space::global || known.where == space::flat;
                if (is_seen && known.is_store && !known.is_atomic) {
                    state.store = n;
                }
            },
            [](under_way & to, const under_way & from) {
                if (to.store || !from.store) {
                    return false;
                }
                to = from;
                return true;
            });
        for (const auto & [barrier, store] : hanging) {
            result.found.push_back({hazards::barrier, spot_of(barrier), spot_of(store),
                                    "reaches a barrier without waiting for a store to memory"});
        }
    }
};

} // namespace

function_look look_at(disassembler & reader, std::span<const std::byte> code, const architecture & arch) {
    return looker(reader_of_function{reader, code, arch}.items(), arch.has_dual_hazard).result;
}

} // namespace patchkit::gpu
