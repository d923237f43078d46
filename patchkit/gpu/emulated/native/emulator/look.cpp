// Analyses the code objects in a file without running them.
//
//   look LIBLLVM ARCH FILE FOLDER < kernels
//
// FILE contains code for AMD GPUs: a code object, an offload bundle, or a program. From each bundle, the code for ARCH
// is analysed: all functions, or the listed kernels, one per line. Without code for ARCH, the available GPUs are
// listed. Output lines:
//
//   object NAME GPU      a code object, written to FOLDER under that name
//   lacks GPU,GPU        a bundle has no code for ARCH, but for these GPUs
//   function SYMBOL      the following lines are about this function
//   hazard KIND OFFSET OTHER, then three lines: its text, the text of the other, what it does
//   looked INSTRUCTIONS PAIRS SAME_PARITY   of the object
//   unread WHY           a piece of the file is damaged
//
// The file is untrusted, and names in it may contain any bytes.

#include "bytes.hpp"
#include "code_object.hpp"
#include "elf_file.hpp"
#include "hazards.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>

namespace {

using patchkit::gpu::bytes;

std::string on_one_line(std::string text) {
    std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, '?');
    return text;
}

class looking {
  public:
    looking(std::string library, std::string arch, std::string folder, std::set<std::string> kernels)
        : library(std::move(library)), arch(std::move(arch)), folder(std::move(folder)), kernels(std::move(kernels)) {}

    // Analyses everything in the file that begins like a code object or a bundle.
    void look(bytes file) {
        if (is_for_gpu(file)) {
            piece(file);
            return;
        }
        const std::string_view text = patchkit::gpu::as_text(file);
        for (size_t at = 0; at < text.size();) {
            at = std::min(text.find("__CLANG_OFFLOAD_BUNDLE__", at), compressed_at(text, at));
            if (at >= text.size()) {
                break;
            }
            piece(file.subspan(at));
            at += 4;
        }
    }

  private:
    std::string library, arch, folder;
    std::set<std::string> kernels;
    int objects = 0;

    static bool is_for_gpu(bytes file) {
        constexpr uint16_t amdgpu = 224;
        uint16_t machine = 0;
        if (!patchkit::gpu::is_elf(file) || file.size() < 20) {
            return false;
        }
        std::memcpy(&machine, file.data() + 18, sizeof(machine));
        return machine == amdgpu;
    }

    // "CCOB" may occur by chance: only with a known version.
    static size_t compressed_at(std::string_view text, size_t at) {
        for (;;) {
            at = text.find("CCOB", at);
            if (at == std::string_view::npos || at + 24 > text.size()) {
                return std::string_view::npos;
            }
            const bool has_version = text[at + 4] >= 1 && text[at + 4] <= 3 && text[at + 5] == 0;
            const bool has_method = (text[at + 6] == 0 || text[at + 6] == 1) && text[at + 7] == 0;
            if (has_version && has_method) {
                return at;
            }
            at += 4;
        }
    }

    void piece(bytes begin) {
        try {
            std::vector<std::byte> storage;
            std::vector<std::string> held;
            bytes code = patchkit::gpu::find_in_bundle(begin, arch, storage, held);
            if (code.empty()) {
                std::string all;
                for (const std::string & one : held) {
                    all += (all.empty() ? "" : ",") + patchkit::gpu::shown(one);
                }
                std::printf("lacks %s\n", on_one_line(all).c_str());
                for (const std::string & one : held) {
                    if (patchkit::gpu::find_architecture(one) != nullptr) {
                        code = patchkit::gpu::find_in_bundle(begin, one, storage, held);
                        break;
                    }
                }
            }
            if (!code.empty()) {
                object(code);
            }
        } catch (const std::exception & error) {
            std::printf("unread %s\n", on_one_line(error.what()).c_str());
        }
    }

    void object(bytes code) {
        const auto loaded = patchkit::gpu::code_object::load(code);
        const std::string name = "object-" + std::to_string(objects++);
        std::ofstream file(folder + "/" + name, std::ios::binary);
        file.write(reinterpret_cast<const char *>(code.data()), std::streamsize(code.size()));
        if (!file) {
            throw std::runtime_error("cannot write " + folder + "/" + name);
        }
        file.close();
        std::printf("object %s %s\n", name.c_str(), loaded->arch().c_str());
        // Code of other families is analysed for common hazards.
        static constexpr patchkit::gpu::architecture other{};
        const auto * known = patchkit::gpu::find_architecture(loaded->arch());
        const patchkit::gpu::architecture & family = known == nullptr ? other : *known;
        std::optional<patchkit::gpu::disassembler> reader; // created on demand, because that is slow
        uint64_t instructions = 0, pairs = 0, same_parity = 0;
        for (const auto & [address, function] : loaded->functions()) {
            if (!kernels.empty() && kernels.count(function.first) == 0) {
                continue;
            }
            if (!reader) {
                reader.emplace(library, loaded->arch());
            }
            const auto & where = function.second;
            const auto seen = patchkit::gpu::look_at(*reader, {where.address, size_t(where.size)}, family);
            instructions += seen.instructions;
            pairs += seen.pairs;
            same_parity += seen.same_parity;
            if (seen.found.empty()) {
                continue;
            }
            std::printf("function %s\n", on_one_line(function.first).c_str());
            for (const auto & one : seen.found) {
                std::printf("hazard %s %u %u\n%s\n%s\n%s\n", one.kind, one.at.offset, one.other.offset,
                            one.at.text.c_str(), one.other.text.c_str(), one.what.c_str());
            }
        }
        std::printf("looked %llu %llu %llu\n", static_cast<unsigned long long>(instructions),
                    static_cast<unsigned long long>(pairs), static_cast<unsigned long long>(same_parity));
    }
};

} // namespace

int main(int argc, char ** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: look LIBLLVM ARCH FILE FOLDER < kernels\n");
        return 2;
    }
    std::ifstream file(argv[3], std::ios::binary);
    if (!file) {
        std::fprintf(stderr, "%s cannot be read\n", argv[3]);
        return 1;
    }
    const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
    std::set<std::string> kernels;
    for (std::string name; std::getline(std::cin, name);) {
        kernels.insert(name);
    }
    looking(argv[1], argv[2], argv[4], kernels).look(std::as_bytes(std::span(content)));
    return 0;
}
