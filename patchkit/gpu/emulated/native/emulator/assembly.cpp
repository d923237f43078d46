#include "assembly.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

namespace patchkit::gpu {

namespace {

// LLVM's C interface (llvm-c/Disassembler.h, llvm-c/Target.h), which is stable across versions.
template <class F> F find(void * library, const char * name) {
    void * found = dlsym(library, name);
    if (found == nullptr) {
        throw std::runtime_error(std::string("the disassembler library has no ") + name);
    }
    return reinterpret_cast<F>(found);
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
        text.remove_prefix(1);
    }
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
        text.remove_suffix(1);
    }
    return text;
}

// Splits at separators outside of brackets and bars.
std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    int depth = 0;
    size_t begin = 0;
    for (size_t at = 0; at <= text.size(); ++at) {
        const char c = at < text.size() ? text[at] : separator;
        depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
        if (at == text.size() || (c == separator && depth == 0)) {
            const std::string_view part = trimmed(text.substr(begin, at - begin));
            if (!part.empty()) {
                parts.push_back(part);
            }
            begin = at + 1;
        }
    }
    return parts;
}

statement parse_statement(std::string_view text) {
    statement result;
    const size_t space = text.find(' ');
    result.name = text.substr(0, space);
    if (space == std::string_view::npos) {
        return result;
    }
    const std::vector<std::string_view> parts = split(text.substr(space), ',');
    for (size_t n = 0; n < parts.size(); ++n) {
        const std::vector<std::string_view> words = split(parts[n], ' ');
        for (size_t k = 0; k < words.size(); ++k) {
            const std::string_view word = words[k];
            if (k == 0 && word.find(':') == std::string_view::npos) {
                result.operands.emplace_back(word);
                continue;
            }
            // v[0:1] is an operand, op_sel:[0,1] a modifier.
            const size_t colon = word.find(':'), bracket = word.find('[');
            if (k == 0 && bracket < colon) {
                result.operands.emplace_back(word);
            } else if (colon == std::string_view::npos) {
                result.modifiers.emplace_back(word, "");
            } else {
                result.modifiers.emplace_back(word.substr(0, colon), word.substr(colon + 1));
            }
        }
    }
    return result;
}

} // namespace

disassembler::disassembler(const std::string & path, const std::string & arch) {
    void * library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        throw std::runtime_error("cannot load LLVM's disassembler: " + std::string(dlerror()));
    }
    for (const char * part : {"TargetInfo", "TargetMC", "Disassembler"}) {
        find<void (*)()>(library, (std::string("LLVMInitializeAMDGPU") + part).c_str())();
    }
    using create = void * (*)(const char *, const char *, const char *, void *, int, void *, void *);
    // Prints 16-bit operands as register halves (v0.l); GPUs with that syntax use the same encoding.
    context = find<create>(library, "LLVMCreateDisasmCPUFeatures")("amdgcn-amd-amdhsa", arch.c_str(), "+real-true16",
                                                                  nullptr, 0, nullptr, nullptr);
    if (context == nullptr) {
        throw std::runtime_error("LLVM at " + path + " knows no GPU " + arch);
    }
    decode = find<decltype(decode)>(library, "LLVMDisasmInstruction");
    dispose = find<decltype(dispose)>(library, "LLVMDisasmDispose");
}

disassembler::~disassembler() {
    if (context != nullptr) {
        dispose(context);
    }
}

line disassembler::one(std::span<const std::byte> code, uint64_t address) {
    char text[512];
    uint8_t bytes[20];
    const size_t given = std::min(code.size(), sizeof(bytes));
    std::copy_n(reinterpret_cast<const uint8_t *>(code.data()), given, bytes);
    const std::lock_guard<std::mutex> guard(mutex);
    size_t used = decode(context, bytes, given, address, text, sizeof(text));
    constexpr uint8_t lds_encoding = 0xd8; // in bits 26 to 31 of the first dword
    if (used == 0 && given >= 8 && (bytes[3] & 0xfc) == lds_encoding && bytes[7] != 0) {
        // LDS instructions without a result ignore this field, but LLVM requires 0.
        bytes[7] = 0;
        used = decode(context, bytes, given, address, text, sizeof(text));
    }
    constexpr uint8_t dual_encoding = 0xc8;
    if (used == 0 && given >= 8 && (bytes[3] & 0xfc) == dual_encoding) {
        // A move in a dual-issue instruction has no second source; hardware ignores the field, but LLVM requires 0.
        constexpr uint32_t move = 8, second_source = 0xffu << 9;
        uint32_t words[2];
        std::copy_n(bytes, sizeof(words), reinterpret_cast<uint8_t *>(words));
        words[1] &= (words[0] >> 17 & 31) == move ? ~second_source : ~0u;
        words[0] &= (words[0] >> 22 & 15) == move ? ~second_source : ~0u;
        std::copy_n(reinterpret_cast<const uint8_t *>(words), sizeof(words), bytes);
        used = decode(context, bytes, given, address, text, sizeof(text));
    }
    if (used == 0) {
        return {"", 4};
    }
    return {std::string(trimmed(text)), uint32_t(used)};
}

const std::string * statement::modifier(std::string_view wanted) const {
    const auto found = std::find_if(modifiers.begin(), modifiers.end(), [&](const auto & m) { return m.first == wanted; });
    return found == modifiers.end() ? nullptr : &found->second;
}

const std::pair<std::string, std::string> * statement::lane_pattern() const {
    const auto found = std::find_if(modifiers.begin(), modifiers.end(), [](const auto & m) {
        const std::string & name = m.first;
        return name == "dpp8" || name == "quad_perm" || name.starts_with("row_sh") || name.starts_with("row_ro") ||
               name.ends_with("mirror") || name == "row_xmask";
    });
    return found == modifiers.end() ? nullptr : &*found;
}

std::vector<std::string> parts_of_list(std::string_view list) {
    const std::vector<std::string_view> parts = split(list.substr(1, list.size() - 2), ',');
    return {parts.begin(), parts.end()};
}

std::vector<statement> parse_line(std::string_view text) {
    std::vector<statement> result;
    size_t begin = 0;
    for (;;) {
        const size_t end = text.find(" :: ", begin);
        result.push_back(parse_statement(trimmed(text.substr(begin, end == std::string_view::npos ? end : end - begin))));
        if (end == std::string_view::npos) {
            return result;
        }
        begin = end + 4;
    }
}

std::optional<int> parse_number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

} // namespace patchkit::gpu
