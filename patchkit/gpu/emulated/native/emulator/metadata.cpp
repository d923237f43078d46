#include "metadata.hpp"

#include <limits>

namespace patchkit::gpu {

namespace {

// Real metadata is nested five levels deep.
constexpr int most_levels = 32;

// More than any kernel's arguments: HIP's limit is 4 KiB, and the hidden ones add 256 bytes.
constexpr uint32_t most_kernarg = 1 << 20;

// Reads MessagePack values in sequence. Every value takes at least one byte, so wrong counts end with the data.
class packed {
  public:
    explicit packed(bytes all) : all(all) {}

    // Number of pairs that follow.
    uint64_t map(const char * what) {
        const uint8_t kind = next();
        if ((kind & 0xf0) == 0x80) {
            return kind & 0x0f;
        }
        switch (kind) {
            case 0xde: return number(2);
            case 0xdf: return number(4);
            default:   wrong(what, "a map");
        }
    }

    // Number of values that follow.
    uint64_t array(const char * what) {
        const uint8_t kind = next();
        if ((kind & 0xf0) == 0x90) {
            return kind & 0x0f;
        }
        switch (kind) {
            case 0xdc: return number(2);
            case 0xdd: return number(4);
            default:   wrong(what, "an array");
        }
    }

    std::string_view text(const char * what) {
        const uint8_t kind = next();
        if ((kind & 0xe0) == 0xa0) {
            return as_text(take(kind & 0x1f));
        }
        switch (kind) {
            case 0xd9: return as_text(take(number(1)));
            case 0xda: return as_text(take(number(2)));
            case 0xdb: return as_text(take(number(4)));
            default:   wrong(what, "text");
        }
    }

    bool boolean(const char * what) {
        const uint8_t kind = next();
        if (kind != 0xc2 && kind != 0xc3) {
            wrong(what, "true or false");
        }
        return kind == 0xc3;
    }

    // A non-negative 32-bit number.
    uint32_t count(const char * what) {
        const uint64_t value = unsigned_number(what);
        if (value > std::numeric_limits<uint32_t>::max()) {
            refuse(std::string("metadata: ") + what + " is " + std::to_string(value));
        }
        return uint32_t(value);
    }

    // Skips one value, including nested ones.
    void skip(int levels = most_levels) {
        if (levels == 0) {
            refuse("metadata: nested deeper than " + std::to_string(most_levels) + " levels at byte " + hex(position));
        }
        const uint8_t kind = next();
        if (kind >= 0xe0 || kind <= 0x7f) {
            return; // a small number
        }
        if (kind <= 0x8f) {
            return skip_values(2 * uint64_t(kind & 0x0f), levels);
        }
        if (kind <= 0x9f) {
            return skip_values(kind & 0x0f, levels);
        }
        if (kind <= 0xbf) {
            take(kind & 0x1f);
            return;
        }
        skip_long(kind, levels);
    }

  private:
    // Types 0xc0 to 0xdf.
    void skip_long(uint8_t kind, int levels) {
        // Bytes of the value, or of its length.
        static constexpr uint8_t widths[] = {0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8,
                                             1, 2, 4, 8, 2, 3, 5, 9, 17, 1, 2, 4, 2, 4, 2, 4};
        const unsigned width = widths[kind - 0xc0];
        switch (kind) {
            case 0xc1:                                  // never used
                refuse("metadata: byte " + hex(position - 1) + " does not start a value");
            case 0xc4: case 0xc5: case 0xc6:            // bytes
            case 0xd9: case 0xda: case 0xdb:            // text
                take(number(width));
                return;
            case 0xc7: case 0xc8: case 0xc9:            // extensions: type, then data
                take(number(width) + 1);
                return;
            case 0xdc: case 0xdd: return skip_values(number(width), levels);
            case 0xde: case 0xdf: return skip_values(2 * number(width), levels);
            default:              take(width); return;  // nil, booleans, numbers, extensions of a fixed size
        }
    }

    void skip_values(uint64_t count, int levels) {
        for (; count > 0; --count) {
            skip(levels - 1);
        }
    }

    uint64_t unsigned_number(const char * what) {
        const uint8_t kind = next();
        if (kind <= 0x7f) {
            return kind;
        }
        switch (kind) {
            case 0xcc: return number(1);
            case 0xcd: return number(2);
            case 0xce: return number(4);
            case 0xcf: return number(8);
            // Signed, in case another writer uses it; a negative number is rejected by callers as too large.
            case 0xd0: return uint64_t(int64_t(int8_t(number(1))));
            case 0xd1: return uint64_t(int64_t(int16_t(number(2))));
            case 0xd2: return uint64_t(int64_t(int32_t(number(4))));
            case 0xd3: return number(8);
            default:   wrong(what, "a number");
        }
    }

    bytes take(uint64_t size) {
        const bytes taken = part_of(all, position, size, "metadata");
        position += size;
        return taken;
    }

    uint8_t next() { return uint8_t(take(1)[0]); }

    // MessagePack is big-endian.
    uint64_t number(unsigned size) {
        uint64_t value = 0;
        for (const std::byte each : take(size)) {
            value = value << 8 | uint64_t(each);
        }
        return value;
    }

    [[noreturn]] void wrong(const char * what, const char * wanted) const {
        refuse(std::string("metadata: ") + what + " is not " + wanted + ", at byte " + hex(position - 1));
    }

    bytes all;
    uint64_t position = 0;
};

// Calls `read` with each key of a map; it reads the value and returns whether it knows the key.
template <typename Read> void each_pair(packed & from, const char * what, const Read & read) {
    for (uint64_t left = from.map(what); left > 0; --left) {
        if (!read(from.text(what))) {
            from.skip();
        }
    }
}

argument read_argument(packed & from) {
    bool has_offset = false;
    bool has_size   = false;
    argument result{};
    each_pair(from, "an argument", [&](std::string_view key) {
        if (key == ".offset") {
            result.offset = from.count(".offset");
            has_offset    = true;
        } else if (key == ".size") {
            result.size = from.count(".size");
            has_size    = true;
        } else if (key == ".value_kind") {
            result.kind = from.text(".value_kind");
        } else {
            return false;
        }
        return true;
    });
    if (!has_offset || !has_size || result.kind.empty()) {
        refuse("metadata: an argument without .offset, .size or .value_kind");
    }
    return result;
}

std::vector<argument> read_arguments(packed & from) {
    std::vector<argument> result;
    for (uint64_t left = from.array(".args"); left > 0; --left) {
        result.push_back(read_argument(from));
    }
    return result;
}

void check_kernel(const kernel_metadata & kernel) {
    if (kernel.name.empty() || kernel.symbol.empty()) {
        refuse("metadata: a kernel without .name or .symbol");
    }
    const std::string where = "metadata of kernel " + shown(kernel.name) + ": ";
    if (kernel.kernarg_size > most_kernarg) {
        refuse(where + "arguments of " + std::to_string(kernel.kernarg_size) + " bytes");
    }
    const uint32_t alignment = kernel.kernarg_alignment;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        refuse(where + ".kernarg_segment_align is " + std::to_string(alignment));
    }
    if (kernel.max_threads == 0 || (kernel.wave_size != 32 && kernel.wave_size != 64)) {
        refuse(where + "blocks of " + std::to_string(kernel.max_threads) + " threads in waves of " +
               std::to_string(kernel.wave_size));
    }
    for (const argument & each : kernel.arguments) {
        if (each.offset > kernel.kernarg_size || each.size > kernel.kernarg_size - each.offset) {
            refuse(where + "an argument of " + std::to_string(each.size) + " bytes at " + std::to_string(each.offset) +
                   " of " + std::to_string(kernel.kernarg_size));
        }
    }
}

kernel_metadata read_kernel(packed & from) {
    kernel_metadata result;
    const auto count_of = [&](std::string_view key) -> uint32_t * {
        return key == ".kernarg_segment_size"      ? &result.kernarg_size
               : key == ".kernarg_segment_align"   ? &result.kernarg_alignment
               : key == ".max_flat_workgroup_size" ? &result.max_threads
               : key == ".vgpr_count"              ? &result.vgprs
               : key == ".sgpr_count"              ? &result.sgprs
               : key == ".wavefront_size"          ? &result.wave_size
                                                   : nullptr;
    };
    each_pair(from, "a kernel", [&](std::string_view key) {
        if (uint32_t * count = count_of(key)) {
            *count = from.count(std::string(key).c_str());
        } else if (key == ".name") {
            result.name = from.text(".name");
        } else if (key == ".symbol") {
            result.symbol = from.text(".symbol");
        } else if (key == ".args") {
            result.arguments = read_arguments(from);
        } else if (key == ".uses_dynamic_stack") {
            result.has_dynamic_stack = from.boolean(".uses_dynamic_stack");
        } else {
            return false;
        }
        return true;
    });
    check_kernel(result);
    return result;
}

} // namespace

std::vector<kernel_metadata> read_metadata(bytes note) {
    packed from(note);
    std::vector<kernel_metadata> kernels;
    each_pair(from, "the whole", [&](std::string_view key) {
        if (key != "amdhsa.kernels") {
            return false;
        }
        for (uint64_t left = from.array("amdhsa.kernels"); left > 0; --left) {
            kernels.push_back(read_kernel(from));
        }
        return true;
    });
    return kernels;
}

} // namespace patchkit::gpu
