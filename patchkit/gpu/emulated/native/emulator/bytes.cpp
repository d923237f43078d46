#include "bytes.hpp"

#include <bit>
#include <cstdio>

static_assert(std::endian::native == std::endian::little, "GPUs of AMD are little-endian, and so must be the host");

namespace patchkit::gpu {

void refuse(const std::string & why) { throw bad_code_object(why); }

std::string hex(uint64_t value) {
    char text[19];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

std::string shown(std::string_view name) {
    constexpr size_t longest = 200;
    std::string text(name.substr(0, longest));
    for (char & each : text) {
        if (each < ' ' || each > '~') {
            each = '?';
        }
    }
    return name.size() > longest ? text + "..." : text;
}

std::string place::text() const { return number == none ? what : what + (" " + std::to_string(number)); }

bytes part_of(bytes all, uint64_t offset, uint64_t size, const place & where) {
    if (offset > all.size() || size > all.size() - offset) {
        refuse(where.text() + ": " + hex(size) + " bytes at " + hex(offset) + " are not within " + hex(all.size()) +
               " bytes");
    }
    return all.subspan(offset, size);
}

bytes table_of(bytes all, uint64_t offset, uint64_t count, uint64_t size, const place & where) {
    if (size != 0 && count > all.size() / size) {
        refuse(where.text() + ": " + std::to_string(count) + " entries of " + hex(size) + " bytes do not fit into " +
               hex(all.size()) + " bytes");
    }
    return part_of(all, offset, count * size, where);
}

std::string_view text_at(bytes all, uint64_t offset, const place & where) {
    const std::string_view rest = as_text(part_of(all, offset, offset > all.size() ? 0 : all.size() - offset, where));
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) {
        refuse(where.text() + ": the name at " + hex(offset) + " is not terminated");
    }
    return rest.substr(0, end);
}

} // namespace patchkit::gpu
