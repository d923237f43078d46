#include "hidden.hpp"

#include "access.hpp"
#include "check_state.hpp"
#include "executor.hpp"

namespace patchkit::gpu {

namespace {

constexpr u32 dwords_of_page = 1024;

// High dwords of pointers of this process, which would become invalid.
bool is_pointer(u32 high) { return high >= 0x5000 && high <= 0x7fff; }

} // namespace

replay::~replay() {
    for (const auto & [number, page] : pages) {
        delete page;
    }
}

void replay::keep(u64 place, u64 size) {
    for (u64 n = place / 4; n <= (place + size - 1) / 4; ++n) {
        u32 there;
        std::memcpy(&there, reinterpret_cast<const void *>(4 * n), sizeof(there));
        old.emplace(n, there);
    }
}

void replay::put_back() {
    for (const auto & [n, there] : old) {
        std::memcpy(reinterpret_cast<void *>(4 * n), &there, sizeof(there));
    }
    old.clear();
}

lds_traces & replay::page_of(u64 place) {
    lds_traces *& page = pages[place / (4 * dwords_of_page)];
    if (page == nullptr) {
        page = new lds_traces;
        page->resize(dwords_of_page);
    }
    return *page;
}

// Other values of the same kind, as far as a word shows its kind: table indices stay close, floats keep their
// magnitude. Zeros become small integers in one variant, floats in the other.
u32 replay::other_bits(u32 word, u64 place, u32 size) const {
    const u32 drawn = u32((place + 1) * 0x9e3779b97f4a7c15 >> 40) ^ variant * 0x5bd1e995;
    if (size < 4) {
        return word == 0 && variant != 0 && size == 2 ? 0x3c00 + drawn % 512 : word ^ (1 + drawn % 3);
    }
    const u32 exponent = word >> 23 & 255;
    if (word == 0) {
        return variant == 0 ? 1 + drawn % 7 : 0x3f800000 + drawn % 0x10000 * 8;
    }
    if (exponent >= 87 && exponent <= 167) { // 2^-40 to 2^40
        return word ^ (variant == 0 ? 1 + drawn % 7 : 1 + drawn % 0x7ffff);
    }
    return variant == 0 && word < (1u << 20) ? word ^ (drawn % 4) : word;
}

void replay::begin_load(const instruction * i, wave & w, const facts & f, u32 exec) {
    lanes_at_hand = 0;
    const instruction * checked = i + 1;
    const memory_range & range = remembered_range(i, w);
    if (range.is_constant) {
        return;
    }
    if (f.where == space::scalar) {
        places[0] = scalar_address(checked, w) & (f.size < 4 ? ~u64(0) : ~u64(3));
        lanes_at_hand = 1;
        return;
    }
    const u64x addresses = global_addresses(checked, w);
    std::memcpy(places, &addresses, sizeof(places));
    lanes_at_hand = f.where == space::flat ? exec & lane_bits(addresses >> 48 == 0) : exec;
}

void replay::end_load(wave & w, const facts & f) {
    const bool is_scalar = f.where == space::scalar;
    const std::vector<u8> & to = is_scalar ? f.slots_written : f.vgprs_written;
    const u32 count = std::max<u32>(1, f.size / 4);
    for (u32 left = to.size() < count ? 0 : lanes_at_hand; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const auto word = [&](u32 n) -> u32 & {
            return is_scalar ? w.scalar[to[n]] : reinterpret_cast<u32 *>(&w.vgpr(to[n]))[lane];
        };
        for (u32 n = 0; n < count; ++n) {
            const u64 place = places[lane] + 4 * n;
            const bool is_of_pointer = (n % 2 == 0 && n + 1 < count && is_pointer(word(n + 1))) || (n % 2 == 1 && is_pointer(word(n)));
            if (old.contains(place / 4) || is_of_pointer) {
                continue;
            }
            u32 & there = word(n);
            if (f.size >= 4) {
                there = other_bits(there, place, 4);
            } else {
                const u32 mask = (1u << (8 * f.size)) - 1, before = there >> f.shift & mask;
                there = (there & ~(mask << f.shift)) | (other_bits(before, place, f.size) & mask) << f.shift;
            }
        }
    }
    lanes_at_hand = 0;
}

} // namespace patchkit::gpu
