// Loads code objects for the tests and prints what it found, one JSON object per line.
//
//   load_code show FILE ARCH          the code for ARCH in FILE: kernels, variables, functions
//   load_code extract FILE ARCH TO    writes the code for ARCH into another file
//   load_code size FILE               what bundle_size says of it
//   load_code truncate FILE ARCH      loads every beginning of it
//   load_code flip FILE ARCH SEED N   loads it N times with a few bytes of its headers, tables and notes changed
#include "code_object.hpp"

#include <elf.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>

using namespace patchkit::gpu;

namespace {

std::vector<std::byte> read_file(const char * path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    std::vector<std::byte> content(text.size());
    std::transform(text.begin(), text.end(), content.begin(), [](char each) { return std::byte(each); });
    return content;
}

std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\') {
            result += '\\';
        }
        result += each < ' ' || each > '~' ? '?' : each;
    }
    return result + '"';
}

std::string field(const char * name, uint64_t value) {
    return ", \"" + std::string(name) + "\": " + std::to_string(value);
}

std::string hex_of(const std::byte * from, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) {
        char two[3];
        std::snprintf(two, sizeof(two), "%02x", unsigned(from[i]));
        text += two;
    }
    return text;
}

std::string arguments_of(const kernel_code & kernel) {
    std::string text;
    for (const argument & each : kernel.arguments) {
        text += (text.empty() ? "[" : ", [") + quoted(each.kind) + ", " + std::to_string(each.offset) + ", " +
                std::to_string(each.size) + "]";
    }
    return "[" + text + "]";
}

void print_kernel(const kernel_code & kernel, const std::byte * base) {
    std::printf("{\"kernel\": %s%s%s%s%s%s%s%s%s%s%s%s%s%s, \"args\": %s}\n", quoted(kernel.name).c_str(),
                field("entry", uint64_t(kernel.entry - base)).c_str(), field("lds", kernel.lds).c_str(),
                field("scratch", kernel.scratch).c_str(), field("kernarg_size", kernel.kernarg_size).c_str(),
                field("kernarg_alignment", kernel.kernarg_alignment).c_str(), field("vgprs", kernel.vgprs).c_str(),
                field("vgprs_used", kernel.vgprs_used).c_str(), field("sgprs", kernel.sgprs).c_str(),
                field("max_threads", kernel.max_threads).c_str(), field("wave_size", kernel.wave_size).c_str(),
                field("properties", kernel.properties).c_str(), field("rsrc1", kernel.rsrc1).c_str(),
                field("dynamic_stack", kernel.has_dynamic_stack).c_str(), arguments_of(kernel).c_str());
}

// The address within the loaded memory that each 8 bytes of a variable hold, null where they hold something else.
std::string targets_of(const symbol & variable, std::span<std::byte> memory) {
    const auto base = reinterpret_cast<uintptr_t>(memory.data());
    std::string all;
    for (uint64_t at = 0; at + 8 <= std::min<uint64_t>(variable.size, 64); at += 8) {
        uintptr_t value;
        std::memcpy(&value, variable.address + at, sizeof(value));
        const bool is_inside = value >= base && value - base < memory.size();
        all += (at == 0 ? "" : ", ") + (is_inside ? std::to_string(value - base) : "null");
    }
    return "[" + all + "]";
}

void print_variable(const std::string & name, const symbol & variable, std::span<std::byte> memory) {
    std::printf("{\"variable\": %s%s%s, \"bytes\": \"%s\", \"points_to\": %s}\n", quoted(name).c_str(),
                field("address", uint64_t(variable.address - memory.data())).c_str(),
                field("size", variable.size).c_str(),
                hex_of(variable.address, std::min<uint64_t>(variable.size, 64)).c_str(),
                targets_of(variable, memory).c_str());
}

// Each function as function_at finds it by its first and last byte, and whether it is found right behind them.
void print_functions(code_object & code) {
    std::set<const void *> seen;
    for (std::byte & each : code.memory()) {
        const auto * found = code.function_at(&each);
        if (found == nullptr || !seen.insert(found).second) {
            continue;
        }
        const symbol & place = found->second;
        const bool is_whole  = place.address == &each && code.function_at(place.address + place.size - 1) == found &&
                              code.function_at(place.address + place.size) != found;
        std::printf("{\"function\": %s%s%s%s}\n", quoted(found->first).c_str(),
                    field("address", uint64_t(place.address - code.memory().data())).c_str(),
                    field("size", place.size).c_str(), field("whole", is_whole).c_str());
    }
}

int show(const std::vector<std::byte> & file, const char * arch) {
    std::vector<std::byte> storage;
    std::vector<std::string> held;
    const auto elf = find_in_bundle(file, arch, storage, held);
    std::string all;
    for (const std::string & each : held) {
        all += (all.empty() ? "" : ", ") + quoted(each);
    }
    std::printf("{\"held\": [%s]%s}\n", all.c_str(), field("size", elf.size()).c_str());
    if (elf.empty()) {
        return 0;
    }
    const auto code = code_object::load(elf);
    std::printf("{\"arch\": %s%s%s}\n", quoted(code->arch()).c_str(), field("memory", code->memory().size()).c_str(),
                field("base", reinterpret_cast<uintptr_t>(code->memory().data())).c_str());
    for (const auto & [name, kernel] : code->kernels()) {
        if (code->kernel(name) != &kernel) {
            return 1;
        }
        print_kernel(kernel, code->memory().data());
    }
    for (const auto & [name, variable] : code->variables()) {
        if (code->variable(name) != &variable) {
            return 1;
        }
        print_variable(name, variable, code->memory());
    }
    print_functions(*code);
    return 0;
}

int extract(const std::vector<std::byte> & file, const char * arch, const char * to) {
    std::vector<std::byte> storage;
    std::vector<std::string> held;
    const auto elf = find_in_bundle(file, arch, storage, held);
    std::ofstream(to, std::ios::binary).write(reinterpret_cast<const char *>(elf.data()), std::streamsize(elf.size()));
    return 0;
}

// How loading ended, by what the error begins with.
std::map<std::string, uint64_t> outcomes;

void load_once(std::span<const std::byte> file, const char * arch) {
    // A copy of exactly its size, so that a read behind its end is seen.
    const std::vector<std::byte> exact(file.begin(), file.end());
    try {
        std::vector<std::byte> storage;
        std::vector<std::string> held;
        const auto elf = find_in_bundle(exact, arch, storage, held);
        if (elf.empty()) {
            ++outcomes["other arch"];
            return;
        }
        const auto code = code_object::load(elf);
        // What an emulator would touch.
        unsigned sum = 0;
        for (const auto & [name, kernel] : code->kernels()) {
            sum += kernel.entry == nullptr ? 1 : unsigned(*kernel.entry);
            sum += unsigned(code->function_at(kernel.entry) != nullptr);
        }
        for (const auto & [name, variable] : code->variables()) {
            sum += variable.size == 0 ? 0 : unsigned(variable.address[variable.size - 1]);
        }
        ++outcomes[sum != 0 ? "loaded" : "loaded nothing"];
    } catch (const bad_code_object & error) {
        ++outcomes[std::string("refused: ") + error.what()];
    }
}

// The most memory that this program had. Not getrusage's: that counts what the process had before it became this program,
// and a test of pytest's began it (CI of 2026-11-28 was red by it).
uint64_t most_kilobytes() {
    std::ifstream status("/proc/self/status");
    uint64_t found = 0;
    for (std::string line; found == 0 && std::getline(status, line);) {
        std::sscanf(line.c_str(), "VmHWM: %" SCNu64 " kB", &found);
    }
    return found;
}

void print_outcomes() {
    uint64_t refused = 0;
    for (const auto & [text, times] : outcomes) {
        if (text.starts_with("refused: ")) {
            refused += times;
        } else {
            std::printf("{\"outcome\": %s%s}\n", quoted(text).c_str(), field("times", times).c_str());
        }
    }
    std::printf("{\"outcome\": \"refused\"%s%s%s}\n", field("times", refused).c_str(),
                field("texts", outcomes.size()).c_str(), field("kilobytes", most_kilobytes()).c_str());
    for (const auto & [text, times] : outcomes) {
        std::printf("{\"text\": %s}\n", quoted(text).c_str());
    }
}

int truncate(const std::vector<std::byte> & file, const char * arch) {
    for (size_t size = 0; size < file.size(); ++size) {
        load_once({file.data(), size}, arch);
    }
    print_outcomes();
    return 0;
}

// The bytes that a loader follows: headers, tables, notes, names; not code, nor the contents of variables.
std::vector<size_t> structural_bytes(const std::vector<std::byte> & file) {
    std::set<size_t> result;
    const auto add = [&](size_t offset, size_t size) {
        for (size_t i = offset; i < std::min(file.size(), offset + size); ++i) {
            result.insert(i);
        }
    };
    if (std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
        add(0, 256); // a bundle's table, or the header of a compressed one
        return {result.begin(), result.end()};
    }
    Elf64_Ehdr header;
    std::memcpy(&header, file.data(), sizeof(header));
    add(0, sizeof(header));
    add(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
    add(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
    for (size_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, file.data() + header.e_shoff + i * sizeof(section), sizeof(section));
        const std::set<uint32_t> kinds{SHT_NOTE, SHT_DYNSYM, SHT_SYMTAB, SHT_STRTAB, SHT_HASH, SHT_RELA, SHT_DYNAMIC};
        const bool is_descriptors = section.sh_type == SHT_PROGBITS && section.sh_flags == SHF_ALLOC;
        if (kinds.contains(section.sh_type) || is_descriptors) {
            add(section.sh_offset, section.sh_size);
        }
    }
    return {result.begin(), result.end()};
}

int flip(const std::vector<std::byte> & file, const char * arch, uint32_t seed, int times) {
    const std::vector<size_t> places = structural_bytes(file);
    std::mt19937 random(seed);
    // Values at which sizes and counts break, besides any.
    constexpr uint8_t borders[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xdd, 0xdf, 0xdb};
    for (int i = 0; i < times; ++i) {
        std::vector<std::byte> changed = file;
        for (uint32_t left = random() % 4 + 1; left > 0; --left) {
            // One half in the headers in front, which are small.
            const size_t which = random() % 2 == 0 ? random() % std::min<size_t>(places.size(), 600)
                                                   : random() % places.size();
            const uint32_t how = random();
            std::byte & byte   = changed[places[which]];
            byte = how % 2 == 0 ? std::byte(borders[how / 2 % 8]) : byte ^ std::byte(1 << how / 2 % 8);
        }
        load_once(changed, arch);
    }
    print_outcomes();
    return 0;
}

} // namespace

int main(int argc, char ** argv) {
    const std::string what = argc > 2 ? argv[1] : "";
    if (what.empty()) {
        return 2;
    }
    const std::vector<std::byte> file = read_file(argv[2]);
    try {
        if (what == "show" && argc == 4) {
            return show(file, argv[3]);
        }
        if (what == "extract" && argc == 5) {
            return extract(file, argv[3], argv[4]);
        }
        if (what == "size" && argc == 3) {
            std::printf("{\"size\": %zu, \"file\": %zu}\n", bundle_size(file.data()), file.size());
            return 0;
        }
        if (what == "truncate" && argc == 4) {
            return truncate(file, argv[3]);
        }
        if (what == "flip" && argc == 6) {
            return flip(file, argv[3], uint32_t(std::atol(argv[4])), std::atoi(argv[5]));
        }
    } catch (const bad_code_object & error) {
        std::printf("{\"bad\": %s}\n", quoted(error.what()).c_str());
        return 0;
    }
    return 2;
}
