// Headers of a code object, checked before anything is loaded.
//
// Sources: the ELF specification, and LLVM's "User Guide for AMDGPU Backend", section "ELF Code Object".
#pragma once

#include "bytes.hpp"

#include <elf.h>

#include <string_view>
#include <vector>

namespace patchkit::gpu {

struct elf_file {
    bytes content;
    Elf64_Ehdr header;
    std::vector<Elf64_Phdr> segments;
    std::vector<Elf64_Shdr> sections; // empty if stripped
    std::string_view processor;       // gfx1151
};

bool is_elf(bytes content);

// Reads and checks the headers: code object version 4 to 6, tables within the file. Throws bad_code_object.
elf_file read_elf(bytes content);

} // namespace patchkit::gpu
