// Loads, stores and atomics: global and flat memory, LDS, scratch, and scalar loads. Semantics: RDNA3 and RDNA4 ISA
// guides, chapters 8 to 12 and 16.
//
// Every access is checked against the allocations, and LDS accesses against the block's LDS. An access outside is a
// fault; hardware would read zeros, write elsewhere or stop, depending on chance. Device memory is host memory, so an
// address is a pointer. Execution is in order, so waits and cache instructions do nothing.

#include "access.hpp"
#include "executor.hpp"
#include "table.hpp"

#include <array>
#include <deque>
#include <type_traits>

namespace patchkit::gpu {

namespace {

using role::address, role::data, role::more_data;

using u32q = vector_of<u32, 4>;

template <class T> T read_at(u64 place) {
    T value;
    std::memcpy(&value, reinterpret_cast<const void *>(place), sizeof(T));
    return value;
}
template <class T> void write_at(u64 place, const T & value) {
    std::memcpy(reinterpret_cast<void *>(place), &value, sizeof(T));
}

// Read by all lanes if none is active.
alignas(64) constexpr std::byte nothing_to_read[64]{};

// ---- Addresses of all lanes as offsets from one host pointer. After a scalar address and in LDS, 32-bit offsets are
// sufficient, which halves the work.

template <class Offsets> struct places_from {
    using offset = std::remove_cvref_t<decltype(Offsets{}[0])>;

    u64 base;
    Offsets offsets;

    u64 first() const { return base + offsets[0]; }
    bool are_one() const { return !any(offsets != offsets[0]); }
    bool are_halves_alike() const { return __builtin_reduce_or(first_half(offsets) ^ second_half(offsets)) == 0; }

    // Whether each lane accesses the bytes after those of the previous lane.
    template <int size> bool are_contiguous() const {
        return !any(offsets != convert<Offsets>(lane_numbers()) * offset(size) + offsets[0]);
    }

    // As an array, because accessing a lane of a vector by a run-time index is slow.
    struct by_lane {
        u64 base;
        alignas(128) offset offsets[lanes];
        u64 operator[](int lane) const { return base + offsets[lane]; }
    };
    by_lane spread() const {
        by_lane result;
        result.base = base;
        std::memcpy(result.offsets, &offsets, sizeof(offsets));
        return result;
    }

    // Redirects inactive lanes: to the continuation of the active lanes' row, if these are adjacent and all of it is
    // within `furthest`; otherwise to the place of the first active lane. Their result is discarded; uniform access
    // patterns are faster.
    void make_harmless(u32 exec, u32 size, offset furthest) {
        if (exec == ~0u) [[likely]] {
            return;
        }
        if (exec == 0) {
            base = u64(nothing_to_read);
            offsets = Offsets{};
            return;
        }
        using mask = std::conditional_t<sizeof(offset) == 8, i64x, i32x>;
        const int one = std::countr_zero(exec);
        const offset of_one = offsets[one], before = offset(one) * size;
        const Offsets row = convert<Offsets>(lane_numbers()) * offset(size) + (of_one - before);
        if (of_one >= before && row[lanes - 1] >= of_one && row[lanes - 1] <= furthest &&
            (lane_bits(offsets != row) & exec) == 0) {
            offsets = row;
            return;
        }
        offsets = convert<mask>(lane_mask(exec)) ? offsets : splat<Offsets>(of_one);
    }
};
using near_places = places_from<u32x>;
using far_places = places_from<u64x>;

// Checks the addresses of active lanes against the allocations, and makes inactive lanes safe to read.
far_places checked(const instruction * i, wave & w, const u64x & addresses, u32 size) {
    const u32 exec = w.exec();
    if (lanes_outside(remembered_range(i, w), addresses, size, exec) != 0) [[unlikely]] {
        for (u32 left = exec; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            if (!remembered_range(i, w).holds(addresses[lane], size)) {
                w.on->find_range(i, w, addresses[lane], size, lane, true);
            }
        }
    }
    far_places result{0, addresses};
    result.make_harmless(exec, size, 0);
    return result;
}

void check_lds(const instruction * i, wave & w, int lane, u32 offset, u32 size) {
    if (offset > w.lds_size || w.lds_size - offset < size) {
        w.on->fault(i, w, "lane " + std::to_string(lane) + " accesses byte " + std::to_string(offset) + " of LDS for " +
                        std::to_string(size) + " bytes, but the block has " + std::to_string(w.lds_size));
    }
}

near_places checked_lds(const instruction * i, wave & w, const u32x & addresses, u32 size) {
    const u32 exec = w.exec();
    const u32 outside = w.lds_size < size ? exec : lane_bits(addresses > w.lds_size - size) & exec;
    if (outside != 0) [[unlikely]] {
        const int lane = std::countr_zero(outside);
        check_lds(i, w, lane, addresses[lane], size);
    }
    near_places result{u64(w.lds), addresses};
    result.make_harmless(exec, size, w.lds_size < size ? 0 : w.lds_size - size);
    return result;
}

// ---- Transfers of whole registers.

using u32h = vector_of<u32, 16>; // for half a wave

u32x both_halves(const u32h & low, const u32h & high) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                   21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

// Transposes 4 x 4 dwords in each of four quarters: row n of quarter k belongs to lane 4k + n, column n is dword n. Its
// own inverse.
void transpose(u32h (&rows)[4]) {
    const auto pairs = [](const u32h & a, const u32h & b) {
        return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    };
    const auto other_pairs = [](const u32h & a, const u32h & b) {
        return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    };
    const auto fours = [](const u32h & a, const u32h & b) {
        return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    };
    const auto other_fours = [](const u32h & a, const u32h & b) {
        return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    };
    const u32h a = pairs(rows[0], rows[1]), b = pairs(rows[2], rows[3]);
    const u32h c = other_pairs(rows[0], rows[1]), d = other_pairs(rows[2], rows[3]);
    rows[0] = fours(a, b);
    rows[1] = other_fours(a, b);
    rows[2] = fours(c, d);
    rows[3] = other_fours(c, d);
}

// Loads for 16 lanes, starting at lane `first`. Blocks are often 16 threads wide, so that half a wave accesses a row,
// or a single place, although the whole wave does not.
template <class T, class Places> auto load_half(const Places & places, int first) {
    using result = vector_of<T, 16>;
    const auto offsets = first == 0 ? first_half(places.offsets) : second_half(places.offsets);
    using vector = std::remove_cvref_t<decltype(offsets)>;
    using offset = typename Places::offset;
    constexpr vector numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (__builtin_reduce_or(offsets ^ (numbers * offset(sizeof(T)) + offsets[0])) == 0) {
        return read_at<result>(places.base + offsets[0]);
    }
    if (__builtin_reduce_or(offsets ^ offsets[0]) == 0) {
        return splat<result>(read_at<T>(places.base + offsets[0]));
    }
    alignas(128) offset each[lanes / 2];
    std::memcpy(each, &offsets, sizeof(each));
    return [&]<int... lane>(std::integer_sequence<int, lane...>) {
        return result{read_at<T>(places.base + each[lane])...};
    }(std::make_integer_sequence<int, lanes / 2>());
}

// The same for both halves.
template <class T, class Places> auto load_lanes(const Places & places) {
    using result = vector_of<T, 32>;
    const auto first = load_half<T>(places, 0);
    return from_halves<result>(first, places.are_halves_alike() ? first : load_half<T>(places, lanes / 2));
}

// Three or four dwords for each of 16 lanes, grouped by dword.
template <int dwords, class Spread> void load_columns(const Spread & from, int first, u32h (&columns)[4]) {
    const auto row = [&](int lane) {
        u32q one{};
        std::memcpy(&one, reinterpret_cast<const void *>(from[lane]), 4 * dwords);
        return one;
    };
    for (int n = 0; n < 4; ++n) {
        const auto low = __builtin_shufflevector(row(first + n), row(first + n + 4), 0, 1, 2, 3, 4, 5, 6, 7);
        const auto high = __builtin_shufflevector(row(first + n + 8), row(first + n + 12), 0, 1, 2, 3, 4, 5, 6, 7);
        columns[n] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    transpose(columns);
}

// Four dwords for each of 16 adjacent lanes, grouped by dword.
void load_row(u64 place, u32h (&columns)[4]) {
    u32h from[4];
    std::memcpy(from, reinterpret_cast<const void *>(place), sizeof(from));
    const auto picked = [&]<int n>(std::integral_constant<int, n>) {
        const auto of_two = [](const u32h & a, const u32h & b) {
            return __builtin_shufflevector(a, b, n, n + 4, n + 8, n + 12, n + 16, n + 20, n + 24, n + 28);
        };
        const auto low = of_two(from[0], from[1]), high = of_two(from[2], from[3]);
        columns[n] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    };
    picked(std::integral_constant<int, 0>());
    picked(std::integral_constant<int, 1>());
    picked(std::integral_constant<int, 2>());
    picked(std::integral_constant<int, 3>());
}

template <int dwords, class Places> void load_dwords(wave & w, operand to, const Places & places) {
    if constexpr (dwords == 1) {
        write_bits(w, vector_at(w, to), load_lanes<u32>(places));
        return;
    } else if constexpr (dwords == 2) {
        const u64x value = load_lanes<u64>(places);
        write_bits(w, vector_at(w, to), low_of(value));
        write_bits(w, vector_at(w, to, 1), high_of(value));
        return;
    }
    if (places.are_one()) {
        u32 values[dwords];
        std::memcpy(values, reinterpret_cast<const void *>(places.first()), sizeof(values));
        for (int n = 0; n < dwords; ++n) {
            write_bits(w, vector_at(w, to, n), splat<u32x>(values[n]));
        }
        return;
    }
    u32h low[4], high[4];
    if (dwords == 4 && places.template are_contiguous<16>()) {
        load_row(places.first(), low);
        load_row(places.first() + 16 * (lanes / 2), high);
    } else {
        const auto from = places.spread();
        load_columns<dwords>(from, 0, low);
        if (places.are_halves_alike()) {
            std::memcpy(high, low, sizeof(high));
        } else {
            load_columns<dwords>(from, lanes / 2, high);
        }
    }
    for (int n = 0; n < dwords; ++n) {
        write_bits(w, vector_at(w, to, n), both_halves(low[n], high[n]));
    }
}

// Stores the active lanes of `value` to adjacent places. Returns false if the CPU has no masked store: the places of
// inactive lanes must not be written, because another thread may write there.
template <class V> bool store_row(u64 place, const V & value, u32 exec) {
    if (exec == ~0u) {
        write_at(place, value);
        return true;
    }
#ifdef __AVX512F__
    const auto * halves = reinterpret_cast<const __m512i *>(&value);
    auto * to = reinterpret_cast<char *>(place);
    if constexpr (sizeof(V) == lanes * sizeof(u32)) {
        _mm512_mask_storeu_epi32(to, __mmask16(exec), halves[0]);
        _mm512_mask_storeu_epi32(to + 64, __mmask16(exec >> 16), halves[1]);
        return true;
    } else if constexpr (sizeof(V) == lanes * sizeof(u64)) {
        for (int n = 0; n < 4; ++n) {
            _mm512_mask_storeu_epi64(to + 64 * n, __mmask8(exec >> 8 * n), halves[n]);
        }
        return true;
    }
#endif
    return false;
}

// In lane order: if several lanes write the same place, the last one wins.
template <int dwords, class Places> void store_dwords(wave & w, operand from, const Places & places) {
    const u32 exec = w.exec();
    if (exec == 0) {
        return;
    }
    if constexpr (dwords == 1) {
        if (places.template are_contiguous<4>() && store_row(places.first(), vector_at(w, from), exec)) {
            return;
        }
    } else if constexpr (dwords == 2) {
        if (places.template are_contiguous<8>() &&
            store_row(places.first(), joined(vector_at(w, from), vector_at(w, from, 1)), exec)) {
            return;
        }
    }
    const u32 * values = reinterpret_cast<const u32 *>(&vector_at(w, from));
    const auto to = places.spread();
    if (exec != ~0u) {
        for (u32 left = exec; left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            for (int n = 0; n < dwords; ++n) {
                write_at(to[lane] + u64(4 * n), values[n * lanes + lane]);
            }
        }
        return;
    }
    if constexpr (dwords == 1) {
        for (int lane = 0; lane < lanes; ++lane) {
            write_at(to[lane], values[lane]);
        }
    } else if constexpr (dwords == 2) {
        const u64x both = joined(vector_at(w, from), vector_at(w, from, 1));
        alignas(128) u64 wide[lanes];
        std::memcpy(wide, &both, sizeof(wide));
        for (int lane = 0; lane < lanes; ++lane) {
            write_at(to[lane], wide[lane]);
        }
    } else {
        alignas(64) u32 rows[2][4][lanes / 2]; // [half of the wave][lane % 4][lanes with that remainder]
        for (int half = 0; half < 2; ++half) {
            u32h columns[4]{};
            for (int n = 0; n < dwords; ++n) {
                std::memcpy(&columns[n], values + n * lanes + half * (lanes / 2), sizeof(u32h));
            }
            transpose(columns);
            std::memcpy(rows[half], columns, sizeof(columns));
        }
        for (int lane = 0; lane < lanes; ++lane) {
            const u32 * row = &rows[lane / 16][lane % 4][lane % 16 / 4 * 4];
            std::memcpy(reinterpret_cast<void *>(to[lane]), row, 4 * dwords);
        }
    }
}

template <class T, class Places> u32x gathered(const Places & places) {
    return as<u32x>(convert<std::conditional_t<std::is_signed_v<T>, i32x, u32x>>(load_lanes<T>(places)));
}

template <class T, into part, class Places> void load_part(wave & w, operand to, const Places & places) {
    u32x value = gathered<T>(places);
    u32x & whole = vector_at(w, to);
    if constexpr (part == into::low) {
        value = (whole & 0xffff0000) | (value & 0xffff);
    } else if constexpr (part == into::high) {
        value = (whole & 0xffff) | (value << 16);
    }
    write_bits(w, whole, value);
}

template <class T, into part, class Places> void store_part(wave & w, operand from, const Places & places) {
    const int shift = part == into::high || from.is(operand::high) ? 16 : 0;
    const u32x moved = vector_at(w, from) >> u32(shift);
    if (w.exec() == ~0u && places.template are_contiguous<sizeof(T)>()) {
        using vector = vector_of<T, 32>;
        write_at(places.first(), convert<vector>(moved));
        return;
    }
    alignas(128) u32 values[lanes];
    std::memcpy(values, &moved, sizeof(values));
    const auto to = places.spread();
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        write_at(to[lane], T(values[lane]));
    }
}

// A store of a watched wave, which records whether memory changes. Separate, because it would slow down all other
// stores.
template <class What, class Places>
[[gnu::noinline]] void store_watched(wave & w, operand from, const Places & places) {
    const auto to = places.spread();
    const auto read = [&] {
        std::array<std::array<std::byte, What::size>, lanes> bytes{};
        for (u32 left = w.exec(); left != 0; left &= left - 1) {
            const int lane = std::countr_zero(left);
            std::memcpy(bytes[size_t(lane)].data(), reinterpret_cast<const void *>(to[lane]), What::size);
        }
        return bytes;
    };
    const auto before = read();
    What::write(w, from, places);
    w.watched->changes |= read() != before;
}

template <class What, class Places> void store_noting(wave & w, operand from, const Places & places) {
    if (w.watched == nullptr) [[likely]] {
        What::write(w, from, places);
    } else {
        store_watched<What>(w, from, places);
    }
}

// What an instruction transfers: `size` bytes, to and from memory. `write` is for scratch, which belongs to the wave.
template <int n> struct Dwords {
    static constexpr u32 size = 4 * n;
    static constexpr into of = into::whole;
    static constexpr bool is_signed = false;
    static void load(wave & w, operand to, const auto & places) { load_dwords<n>(w, to, places); }
    static void store(wave & w, operand from, const auto & places) { store_noting<Dwords>(w, from, places); }
    static void write(wave & w, operand from, const auto & places) { store_dwords<n>(w, from, places); }
};
template <class T, into part = into::whole> struct Part {
    static constexpr u32 size = sizeof(T);
    static constexpr into of = part;
    static constexpr bool is_signed = std::is_signed_v<T>;
    static void load(wave & w, operand to, const auto & places) { load_part<T, part>(w, to, places); }
    static void store(wave & w, operand from, const auto & places) { store_noting<Part>(w, from, places); }
    static void write(wave & w, operand from, const auto & places) { store_part<T, part>(w, from, places); }
};

// ---- Global and flat memory. Flat addresses may select LDS or scratch.

void check_scratch(const instruction * i, wave & w, int lane, u32 offset, u32 size) {
    if (offset > w.scratch_size || w.scratch_size - offset < size) {
        w.on->fault(i, w, "lane " + std::to_string(lane) + " accesses byte " + std::to_string(offset) + " of its scratch for " +
                        std::to_string(size) + " bytes, but it has " + std::to_string(w.scratch_size));
    }
}

u64 scratch_place(const wave & w, int lane, u32 offset) {
    return u64(w.scratch) + (u64(offset / 4) * lanes + u64(lane)) * 4 + offset % 4;
}

// Dwords of scratch are interleaved between lanes, so larger accesses use a copy.
template <class What> void flat_lane_by_lane(const instruction * i, wave & w, const u64x & addresses, bool is_store) {
    alignas(16) std::byte copies[lanes][16]{};
    const far_places places{u64(copies), convert<u64x>(lane_numbers()) * sizeof(copies[0])};
    const u32 exec = w.exec();
    const auto each_byte = [&](int lane, auto && use) {
        const u64 high = addresses[lane] >> 48 << 48;
        const u32 offset = u32(addresses[lane]);
        if (high == private_aperture) {
            check_scratch(i, w, lane, offset, What::size);
        } else if (high == shared_aperture) {
            check_lds(i, w, lane, offset, What::size);
        } else {
            w.on->find_range(i, w, addresses[lane], What::size, lane);
        }
        if (is_store && high != private_aperture) {
            note_change(w); // conservative, even if nothing changes
        }
        for (u32 n = 0; n < What::size; ++n) {
            use(n, high == private_aperture  ? scratch_place(w, lane, offset + n)
                   : high == shared_aperture ? u64(w.lds) + offset + n
                                             : addresses[lane] + n);
        }
    };
    if (is_store) {
        What::write(w, i->from[data], places);
    }
    for (u32 left = exec; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        each_byte(lane, [&](u32 n, u64 place) {
            if (is_store) {
                write_at(place, copies[lane][n]);
            } else {
                copies[lane][n] = read_at<std::byte>(place);
            }
        });
    }
    if (!is_store) {
        What::load(w, i->to[0], places);
    }
}

// Aligned scratch accesses within bounds, dword by dword. Returns false, without any effect, if a lane's access is not.
template <class What> bool scratch_by_dwords(const instruction * i, wave & w, u32x offsets, bool is_store) {
    const u32 exec = w.exec();
    constexpr u32 size = What::size, aligned_to = size < 4 ? size : 4;
    if (exec == 0 || w.scratch_size < size ||
        (lane_bits((offsets > w.scratch_size - size) | (offsets % aligned_to != 0)) & exec) != 0) {
        return false;
    }
    offsets = lane_mask(exec) ? offsets : splat<u32x>(offsets[std::countr_zero(exec)]);
    constexpr u32 row = lanes * 4;
    near_places places{u64(w.scratch), offsets / 4 * row + lane_numbers() * 4 + offsets % 4};
    if constexpr (size <= 4) {
        is_store ? What::write(w, i->from[data], places) : What::load(w, i->to[0], places);
    } else {
        for (u32 n = 0; n < size / 4; ++n, places.offsets += row) {
            const i32 behind = i32(n * sizeof(u32x)) << 3;
            if (is_store) {
                store_dwords<1>(w, {i->from[data].code + behind}, places);
            } else {
                load_dwords<1>(w, {i->to[0].code + behind}, places);
            }
        }
    }
    return true;
}

// Flat accesses with some lanes in scratch or LDS; executed at once if all lanes are in the same.
template <class What> void flat_in_aperture(const instruction * i, wave & w, const u64x & addresses, bool is_store) {
    const u32 exec = w.exec();
    const u64x high = addresses >> 48 << 48;
    const u32x offsets = low_of(addresses);
    if ((lane_bits(high != private_aperture) & exec) == 0 && scratch_by_dwords<What>(i, w, offsets, is_store)) {
        return;
    }
    if ((lane_bits(high != shared_aperture) & exec) == 0) {
        const near_places places = checked_lds(i, w, offsets, What::size);
        is_store ? What::store(w, i->from[data], places) : What::load(w, i->to[0], places);
        return;
    }
    flat_lane_by_lane<What>(i, w, addresses, is_store);
}

bool is_in_aperture(const wave & w, const u64x & addresses) {
    return (lane_bits((addresses >> 48) != 0) & w.exec()) != 0;
}

// Whether all active lanes access the allocation that this instruction accessed last, at most 4 GiB after its start or
// after a scalar address in it.
bool are_near(const instruction * i, const wave & w, u32 size, near_places & places) {
    const memory_range & range = remembered_range(i, w);
    u32x further{}; // lanes whose offset exceeds 32 bits
    if (has(i->from[role::base])) {
        places.base = read_scalar_64(i, w, i->from[role::base]) + u64(i->immediate);
        if (!range.holds(places.base, size)) {
            return false;
        }
        places.offsets = read_bits(i, w, i->from[role::address]);
    } else {
        if (range.end - range.begin < size) {
            return false;
        }
        // The 64-bit difference in 32-bit halves, which is faster.
        const u64 by = u64(i->immediate) - range.begin;
        const operand at = i->from[role::address];
        const i32 behind = at.is(operand::vector) ? i32(sizeof(u32x)) : i32(sizeof(u32));
        const u32x low = read_bits(i, w, at), high = read_bits(i, w, {at.code + (behind << 3)});
        places.base = range.begin;
        places.offsets = low + u32(by);
        const u32x carried = places.offsets < low ? splat<u32x>(1) : splat<u32x>(0);
        further = high + u32(by >> 32) + carried;
    }
    const u32 furthest = u32(std::min<u64>(range.end - places.base - size, ~0u));
    if ((lane_bits((places.offsets > furthest) | (further != 0)) & w.exec()) != 0) {
        return false;
    }
    // With checks, host pages may be watched, so no lane may read more than it requested.
    places.make_harmless(w.exec(), size, w.checks == nullptr ? furthest : 0);
    return true;
}

template <class What, bool is_flat> void load_global(const instruction * i, wave & w) {
    if (near_places near; are_near(i, w, What::size, near)) {
        if (w.exec() != 0) {
            What::load(w, i->to[0], near);
        }
        PATCHKIT_NEXT(i, w);
    }
    const u64x addresses = global_addresses(i, w);
    if (is_flat && is_in_aperture(w, addresses)) [[unlikely]] {
        flat_in_aperture<What>(i, w, addresses, false);
    } else if (w.exec() != 0) {
        What::load(w, i->to[0], checked(i, w, addresses, What::size));
    }
    PATCHKIT_NEXT(i, w);
}

template <class What, bool is_flat> void store_global(const instruction * i, wave & w) {
    if (near_places near; are_near(i, w, What::size, near)) {
        What::store(w, i->from[data], near);
        PATCHKIT_NEXT(i, w);
    }
    const u64x addresses = global_addresses(i, w);
    if (is_flat && is_in_aperture(w, addresses)) [[unlikely]] {
        flat_in_aperture<What>(i, w, addresses, true);
    } else {
        What::store(w, i->from[data], checked(i, w, addresses, What::size));
    }
    PATCHKIT_NEXT(i, w);
}

// ---- Atomics: a function of the old value and the data. Blocks run on several threads.

template <class T> T lane_value(wave & w, operand o, int lane, int further = 0) {
    const u32 * values = reinterpret_cast<const u32 *>(&vector_at(w, o, further));
    if constexpr (sizeof(T) == 8) {
        return std::bit_cast<T>(values[lane] | (u64(values[lanes + lane]) << 32));
    } else {
        return std::bit_cast<T>(values[lane]);
    }
}

template <class T> void put_lane(wave & w, operand o, int lane, T value) {
    if constexpr (sizeof(T) == 8) {
        vector_at(w, o)[lane] = u32(std::bit_cast<u64>(value));
        vector_at(w, o, 1)[lane] = u32(std::bit_cast<u64>(value) >> 32);
    } else {
        vector_at(w, o)[lane] = std::bit_cast<u32>(value);
    }
}

// `f` gets the old value, the data, and the second data (the comparison value of cmpswap).
template <class T, auto f, bool is_shared> T change(wave & w, u64 place, T value, T second) {
    using bits = std::conditional_t<sizeof(T) == 8, u64, u32>;
    const auto after = [&](bits old) { return std::bit_cast<bits>(T(f(std::bit_cast<T>(old), value, second))); };
    bits old = 0;
    if constexpr (is_shared) {
        auto * at = reinterpret_cast<bits *>(place);
        old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(at, &old, after(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
    } else {
        old = read_at<bits>(place);
        write_at(place, after(old));
    }
    if (w.watched != nullptr) [[unlikely]] {
        w.watched->changes |= after(old) != old;
    }
    return std::bit_cast<T>(old);
}

void check_alignment(const instruction * i, wave & w, u64 place, u32 size, int lane) {
    if (place % size != 0) {
        w.on->fault(i, w, "lane " + std::to_string(lane) + " has an atomic at an address that is not a multiple of " +
                        std::to_string(size));
    }
}

template <class T, auto f, bool is_shared>
void change_lane(const instruction * i, wave & w, int lane, u64 place, operand more) {
    const T second = f.needs_second ? lane_value<T>(w, more, lane) : T{};
    const T old = change<T, f, is_shared>(w, place, lane_value<T>(w, i->from[data], lane), second);
    if (has(i->to[0])) {
        put_lane(w, i->to[0], lane, old);
    }
}

// Lane by lane, if all places are valid.
template <class T, auto f, bool is_shared>
void change_lanes(const instruction * i, wave & w, const near_places & places, operand more) {
    const auto at = places.spread();
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        change_lane<T, f, is_shared>(i, w, lane, at[lane], more);
    }
}

template <class T, auto f, bool is_flat> void atomic_global(const instruction * i, wave & w) {
    constexpr int words = sizeof(T) / 4;
    const operand more{i->from[data].code + (int(sizeof(u32x)) * words << 3)};
    const auto are_aligned = [](const near_places & places) {
        return __builtin_reduce_or((places.offsets + u32(places.base)) & u32(sizeof(T) - 1)) == 0;
    };
    if (near_places near; are_near(i, w, sizeof(T), near) && are_aligned(near)) {
        change_lanes<T, f, true>(i, w, near, more);
        PATCHKIT_NEXT(i, w);
    }
    const u64x addresses = global_addresses(i, w);
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        u64 place = addresses[lane];
        const u64 high = place >> 48 << 48;
        if (is_flat && high == shared_aperture) {
            if (w.lds_size < sizeof(T) || u32(place) > w.lds_size - sizeof(T)) {
                w.on->fault(i, w, "an atomic outside of the block's LDS");
            }
            place = u64(w.lds) + u32(place);
        } else if (is_flat && high == private_aperture && sizeof(T) == 4) {
            check_scratch(i, w, lane, u32(place), sizeof(T));
            place = scratch_place(w, lane, u32(place));
        } else {
            if (!remembered_range(i, w).holds(place, sizeof(T))) {
                w.on->find_range(i, w, place, sizeof(T), lane);
            }
        }
        check_alignment(i, w, place, sizeof(T), lane);
        change_lane<T, f, true>(i, w, lane, place, more);
    }
    PATCHKIT_NEXT(i, w);
}

template <class T, auto f> void atomic_lds(const instruction * i, wave & w) {
    const near_places places = checked_lds(i, w, lds_addresses(i, w), sizeof(T));
    if (const u32 askew = lane_bits((places.offsets & u32(sizeof(T) - 1)) != 0) & w.exec(); askew != 0) [[unlikely]] {
        const int lane = std::countr_zero(askew);
        check_alignment(i, w, places.offsets[lane], sizeof(T), lane);
    }
    change_lanes<T, f, false>(i, w, places, i->from[more_data]);
    PATCHKIT_NEXT(i, w);
}

template <class F, bool takes_second = false, bool exchanges = false> struct change_by : F {
    static constexpr bool needs_second = takes_second, is_exchange = exchanges;
};
template <class F> constexpr change_by<F> by(F f) { return {f}; }

constexpr auto swapped_f = [](auto, auto v, auto) { return v; };
constexpr change_by<decltype(swapped_f), false, true> swapped{swapped_f};
constexpr auto added = by([](auto m, auto v, auto) { return m + v; });
constexpr auto subtracted = by([](auto m, auto v, auto) { return m - v; });
constexpr auto reversed = by([](auto m, auto v, auto) { return v - m; });
constexpr auto smaller = by([](auto m, auto v, auto) { return v < m ? v : m; });
constexpr auto larger = by([](auto m, auto v, auto) { return v > m ? v : m; });
constexpr auto anded = by([](auto m, auto v, auto) { return m & v; });
constexpr auto ored = by([](auto m, auto v, auto) { return m | v; });
constexpr auto xored = by([](auto m, auto v, auto) { return m ^ v; });
constexpr auto increased = by([](auto m, auto v, auto) { return m >= v ? 0 : m + 1; });
constexpr auto decreased = by([](auto m, auto v, auto) { return m == 0 || m > v ? v : m - 1; });
constexpr auto smaller_number = by([](auto m, auto v, auto) { return v != v ? m : m != m || v < m ? v : m; });
constexpr auto larger_number = by([](auto m, auto v, auto) { return v != v ? m : m != m || v > m ? v : m; });
constexpr auto compared_f = [](auto m, auto v, auto wanted) { return m == wanted ? v : m; };
constexpr change_by<decltype(compared_f), true> compared{compared_f};
constexpr auto masked_f = [](auto m, auto mask, auto v) { return (m & ~mask) | v; };
constexpr change_by<decltype(masked_f), true> masked{masked_f};
constexpr auto halves_added = by([](u32 m, u32 v, u32) {
    const u16 low = as<u16>(_Float16(f32(as<_Float16>(u16(m))) + f32(as<_Float16>(u16(v)))));
    const u16 high = as<u16>(_Float16(f32(as<_Float16>(u16(m >> 16))) + f32(as<_Float16>(u16(v >> 16)))));
    return low | (u32(high) << 16);
});

constexpr auto subtracted_if_enough = by([](auto m, auto v, auto) { return m >= v ? m - v : m; });
constexpr auto subtracted_to_zero = by([](auto m, auto v, auto) { return m >= v ? m - v : 0; });
// ds_wrap: decrement, wrapping around as the second data defines.
constexpr auto wrapped_f = [](u32 m, u32 v, u32 above) { return m >= v ? m - v : m + above; };
constexpr change_by<decltype(wrapped_f), true> wrapped{wrapped_f};
// Stores the lower half where the upper bit is set (ds_condxchg32), separately for each dword.
constexpr auto exchanged_if_marked = by([](u64 m, u64 v, u64) {
    const u64 low = (v >> 31 & 1) != 0 ? v & 0x7fffffff : m & 0xffffffff;
    const u64 high = (v >> 63 & 1) != 0 ? v >> 32 & 0x7fffffff : m >> 32;
    return low | high << 32;
});
u32 sum_of_bf16(u32 a, u32 b) {
    const f32 sum = as<f32>(a << 16) + as<f32>(b << 16);
    const u32 bits = as<u32>(sum);
    return sum != sum ? (bits | 0x400000) >> 16 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
constexpr auto bf16_added = by([](u32 m, u32 v, u32) {
    return sum_of_bf16(m & 0xffff, v & 0xffff) | sum_of_bf16(m >> 16, v >> 16) << 16;
});

// ---- LDS

template <class What> void load_lds(const instruction * i, wave & w) {
    What::load(w, i->to[0], checked_lds(i, w, lds_addresses(i, w), What::size));
    PATCHKIT_NEXT(i, w);
}

template <class What> void store_lds(const instruction * i, wave & w) {
    What::store(w, i->from[data], checked_lds(i, w, lds_addresses(i, w), What::size));
    PATCHKIT_NEXT(i, w);
}

// Two accesses, with offsets in units in the low and the high half of the immediate.
template <int dwords, int unit> void load_lds_2(const instruction * i, wave & w) {
    const near_places first = checked_lds(i, w, lds_addresses(i, w, 0, unit * 4 * dwords), 4 * dwords);
    const near_places second = checked_lds(i, w, lds_addresses(i, w, 1, unit * 4 * dwords), 4 * dwords);
    // The address register may be overwritten: both addresses were read above.
    load_dwords<dwords>(w, i->to[0], first);
    const operand behind{i->to[0].code + (int(sizeof(u32x)) * dwords << 3)};
    load_dwords<dwords>(w, behind, second);
    PATCHKIT_NEXT(i, w);
}

template <int dwords, int unit> void store_lds_2(const instruction * i, wave & w) {
    const near_places first = checked_lds(i, w, lds_addresses(i, w, 0, unit * 4 * dwords), 4 * dwords);
    const near_places second = checked_lds(i, w, lds_addresses(i, w, 1, unit * 4 * dwords), 4 * dwords);
    Dwords<dwords>::store(w, i->from[data], first);
    Dwords<dwords>::store(w, i->from[more_data], second);
    PATCHKIT_NEXT(i, w);
}

template <class T, int unit> void exchange_lds_2(const instruction * i, wave & w) {
    const auto first = checked_lds(i, w, lds_addresses(i, w, 0, unit * sizeof(T)), sizeof(T)).spread();
    const auto second = checked_lds(i, w, lds_addresses(i, w, 1, unit * sizeof(T)), sizeof(T)).spread();
    const operand behind{i->to[0].code + (int(sizeof(u32x) * sizeof(T) / 4) << 3)};
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const T value = lane_value<T>(w, i->from[data], lane), more = lane_value<T>(w, i->from[more_data], lane);
        const T old = change<T, swapped, false>(w, first[lane], value, T{});
        const T older = change<T, swapped, false>(w, second[lane], more, T{});
        put_lane(w, i->to[0], lane, old);
        put_lane(w, behind, lane, older);
    }
    PATCHKIT_NEXT(i, w);
}

// A counter in LDS that is incremented or decremented by the number of active lanes; each lane gets the old value. M0
// contains its address.
template <bool is_sum> void count_lanes(const instruction * i, wave & w) {
    const u32 place = (w.scalar[slot::m0] & 0xffff) + u32(i->immediate), by = u32(std::popcount(w.exec()));
    if (w.exec() != 0) {
        check_lds(i, w, std::countr_zero(w.exec()), place, 4);
        check_alignment(i, w, place, 4, std::countr_zero(w.exec()));
        const u64 counter = u64(w.lds) + place;
        const u32 old = read_at<u32>(counter);
        note_change(w);
        write_at(counter, is_sum ? old + by : old - by);
        write_bits(w, vector_at(w, i->to[0]), splat<u32x>(old));
    }
    PATCHKIT_NEXT(i, w);
}

// ---- Between lanes, through the LDS hardware. Inactive lanes give 0.

u32x active_values(const wave & w, const u32x & values) {
    const u32 exec = w.exec();
    return exec == ~0u ? values : lane_mask(exec) ? values : splat<u32x>(0);
}

void bpermute(const instruction * i, wave & w) {
    const u32x from = (read_bits(i, w, i->from[address]) + u32(i->immediate)) >> 2;
    write_bits(w, vector_at(w, i->to[0]), picked(active_values(w, read_bits(i, w, i->from[data])), from));
    PATCHKIT_NEXT(i, w);
}

void bpermute_all(const instruction * i, wave & w) { // including inactive lanes
    const u32x from = (read_bits(i, w, i->from[address]) + u32(i->immediate)) >> 2;
    write_bits(w, vector_at(w, i->to[0]), picked(read_bits(i, w, i->from[data]), from));
    PATCHKIT_NEXT(i, w);
}

void permute(const instruction * i, wave & w) {
    const u32x to = (read_bits(i, w, i->from[address]) + u32(i->immediate)) >> 2;
    const u32x value = read_bits(i, w, i->from[data]);
    u32x result{};
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        result[to[lane] & 31] = value[lane];
    }
    write_bits(w, vector_at(w, i->to[0]), result);
    PATCHKIT_NEXT(i, w);
}

// `extra`: the source lanes.
void swizzle(const instruction * i, wave & w) {
    const u32x & from = *static_cast<const u32x *>(i->extra);
    const u32x values = active_values(w, read_bits(i, w, i->from[address]));
    write_bits(w, vector_at(w, i->to[0]), picked(values, from));
    PATCHKIT_NEXT(i, w);
}

// ---- Scratch: private memory of each lane, with dwords interleaved between lanes.

template <class What, bool is_store> void scratch_access(const instruction * i, wave & w) {
    const u32x offsets = scratch_offsets(i, w);
    constexpr u32 words = What::size / 4;
    const bool is_aligned = What::size % 4 == 0 && !any(offsets != offsets[0]) && offsets[0] % 4 == 0;
    if (is_aligned && offsets[0] <= w.scratch_size && w.scratch_size - offsets[0] >= What::size) [[likely]] {
        u32x * rows = reinterpret_cast<u32x *>(w.scratch) + offsets[0] / 4;
        for (u32 n = 0; n < words; ++n) {
            if (is_store) {
                write_bits(w, rows[n], vector_at(w, i->from[data], int(n)));
            } else {
                write_bits(w, vector_at(w, i->to[0], int(n)), rows[n]);
            }
        }
    } else if (!scratch_by_dwords<What>(i, w, offsets, is_store)) {
        flat_lane_by_lane<What>(i, w, convert<u64x>(offsets) | private_aperture, is_store);
    }
    PATCHKIT_NEXT(i, w);
}

// ---- One dword per lane, at the lane's number times four after M0 or a scalar address.

template <bool is_store> void lds_by_lane(const instruction * i, wave & w) {
    const u32x offsets = lane_numbers() * 4 + ((w.scalar[slot::m0] & 0xffff) + u32(i->immediate));
    const near_places places = checked_lds(i, w, offsets, 4);
    if (is_store) {
        Dwords<1>::store(w, i->from[data], places);
    } else {
        load_dwords<1>(w, i->to[0], places);
    }
    PATCHKIT_NEXT(i, w);
}

template <bool is_store> void global_by_lane(const instruction * i, wave & w) {
    const u64 start = (has(i->from[role::base]) ? read_scalar_64(i, w, i->from[role::base]) : 0) + u64(i->immediate);
    const far_places places = checked(i, w, convert<u64x>(lane_numbers()) * 4 + start, 4);
    if (is_store) {
        Dwords<1>::store(w, i->from[data], places);
    } else if (w.exec() != 0) {
        load_dwords<1>(w, i->to[0], places);
    }
    PATCHKIT_NEXT(i, w);
}

// ---- Buffers: memory described by four scalar registers (RDNA3 and RDNA4 ISA guides, "Buffer Resource Descriptor").
// Past its end, loads give 0 and stores do nothing, as in hardware. Swizzled and typed buffers are rejected.

struct buffer_place {
    u64x addresses;
    u32 inside; // bit mask of active lanes in its range
};

buffer_place buffer_places(const instruction * i, wave & w, u32 size) {
    u32 v[4];
    std::memcpy(v, place_of(i, w, i->from[role::base]), sizeof(v));
    const u64 start = v[0] | u64(v[1] & 0xffff) << 32;
    const u32 stride = v[1] >> 16 & 0x3fff, records = v[2], range = v[3] >> 28 & 3;
    if (v[1] >> 30 != 0 || (v[3] >> 23 & 1) != 0) {
        w.on->fault(i, w, "a buffer whose elements are swizzled, or counted by lanes, is not emulated");
    }
    const bool has_index = (i->immediate & buffer_index) != 0, has_offset = (i->immediate & buffer_offset) != 0;
    const u32x first = has(i->from[address]) ? read_bits(i, w, i->from[address]) : splat<u32x>(0);
    const u32x index = has_index ? first : splat<u32x>(0);
    u32x offset = splat<u32x>(u32(i->immediate));
    if (has_offset) {
        offset += has_index ? vector_at(w, i->from[address], 1) : first;
    }
    const u32 further = has(i->from[more_data]) ? read_scalar(i, w, i->from[more_data]) : 0;
    const u64x end = convert<u64x>(offset) + size;
    i64x inside;
    switch (range) {
        case 0: inside = (convert<u64x>(index) < records) & (end <= stride); break;
        case 1: inside = convert<u64x>(index) < records; break;
        case 2: inside = splat<i64x>(records != 0 ? -1 : 0); break;
        default: inside = end <= records; break;
    }
    const u64x addresses = convert<u64x>(index) * stride + convert<u64x>(offset) + (start + further);
    return {addresses, lane_bits(inside) & w.exec()};
}

template <class What> void load_buffer(const instruction * i, wave & w) {
    const buffer_place where = buffer_places(i, w, What::size);
    const u32 exec = w.exec();
    w.scalar[slot::exec] = where.inside;
    far_places places = checked(i, w, where.addresses, What::size);
    w.scalar[slot::exec] = exec;
    places.offsets = lane_mask_wide(where.inside) ? places.offsets : splat<u64x>(u64(nothing_to_read)) - places.base;
    What::load(w, i->to[0], places);
    PATCHKIT_NEXT(i, w);
}

template <class What> void store_buffer(const instruction * i, wave & w) {
    const buffer_place where = buffer_places(i, w, What::size);
    const u32 exec = w.exec();
    w.scalar[slot::exec] = where.inside;
    What::store(w, i->from[data], checked(i, w, where.addresses, What::size));
    w.scalar[slot::exec] = exec;
    PATCHKIT_NEXT(i, w);
}

template <class T, auto f> void atomic_buffer(const instruction * i, wave & w) {
    const buffer_place where = buffer_places(i, w, sizeof(T));
    for (u32 left = w.exec(); left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        T old{};
        if ((where.inside >> lane & 1) != 0) {
            const u64 place = where.addresses[lane];
            w.on->find_range(i, w, place, sizeof(T), lane);
            check_alignment(i, w, place, sizeof(T), lane);
            const T value = lane_value<T>(w, i->from[data], lane);
            const T second = f.needs_second ? lane_value<T>(w, i->from[data], lane, sizeof(T) / 4) : T{};
            old = change<T, f, true>(w, place, value, second);
        }
        if (has(i->to[0])) {
            put_lane(w, i->to[0], lane, old);
        }
    }
    PATCHKIT_NEXT(i, w);
}

// Dwords past the end give 0.
template <class T, int count> void load_scalar_buffer(const instruction * i, wave & w) {
    u32 v[4];
    std::memcpy(v, place_of(i, w, i->from[address]), sizeof(v));
    const u64 start = v[0] | u64(v[1] & 0xffff) << 32, stride = v[1] >> 16 & 0x3fff;
    const u64 length = stride == 0 ? v[2] : stride * v[2];
    u64 offset = u64(i->immediate) + (has(i->from[data]) ? read_scalar(i, w, i->from[data]) : 0);
    offset &= ~u64(sizeof(T) - 1);
    u32 found[count];
    for (u64 n = 0; n < count; ++n) {
        found[n] = 0;
        const u64 at = offset + n * sizeof(T);
        if (at + sizeof(T) <= length) {
            w.on->find_range(i, w, start + at, sizeof(T), -1, true);
            found[n] = u32(std::conditional_t<std::is_signed_v<T>, i32, u32>(read_at<T>(start + at)));
        }
    }
    std::memcpy(reinterpret_cast<char *>(&w) + i->to[0].offset(), found, sizeof(found));
    PATCHKIT_NEXT(i, w);
}

// ---- Scalar loads

template <int dwords> void load_scalar(const instruction * i, wave & w) {
    const u64 place = scalar_address(i, w) & ~u64(3);
    if (!remembered_range(i, w).holds(place, 4 * dwords)) {
        w.on->find_range(i, w, place, 4 * dwords, -1, true);
    }
    std::memcpy(reinterpret_cast<char *>(&w) + i->to[0].offset(), reinterpret_cast<const void *>(place), 4 * dwords);
    PATCHKIT_NEXT(i, w);
}

template <class T> void load_scalar_part(const instruction * i, wave & w) {
    const u64 place = scalar_address(i, w);
    w.on->find_range(i, w, place, sizeof(T), -1, true);
    write_scalar(w, i->to[0], u32(std::conditional_t<std::is_signed_v<T>, i32, u32>(read_at<T>(place))));
    PATCHKIT_NEXT(i, w);
}

definition made(std::string_view name, handler run, const memory_form & form) { return {name, run, {}, {}, 0, form}; }

std::string_view kept_name(std::string name) {
    static std::deque<std::string> names; // must live as long as the table
    return names.emplace_back(std::move(name));
}

template <class What> constexpr memory_form moving(route by, action does) {
    return {.by = by, .does = does, .size = What::size, .part = What::of, .is_signed = What::is_signed};
}

template <class T, auto f> constexpr memory_form changing(route by, bool returns = false) {
    return {.by = by, .does = action::atomic, .size = sizeof(T), .returns = returns, .is_exchange = f.is_exchange};
}

// Buffer instructions exist for global memory as well, under the same names.
std::string_view buffer_name(std::string_view global) {
    return kept_name("buffer_" + std::string(global.substr(global.find('_') + 1)));
}

template <class What> void add_loads(definitions & to, std::string_view global, std::string_view flat,
                                     std::string_view scratch, std::string_view lds) {
    to.push_back(made(global, load_global<What, false>, moving<What>(route::global, action::load)));
    to.push_back(made(flat, load_global<What, true>, moving<What>(route::flat, action::load)));
    to.push_back(made(scratch, scratch_access<What, false>, moving<What>(route::scratch, action::load)));
    to.push_back(made(buffer_name(global), load_buffer<What>, moving<What>(route::buffer, action::load)));
    to.push_back(made(lds, load_lds<What>, moving<What>(route::lds, action::load)));
}

template <class What> void add_stores(definitions & to, std::string_view global, std::string_view flat,
                                      std::string_view scratch, std::string_view lds) {
    to.push_back(made(global, store_global<What, false>, moving<What>(route::global, action::store)));
    to.push_back(made(flat, store_global<What, true>, moving<What>(route::flat, action::store)));
    to.push_back(made(scratch, scratch_access<What, true>, moving<What>(route::scratch, action::store)));
    to.push_back(made(buffer_name(global), store_buffer<What>, moving<What>(route::buffer, action::store)));
    to.push_back(made(lds, store_lds<What>, moving<What>(route::lds, action::store)));
}

template <class T, auto f> void add_atomics(definitions & to, std::string_view global, std::string_view flat,
                                            std::string_view lds = {}, std::string_view lds_returning = {}) {
    if (!global.empty()) {
        to.push_back(made(global, atomic_global<T, f, false>, changing<T, f>(route::global)));
        to.push_back(made(flat, atomic_global<T, f, true>, changing<T, f>(route::flat)));
        to.push_back(made(buffer_name(global), atomic_buffer<T, f>, changing<T, f>(route::buffer)));
    }
    if (!lds.empty()) {
        to.push_back(made(lds, atomic_lds<T, f>, changing<T, f>(route::lds)));
    }
    if (!lds_returning.empty()) {
        to.push_back(made(lds_returning, atomic_lds<T, f>, changing<T, f>(route::lds, true)));
    }
}

// LDS at two offsets, which count units of a multiple of the size.
template <int dwords, int unit> void add_pairs(definitions & to, std::string_view load, std::string_view store,
                                               std::string_view exchange) {
    using T = std::conditional_t<dwords == 1, u32, u64>;
    memory_form form = moving<Dwords<dwords>>(route::lds, action::load);
    form.accesses = 2;
    form.unit = unit * form.size;
    to.push_back(made(load, load_lds_2<dwords, unit>, form));
    form.does = action::store;
    to.push_back(made(store, store_lds_2<dwords, unit>, form));
    form.does = action::atomic;
    form.returns = form.is_exchange = true;
    to.push_back(made(exchange, exchange_lds_2<T, unit>, form));
}

template <int dwords> void add_scalar_loads(definitions & to, std::string_view load, std::string_view of_buffer) {
    to.push_back(made(load, load_scalar<dwords>, moving<Dwords<dwords>>(route::scalar, action::load)));
    to.push_back(made(of_buffer, load_scalar_buffer<u32, dwords>,
                      moving<Dwords<dwords>>(route::scalar_buffer, action::load)));
}

template <class T> void add_scalar_parts(definitions & to, std::string_view load, std::string_view of_buffer) {
    to.push_back(made(load, load_scalar_part<T>, moving<Part<T>>(route::scalar, action::load)));
    to.push_back(made(of_buffer, load_scalar_buffer<T, 1>, moving<Part<T>>(route::scalar_buffer, action::load)));
}

} // namespace

void place_buffer(const instruction * i, wave & w) {
    const auto & form        = *static_cast<const buffer_form *>(i->extra);
    const buffer_place where = buffer_places(i, w, form.size);
    const u32 exec           = w.exec();
    if (has(i->to[1]) && exec != where.inside) {
        const bool is_upper = form.part == into::high || i->to[1].is(operand::high);
        const u32 kept      = form.part == into::whole ? 0 : is_upper ? 0xffff : 0xffff0000;
        for (u32 n = 0; n < std::max(1u, form.size / 4); ++n) {
            u32x & to = vector_at(w, i->to[1], int(n));
            to        = lane_mask(exec & ~where.inside) ? to & kept : to;
        }
    }
    vector_at(w, i->to[0], 0)      = low_of(where.addresses);
    vector_at(w, i->to[0], 1)      = high_of(where.addresses);
    w.scalar[slot::exec_of_buffer] = exec;
    w.scalar[slot::exec]           = where.inside;
    PATCHKIT_NEXT(i, w);
}

void end_buffer(const instruction * i, wave & w) {
    w.scalar[slot::exec] = w.scalar[slot::exec_of_buffer];
    PATCHKIT_NEXT(i, w);
}

definitions memory_instructions() {
    definitions all;
    add_loads<Dwords<1>>(all, "global_load_b32", "flat_load_b32", "scratch_load_b32", "ds_load_b32");
    add_loads<Dwords<2>>(all, "global_load_b64", "flat_load_b64", "scratch_load_b64", "ds_load_b64");
    add_loads<Dwords<3>>(all, "global_load_b96", "flat_load_b96", "scratch_load_b96", "ds_load_b96");
    add_loads<Dwords<4>>(all, "global_load_b128", "flat_load_b128", "scratch_load_b128", "ds_load_b128");
    add_loads<Part<u8>>(all, "global_load_u8", "flat_load_u8", "scratch_load_u8", "ds_load_u8");
    add_loads<Part<int8_t>>(all, "global_load_i8", "flat_load_i8", "scratch_load_i8", "ds_load_i8");
    add_loads<Part<u16>>(all, "global_load_u16", "flat_load_u16", "scratch_load_u16", "ds_load_u16");
    add_loads<Part<i16>>(all, "global_load_i16", "flat_load_i16", "scratch_load_i16", "ds_load_i16");
    add_loads<Part<u8, into::low>>(all, "global_load_d16_u8", "flat_load_d16_u8", "scratch_load_d16_u8",
                                   "ds_load_u8_d16");
    add_loads<Part<int8_t, into::low>>(all, "global_load_d16_i8", "flat_load_d16_i8", "scratch_load_d16_i8",
                                       "ds_load_i8_d16");
    add_loads<Part<u16, into::low>>(all, "global_load_d16_b16", "flat_load_d16_b16", "scratch_load_d16_b16",
                                    "ds_load_u16_d16");
    add_loads<Part<u8, into::high>>(all, "global_load_d16_hi_u8", "flat_load_d16_hi_u8", "scratch_load_d16_hi_u8",
                                    "ds_load_u8_d16_hi");
    add_loads<Part<int8_t, into::high>>(all, "global_load_d16_hi_i8", "flat_load_d16_hi_i8",
                                        "scratch_load_d16_hi_i8", "ds_load_i8_d16_hi");
    add_loads<Part<u16, into::high>>(all, "global_load_d16_hi_b16", "flat_load_d16_hi_b16",
                                     "scratch_load_d16_hi_b16", "ds_load_u16_d16_hi");
    add_stores<Dwords<1>>(all, "global_store_b32", "flat_store_b32", "scratch_store_b32", "ds_store_b32");
    add_stores<Dwords<2>>(all, "global_store_b64", "flat_store_b64", "scratch_store_b64", "ds_store_b64");
    add_stores<Dwords<3>>(all, "global_store_b96", "flat_store_b96", "scratch_store_b96", "ds_store_b96");
    add_stores<Dwords<4>>(all, "global_store_b128", "flat_store_b128", "scratch_store_b128", "ds_store_b128");
    add_stores<Part<u8>>(all, "global_store_b8", "flat_store_b8", "scratch_store_b8", "ds_store_b8");
    add_stores<Part<u16>>(all, "global_store_b16", "flat_store_b16", "scratch_store_b16", "ds_store_b16");
    add_stores<Part<u8, into::high>>(all, "global_store_d16_hi_b8", "flat_store_d16_hi_b8",
                                     "scratch_store_d16_hi_b8", "ds_store_b8_d16_hi");
    add_stores<Part<u16, into::high>>(all, "global_store_d16_hi_b16", "flat_store_d16_hi_b16",
                                      "scratch_store_d16_hi_b16", "ds_store_b16_d16_hi");
    add_atomics<u32, swapped>(all, "global_atomic_swap_b32", "flat_atomic_swap_b32", "ds_storexchg_b32",
                              "ds_storexchg_rtn_b32");
    add_atomics<u64, swapped>(all, "global_atomic_swap_b64", "flat_atomic_swap_b64", "ds_storexchg_b64",
                              "ds_storexchg_rtn_b64");
    add_atomics<u32, compared>(all, "global_atomic_cmpswap_b32", "flat_atomic_cmpswap_b32", "ds_cmpstore_b32",
                               "ds_cmpstore_rtn_b32");
    add_atomics<u64, compared>(all, "global_atomic_cmpswap_b64", "flat_atomic_cmpswap_b64", "ds_cmpstore_b64",
                               "ds_cmpstore_rtn_b64");
    add_atomics<f32, compared>(all, "global_atomic_cmpswap_f32", "flat_atomic_cmpswap_f32", "ds_cmpstore_f32",
                               "ds_cmpstore_rtn_f32");
    add_atomics<f64, compared>(all, "", "", "ds_cmpstore_f64", "ds_cmpstore_rtn_f64");
    add_atomics<u32, masked>(all, "", "", "ds_mskor_b32", "ds_mskor_rtn_b32");
    add_atomics<u64, masked>(all, "", "", "ds_mskor_b64", "ds_mskor_rtn_b64");
    add_atomics<u32, wrapped>(all, "", "", "", "ds_wrap_rtn_b32");
    add_atomics<u64, exchanged_if_marked>(all, "", "", "", "ds_condxchg32_rtn_b64");
    add_atomics<u32, subtracted_to_zero>(all, "global_atomic_csub_u32", "flat_atomic_csub_u32");
    add_atomics<u32, subtracted_to_zero>(all, "global_atomic_sub_clamp_u32", "flat_atomic_sub_clamp_u32",
                                         "ds_sub_clamp_u32", "ds_sub_clamp_rtn_u32");
    add_atomics<u32, subtracted_if_enough>(all, "global_atomic_cond_sub_u32", "flat_atomic_cond_sub_u32",
                                           "ds_cond_sub_u32", "ds_cond_sub_rtn_u32");
    add_atomics<u32, bf16_added>(all, "global_atomic_pk_add_bf16", "flat_atomic_pk_add_bf16", "ds_pk_add_bf16",
                                 "ds_pk_add_rtn_bf16");
    add_atomics<u32, added>(all, "global_atomic_add_u32", "flat_atomic_add_u32", "ds_add_u32", "ds_add_rtn_u32");
    add_atomics<u64, added>(all, "global_atomic_add_u64", "flat_atomic_add_u64", "ds_add_u64", "ds_add_rtn_u64");
    add_atomics<u32, subtracted>(all, "global_atomic_sub_u32", "flat_atomic_sub_u32", "ds_sub_u32", "ds_sub_rtn_u32");
    add_atomics<u64, subtracted>(all, "global_atomic_sub_u64", "flat_atomic_sub_u64", "ds_sub_u64", "ds_sub_rtn_u64");
    add_atomics<u32, reversed>(all, "", "", "ds_rsub_u32", "ds_rsub_rtn_u32");
    add_atomics<u64, reversed>(all, "", "", "ds_rsub_u64", "ds_rsub_rtn_u64");
    add_atomics<i32, smaller>(all, "global_atomic_min_i32", "flat_atomic_min_i32", "ds_min_i32", "ds_min_rtn_i32");
    add_atomics<u32, smaller>(all, "global_atomic_min_u32", "flat_atomic_min_u32", "ds_min_u32", "ds_min_rtn_u32");
    add_atomics<i32, larger>(all, "global_atomic_max_i32", "flat_atomic_max_i32", "ds_max_i32", "ds_max_rtn_i32");
    add_atomics<u32, larger>(all, "global_atomic_max_u32", "flat_atomic_max_u32", "ds_max_u32", "ds_max_rtn_u32");
    add_atomics<i64, smaller>(all, "global_atomic_min_i64", "flat_atomic_min_i64", "ds_min_i64", "ds_min_rtn_i64");
    add_atomics<u64, smaller>(all, "global_atomic_min_u64", "flat_atomic_min_u64", "ds_min_u64", "ds_min_rtn_u64");
    add_atomics<i64, larger>(all, "global_atomic_max_i64", "flat_atomic_max_i64", "ds_max_i64", "ds_max_rtn_i64");
    add_atomics<u64, larger>(all, "global_atomic_max_u64", "flat_atomic_max_u64", "ds_max_u64", "ds_max_rtn_u64");
    add_atomics<u32, anded>(all, "global_atomic_and_b32", "flat_atomic_and_b32", "ds_and_b32", "ds_and_rtn_b32");
    add_atomics<u32, ored>(all, "global_atomic_or_b32", "flat_atomic_or_b32", "ds_or_b32", "ds_or_rtn_b32");
    add_atomics<u32, xored>(all, "global_atomic_xor_b32", "flat_atomic_xor_b32", "ds_xor_b32", "ds_xor_rtn_b32");
    add_atomics<u64, anded>(all, "global_atomic_and_b64", "flat_atomic_and_b64", "ds_and_b64", "ds_and_rtn_b64");
    add_atomics<u64, ored>(all, "global_atomic_or_b64", "flat_atomic_or_b64", "ds_or_b64", "ds_or_rtn_b64");
    add_atomics<u64, xored>(all, "global_atomic_xor_b64", "flat_atomic_xor_b64", "ds_xor_b64", "ds_xor_rtn_b64");
    add_atomics<u32, increased>(all, "global_atomic_inc_u32", "flat_atomic_inc_u32", "ds_inc_u32", "ds_inc_rtn_u32");
    add_atomics<u64, increased>(all, "global_atomic_inc_u64", "flat_atomic_inc_u64", "ds_inc_u64", "ds_inc_rtn_u64");
    add_atomics<u32, decreased>(all, "global_atomic_dec_u32", "flat_atomic_dec_u32", "ds_dec_u32", "ds_dec_rtn_u32");
    add_atomics<u64, decreased>(all, "global_atomic_dec_u64", "flat_atomic_dec_u64", "ds_dec_u64", "ds_dec_rtn_u64");
    add_atomics<f32, added>(all, "global_atomic_add_f32", "flat_atomic_add_f32", "ds_add_f32", "ds_add_rtn_f32");
    add_atomics<f32, smaller_number>(all, "global_atomic_min_f32", "flat_atomic_min_f32", "ds_min_f32",
                                     "ds_min_rtn_f32");
    add_atomics<f32, larger_number>(all, "global_atomic_max_f32", "flat_atomic_max_f32", "ds_max_f32",
                                    "ds_max_rtn_f32");
    add_atomics<f64, smaller_number>(all, "", "", "ds_min_f64", "ds_min_rtn_f64");
    add_atomics<f64, larger_number>(all, "", "", "ds_max_f64", "ds_max_rtn_f64");
    add_atomics<u32, halves_added>(all, "global_atomic_pk_add_f16", "flat_atomic_pk_add_f16", "ds_pk_add_f16",
                                   "ds_pk_add_rtn_f16");
    add_pairs<1, 1>(all, "ds_load_2addr_b32", "ds_store_2addr_b32", "ds_storexchg_2addr_rtn_b32");
    add_pairs<2, 1>(all, "ds_load_2addr_b64", "ds_store_2addr_b64", "ds_storexchg_2addr_rtn_b64");
    add_pairs<1, 64>(all, "ds_load_2addr_stride64_b32", "ds_store_2addr_stride64_b32",
                     "ds_storexchg_2addr_stride64_rtn_b32");
    add_pairs<2, 64>(all, "ds_load_2addr_stride64_b64", "ds_store_2addr_stride64_b64",
                     "ds_storexchg_2addr_stride64_rtn_b64");
    const memory_form between = moving<Dwords<1>>(route::between_lanes, action::load);
    all.push_back(made("ds_bpermute_b32", bpermute, between));
    all.push_back(made("ds_bpermute_fi_b32", bpermute_all, between));
    all.push_back(made("ds_permute_b32", permute, between));
    all.push_back(made("ds_swizzle_b32", swizzle, between));
    const memory_form by_m0 = moving<Dwords<1>>(route::lds_by_m0, action::load);
    all.push_back(made("ds_append", count_lanes<true>, by_m0));
    all.push_back(made("ds_consume", count_lanes<false>, by_m0));
    all.push_back(made("ds_load_addtid_b32", lds_by_lane<false>, by_m0));
    all.push_back(made("ds_store_addtid_b32", lds_by_lane<true>, moving<Dwords<1>>(route::lds_by_m0, action::store)));
    all.push_back(made("global_load_addtid_b32", global_by_lane<false>,
                       moving<Dwords<1>>(route::global_by_lane, action::load)));
    all.push_back(made("global_store_addtid_b32", global_by_lane<true>,
                       moving<Dwords<1>>(route::global_by_lane, action::store)));
    add_scalar_loads<1>(all, "s_load_b32", "s_buffer_load_b32");
    add_scalar_loads<2>(all, "s_load_b64", "s_buffer_load_b64");
    add_scalar_loads<3>(all, "s_load_b96", "s_buffer_load_b96");
    add_scalar_loads<4>(all, "s_load_b128", "s_buffer_load_b128");
    add_scalar_loads<8>(all, "s_load_b256", "s_buffer_load_b256");
    add_scalar_loads<16>(all, "s_load_b512", "s_buffer_load_b512");
    add_scalar_parts<u8>(all, "s_load_u8", "s_buffer_load_u8");
    add_scalar_parts<int8_t>(all, "s_load_i8", "s_buffer_load_i8");
    add_scalar_parts<u16>(all, "s_load_u16", "s_buffer_load_u16");
    add_scalar_parts<i16>(all, "s_load_i16", "s_buffer_load_i16");
    // There is only one memory, and caches hold nothing back unless stale_caches.hpp adds some.
    for (const std::string_view name : {"global_wb", "global_wbinv", "ds_nop"}) {
        all.push_back({name, nullptr, {}, {}});
    }
    all.push_back({"buffer_gl1_inv", nullptr, {}, {}, trait::invalidates_l1});
    all.push_back({"buffer_gl0_inv", nullptr, {}, {}, trait::is_fence | trait::invalidates_l0});
    all.push_back({"global_inv", nullptr, {}, {}, trait::is_fence | trait::invalidates_by_scope});
    return all;
}

// Patterns of ds_swizzle: within 4 lanes, rotations (bits 15 and 14), or and/or/xor masks within 32.
static int swizzled(int lane, u32 pattern) {
    if ((pattern & 0xc000) == 0xc000) {
        const int by = int((pattern >> 5) & 31), kept = int(pattern & 31);
        const int sign = (pattern & 0x400) != 0 ? -by : by;
        return (lane & kept) | ((lane + sign) & ~kept & 31);
    }
    if ((pattern & 0x8000) != 0) {
        return (lane & ~3) + int((pattern >> (2 * (lane & 3))) & 3);
    }
    const int and_mask = int(pattern & 31), or_mask = int((pattern >> 5) & 31), xor_mask = int((pattern >> 10) & 31);
    return ((lane & and_mask) | or_mask) ^ xor_mask;
}

u32x swizzle_sources(u32 pattern) {
    u32x sources;
    for (int lane = 0; lane < lanes; ++lane) {
        sources[lane] = u32(swizzled(lane, pattern));
    }
    return sources;
}

} // namespace patchkit::gpu
