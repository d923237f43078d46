// Compiles device code at run time with the compiler of patchkit's toolchain, for hiprtc and comgr.
//
// PATCHKIT_EMULATOR_COMPILER is the compiler command for device code of this GPU, one argument per line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace patchkit {

struct source {
    std::string name, text;
    std::map<std::string, std::string> headers;  // by include name
    std::vector<std::string> expressions;        // expressions whose mangled names are requested
    bool has_runtime_header = true;              // HIP's header is included first
    bool to_bitcode         = false;             // LLVM bitcode instead of a code object
};

struct compiled {
    bool is_made = false;
    std::string log;
    std::string code;                         // a code object, a bundle, bitcode or a relocatable object
    std::map<std::string, std::string> names; // expression to mangled name
};

// Whether a header may have this name: it becomes a file in a temporary folder.
bool is_header_name(const std::string & name);

compiled compile(const source & from, const std::vector<std::string> & options);

// Runs clang for the device's GPU, without HIP's flags: for bitcode, assembly and objects. The inputs become files with
// this suffix, by which clang recognises their language.
compiled run_clang(const std::vector<std::string> & inputs, const char * suffix, const std::vector<std::string> & options);

// For each 8-byte variable `prefix`NUMBER of a code object, the symbol whose address it contains, if known.
std::map<int, std::string> find_addressed(const std::string & elf, const std::string & prefix);

} // namespace patchkit
