// Reading values out of bytes that a stranger may have written: nothing is followed before its size was checked.
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

// What is wrong, and where.
struct bad_code_object : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Throws bad_code_object.
[[noreturn]] void refuse(const std::string & why);

// 0x1f
std::string hex(uint64_t value);

// A name from the file as an error can have it: what does not print is a question mark, a long one is cut.
std::string shown(std::string_view name);

// What is being read, for errors: "section header", 3. Made into text only when it is needed.
struct place {
    static constexpr uint64_t none = UINT64_MAX;

    const char * what;
    uint64_t number = none;

    // Not explicit: most places are only a word.
    place(const char * the_what, uint64_t the_number = none) : what(the_what), number(the_number) {}

    std::string text() const;
};

// `size` bytes from `offset`.
bytes part_of(bytes all, uint64_t offset, uint64_t size, const place & where);

// `count` times `size` bytes from `offset`.
bytes table_of(bytes all, uint64_t offset, uint64_t count, uint64_t size, const place & where);

// A value in the byte order of the file, which is that of every machine that this runs on: little.
template <typename T> T value_at(bytes all, uint64_t offset, const place & where) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, part_of(all, offset, sizeof(T), where).data(), sizeof(T));
    return value;
}

// The text that begins at `offset` and ends with a zero.
std::string_view text_at(bytes all, uint64_t offset, const place & where);

inline std::string_view as_text(bytes all) {
    return {reinterpret_cast<const char *>(all.data()), all.size()};
}

} // namespace patchkit::gpu
