#include "wgp.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <memory>
#include <queue>
#include <string_view>
#include <unordered_map>

namespace patchkit::timing {

namespace {

constexpr int simds = 4, cus = 2; // per WGP
constexpr double line_bytes = 128;
constexpr double l1_ways = 16; // AMD's RDNA white paper (2019)
constexpr uint64_t scratch_lines = uint64_t(1) << 49; // scratch addresses (emulator/recording.cpp)

// Execution units. Those per SIMD first, then per CU and per WGP.
enum class unit : uint8_t { valu, transcendental, scalar, none, lds, memory };

struct decoded {
    unit on = unit::none;
    bool is_wmma = false, is_barrier = false, is_end = false, has_access = false, waits = false;
    space where = space::none;
    double busy = 0, latency = 0;
    const instruction * from = nullptr;
};

bool holds(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// Unit and duration of an instruction, by LLVM's name.
decoded decode(const instruction & i, const machine & m) {
    decoded d;
    d.from = &i;
    d.where = i.where;
    d.waits = i.waits[0].queues != 0 || i.waits[1].queues != 0;
    const std::string_view text = i.text, name = text.substr(0, text.find(' '));
    if (i.where != space::none) {
        d.has_access = true;
        d.on = i.where == space::lds ? unit::lds : i.where == space::scalar ? unit::scalar : unit::memory;
        d.busy = i.where == space::scalar ? m.scalar : 0;
        return d;
    }
    if (name.starts_with("ds_")) { // bpermute, swizzle: use the banks without an address
        d.on = unit::lds;
        d.busy = m.lds_least;
        return d;
    }
    if (name.starts_with("v_")) {
        d.on = unit::valu;
        d.busy = m.valu;
        d.latency = m.valu_latency;
        if (name.starts_with("v_wmma") || name.starts_with("v_swmmac")) {
            d.is_wmma = true;
            d.busy = holds(name, "iu4") ? m.wmma_int4 : m.wmma;
            d.latency = m.wmma_latency - m.wmma + d.busy;
        } else if (name.starts_with("v_dual")) {
            d.busy = m.dual;
        } else if (name.starts_with("v_dot")) {
            d.busy = name.starts_with("v_dot2") ? m.valu : m.dot;
        } else if (holds(name, "_f64")) {
            d.busy = m.double_float;
        } else if (name.starts_with("v_mul_lo_u32") || name.starts_with("v_mul_hi") || name.starts_with("v_mad_u64") ||
                   name.starts_with("v_mad_i64") || name.starts_with("v_lshlrev_b64") || name.starts_with("v_lshrrev_b64") ||
                   name.starts_with("v_ashrrev_i64")) {
            d.busy = m.quarter;
        } else if (name.starts_with("v_exp") || name.starts_with("v_log") || name.starts_with("v_rcp") ||
                   name.starts_with("v_rsq") || name.starts_with("v_sqrt") || name.starts_with("v_sin") ||
                   name.starts_with("v_cos")) {
            d.on = unit::transcendental;
            d.busy = m.transcendental;
            d.latency = m.transcendental_latency;
        }
        return d;
    }
    d.is_end = name.starts_with("s_endpgm");
    d.is_barrier = name.starts_with("s_barrier") && !name.starts_with("s_barrier_wait");
    const bool is_hint = name.starts_with("s_delay_alu") || name.starts_with("s_wait") || name.starts_with("s_clause") ||
                         name.starts_with("s_nop") || name.starts_with("s_sendmsg") || name.starts_with("s_barrier") ||
                         name.starts_with("s_set") || name.starts_with("buffer_gl") || name.starts_with("global_inv") ||
                         name.starts_with("s_code_end") || d.is_end;
    if (!is_hint) {
        d.on = unit::scalar;
        d.busy = m.scalar;
        d.latency = m.scalar_latency;
    }
    return d;
}

// Instruction cache of a WGP: lines of 64 bytes, with prefetch of the following ones.
class code_cache {
  public:
    explicit code_cache(const machine & m)
        : m(m), ahead(uint64_t(std::clamp(m.code_ahead, 0.0, most_ahead))),
          sets(std::max<size_t>(1, size_t(m.code_bytes / line / ways))), held(sets * ways) {}

    // When the code at an offset is available.
    double fetch(uint64_t offset, double at) {
        const uint64_t first = offset / line;
        const double there = one(first, at);
        for (uint64_t n = 1; n <= ahead; ++n) {
            (void) one(first + n, at);
        }
        return there;
    }

    double busy = 0; // cycles
    static constexpr uint64_t line = 64;

  private:
    struct entry {
        uint64_t line = ~uint64_t(0);
        double there = 0;
    };
    static constexpr size_t ways = 4;
    static constexpr double most_ahead = 64; // limit, so that a file's value cannot cost more than time
    const machine & m;
    uint64_t ahead;
    size_t sets;
    std::vector<entry> held;
    double free = 0;

    double one(uint64_t wanted, double at) {
        entry * set = &held[wanted % sets * ways];
        for (size_t n = 0; n < ways; ++n) {
            if (set[n].line == wanted) {
                std::rotate(set, set + n, set + n + 1);
                return set[0].there;
            }
        }
        std::rotate(set, set + ways - 1, set + ways);
        free = std::max(free, at) + double(line) / m.code_bytes_per_cycle;
        busy += double(line) / m.code_bytes_per_cycle;
        set[0] = {wanted, std::max(free, at + m.code_latency)};
        return set[0].there;
    }
};

// LRU cache of lines with 64 ways. RDNA2 has four sets of 32 (amdgpu-userland's notes on its caches), RDNA3 twice the
// bytes. Adjacent lines are in adjacent sets, so rows a multiple of 512 bytes apart share one.
class cache {
  public:
    struct entry {
        uint64_t line = ~uint64_t(0);
        double there = 0; // time of arrival
    };

    explicit cache(double bytes) : sets(std::max<size_t>(1, size_t(bytes / line_bytes) / ways)), held(sets * ways) {}

    // A line's entry, and whether it was present; it is present afterwards.
    std::pair<entry &, bool> touch(uint64_t line) {
        entry * set = &held[line % sets * ways];
        for (size_t n = 0; n < ways; ++n) {
            if (set[n].line == line) {
                std::rotate(set, set + n, set + n + 1);
                return {set[0], true};
            }
        }
        std::rotate(set, set + ways - 1, set + ways);
        set[0] = {line, 0};
        return {set[0], false};
    }

  private:
    static constexpr size_t ways = 64;
    size_t sets;
    std::vector<entry> held;
};

// Maps some lines to numbers.
class line_numbers {
  public:
    // 0 if there is none.
    uint32_t of(uint64_t line) const {
        const slot & found = slots[place_of(line)];
        return found.line == line + 1 ? found.number : 0;
    }

    // The line must not have a number yet.
    void add(uint64_t line, uint32_t number) {
        if (2 * ++count > slots.size()) {
            std::vector<slot> old(slots.size() * 2);
            old.swap(slots);
            for (const slot & one : old) {
                if (one.line != 0) {
                    slots[place_of(one.line - 1)] = one;
                }
            }
        }
        slots[place_of(line)] = {line + 1, number};
    }

  private:
    struct slot {
        uint64_t line = 0; // line plus one
        uint32_t number = 0;
    };
    std::vector<slot> slots = std::vector<slot>(64);
    size_t count = 0;

    size_t place_of(uint64_t line) const {
        for (size_t n = (line + 1) * 0x9e3779b97f4a7c15 >> 20;; ++n) {
            const size_t at = n & (slots.size() - 1);
            if (slots[at].line == line + 1 || slots[at].line == 0) {
                return at;
            }
        }
    }
};

// An LRU cache shared by several WGPs, as seen by one of them, in parts (sets, or what belongs to a memory channel).
// The other WGPs are not simulated, but use as much of it. So a line has a weight: a line used only by this WGP counts
// as often as there are WGPs; one shared by some counts as often as there are others like it.
class shared_cache {
  public:
    // Adjacent `bytes_of_part` are in one part.
    shared_cache(double bytes, double how_many, double bytes_of_part)
        : lines_of_part(uint64_t(std::max(1.0, bytes_of_part / line_bytes))), parts(size_t(std::max(1.0, how_many))),
          most(bytes / line_bytes / double(parts.size())) {}

    struct entry {
        uint64_t name;
        double weight;
        double there; // time of arrival
    };

    // A line's entry, and whether it was present; it is present afterwards. `place`: its address; `name`: its identity.
    std::pair<entry &, bool> touch(uint64_t place, uint64_t name, double weight) {
        part & of = part_of(place);
        const auto [found, is_new] = of.known.try_emplace(name);
        if (!is_new) {
            of.order.splice(of.order.begin(), of.order, found->second);
            return {of.order.front(), true};
        }
        of.order.push_front({name, weight, 0});
        found->second = of.order.begin();
        of.used += weight;
        while (of.used > most && of.order.size() > 1) {
            of.used -= of.order.back().weight;
            of.known.erase(of.order.back().name);
            of.order.pop_back();
        }
        return {of.order.front(), false};
    }

    void forget(uint64_t place, uint64_t name) {
        part & of = part_of(place);
        if (const auto found = of.known.find(name); found != of.known.end()) {
            of.used -= found->second->weight;
            of.order.erase(found->second);
            of.known.erase(found);
        }
    }

  private:
    struct part {
        std::list<entry> order; // most recently used first
        std::unordered_map<uint64_t, std::list<entry>::iterator> known;
        double used = 0;
    };
    uint64_t lines_of_part;
    std::vector<part> parts;
    double most; // lines per part

    part & part_of(uint64_t place) { return parts[place / lines_of_part % parts.size()]; }
};

struct pending {
    uint32_t queue;
    double until;
};

struct running_block;

struct running_wave {
    running_block * of;
    const wave_trace * trace;
    size_t span = 0, access = 0;
    uint32_t at = 0; // instruction
    uint64_t age = 0; // smaller is older
    uint64_t line = ~uint64_t(0); // current line of code
    int simd = 0;
    double ready = 0; // earliest time to issue the next one, considering only this wave
    std::vector<pending> under_way;
    std::array<float, most_registers> registers{}; // time at which each has its value
};

struct running_block {
    uint64_t number; // in order of start
    std::vector<running_wave> waves;
    size_t ended = 0;
    std::vector<running_wave *> waiting;
};

// A path to memory shared by all WGPs. On average this WGP gets its share, but it can catch up on unused time at the
// speed of its own port, because the others do not use it at the same moment.
struct channel {
    static constexpr double port = 128;     // bytes per cycle of a WGP: 64 per CU (RDNA3 ISA guide)
    static constexpr double memory = 20000; // cycles of unused time that can be caught up
    double per_cycle; // share of this WGP
    double port_free = 0, owed = 0, busy = 0;

    double send(double at, double bytes) {
        if (per_cycle <= 0) {
            return at;
        }
        port_free = std::max(port_free, at) + bytes / port;
        owed = std::max(owed, at - memory) + bytes / per_cycle;
        busy += bytes / per_cycle;
        return std::max(port_free, owed);
    }
};

class simulation {
  public:
    simulation(const trace & of, const machine & m, const circumstances & in, uint64_t most)
        : of(of), m(m), most(most), cold(in.cold), count(std::max(1.0, std::ceil(double(of.count()) * in.working))),
          active(std::min<double>(m.wgps, count)), own(blocks_of_busiest(count, resident())),
          arrays(std::max(1.0, m.arrays)), channels(size_t(std::max(1.0, m.channels))),
          l0{cache(m.l0_bytes), cache(m.l0_bytes)}, constants(16384), instructions(m),
          l1(m.l1_bytes, m.l1_bytes / line_bytes / l1_ways, line_bytes), l2(m.l2_bytes, m.channels, m.channel_bytes),
          mall(m.mall_bytes, m.channels, m.channel_bytes), again(of.instructions.size()), owed_again(again.size()),
          l2_keeps(channels), mall_keeps(channels), free_mall(channels), free_dram(channels) {
        for (const instruction & one : of.instructions) {
            code.push_back(decode(one, m));
        }
        const double per_cycle = 1e3 / m.clock_mhz / active; // for one GB/s, for this WGP
        to_l1.per_cycle = m.l1_bytes_per_cycle / active;
        to_l2.per_cycle = m.l2_bytes_per_cycle / active;
        to_mall.per_cycle = m.mall_gb_s * per_cycle;
        to_dram.per_cycle = m.dram_gb_s * per_cycle;
        find_shared_lines(in.working);
        choose_blocks(in.working);
    }

    result run() {
        result r;
        r.blocks = uint64_t(count);
        r.resident = resident();
        const auto waves = double(of.blocks[0].size());
        const uint64_t at_once = std::min<uint64_t>(own, uint64_t(r.resident));
        r.waves_per_simd = double(at_once) * waves / simds;
        // Whole rounds, so that the end of the last one resembles the end of the launch.
        const double each = std::max(1.0, instructions_of_blocks() / double(played.size()));
        const uint64_t rounds = std::clamp<uint64_t>(uint64_t(double(most) / each / double(at_once)), 1, 4);
        wanted = std::min<uint64_t>(own, rounds * at_once);
        together = std::max<uint64_t>(1, at_once);
        for (uint64_t n = 0; n < at_once; ++n) {
            start(0);
        }
        drain();
        const double end = last;
        r.cycles = end;
        if (wanted < own) {
            // Additional time per block: from the first that ended to the last.
            std::sort(ends.begin(), ends.end());
            const size_t skip = ends.size() > at_once ? size_t(at_once) - 1 : 0;
            const double per_block = ends.size() > at_once
                                         ? (ends.back() - ends[skip]) / double(ends.size() - 1 - skip)
                                         : end / double(at_once);
            r.cycles += per_block * double(own - wanted);
        }
        r.simulated = wanted;
        const double scale = 1 / end;
        r.valu = (busy_valu - busy_wmma) * scale / simds;
        r.wmma = busy_wmma * scale / simds;
        r.scalar = busy_scalar * scale / simds;
        r.lds = busy_lds * scale;
        r.l0 = busy_l0 * scale / cus;
        r.l1 = to_l1.busy * scale;
        r.l2 = to_l2.busy * scale;
        r.mall = to_mall.busy * scale;
        r.dram = to_dram.busy * scale;
        r.code = instructions.busy * scale;
        const double of_all = double(r.blocks) / double(wanted);
        r.dram_bytes = bytes_dram * of_all;
        r.l1_request_bytes = bytes_l1 * of_all;
        r.channels = engaged * m.channels;
        r.instructions = each * double(r.blocks);
        return r;
    }

  private:
    const trace & of;
    const machine & m;
    const uint64_t most;
    const double cold;
    const double count; // blocks that have work
    const double active; // WGPs that have blocks
    const uint64_t own; // blocks of the busiest one
    const double arrays; // shader arrays
    const size_t channels; // memory channels
    std::vector<size_t> played; // sampled blocks to simulate
    std::vector<decoded> code;
    std::array<cache, cus> l0;
    cache constants;
    code_cache instructions;
    shared_cache l1, l2, mall;
    channel to_l1, to_l2, to_mall, to_dram;
    // For lines accessed by several of the seen blocks: the number of WGPs that access each.
    line_numbers sharers;
    double engaged = 1; // fraction of the memory channels in use
    uint64_t together = 1; // blocks that this WGP holds at a time
    double owed_l2 = 0, owed_mall = 0, owed_dram = 0, owed_cold = 0;
    // Per instruction, the fraction of its accesses that were also made in the previous round, averaged over all
    // rounds; and per channel, whether its parts of L2 and of the memory-side cache keep data that long.
    std::vector<double> again, owed_again;
    std::vector<bool> l2_keeps, mall_keeps;   // by channel
    std::vector<double> free_mall, free_dram; // the same
    std::array<std::array<double, 3>, simds> free_simd{}; // by unit
    double free_lds = 0;
    std::array<double, cus> free_memory{};
    double busy_valu = 0, busy_wmma = 0, busy_scalar = 0, busy_lds = 0, busy_l0 = 0, bytes_dram = 0, bytes_l1 = 0;
    double last = 0;
    uint64_t started = 0, wanted = 0;
    int next_simd = 0;
    uint64_t next_age = 0;
    std::vector<double> ends;
    std::vector<std::unique_ptr<running_block>> alive;

    // If several waves can issue, the oldest one does.
    using turn = std::pair<double, running_wave *>;
    struct later {
        bool operator()(const turn & a, const turn & b) const {
            return a.first > b.first || (a.first == b.first && a.second->age > b.second->age);
        }
    };
    std::priority_queue<turn, std::vector<turn>, later> turns;

    double cycles_of_ns(double ns) const { return ns * m.clock_mhz / 1e3; }

    double resident() const {
        const auto waves = double(of.blocks[0].size());
        const double vgprs = std::ceil(std::max(1u, of.vgprs) / m.vgpr_granule) * m.vgpr_granule;
        const double per_simd = std::min(m.waves_per_simd, std::floor(m.vgprs_per_simd / vgprs));
        double blocks = std::floor(per_simd * simds / waves);
        if (of.lds != 0) {
            constexpr double lds_granule = 1024;
            blocks = std::min(blocks, std::floor(m.lds_bytes / (std::ceil(of.lds / lds_granule) * lds_granule)));
        }
        constexpr double most_blocks = 32;
        return std::clamp(blocks, 1.0, most_blocks * 2);
    }

    // The first blocks are distributed evenly. Later ones go to the WGP that has room first, and a WGP whose blocks end
    // together takes several, especially if it holds few: the busiest one gets more than its share of the last round.
    uint64_t blocks_of_busiest(double blocks, double resident) const {
        const double at_once = m.wgps * resident, rounds = std::floor(blocks / at_once);
        if (rounds < 1) {
            return uint64_t(std::ceil(blocks / m.wgps));
        }
        const double left = blocks - rounds * at_once;
        return uint64_t(rounds * resident + std::min(resident, left == 0 ? 0 : std::ceil(left / m.wgps + m.leftover / resident)));
    }

    double instructions_of_blocks() const {
        double sum = 0;
        for (const size_t n : played) {
            sum += instructions_of(of.blocks[n]);
        }
        return sum;
    }

    static double instructions_of(const std::vector<wave_trace> & block) {
        double sum = 0;
        for (const wave_trace & one : block) {
            for (size_t n = 0; n < one.spans.size(); n += 2) {
                sum += one.spans[n + 1] - one.spans[n] + 1;
            }
        }
        return sum;
    }

    // If some blocks have no work: those with at most an eighth of the longest one's instructions.
    void choose_blocks(double working) {
        double longest = 0;
        for (const auto & block : of.blocks) {
            longest = std::max(longest, instructions_of(block));
        }
        for (size_t n = 0; n < of.blocks.size(); ++n) {
            if (working >= 1 || instructions_of(of.blocks[n]) > longest / 8) {
                played.push_back(n);
            }
        }
        if (played.empty()) {
            throw bad_trace("no block executes anything");
        }
    }

    void find_shared_lines(double working) {
        // Lines, with the WGP of a block that accesses them in the last bits: blocks are assigned round-robin.
        constexpr int wgp_bits = 10;
        std::vector<uint64_t> all;
        const auto held = std::min(of.seen.size(), size_t(resident() * m.wgps));
        for (size_t n = 0; n < held; ++n) {
            for (const uint64_t line : of.seen[n]) {
                if (line < scratch_lines) { // blocks that ran in sequence use the same scratch addresses, but share nothing
                    all.push_back(line << wgp_bits | n % size_t(active));
                }
            }
        }
        std::sort(all.begin(), all.end());
        std::vector<double> borne(size_t(std::min(active, double(1 << wgp_bits)))); // lines, by WGP
        // Each memory channel, and its part of L2, has only its own share of the bandwidth.
        std::vector<double> asked(channels), far(channels);
        std::vector<uint64_t> lines;
        for (size_t n = 0; n < all.size();) {
            const uint64_t line = all[n] >> wgp_bits;
            size_t end = n + 1;
            uint32_t wgps = 1;
            for (; end < all.size() && all[end] >> wgp_bits == line; ++end) {
                wgps += all[end] != all[end - 1];
            }
            if (end - n > 1) {
                sharers.add(line, wgps);
            }
            const size_t channel = channel_of(line);
            asked[channel] += std::min(double(wgps), arrays);
            far[channel] += 1;
            lines.push_back(line);
            for (size_t k = n; k < end; ++k) {
                borne[all[k] % (uint64_t(1) << wgp_bits)] += k == n || all[k] != all[k - 1] ? 1 / double(wgps) : 0;
            }
            n = end;
        }
        engaged = part_of_channels(far);
        to_l2.per_cycle *= part_of_channels(asked);
        to_mall.per_cycle *= engaged;
        // Attention whose blocks process one head after the other accesses half of each page
        // (docs/records/timing-model.md). From three quarters on, pages count as whole: a grid slightly larger than the
        // GPU does not access fragments.
        const double whole = std::clamp(4 * part_of_pages(lines) - 2, 0.0, 1.0);
        to_dram.per_cycle *= engaged * (m.dram_pieces_gb_s / m.dram_gb_s * (1 - whole) + whole);
        // Blocks that access more memory than others get a larger share of it, because the others finish earlier; so
        // does a WGP with more blocks than the average.
        const double want = (working < 1 ? 1 : std::min(part_of_mean(borne, held), active)) * double(own) / (count / active);
        to_mall.per_cycle *= want;
        to_dram.per_cycle *= want;
        find_what_comes_again(far);
    }

    // Memory demand of a block of the sampled WGPs, relative to the average of all `held` blocks.
    double part_of_mean(const std::vector<double> & borne, size_t held) const {
        double sum = 0, own = 0;
        for (const double one : borne) {
            sum += one;
        }
        for (const uint64_t number : of.sampled) {
            const size_t wgp = number % borne.size();
            own += borne[wgp] / std::ceil((double(held) - double(wgp)) / double(borne.size()));
        }
        return own > 0 && std::isfinite(own) ? own / double(of.sampled.size()) / sum * double(held) : 1;
    }

    // `lines`: per channel, those accessed by the blocks of a round. From blocks after the first round it is known
    // which fraction `old` of an instruction's accesses in the whole launch is to lines of the first round. If each
    // round accesses as many lines, there are 1 / old times as many in total, and all further accesses are to lines of
    // the previous round. Blocks do not start together: between two uses of a line, the lines of one round and half of
    // the next round's new ones are accessed.
    void find_what_comes_again(const std::vector<double> & lines) {
        const double seen = double(of.seen.size()), all = double(of.count());
        if (seen < resident() * m.wgps || all <= seen) {
            return;
        }
        double touches = 0, fresh = 0;
        for (size_t n = 0; n < again.size(); ++n) {
            const instruction & i = of.instructions[n];
            if (i.later_lines != 0 && i.where != space::scratch) {
                const double part = double(i.later_lines - i.known_lines) / double(i.later_lines), old = 1 - part * (1 - seen / all);
                again[n] = std::max(0.0, 1 - seen / all / old);
                touches += double(i.later_lines);
                fresh += double(i.later_lines - i.known_lines);
            }
        }
        for (size_t n = 0; n < channels; ++n) {
            const double between = lines[n] * line_bytes * (1 + (touches == 0 ? 0 : fresh / touches / 2));
            l2_keeps[n] = between <= m.l2_bytes / double(channels);
            mall_keeps[n] = between <= m.mall_bytes / double(channels);
        }
    }

    size_t channel_of(uint64_t line) const {
        return size_t(double(line) * line_bytes / std::max(line_bytes, m.channel_bytes)) % channels;
    }

    // Fraction of the open DRAM pages (one per channel) that is accessed, averaged over these lines.
    double part_of_pages(const std::vector<uint64_t> & lines) const {
        const auto page = uint64_t(std::max(1.0, m.channels) * std::max(line_bytes, m.dram_page_bytes) / line_bytes);
        double squares = 0;
        for (size_t n = 0; n < lines.size();) {
            size_t end = n + 1;
            while (end < lines.size() && lines[end] / page == lines[n] / page) {
                ++end;
            }
            squares += double(end - n) * double(end - n);
            n = end;
        }
        return lines.empty() ? 1 : squares / double(lines.size()) / double(page);
    }

    // The number of equally loaded channels that would do the same work in the same time.
    static double part_of_channels(const std::vector<double> & lines) {
        double sum = 0, squares = 0;
        for (const double one : lines) {
            sum += one;
            squares += one * one;
        }
        return sum == 0 ? 1 : sum * sum / squares / double(lines.size());
    }

    void start(double at) {
        auto made = std::make_unique<running_block>();
        made->number = started++;
        const auto & from = of.blocks[played[made->number % played.size()]];
        made->waves.resize(from.size());
        for (size_t n = 0; n < from.size(); ++n) {
            running_wave & w = made->waves[n];
            w.of = made.get();
            w.trace = &from[n];
            w.simd = next_simd;
            w.age = next_age++;
            next_simd = (next_simd + 1) % simds;
            w.ready = at + m.block_start;
            w.registers.fill(float(w.ready));
            w.at = w.trace->spans.empty() ? 0 : w.trace->spans[0];
            turns.emplace(w.ready, &w);
        }
        alive.push_back(std::move(made));
    }

    void drain() {
        while (!turns.empty()) {
            running_wave & w = *turns.top().second;
            turns.pop();
            go_on(w);
        }
    }

    // Runs a wave until another one is earlier.
    void go_on(running_wave & w) {
        for (;;) {
            const decoded & d = code[w.at];
            double at = w.ready;
            for (const uint16_t r : d.from->reads) {
                at = std::max<double>(at, w.registers[r]);
            }
            if (d.is_wmma) { // it cannot start while its destination is pending
                for (const uint16_t r : d.from->writes) {
                    at = std::max<double>(at, w.registers[r]);
                }
            }
            if (d.waits) { // the wait's result is discarded here, so its time must be kept
                at = w.ready = std::max(at, time_of_waits(w, *d.from));
            }
            at = std::max(at, free_at(w, d));
            if (const turn now{at, &w}; !turns.empty() && later()(now, turns.top())) {
                turns.emplace(at, &w);
                return;
            }
            if (!issue(w, d, at)) {
                return;
            }
        }
    }

    double free_at(const running_wave & w, const decoded & d) const {
        switch (d.on) {
            case unit::valu: return free_simd[size_t(w.simd)][0];
            case unit::transcendental: return std::max(free_simd[size_t(w.simd)][0], free_simd[size_t(w.simd)][1]);
            case unit::scalar: return free_simd[size_t(w.simd)][2];
            case unit::lds: return free_lds - lds_queue;
            case unit::memory: return free_memory[size_t(w.simd / 2)] - memory_queue;
            case unit::none: return 0;
        }
        return 0;
    }

    // Cycles that instructions may queue for LDS or vector memory before the wave stalls.
    static constexpr double lds_queue = 16, memory_queue = 32;

    static double time_of_waits(running_wave & w, const instruction & i) {
        double until = 0;
        for (const wait & one : i.waits) {
            if (one.queues == 0) {
                continue;
            }
            const auto is_meant = [&](const pending & p) { return (p.queue & one.queues) != 0; };
            auto count = std::count_if(w.under_way.begin(), w.under_way.end(), is_meant);
            for (pending & p : w.under_way) {
                if (count <= long(one.left)) {
                    break;
                }
                if (is_meant(p)) {
                    until = std::max(until, p.until);
                    p.queue = 0;
                    count -= 1;
                }
            }
        }
        std::erase_if(w.under_way, [](const pending & p) { return p.queue == 0; });
        return until;
    }

    // Returns false if the wave cannot continue by itself.
    bool issue(running_wave & w, const decoded & d, double at) {
        // Hints and waits issue together with other instructions.
        const double ready = at + (d.on == unit::none ? 0 : 1);
        auto & free = free_simd[size_t(w.simd)];
        switch (d.on) {
            case unit::valu:
                free[0] = at + d.busy;
                busy_valu += d.busy;
                busy_wmma += d.is_wmma ? d.busy : 0;
                break;
            case unit::transcendental:
                free[0] = at + m.valu;
                free[1] = at + d.busy;
                busy_valu += m.valu;
                break;
            case unit::scalar:
                free[2] = at + d.busy;
                busy_scalar += d.busy;
                break;
            case unit::lds:
            case unit::memory:
            case unit::none: break;
        }
        if (d.has_access) {
            if (d.where != space::scalar && !d.from->is_store) { // returning data uses the register ports
                const double ports = m.load_register * double(d.from->writes.size());
                free[0] = std::max(free[0], at) + ports;
                busy_valu += ports;
            }
            go_to_memory(w, d, at);
        } else if (d.on == unit::lds) {
            const double done = through_lds(at, d.busy);
            w.under_way.push_back({d.from->queues, done});
        } else {
            for (const uint16_t r : d.from->writes) {
                w.registers[r] = float(at + std::max(d.latency, d.busy));
            }
        }
        if (d.is_end) {
            end_wave(w, at);
            return false;
        }
        w.ready = ready;
        step(w);
        if (const uint64_t offset = code[w.at].from->offset; offset / code_cache::line != w.line) {
            w.line = offset / code_cache::line;
            w.ready = std::max(w.ready, instructions.fetch(offset, at));
        }
        if (d.is_barrier) {
            return pass_barrier(w, at);
        }
        return true;
    }

    void step(running_wave & w) {
        const auto & spans = w.trace->spans;
        if (w.at < spans[w.span + 1]) {
            w.at += 1;
            return;
        }
        const bool jumps = w.span + 2 < spans.size() && spans[w.span + 2] != w.at + 1;
        w.span += 2;
        if (w.span < spans.size()) {
            w.at = spans[w.span];
        }
        if (jumps) {
            w.ready += m.branch;
        }
    }

    double through_lds(double at, double clocks) {
        const double busy = std::max(m.lds_least, clocks);
        free_lds = std::max(free_lds, at) + busy;
        busy_lds += busy;
        return free_lds + m.lds_latency;
    }

    // Results return in order, except for scalar loads.
    static void add_pending(running_wave & w, uint32_t queue, double until) {
        if (queue != timing::queue::scalar) {
            for (const pending & p : w.under_way) {
                if (p.queue == queue) {
                    until = std::max(until, p.until);
                }
            }
        }
        w.under_way.push_back({queue, until});
    }

    void go_to_memory(running_wave & w, const decoded & d, double at) {
        const auto & words = w.trace->accesses;
        const auto word = [&] {
            if (w.access >= words.size()) {
                throw bad_trace("a wave has fewer accesses than memory instructions");
            }
            return words[w.access++];
        };
        if (d.where == space::lds) {
            add_pending(w, d.from->queues, through_lds(at, word()));
            return;
        }
        const uint32_t count = word() & 0xffff;
        double done = at + (d.where == space::scalar ? m.scalar_cache_latency : m.l0_latency);
        if (d.where == space::scalar) {
            for (uint32_t n = 0; n < count; ++n) {
                const uint64_t low = word(), line = low | uint64_t(word()) << 32;
                const auto [held, was_held] = constants.touch(line);
                if (!was_held) {
                    held.there = from_l1(w, d, line, at);
                }
                done = std::max(done, held.there);
            }
            add_pending(w, d.from->queues, done);
            return;
        }
        const auto cu = size_t(w.simd / 2);
        double & free = free_memory[cu];
        // One line at a time, hit or miss; an instruction without active lanes also takes a slot.
        const double busy = std::max(1.0, count * m.l0_line);
        free = std::max(free, at) + busy;
        busy_l0 += busy;
        done = std::max(done, free + m.l0_latency);
        for (uint32_t n = 0; n < count; ++n) {
            const uint64_t low = word(), line = low | uint64_t(word()) << 32;
            if (d.from->is_store) {
                done = std::max(done, from_l1(w, d, line, free));
                continue;
            }
            const auto [held, was_held] = l0[cu].touch(sharers.of(line) > 0 ? line : line ^ (w.of->number + 1) << 50);
            if (!was_held) {
                held.there = from_l1(w, d, line, free);
            }
            done = std::max(done, held.there);
        }
        add_pending(w, d.from->queues & ~(d.where == space::flat ? timing::queue::lds : 0), done);
    }

    // Time at which a line requested by L0 arrives, or is stored. A line used by several WGPs is transferred once for
    // all, and each bears its part of the bandwidth. But each waits as long as the first one: a WGP that finds lines
    // requested by others catches up with them, until it is the first.
    double from_l1(const running_wave & w, const decoded & d, uint64_t line, double at) {
        bytes_l1 += line_bytes;
        const double wgps = sharers.of(line);
        const bool is_common = wgps > 0, is_scratch = line >= scratch_lines;
        // Blocks of later rounds access other lines in the same way as those of the first; for which of these are
        // accessed again, see find_what_comes_again. But a wave's scratch memory is that of the wave that ran there
        // before.
        const uint64_t number = w.of->number, set = is_scratch ? number % together : is_common ? number / together : number;
        const uint64_t name = line ^ (2 * set + (is_common ? 1 : 0) + 1) << 40;
        const double part = 1 / std::max(1.0, wgps), part_of_array = 1 / std::max(1.0, wgps / arrays);
        double done = to_l1.send(at, line_bytes) + cycles_of_ns(m.l1_latency_ns);
        if (d.from->is_store) {
            l1.forget(line, name);
            return std::max(done, from_l2(d, line, name, part, 1, at));
        }
        const auto [held, was_held] = l1.touch(line, name, active / arrays * part_of_array);
        if (!was_held) {
            held.there = from_l2(d, line, name, part, part_of_array, at);
        }
        return std::max(done, held.there);
    }

    // `part` of such lines are requested beyond L2 by this WGP, `part_of_array` from its L1.
    double from_l2(const decoded & d, uint64_t line, uint64_t name, double part, double part_of_array, double at) {
        double done = at + cycles_of_ns(m.l2_latency_ns);
        for (owed_l2 += part_of_array; owed_l2 >= 1; owed_l2 -= 1) {
            done = std::max(done, to_l2.send(at, line_bytes) + cycles_of_ns(m.l2_latency_ns));
        }
        const auto [held, was_held] = l2.touch(line, name, active * part);
        if (!was_held) {
            const bool was_there = was_there_before(d);
            held.there = was_there && l2_keeps[channel_of(line)] ? done : from_memory(line, name, part, was_there, at);
        }
        return std::max(done, held.there);
    }

    // Whether the previous round requested what this instruction accesses; true for the known fraction of each
    // instruction's accesses.
    bool was_there_before(const decoded & d) {
        const auto i = size_t(d.from - of.instructions.data());
        if (d.from->is_store || (owed_again[i] += again[i]) < 1) {
            return false;
        }
        owed_again[i] -= 1;
        return true;
    }

    double from_memory(uint64_t line, uint64_t name, double part, bool was_there, double at) {
        const size_t channel = channel_of(line);
        bool is_near = false; // in the memory-side cache
        if (m.mall_bytes > 0) {
            is_near = mall.touch(line, name, active * part).second || (was_there && mall_keeps[channel]);
            owed_cold += is_near ? 0 : cold;
            is_near = is_near || owed_cold < 1;
            owed_cold -= is_near ? 0 : 1;
        }
        // A channel transfers one line after the other, even if all others are idle.
        double & free = (is_near ? free_mall : free_dram)[channel];
        free = std::max(free, at) + cycles_of_ns(line_bytes / (is_near ? m.mall_gb_s : m.dram_gb_s) * double(channels));
        const double latency = cycles_of_ns(is_near ? m.mall_latency_ns : m.dram_latency_ns);
        double done = free + latency;
        double & owed = is_near ? owed_mall : owed_dram;
        for (owed += part; owed >= 1; owed -= 1) {
            done = std::max(done, (is_near ? to_mall : to_dram).send(at, line_bytes) + latency);
            bytes_dram += is_near ? 0 : line_bytes;
        }
        return done;
    }

    bool pass_barrier(running_wave & w, double at) {
        running_block & b = *w.of;
        b.waiting.push_back(&w);
        release(b, at);
        return false;
    }

    void release(running_block & b, double at) {
        if (b.waiting.empty() || b.waiting.size() + b.ended < b.waves.size()) {
            return;
        }
        for (running_wave * one : b.waiting) {
            one->ready = at + m.barrier;
            turns.emplace(one->ready, one);
        }
        b.waiting.clear();
    }

    void end_wave(running_wave & w, double at) {
        running_block & b = *w.of;
        for (const pending & p : w.under_way) { // pending stores: the block ends when they have completed
            at = std::max(at, p.queue == timing::queue::vector_store ? p.until : at);
        }
        b.ended += 1;
        last = std::max(last, at);
        if (b.ended < b.waves.size()) {
            release(b, at);
            return;
        }
        ends.push_back(at);
        std::erase_if(alive, [&](const auto & one) { return one.get() == &b; });
        if (started < wanted) {
            start(at);
        }
    }
};

} // namespace

result simulate(const trace & of, const machine & m, const circumstances & in, uint64_t most) {
    return simulation(of, m, in, most).run();
}

} // namespace patchkit::timing
