// Bounds-checked reading from untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace patchkit::gpu {

using bytes = std::span<const std::byte>;

// The problem and its location.
struct bad_code_object : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws bad_code_object.
[[noreturn]] void refuse(const std::string & why);

// 0x1f
std::string hex(uint64_t value);

// A name from the file for use in errors: unprintable characters become question marks, long names are truncated.
std::string shown(std::string_view name);

// What is being read, for errors, such as {"section header", 3}. Formatted only when needed.
struct place {
    static constexpr uint64_t none = UINT64_MAX;

    const char * what;
    uint64_t number = none;

    // Not explicit, because most places are a single word.
    place(const char * the_what, uint64_t the_number = none) : what(the_what), number(the_number) {}

    std::string text() const;
};

// `size` bytes from `offset`.
bytes part_of(bytes all, uint64_t offset, uint64_t size, const place & where);

// `count` times `size` bytes from `offset`.
bytes table_of(bytes all, uint64_t offset, uint64_t count, uint64_t size, const place & where);

// A little-endian value; the host is little-endian as well.
template <typename T> T value_at(bytes all, uint64_t offset, const place & where) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, part_of(all, offset, sizeof(T), where).data(), sizeof(T));
    return value;
}

// The zero-terminated text at `offset`.
std::string_view text_at(bytes all, uint64_t offset, const place & where);

inline std::string_view as_text(bytes all) {
    return {reinterpret_cast<const char *>(all.data()), all.size()};
}

} // namespace patchkit::gpu
