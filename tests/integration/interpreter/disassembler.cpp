// The functions of libLLVM that the interpreter calls, answered from recorded text: GFX.txt beside this library has
// an instruction a line, its bytes in hexadecimal and what LLVM's disassembler writes (record.py).

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_map>

namespace {

using table = std::unordered_map<std::string, std::string>; // by bytes

std::string from_hex(const std::string & text) {
    std::string bytes;
    for (size_t n = 0; n + 1 < text.size(); n += 2) {
        bytes.push_back(char(std::stoi(text.substr(n, 2), nullptr, 16)));
    }
    return bytes;
}

} // namespace

extern "C" {

void LLVMInitializeAMDGPUTargetInfo() {}
void LLVMInitializeAMDGPUTargetMC() {}
void LLVMInitializeAMDGPUDisassembler() {}

void * LLVMCreateDisasmCPUFeatures(const char *, const char * cpu, const char *, void *, int, void *, void *) {
    static const char here = 0;
    Dl_info self;
    dladdr(&here, &self);
    const std::string library = self.dli_fname;
    std::ifstream lines(library.substr(0, library.rfind('/') + 1) + cpu + ".txt");
    if (!lines) {
        return nullptr;
    }
    auto * made = new table;
    for (std::string bytes, text; lines >> bytes && std::getline(lines >> std::ws, text);) {
        (*made)[from_hex(bytes)] = text;
    }
    return made;
}

size_t LLVMDisasmInstruction(void * known, uint8_t * bytes, uint64_t size, uint64_t, char * text, size_t room) {
    for (size_t length = 4; length <= size; length += 4) {
        const auto found = static_cast<table *>(known)->find(std::string(reinterpret_cast<char *>(bytes), length));
        if (found != static_cast<table *>(known)->end()) {
            std::strncpy(text, found->second.c_str(), room - 1);
            text[room - 1] = 0;
            return length;
        }
    }
    return 0;
}

void LLVMDisasmDispose(void * known) { delete static_cast<table *>(known); }

} // extern "C"
