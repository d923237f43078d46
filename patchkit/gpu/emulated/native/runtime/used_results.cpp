#include "used_results.hpp"

#include "recorder.hpp"
#include "settings.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace patchkit {

namespace {

// LLVM's C interface, as used by the emulator for the GPU.
struct disassembler {
    void * context = nullptr;
    size_t (*decode)(void *, uint8_t *, uint64_t, uint64_t, char *, size_t) = nullptr;

    disassembler() {
#if defined(__x86_64__)
        const char * path = setting("PATCHKIT_EMULATOR_DISASSEMBLER");
        void * library    = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            return;
        }
        for (const char * part : {"TargetInfo", "TargetMC", "Disassembler"}) {
            void * found = dlsym(library, (std::string("LLVMInitializeX86") + part).c_str());
            if (found == nullptr) {
                return;
            }
            reinterpret_cast<void (*)()>(found)();
        }
        using create = void * (*)(const char *, void *, int, void *, void *);
        const auto make = reinterpret_cast<create>(dlsym(library, "LLVMCreateDisasm"));
        decode          = reinterpret_cast<decltype(decode)>(dlsym(library, "LLVMDisasmInstruction"));
        context         = make == nullptr || decode == nullptr ? nullptr : make("x86_64", nullptr, 0, nullptr, nullptr);
#endif
    }
};

constexpr size_t longest = 15; // bytes of an instruction

struct instruction {
    std::string name;     // movl
    std::string operands; // %eax, -4(%rbp): the last one is written
    uint8_t code[longest];
    size_t size = 0; // 0: it cannot be decoded
};

instruction read_instruction(uintptr_t address) {
    static const disassembler reader;
    instruction result;
    constexpr uintptr_t page = 4096;
    size_t there = longest;
    if (!is_mapped(reinterpret_cast<const void *>(address), there)) {
        there = page - address % page;
        if (there > longest || !is_mapped(reinterpret_cast<const void *>(address), there)) {
            return result;
        }
    }
    if (reader.context == nullptr) {
        return result;
    }
    std::memcpy(result.code, reinterpret_cast<const void *>(address), there);
    char text[256];
    result.size = reader.decode(reader.context, result.code, there, address, text, sizeof(text));
    std::string_view rest = text;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    result.name      = rest.substr(0, end);
    rest.remove_prefix(end);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    result.operands = rest;
    return result;
}

constexpr std::string_view names_of_result[] = {"%rax", "%eax", "%ax", "%al", "%ah"};

bool is_result(std::string_view operand) {
    for (const std::string_view name : names_of_result) {
        if (operand == name) {
            return true;
        }
    }
    return false;
}

bool mentions_result(std::string_view text) {
    for (const std::string_view name : names_of_result) {
        for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
            const size_t behind = at + name.size();
            if (behind == text.size() || std::isalnum(static_cast<unsigned char>(text[behind])) == 0) {
                return true;
            }
        }
    }
    return false;
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
        if (name.substr(0, word.size()) == word) {
            return true;
        }
    }
    return false;
}

enum class effect { none, reads, overwrites };

effect effect_on_result(const instruction & i) {
    if (starts_with_any(i.name, {"nop", "endbr", "data16"})) { // long nops have register operands
        return effect::none;
    }
    // Instructions that read it implicitly.
    if (starts_with_any(i.name, {"clt", "cqt", "cwt", "cbt", "mul", "imul", "div", "idiv", "cmpxchg", "sto", "sca",
                                 "out", "syscall", "int", "sahf", "xlat", "rep"})) {
        const bool names_others = starts_with_any(i.name, {"imul"}) && i.operands.find(',') != std::string::npos;
        if (!names_others || mentions_result(i.operands)) {
            return effect::reads;
        }
    }
    if (!mentions_result(i.operands)) {
        return effect::none;
    }
    const size_t comma           = i.operands.rfind(", ");
    const std::string_view all   = i.operands;
    const std::string_view last  = comma == std::string::npos ? all : all.substr(comma + 2);
    const std::string_view first = comma == std::string::npos ? std::string_view() : all.substr(0, comma);
    if (!is_result(last)) {
        return effect::reads;
    }
    const bool is_cleared = starts_with_any(i.name, {"xor"}) && first == last;
    const bool is_given   = starts_with_any(i.name, {"mov", "lea", "set", "pop"}) && !mentions_result(first);
    return is_cleared || is_given ? effect::overwrites : effect::reads;
}

// Target of a jump, and whether it is conditional; no target if it is only known at run time.
struct jump {
    bool is_one = false, goes_on = false;
    uintptr_t target = 0;
};

jump jump_of(const instruction & i, uintptr_t behind) {
    size_t at = 0;
    while (at < i.size && (i.code[at] == 0xf2 || i.code[at] == 0x3e || i.code[at] == 0x2e)) {
        ++at;
    }
    const auto distance = [&](size_t bytes) -> int64_t {
        if (bytes == 1) {
            return int8_t(i.code[i.size - 1]);
        }
        int32_t value = 0;
        std::memcpy(&value, i.code + i.size - sizeof(value), sizeof(value));
        return value;
    };
    const uint8_t code = i.code[at], next = at + 1 < i.size ? i.code[at + 1] : uint8_t(0);
    if (code == 0xeb || (code >= 0x70 && code <= 0x7f) || (code >= 0xe0 && code <= 0xe3)) {
        return {true, code != 0xeb, behind + uintptr_t(distance(1))};
    }
    if (code == 0xe9 || (code == 0x0f && next >= 0x80 && next <= 0x8f)) {
        return {true, code != 0xe9, behind + uintptr_t(distance(4))};
    }
    return {i.name.substr(0, 3) == "jmp", false, 0};
}

enum class fate { used, lost, returned };

// What happens to the result from an address on: used if it is used on any path.
fate fate_of_result(uintptr_t from) {
    constexpr size_t most = 256; // instructions
    std::set<uintptr_t> seen;
    std::vector<uintptr_t> waiting = {from};
    bool is_returned = false;
    while (!waiting.empty()) {
        const uintptr_t at = waiting.back();
        waiting.pop_back();
        if (!seen.insert(at).second) {
            continue;
        }
        const instruction i = read_instruction(at);
        if (i.size == 0 || seen.size() > most) {
            return fate::used;
        }
        const effect here = effect_on_result(i);
        if (here == effect::reads) {
            return fate::used;
        }
        if (here == effect::overwrites || starts_with_any(i.name, {"call", "ud2", "hlt"})) {
            continue; // a called function may overwrite it, but gets no argument in it
        }
        if (starts_with_any(i.name, {"ret"})) {
            is_returned = true;
            continue;
        }
        const jump to = jump_of(i, at + i.size);
        if (to.is_one && to.target != 0) {
            waiting.push_back(to.target);
        }
        if (!to.is_one || to.goes_on) {
            waiting.push_back(at + i.size);
        }
    }
    return is_returned ? fate::returned : fate::lost;
}

fate known_fate(void * address) {
    static std::mutex mutex;
    static auto * known = new std::map<void *, fate>;
    const std::lock_guard<std::mutex> guard(mutex);
    const auto found = known->find(address);
    if (found != known->end()) {
        return found->second;
    }
    return (*known)[address] = fate_of_result(uintptr_t(address));
}

} // namespace

bool is_result_used(const std::vector<void *> & frames) {
    for (void * const frame : frames) {
        const fate one = known_fate(frame);
        if (one != fate::returned) {
            return one == fate::used;
        }
    }
    return true;
}

} // namespace patchkit
