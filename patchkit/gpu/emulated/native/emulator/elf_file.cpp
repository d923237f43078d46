#include "elf_file.hpp"

#include <string>

namespace patchkit::gpu {

namespace {

// More program headers than any linker writes; limits the work that a header can cause.
constexpr uint64_t most_segments = 128;

constexpr unsigned char os_amdgpu_hsa  = 64;
constexpr uint32_t machine_mask        = 0xff; // EF_AMDGPU_MACH
constexpr unsigned char first_abi      = 2;    // ELFABIVERSION_AMDGPU_HSA_V4
constexpr unsigned char last_abi       = 4;    // ..._V6
constexpr unsigned version_of_abi_zero = 2;

struct processor {
    uint32_t machine;
    std::string_view name;
};

// EF_AMDGPU_MACH for gfx9 and later; names as printed by llvm-readelf of LLVM 22.
constexpr processor processors[] = {
    {0x2c, "gfx900"},          {0x2d, "gfx902"},          {0x2e, "gfx904"},          {0x2f, "gfx906"},
    {0x30, "gfx908"},          {0x31, "gfx909"},          {0x32, "gfx90c"},          {0x33, "gfx1010"},
    {0x34, "gfx1011"},         {0x35, "gfx1012"},         {0x36, "gfx1030"},         {0x37, "gfx1031"},
    {0x38, "gfx1032"},         {0x39, "gfx1033"},         {0x3d, "gfx1035"},         {0x3e, "gfx1034"},
    {0x3f, "gfx90a"},          {0x41, "gfx1100"},         {0x42, "gfx1013"},         {0x43, "gfx1150"},
    {0x44, "gfx1103"},         {0x45, "gfx1036"},         {0x46, "gfx1101"},         {0x47, "gfx1102"},
    {0x48, "gfx1200"},         {0x49, "gfx1250"},         {0x4a, "gfx1151"},         {0x4c, "gfx942"},
    {0x4e, "gfx1201"},         {0x4f, "gfx950"},          {0x51, "gfx9-generic"},    {0x52, "gfx10-1-generic"},
    {0x53, "gfx10-3-generic"}, {0x54, "gfx11-generic"},   {0x55, "gfx1152"},         {0x58, "gfx1153"},
    {0x59, "gfx12-generic"},   {0x5a, "gfx1251"},         {0x5f, "gfx9-4-generic"},
};

std::string_view processor_of(uint32_t flags) {
    for (const processor & each : processors) {
        if (each.machine == (flags & machine_mask)) {
            return each.name;
        }
    }
    refuse("the ELF header names processor " + hex(flags & machine_mask) + ", which is not one of gfx9 to gfx12");
}

void check_version(const Elf64_Ehdr & header) {
    if (header.e_ident[EI_OSABI] != os_amdgpu_hsa) {
        refuse("the ELF header is not for HSA: its OS ABI is " + std::to_string(header.e_ident[EI_OSABI]));
    }
    const unsigned char abi = header.e_ident[EI_ABIVERSION];
    if (abi < first_abi || abi > last_abi) {
        refuse("it is a code object of version " + std::to_string(abi + version_of_abi_zero) +
               ", but only 4 to 6 are supported");
    }
}

void check_header(const Elf64_Ehdr & header) {
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_ident[EI_VERSION] != EV_CURRENT) {
        refuse("the ELF header is not that of a 64-bit little-endian file");
    }
    if (header.e_machine != EM_AMDGPU) {
        refuse("the ELF header is for machine " + std::to_string(header.e_machine) + ", not for an AMD GPU (224)");
    }
    check_version(header);
    if (header.e_type != ET_DYN) {
        refuse("the ELF header has type " + std::to_string(header.e_type) + ", not that of linked code (3)");
    }
    if (header.e_phnum == 0 || header.e_phnum > most_segments || header.e_phentsize != sizeof(Elf64_Phdr)) {
        refuse("the ELF header has " + std::to_string(header.e_phnum) + " program headers of " +
               std::to_string(header.e_phentsize) + " bytes");
    }
    if (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)) {
        refuse("the ELF header has section headers of " + std::to_string(header.e_shentsize) + " bytes");
    }
}

template <typename T> std::vector<T> read_table(bytes content, uint64_t offset, uint64_t count, const char * what) {
    const bytes raw = table_of(content, offset, count, sizeof(T), what);
    std::vector<T> table(count);
    if (count != 0) {
        std::memcpy(table.data(), raw.data(), raw.size());
    }
    return table;
}

} // namespace

bool is_elf(bytes content) { return as_text(content).substr(0, SELFMAG) == std::string_view(ELFMAG, SELFMAG); }

elf_file read_elf(bytes content) {
    if (!is_elf(content)) {
        refuse("it does not begin with an ELF header");
    }
    elf_file file{content, value_at<Elf64_Ehdr>(content, 0, "the ELF header"), {}, {}, {}};
    check_header(file.header);
    file.processor = processor_of(file.header.e_flags);
    file.segments  = read_table<Elf64_Phdr>(content, file.header.e_phoff, file.header.e_phnum, "program headers");
    file.sections  = read_table<Elf64_Shdr>(content, file.header.e_shoff, file.header.e_shnum, "section headers");
    return file;
}

} // namespace patchkit::gpu
