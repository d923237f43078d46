// hiprtc: device code that a program has compiled while it runs, by the compiler of patchkit's toolchain.
//
// PATCHKIT_EMULATOR_COMPILER is that compiler with all the arguments that make it one of device code for the GPU, one
// to a line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace patchkit {

struct source {
    std::string name, text;
    std::map<std::string, std::string> headers;  // by the name that the source includes
    std::vector<std::string> expressions;        // whose mangled names are wanted
};

struct compiled {
    bool is_made = false;
    std::string log;
    std::string code;                         // a code object, or a bundle
    std::map<std::string, std::string> names; // of expressions: mangled
};

// Whether a header may have this name: it becomes a file below a folder of ours.
bool is_header_name(const std::string & name);

compiled compile(const source & from, const std::vector<std::string> & options);

// Of a code object: which symbol's address each 8-byte variable `prefix`NUMBER holds, as far as that is to be seen.
std::map<int, std::string> find_addressed(const std::string & elf, const std::string & prefix);

} // namespace patchkit
