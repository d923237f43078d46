#include "recording.hpp"

#include "access.hpp"
#include "executor.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

namespace patchkit::gpu {

namespace {

constexpr int line_bits = 7; // 128 bytes: a cache line of RDNA3 (ISA guide, "Memory Hierarchy")

// Scratch has no addresses in the emulator. These are otherwise unused, by wave and dword, interleaved between lanes as
// in hardware.
constexpr u64 scratch_window = u64(1) << 56;

// The distinct lines that an instruction accesses.
class touched_lines {
  public:
    void add(const u64x & addresses, u32 size, u32 exec) {
        for (u32 left = exec; left != 0; left &= left - 1) {
            const u64 address = addresses[std::countr_zero(left)];
            add(address >> line_bits);
            add((address + size - 1) >> line_bits);
        }
    }

    // Appended after a word with the number of lanes and lines.
    void write(std::vector<u32> & to, u32 exec) const {
        to.push_back(u32(std::popcount(exec)) << 16 | u32(count));
        for (size_t n = 0; n < count; ++n) {
            to.push_back(u32(lines[n]));
            to.push_back(u32(lines[n] >> 32));
        }
    }

  private:
    std::array<u64, 8 * lanes> lines; // four dwords of scratch, or both ends of each lane's access
    size_t count = 0;

    void add(u64 line) {
        // Adjacent lanes usually share a line.
        for (size_t n = count; n-- != 0;) {
            if (lines[n] == line) {
                return;
            }
        }
        lines[count++] = line;
    }
};

// Clocks that LDS needs for these lanes: 32 banks of one dword serve groups of 32 dwords at a time.
u32 clocks_of_banks(const u32x & offsets, u32 size, u32 exec) {
    constexpr u32 banks = 32;
    const u32 dwords = std::max(1u, size / 4), group = lanes / dwords;
    u32 result = 0;
    for (u32 first = 0; first < u32(lanes); first += group) {
        u32 seen[banks][lanes], count[banks] = {};
        u32 most = 0;
        for (u32 lane = first; lane < first + group; ++lane) {
            if ((exec >> lane & 1) == 0) {
                continue;
            }
            for (u32 n = 0; n < dwords; ++n) {
                const u32 dword = offsets[lane] / 4 + n, bank = dword % banks;
                u32 * of_bank = seen[bank];
                if (std::find(of_bank, of_bank + count[bank], dword) == of_bank + count[bank]) {
                    of_bank[count[bank]++] = dword;
                    most = std::max(most, count[bank]);
                }
            }
        }
        result += most;
    }
    return std::max(result, 1u);
}

const facts & facts_at(const instruction * i) { return *static_cast<const facts *>(i->extra); }

void record_access(const instruction * i, wave & w) {
    const facts & f = facts_at(i);
    const instruction * on = i + 1;
    u32 exec = w.exec();
    touched_lines lines;
    switch (f.where) {
        case space::lds:
            if (w.spans != nullptr) {
                u32 clocks = 0;
                for (int n = 0; n < f.accesses; ++n) {
                    const u32x places = f.accesses == 1 ? lds_addresses(on, w) : lds_addresses(on, w, n, f.unit);
                    clocks += clocks_of_banks(places, f.size, exec);
                }
                w.accesses->push_back(clocks);
            }
            PATCHKIT_NEXT(i, w);
        case space::scratch: {
            const u32x first = scratch_offsets(on, w) / 4 * u32(4 * lanes) + lane_numbers() * 4;
            for (u32 n = 0; n < std::max(1u, f.size / 4); ++n) {
                lines.add(convert<u64x>(first + n * u32(4 * lanes)) + (scratch_window | (u64(w.scratch) & ~u64(127))), 4, exec);
            }
            break;
        }
        case space::scalar: {
            u64x at{};
            at[0] = scalar_address(on, w);
            exec = 1;
            lines.add(at, f.size, exec);
            break;
        }
        default: {
            const u64x addresses = global_addresses(on, w);
            if (f.where == space::flat) { // flat accesses to LDS and scratch access no line
                const u64x high = addresses >> 48 << 48;
                exec &= ~lane_bits((high == shared_aperture) | (high == private_aperture));
            }
            lines.add(addresses, f.size, exec);
        }
    }
    lines.write(*w.accesses, exec);
    PATCHKIT_NEXT(i, w);
}

void add_word(std::vector<u32> & to, size_t value) { to.push_back(u32(value)); }

std::string names_of(const register_set & set) {
    std::string result;
    set.each_vgpr([&](int n) { result += (result.empty() ? "v" : ",v") + std::to_string(n); });
    set.each_slot([&](int n) { result += (result.empty() ? "s" : ",s") + std::to_string(n); });
    return result.empty() ? "-" : result;
}

std::string line_of(u32 number, size_t offset, const facts & f, const std::string & text) {
    constexpr const char * spaces[] = {"none", "global", "flat", "lds", "scratch", "scalar"};
    const auto wait_of = [](const wait & one) { return std::to_string(one.queues) + ":" + std::to_string(one.left); };
    return "at " + std::to_string(number) + " " + std::to_string(offset) + " " + spaces[int(f.where)] + " " + std::to_string(int(f.is_store)) + " " +
           std::to_string(f.size * u32(f.accesses)) + " " + std::to_string(f.queues) + " " + wait_of(f.waits[0]) + "+" +
           wait_of(f.waits[1]) + " " + names_of(f.reads) + " " + names_of(f.writes) + " " + text + "\n";
}

// Calls `use` with the instruction's number and each line it accesses, for memory other than LDS.
template <typename use>
void each_touch(const wave_record & one, const library & code, const use & touch) {
    size_t at = 0;
    for (size_t n = 0; n < one.spans.size(); n += 2) {
        for (u32 number = one.spans[n]; number <= one.spans[n + 1]; ++number) {
            const facts * known = code.facts_of_number(number);
            if (known == nullptr || known->where == space::none || at >= one.accesses.size()) {
                continue;
            }
            const u32 word = one.accesses[at++];
            for (u32 left = known->where == space::lds ? 0 : word & 0xffff; left != 0; --left, at += 2) {
                touch(number, one.accesses[at] | u64(one.accesses[at + 1]) << 32);
            }
        }
    }
}

// The distinct lines of a block of which only accesses are recorded.
std::vector<u32> lines_of(const block_record & block) {
    std::vector<u64> lines;
    for (const wave_record & one : block.waves) {
        for (size_t at = 0; at < one.accesses.size();) {
            const u32 count = one.accesses[at++] & 0xffff;
            for (u32 n = 0; n < count; ++n, at += 2) {
                lines.push_back(one.accesses[at] | u64(one.accesses[at + 1]) << 32);
            }
        }
    }
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    std::vector<u32> result{u32(lines.size())};
    for (const u64 line : lines) {
        result.push_back(u32(line));
        result.push_back(u32(line >> 32));
    }
    return result;
}

} // namespace

launch_record::launch_record(const sample & wanted, u64 blocks) {
    constexpr u64 least = 6; // enough to tell apart what differs between blocks
    const u64 step = std::min<u64>(wanted.multiprocessors, blocks);
    const u64 seen = std::min<u64>({wanted.seen, blocks, step * wanted.held});
    const u64 on_one = (seen + step - 1) / step;
    const u64 sampled = std::min({std::max(on_one, least), u64(wanted.sampled), seen});
    const u64 shown = (sampled + on_one - 1) / on_one; // multiprocessors
    for (u64 n = 0; chosen.size() < sampled && n < shown * on_one; ++n) {
        if (const u64 index = n % on_one * step + n / on_one * step / shown; index < seen) {
            chosen.emplace_back(index, chosen_as::sampled);
        }
    }
    for (u64 n = 0; n < seen; ++n) {
        chosen.emplace_back(n, chosen_as::seen);
    }
    const u64 rest = blocks - seen, behind = std::min<u64>(wanted.later, rest);
    for (u64 n = 0; n < behind; ++n) {
        chosen.emplace_back(seen + (2 * n + 1) * rest / (2 * behind), chosen_as::later);
    }
}

void launch_record::add(block_record && one) {
    if (one.as == chosen_as::seen) { // not needed
        const std::vector<u32> lines = lines_of(one);
        one.waves.assign(1, {});
        one.waves[0].accesses = lines;
    }
    const std::lock_guard<std::mutex> guard(mutex);
    made.push_back(std::move(one));
}

std::string launch_record::what_comes_again(const library & code) const {
    struct touch {
        u64 line;
        u32 instruction;
        auto operator<=>(const touch &) const = default;
    };
    std::vector<touch> all; // once per block
    for (const block_record & block : made) {
        if (block.as == chosen_as::later) {
            std::vector<touch> own;
            for (const wave_record & one : block.waves) {
                each_touch(one, code, [&](u32 number, u64 line) { own.push_back({line, number}); });
            }
            std::sort(own.begin(), own.end());
            own.erase(std::unique(own.begin(), own.end()), own.end());
            all.insert(all.end(), own.begin(), own.end());
        }
    }
    std::sort(all.begin(), all.end());
    std::vector<bool> is_held(all.size());
    for (const block_record & block : made) {
        if (block.as != chosen_as::seen) {
            continue;
        }
        const std::vector<u32> & lines = block.waves[0].accesses; // after their count, sorted
        size_t at = 0;
        for (size_t n = 1; n < lines.size(); n += 2) {
            const u64 line = lines[n] | u64(lines[n + 1]) << 32;
            while (at < all.size() && all[at].line < line) {
                ++at;
            }
            for (; at < all.size() && all[at].line == line; ++at) {
                is_held[at] = true;
            }
        }
    }
    std::map<u32, std::pair<u64, u64>> counts; // by instruction
    for (size_t n = 0; n < all.size(); ++n) {
        auto & [lines, held] = counts[all[n].instruction];
        lines += 1;
        held += is_held[n];
    }
    std::string text;
    for (const auto & [number, count] : counts) {
        text += "again " + std::to_string(number) + " " + std::to_string(count.first) + " " + std::to_string(count.second) + "\n";
    }
    return text;
}

void launch_record::write(const std::string & path, const launch & of, u32 lds, u32 scratch, library & code) {
    std::sort(made.begin(), made.end(), [](const block_record & a, const block_record & b) {
        return std::pair(a.as, a.index) < std::pair(b.as, b.index);
    });
    const std::string again = what_comes_again(code);
    std::erase_if(made, [](const block_record & b) { return b.as == chosen_as::later; });
    const auto three = [](const char * name, const dimensions & d) {
        return std::string(name) + " " + std::to_string(d.x) + " " + std::to_string(d.y) + " " + std::to_string(d.z) + "\n";
    };
    const auto sampled = size_t(std::count_if(made.begin(), made.end(), [](const block_record & b) { return b.as == chosen_as::sampled; }));
    std::string text = "patchkit-trace 4\nkernel " + of.kernel->name + "\n" + three("grid", of.grid) + three("block", of.block) +
                       "vgprs " + std::to_string(of.kernel->vgprs) + "\nlds " + std::to_string(lds) + "\nscratch " +
                       std::to_string(scratch) + "\nsampled";
    for (size_t n = 0; n < sampled; ++n) {
        text += " " + std::to_string(made[n].index);
    }
    text += "\n";
    std::vector<bool> ran(code.numbers() + 1);
    std::vector<u32> words;
    for (const block_record & block : made) {
        if (block.as == chosen_as::seen) {
            words.insert(words.end(), block.waves[0].accesses.begin(), block.waves[0].accesses.end());
            continue;
        }
        const dimensions & grid = of.grid;
        for (const u64 part : {block.index % grid.x, block.index / grid.x % grid.y, block.index / grid.x / grid.y}) {
            add_word(words, part);
        }
        add_word(words, block.waves.size());
        for (const wave_record & one : block.waves) {
            for (size_t n = 0; n < one.spans.size(); n += 2) {
                std::fill(ran.begin() + one.spans[n], ran.begin() + one.spans[n + 1] + 1, true);
            }
            add_word(words, one.spans.size() / 2);
            words.insert(words.end(), one.spans.begin(), one.spans.end());
            add_word(words, one.accesses.size());
            words.insert(words.end(), one.accesses.begin(), one.accesses.end());
        }
    }
    size_t before = 0; // bytes of the preceding functions
    code.each([&](const program & p) {
        for (u32 n = 0; n + 1 < p.offsets.size(); ++n) {
            const u32 number = p.first_number + n;
            const facts * known = number < ran.size() && ran[number] ? code.facts_of_number(number) : nullptr;
            if (known != nullptr) {
                text += line_of(number, before + p.offsets[n], *known, code.text(p, number));
            }
        }
        before += p.offsets.back();
    });
    text += again + "blocks " + std::to_string(sampled) + "\nseen " + std::to_string(made.size() - sampled) + "\nend\n";
    FILE * file = std::fopen(path.c_str(), "wb");
    bool is_written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                      std::fwrite(words.data(), 4, words.size(), file) == words.size();
    is_written = file != nullptr && std::fclose(file) == 0 && is_written;
    if (!is_written) {
        throw kernel_fault("the trace " + path + " cannot be written");
    }
}

handler recorder::before(const facts & known) const { return known.where == space::none ? nullptr : record_access; }

} // namespace patchkit::gpu
