// Registers as named in the text of operands, and register sets.
#pragma once

#include "wave.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace patchkit::gpu {

// A register range named by an operand; scalar registers by slot (wave.hpp). `is_high`: upper half, as in v1.h.
struct registers {
    bool is_vector;
    int first;
    int count;
    bool is_high = false;
    bool is_half = false;
};

// Empty if the text names no register.
std::optional<registers> parse_registers(std::string_view text);

// A set of VGPR halves and whole scalar slots, with two bits each; for a slot only the first is used.
class register_set {
  public:
    void add_half(int vgpr, bool is_high) { add(2 * vgpr + int(is_high)); }
    void add_slot(int n) { add(2 * (most_vgprs + n)); }
    void add_vgpr(int n) {
        add_half(n, false);
        add_half(n, true);
    }
    void remove_vgpr(int n) { remove(n); }
    void remove_slot(int n) { remove(most_vgprs + n); }
    bool holds_vgpr(int n) const { return n < most_vgprs && holds(n); }
    bool holds_slot(int n) const { return holds(most_vgprs + n); }
    register_set both(const register_set & other) const {
        register_set result;
        result.set(all() & other.all());
        return result;
    }

    template <class F> void each_vgpr(F use) const { each(0, most_vgprs / 32, use); }
    template <class F> void each_slot(F use) const { each(most_vgprs / 32, 16, use); }

    bool meets(const register_set & other) const {
        return (hint & other.hint) != 0 && __builtin_reduce_or(all() & other.all()) != 0;
    }
    bool is_empty() const { return hint == 0; }

    // A Bloom-like hint with one bit for several registers: sets without a common bit are disjoint.
    u64 hints() const { return hint; }
    void join(const register_set & other) {
        set(all() | other.all());
        hint |= other.hint;
    }

    // Removes the other set; requires renew_hints() afterwards.
    void cut(const register_set & other) { set(all() & ~other.all()); }

    // Recomputes hints after cut().
    void renew_hints();

    // The first common register in assembler syntax: v3, v3.h, s7.
    std::string first_of_both(const register_set & other) const;

  private:
    static constexpr int most_vgprs = 256;
    using words = vector_of<u64, 16>;
    alignas(64) u64 bits[16]{}; // an array, because access to single words of a vector is slow
    u64 hint = 0;

    words all() const {
        words result;
        std::memcpy(&result, bits, sizeof(result));
        return result;
    }
    void set(const words & to) { std::memcpy(bits, &to, sizeof(to)); }

    template <class F> void each(int first, int end, F use) const {
        for (int word = first; word < end; ++word) {
            for (u64 left = whole_registers(bits[word]); left != 0; left &= left - 1) {
                use(32 * (word - first) + std::countr_zero(left) / 2);
            }
        }
    }
    // Bits at even positions for registers of which any half is present.
    static u64 whole_registers(u64 word) { return (word | word >> 1) & 0x5555555555555555; }

    bool holds(int n) const { return (bits[n / 32] >> (2 * n % 64) & 3) != 0; }

    // Registers that share a hint bit are 64 apart.
    void remove(int n) {
        bits[n / 32] &= ~(u64(3) << (2 * n % 64));
        u64 left = 0;
        for (int word = n / 32 % 2; word < 16; word += 2) {
            left |= bits[word];
        }
        if ((left >> (2 * n % 64) & 3) == 0) {
            hint &= ~(u64(1) << (n % 64));
        }
    }

    void add(int n) {
        bits[n / 64] |= u64(1) << (n % 64);
        hint |= u64(1) << (n / 2 % 64);
    }
};

} // namespace patchkit::gpu
