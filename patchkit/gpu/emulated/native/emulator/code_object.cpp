#include "code_object.hpp"

#include "bytes.hpp"
#include "elf_file.hpp"
#include "metadata.hpp"

#include <algorithm>
#include <iterator>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include <sys/mman.h>

namespace patchkit::gpu {

namespace {

// Address space, not memory: pages that are never written need no memory. llama.cpp's largest unit has 40 MB.
constexpr uint64_t most_memory = uint64_t(1) << 30;

// A GPU prefetches instructions after its program counter, a few cache lines at most.
constexpr uint64_t fetched_ahead = 4096;

// Alignment of segments: pages, or more if a variable requires it.
constexpr uint64_t page           = 4096;
constexpr uint64_t most_alignment = uint64_t(1) << 21;

// Symbol names may overlap in the file, but not here.
constexpr uint64_t most_letters = uint64_t(1) << 26;

// Zeroed memory for the segments of one file; addresses are those that the file was linked for.
class image {
  public:
    explicit image(const elf_file & file) : file(file) {
        for (const Elf64_Phdr & each : file.segments) {
            if (each.p_type == PT_LOAD) {
                add(each);
            }
        }
        if (segments.empty() || end() == first()) {
            refuse("nothing to load: no program header has memory");
        }
        map();
        for (const Elf64_Phdr & each : segments) {
            copy(each);
        }
    }

    ~image() { munmap(mapped, mapped_size()); }

    image(const image &)             = delete;
    image & operator=(const image &) = delete;

    // `size` bytes at an address, which must be in one segment that has all of these flags.
    std::byte * at(uint64_t address, uint64_t size, const place & where, uint32_t flags = 0) const {
        const Elf64_Phdr * segment = segment_of(address, size);
        if (segment == nullptr || (segment->p_flags & flags) != flags) {
            refuse(where.text() + ": " + hex(size) + " bytes at address " + hex(address) + " are not in a segment" +
                   (flags == PF_X ? " of code" : ""));
        }
        return memory + (address - origin());
    }

    // The same for code; null if it is not code.
    std::byte * code_at(uint64_t address, uint64_t size) const {
        const Elf64_Phdr * segment = segment_of(address, size);
        return segment == nullptr || (segment->p_flags & PF_X) == 0 ? nullptr : memory + (address - origin());
    }

    // The same bytes in the file, so that tables are never read from relocated memory. Only valid while the file is.
    bytes in_file(uint64_t address, uint64_t size, const place & where) const {
        const Elf64_Phdr * segment = segment_of(address, size);
        if (segment == nullptr) {
            refuse(where.text() + ": " + hex(size) + " bytes at address " + hex(address) + " are not in a segment");
        }
        const bytes content = part_of(file.content, segment->p_offset, segment->p_filesz, "a program header");
        return part_of(content, address - segment->p_vaddr, size, where);
    }

    // Converts an address of the file to one of this process. Modulo 2^64, as relocations are defined: the result may
    // be anywhere, and must not be dereferenced here.
    uint64_t host_of(uint64_t address) const { return reinterpret_cast<uint64_t>(memory) - origin() + address; }

    std::span<std::byte> constants_at(const std::byte * address) const {
        const std::span<std::byte> whole = all();
        if (address < whole.data() || address >= whole.data() + whole.size()) {
            return {};
        }
        const Elf64_Phdr * segment = segment_of(uint64_t(address - memory) + origin(), 1);
        if (segment == nullptr || (segment->p_flags & PF_W) != 0) {
            return {};
        }
        return {memory + (segment->p_vaddr - origin()), segment->p_memsz};
    }

    std::span<std::byte> all() const { return {memory + (first() - origin()), end() - first()}; }

  private:
    void add(const Elf64_Phdr & segment) {
        const place where("program header of a segment", segments.size());
        part_of(file.content, segment.p_offset, segment.p_filesz, where);
        if (segment.p_filesz > segment.p_memsz) {
            refuse(where.text() + ": " + hex(segment.p_filesz) + " bytes in the file and " + hex(segment.p_memsz) +
                   " in memory");
        }
        if (segment.p_memsz > most_memory || segment.p_vaddr > UINT64_MAX - segment.p_memsz) {
            refuse(where.text() + ": " + hex(segment.p_memsz) + " bytes at address " + hex(segment.p_vaddr));
        }
        if ((segment.p_align & (segment.p_align - 1)) != 0 || segment.p_align > most_alignment) {
            refuse(where.text() + ": aligned to " + hex(segment.p_align));
        }
        alignment = std::max(alignment, segment.p_align);
        // ELF requires ascending addresses.
        if (!segments.empty() && segment.p_vaddr < end()) {
            refuse(where.text() + ": address " + hex(segment.p_vaddr) + " is not past the previous segment");
        }
        segments.push_back(segment);
        if (end() - first() > most_memory) {
            refuse(where.text() + ": from address " + hex(first()) + " to " + hex(end()) + " is too much memory");
        }
    }

    void map() {
        constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        mapped = mmap(nullptr, mapped_size(), PROT_READ | PROT_WRITE, kind, -1, 0);
        if (mapped == MAP_FAILED) {
            refuse("no memory for " + std::to_string(mapped_size()) + " bytes: " + std::strerror(errno));
        }
        memory = static_cast<std::byte *>(mapped) + -reinterpret_cast<uint64_t>(mapped) % alignment;
    }

    void copy(const Elf64_Phdr & segment) {
        const bytes content = part_of(file.content, segment.p_offset, segment.p_filesz, "a program header");
        std::copy(content.begin(), content.end(), memory + (segment.p_vaddr - origin()));
    }

    const Elf64_Phdr * segment_of(uint64_t address, uint64_t size) const {
        const auto is_before = [](uint64_t wanted, const Elf64_Phdr & each) { return wanted < each.p_vaddr; };
        const auto after     = std::upper_bound(segments.begin(), segments.end(), address, is_before);
        if (after == segments.begin()) {
            return nullptr;
        }
        const Elf64_Phdr & found = *(after - 1);
        const uint64_t offset    = address - found.p_vaddr;
        return offset <= found.p_memsz && size <= found.p_memsz - offset ? &found : nullptr;
    }

    uint64_t first() const { return segments.front().p_vaddr; }
    uint64_t end() const { return segments.back().p_vaddr + segments.back().p_memsz; }
    // The file address that corresponds to the start of the memory.
    uint64_t origin() const { return first() / alignment * alignment; }
    size_t mapped_size() const { return end() - origin() + alignment + fetched_ahead; }

    const elf_file & file;
    std::vector<Elf64_Phdr> segments;
    uint64_t alignment = page;
    void * mapped      = nullptr;
    std::byte * memory = nullptr; // aligned start of the memory
};

// The required parts of the dynamic section.
struct dynamic_section {
    uint64_t symbols = 0, names = 0, names_size = 0, hash = 0;
    uint64_t relocations = 0, relocations_size = 0;
    uint64_t plt_relocations = 0, plt_relocations_size = 0, plt_kind = DT_RELA;
};

dynamic_section read_dynamic(const image & image, const Elf64_Phdr & header) {
    const bytes table = image.in_file(header.p_vaddr, header.p_filesz, "the dynamic section");
    dynamic_section result;
    for (uint64_t i = 0; i < table.size() / sizeof(Elf64_Dyn); ++i) {
        const auto entry     = value_at<Elf64_Dyn>(table, i * sizeof(Elf64_Dyn), {"dynamic entry", i});
        const uint64_t value = entry.d_un.d_val;
        const auto must_be   = [&](uint64_t wanted, const char * what) {
            if (value != wanted) {
                refuse(place("dynamic entry", i).text() + ": " + what + " of " + std::to_string(value) + " bytes");
            }
        };
        switch (entry.d_tag) {
            case DT_NULL:     return result;
            case DT_SYMTAB:   result.symbols = value;                               break;
            case DT_STRTAB:   result.names = value;                                 break;
            case DT_STRSZ:    result.names_size = value;                            break;
            case DT_HASH:     result.hash = value;                                  break;
            case DT_RELA:     result.relocations = value;                           break;
            case DT_RELASZ:   result.relocations_size = value;                      break;
            case DT_JMPREL:   result.plt_relocations = value;                       break;
            case DT_PLTRELSZ: result.plt_relocations_size = value;                  break;
            case DT_PLTREL:   result.plt_kind = value;                              break;
            case DT_SYMENT:   must_be(sizeof(Elf64_Sym), "symbols");                break;
            case DT_RELAENT:  must_be(sizeof(Elf64_Rela), "relocations");           break;
            // DT_REL and DT_RELR; some elf.h do not define the latter.
            case DT_REL: case 36:
                refuse(place("dynamic entry", i).text() + ": relocations of a kind that AMD GPUs do not have");
            default: break;
        }
    }
    refuse("the dynamic section is not terminated");
}

// A symbol table with its names.
class symbol_table {
  public:
    symbol_table() = default;
    symbol_table(bytes entries, bytes names, const char * what) : entries(entries), names(names), what(what) {}

    uint64_t size() const { return entries.size() / sizeof(Elf64_Sym); }
    place where(uint64_t i) const { return {what, i}; }
    Elf64_Sym at(uint64_t i) const { return value_at<Elf64_Sym>(entries, i * sizeof(Elf64_Sym), where(i)); }

    std::string_view name(const Elf64_Sym & symbol, uint64_t i) const {
        return text_at(names, symbol.st_name, where(i));
    }

  private:
    bytes entries;
    bytes names;
    const char * what = "symbol";
};

const Elf64_Shdr * section_of(const elf_file & file, uint32_t type) {
    for (const Elf64_Shdr & each : file.sections) {
        if (each.sh_type == type) {
            return &each;
        }
    }
    return nullptr;
}

// The dynamic section does not contain the number of symbols; their hash table does, or a section header.
uint64_t count_dynamic_symbols(const elf_file & file, const image & image, const dynamic_section & dynamic) {
    if (dynamic.hash != 0) {
        return value_at<uint32_t>(image.in_file(dynamic.hash, 8, "the hash table"), 4, "the hash table");
    }
    if (const Elf64_Shdr * section = section_of(file, SHT_DYNSYM)) {
        return section->sh_size / sizeof(Elf64_Sym);
    }
    refuse("the number of dynamic symbols is unknown: there is no hash table and no section header");
}

symbol_table dynamic_symbols(const elf_file & file, const image & image, const dynamic_section & dynamic) {
    if (dynamic.symbols == 0 && dynamic.names == 0) {
        return {};
    }
    const uint64_t count = count_dynamic_symbols(file, image, dynamic);
    if (count > file.content.size() / sizeof(Elf64_Sym)) {
        refuse("there are " + std::to_string(count) + " dynamic symbols, more than the file has room for");
    }
    return {image.in_file(dynamic.symbols, count * sizeof(Elf64_Sym), "the dynamic symbols"),
            image.in_file(dynamic.names, dynamic.names_size, "the names of the dynamic symbols"), "dynamic symbol"};
}

// All symbols, including local ones; empty if the file was stripped.
symbol_table static_symbols(const elf_file & file) {
    const Elf64_Shdr * section = section_of(file, SHT_SYMTAB);
    if (section == nullptr) {
        return {};
    }
    if (section->sh_link >= file.sections.size()) {
        refuse("the names of the symbols are in section " + std::to_string(section->sh_link) + " of " +
               std::to_string(file.sections.size()));
    }
    const Elf64_Shdr & names = file.sections[section->sh_link];
    return {part_of(file.content, section->sh_offset, section->sh_size, "the symbols"),
            part_of(file.content, names.sh_offset, names.sh_size, "the names of the symbols"), "symbol"};
}

bool is_defined(const Elf64_Sym & symbol) { return symbol.st_shndx != SHN_UNDEF; }

// Linked code has no other special sections: anything that the linker left for a loader to place is in no segment.
void check_section(const Elf64_Sym & symbol, const place & where) {
    if (symbol.st_shndx >= SHN_LORESERVE && symbol.st_shndx != SHN_XINDEX) {
        refuse(where.text() + ": it is in section " + hex(symbol.st_shndx) + ", which is in no segment");
    }
}

// Dynamic relocations, from the section "Relocation Records" of LLVM's user guide. lld also writes R_AMDGPU_ABS64 into
// the global offset table.
enum relocation : uint32_t {
    r_none       = 0,
    r_abs32_lo   = 1,
    r_abs32_hi   = 2,
    r_abs64      = 3,
    r_rel32      = 4,
    r_rel64      = 5,
    r_abs32      = 6,
    r_rel32_lo   = 10,
    r_rel32_hi   = 11,
    r_relative64 = 13,
};

class relocator {
  public:
    relocator(const image & image, const symbol_table & symbols) : image_(image), symbols(symbols) {}

    void apply(uint64_t address, uint64_t size) {
        const bytes table = image_.in_file(address, size, "the relocations");
        if (size % sizeof(Elf64_Rela) != 0) {
            refuse("the relocations take " + std::to_string(size) + " bytes, not a multiple of " +
                   std::to_string(sizeof(Elf64_Rela)));
        }
        for (uint64_t offset = 0; offset < size; offset += sizeof(Elf64_Rela)) {
            apply_one(value_at<Elf64_Rela>(table, offset, "the relocations"), {"relocation", done++});
        }
    }

  private:
    void apply_one(const Elf64_Rela & entry, const place & where) {
        const auto kind = uint32_t(ELF64_R_TYPE(entry.r_info));
        if (kind == r_none) {
            return;
        }
        const uint64_t addend = uint64_t(entry.r_addend);
        const uint64_t value  = kind == r_relative64 ? image_.host_of(addend) : symbol_value(entry, where) + addend;
        const uint64_t here   = image_.host_of(entry.r_offset);
        switch (kind) {
            case r_relative64:
            case r_abs64:    return store(entry.r_offset, value, where);
            case r_rel64:    return store(entry.r_offset, value - here, where);
            case r_abs32_lo: return store(entry.r_offset, uint32_t(value), where);
            case r_abs32_hi: return store(entry.r_offset, uint32_t(value >> 32), where);
            case r_rel32_lo: return store(entry.r_offset, uint32_t(value - here), where);
            case r_rel32_hi: return store(entry.r_offset, uint32_t((value - here) >> 32), where);
            case r_abs32:    return store(entry.r_offset, fits(value, uint32_t(value), where), where);
            case r_rel32: {
                const uint64_t distance = value - here;
                return store(entry.r_offset, fits(distance, uint64_t(int64_t(int32_t(distance))), where), where);
            }
            default: refuse(where.text() + ": kind " + std::to_string(kind) + " is not one that a loader applies");
        }
    }

    uint32_t fits(uint64_t value, uint64_t as_stored, const place & where) const {
        if (value != as_stored) {
            refuse(where.text() + ": " + hex(value) + " does not fit into 32 bits");
        }
        return uint32_t(value);
    }

    template <typename T> void store(uint64_t address, T value, const place & where) {
        std::memcpy(image_.at(address, sizeof(T), where), &value, sizeof(T));
    }

    uint64_t symbol_value(const Elf64_Rela & entry, const place & where) const {
        const uint64_t index = ELF64_R_SYM(entry.r_info);
        if (index == 0) {
            return 0;
        }
        if (index >= symbols.size()) {
            refuse(where.text() + ": there is no dynamic symbol " + std::to_string(index));
        }
        const Elf64_Sym symbol = symbols.at(index);
        if (!is_defined(symbol)) {
            return 0; // a weak symbol; others were rejected before
        }
        if (symbol.st_shndx == SHN_ABS) {
            return symbol.st_value;
        }
        check_section(symbol, symbols.where(index));
        image_.at(symbol.st_value, 0, symbols.where(index));
        return image_.host_of(symbol.st_value);
    }

    const image & image_;
    const symbol_table & symbols;
    uint64_t done = 0;
};

// LLVM's user guide, "Kernel Descriptor".
struct descriptor {
    uint32_t lds;
    uint32_t scratch;
    uint32_t kernarg_size;
    uint32_t reserved0;
    int64_t entry; // relative to the descriptor
    uint8_t reserved1[20];
    uint32_t rsrc3;
    uint32_t rsrc1;
    uint32_t rsrc2;
    uint16_t properties;
    uint16_t kernarg_preload;
    uint32_t reserved2;
};
static_assert(sizeof(descriptor) == 64);

constexpr std::string_view descriptor_suffix = ".kd";
constexpr uint64_t entry_alignment           = 256;
constexpr uint32_t code_end                  = 0xbf9f0000; // s_code_end
constexpr uint16_t has_wave32                = 1 << 10; // ENABLE_WAVEFRONT_SIZE32
constexpr uint16_t has_dynamic_stack         = 1 << 11; // USES_DYNAMIC_STACK
constexpr uint32_t vgpr_blocks_mask          = 0x3f;    // GRANULATED_WORKITEM_VGPR_COUNT of rsrc1

// Granularity of the VGPR count in a descriptor, for 32 and 64 lanes (LLVM: VGPR encoding granule). It does not depend
// on the number of VGPRs per SIMD; RDNA3 GPUs with 1536 only allocate in larger steps.
struct vgpr_encoding {
    uint32_t granule_of_wave32, granule_of_wave64;
    uint32_t most; // that instructions can address
};

vgpr_encoding vgprs_of(std::string_view processor) {
    for (const std::string_view unified : {"gfx90a", "gfx942", "gfx950", "gfx9-4-generic"}) {
        if (processor == unified) {
            return {8, 8, 512};
        }
    }
    if (processor == "gfx1250" || processor == "gfx1251") {
        return {16, 8, 1024};
    }
    return {8, 4, 256};
}

bool ends_with_suffix(std::string_view name) { return name.ends_with(descriptor_suffix); }

using named_symbol = std::pair<const std::string, symbol>;

class loaded final : public code_object {
  public:
    explicit loaded(const elf_file & file) : name(file.processor), image_(file) {
        read_tables(file);
        relocate();
        read_symbols(dynamic_table, true);
        read_symbols(static_symbols(file), false);
        for (kernel_metadata & each : read_notes(file)) {
            add_kernel(std::move(each));
        }
        // Only valid while the file is.
        dynamic_table = {};
    }

    const std::string & arch() const override { return name; }

    const kernel_code * kernel(std::string_view wanted) const override {
        const auto found = all_kernels.find(wanted);
        return found == all_kernels.end() ? nullptr : &found->second;
    }

    const std::map<std::string, kernel_code, std::less<>> & kernels() const override { return all_kernels; }

    const symbol * variable(std::string_view wanted) const override {
        const auto found = all_variables.find(wanted);
        return found == all_variables.end() ? nullptr : &found->second;
    }

    const std::map<std::string, symbol, std::less<>> & variables() const override { return all_variables; }

    const named_symbol * function_at(const std::byte * address) const override {
        const auto after = functions_.upper_bound(address);
        if (after == functions_.begin()) {
            return nullptr;
        }
        const named_symbol & found = std::prev(after)->second;
        return uint64_t(address - found.second.address) < found.second.size ? &found : nullptr;
    }

    const std::map<const std::byte *, named_symbol> & functions() const override { return functions_; }

    std::span<std::byte> memory() override { return image_.all(); }
    std::span<std::byte> constants_at(const std::byte * address) const override { return image_.constants_at(address); }

  private:
    void read_tables(const elf_file & file) {
        for (const Elf64_Phdr & each : file.segments) {
            if (each.p_type == PT_DYNAMIC) {
                dynamic       = read_dynamic(image_, each);
                dynamic_table = dynamic_symbols(file, image_, dynamic);
                return;
            }
        }
        refuse("there is no dynamic section");
    }

    void relocate() {
        check_undefined();
        relocator relocator(image_, dynamic_table);
        if (dynamic.relocations_size != 0) {
            relocator.apply(dynamic.relocations, dynamic.relocations_size);
        }
        if (dynamic.plt_relocations_size == 0) {
            return;
        }
        if (dynamic.plt_kind != DT_RELA) {
            refuse("the dynamic section has relocations of kind " + std::to_string(dynamic.plt_kind) + " for calls");
        }
        relocator.apply(dynamic.plt_relocations, dynamic.plt_relocations_size);
    }

    // No other file can define them.
    void check_undefined() const {
        for (uint64_t i = 1; i < dynamic_table.size(); ++i) {
            const Elf64_Sym symbol = dynamic_table.at(i);
            if (!is_defined(symbol) && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) {
                refuse(dynamic_table.where(i).text() + ": " + shown(dynamic_table.name(symbol, i)) + " is not defined");
            }
        }
    }

    void read_symbols(const symbol_table & table, bool is_dynamic) {
        for (uint64_t i = 1; i < table.size(); ++i) {
            const Elf64_Sym symbol = table.at(i);
            if (!is_defined(symbol) || symbol.st_shndx == SHN_ABS) {
                continue;
            }
            const auto kind = ELF64_ST_TYPE(symbol.st_info);
            if (kind == STT_FUNC) {
                add_function(table, symbol, i);
            } else if (kind == STT_OBJECT && is_dynamic) {
                add_object(table, symbol, i);
            }
        }
    }

    void add_function(const symbol_table & table, const Elf64_Sym & symbol, uint64_t i) {
        check_section(symbol, table.where(i));
        if (symbol.st_size == 0) { // a file without any code has no segment at its address
            without_size.insert(name_of(table, symbol, i));
            return;
        }
        std::byte * address = image_.at(symbol.st_value, symbol.st_size, table.where(i), PF_X);
        if (!functions_.contains(address)) {
            functions_.emplace(address, named_symbol(name_of(table, symbol, i), {address, symbol.st_size}));
        }
    }

    void add_object(const symbol_table & table, const Elf64_Sym & symbol, uint64_t i) {
        check_section(symbol, table.where(i));
        std::byte * address = image_.at(symbol.st_value, symbol.st_size, table.where(i));
        std::string name    = name_of(table, symbol, i);
        if (ends_with_suffix(name)) {
            descriptors.emplace(std::move(name), symbol);
        } else {
            all_variables.emplace(std::move(name), patchkit::gpu::symbol{address, symbol.st_size});
        }
    }

    std::string name_of(const symbol_table & table, const Elf64_Sym & symbol, uint64_t i) {
        const std::string_view name = table.name(symbol, i);
        letters += name.size();
        if (letters > most_letters) {
            refuse(table.where(i).text() + ": all names together are longer than " + hex(most_letters) + " bytes");
        }
        return std::string(name);
    }

    // The file's metadata: one note, or several if files were linked (-fgpu-rdc).
    static std::vector<kernel_metadata> read_notes(const elf_file & file) {
        std::vector<kernel_metadata> all;
        bool is_found = false;
        for (const Elf64_Phdr & each : file.segments) {
            if (each.p_type == PT_NOTE) {
                const bytes notes = part_of(file.content, each.p_offset, each.p_filesz, "the notes");
                for (const bytes note : metadata_notes(notes)) {
                    is_found = true;
                    std::ranges::move(read_metadata(note), std::back_inserter(all));
                }
            }
        }
        if (!is_found) {
            refuse("there is no note with the metadata of the kernels");
        }
        return all;
    }

    static std::vector<bytes> metadata_notes(bytes notes) {
        constexpr uint32_t nt_amdgpu_metadata = 32;
        constexpr std::string_view owner("AMDGPU\0", 7);
        const auto padded = [](uint64_t size) { return (size + 3) / 4 * 4; };
        std::vector<bytes> found;
        uint64_t position = 0;
        for (uint64_t i = 0; position < notes.size(); ++i) {
            const place where("note", i);
            const auto header       = value_at<Elf64_Nhdr>(notes, position, where);
            const uint64_t owner_at = position + sizeof(header);
            const uint64_t begin    = owner_at + padded(header.n_namesz);
            const bytes name        = part_of(notes, owner_at, header.n_namesz, where);
            const bytes value       = part_of(notes, begin, header.n_descsz, where);
            if (header.n_type == nt_amdgpu_metadata && as_text(name) == owner) {
                found.push_back(value);
            }
            position = begin + padded(header.n_descsz);
        }
        return found;
    }

    void add_kernel(kernel_metadata said) {
        const auto found = descriptors.find(said.symbol);
        if (found == descriptors.end()) {
            refuse("kernel " + shown(said.name) + " has no descriptor: there is no symbol " + shown(said.symbol));
        }
        const Elf64_Sym & symbol = found->second;
        const std::string text   = "the descriptor of kernel " + shown(said.name);
        const place where(text.c_str());
        if (symbol.st_size != sizeof(descriptor)) {
            refuse(text + " has " + std::to_string(symbol.st_size) + " bytes");
        }
        const auto read = value_at<descriptor>(image_.in_file(symbol.st_value, sizeof(descriptor), where), 0, where);
        kernel_code code = code_of(read, said, where);
        const uint64_t entry = symbol.st_value + uint64_t(read.entry);
        code.entry       = has_code(said.name, entry) ? entry_of(entry, where) : nullptr;
        code.name        = said.name;
        code.arguments   = std::move(said.arguments);
        if (!all_kernels.emplace(said.name, std::move(code)).second) {
            refuse("there are two kernels " + shown(said.name));
        }
    }

    kernel_code code_of(const descriptor & read, const kernel_metadata & said, const place & where) const {
        kernel_code code{};
        code.lds               = read.lds;
        code.scratch           = read.scratch;
        code.kernarg_size      = said.kernarg_size;
        code.kernarg_alignment = said.kernarg_alignment;
        code.sgprs             = said.sgprs;
        code.max_threads       = said.max_threads;
        code.rsrc1             = read.rsrc1;
        code.rsrc2             = read.rsrc2;
        code.rsrc3             = read.rsrc3;
        code.properties        = read.properties;
        code.kernarg_preload   = read.kernarg_preload;
        code.has_dynamic_stack = (read.properties & has_dynamic_stack) != 0 || said.has_dynamic_stack;
        code.wave_size         = (read.properties & has_wave32) != 0 ? 32 : 64;
        code.vgprs             = vgprs_in(read, code.wave_size, where);
        code.vgprs_used        = said.vgprs;
        if (code.wave_size != said.wave_size) {
            refuse(where.text() + " has waves of " + std::to_string(code.wave_size) + " lanes, its metadata of " +
                   std::to_string(said.wave_size));
        }
        return code;
    }

    uint32_t vgprs_in(const descriptor & read, uint32_t wave_size, const place & where) const {
        const vgpr_encoding encoding = vgprs_of(name);
        const uint32_t granule = wave_size == 32 ? encoding.granule_of_wave32 : encoding.granule_of_wave64;
        const uint32_t count   = ((read.rsrc1 & vgpr_blocks_mask) + 1) * granule;
        if (count > encoding.most) {
            refuse(where.text() + " requests " + std::to_string(count) + " VGPRs, but " + name + " has " +
                   std::to_string(encoding.most));
        }
        return count;
    }

    // If clang finds that a kernel's whole body is undefined behaviour, it emits a function of size 0: it is followed
    // by another function, padding, or nothing. Assembly may omit sizes, and has code there.
    bool has_code(const std::string & name, uint64_t entry) const {
        if (!without_size.contains(name)) {
            return true;
        }
        const std::byte * address = image_.code_at(entry, 4);
        if (address == nullptr || functions_.contains(address)) {
            return false;
        }
        uint32_t first = 0;
        std::memcpy(&first, address, sizeof(first));
        return first != code_end;
    }

    const std::byte * entry_of(uint64_t entry, const place & where) const {
        if (entry % entry_alignment != 0) {
            refuse(where.text() + " has its code at " + hex(entry) + ", not a multiple of 256");
        }
        return image_.at(entry, 4, where, PF_X); // the shortest instruction
    }

    std::string name;
    image image_;
    dynamic_section dynamic;
    symbol_table dynamic_table;
    uint64_t letters = 0; // length of all names
    std::map<std::string, Elf64_Sym, std::less<>> descriptors;
    std::map<std::string, kernel_code, std::less<>> all_kernels;
    std::map<std::string, symbol, std::less<>> all_variables;
    std::map<const std::byte *, named_symbol> functions_; // by start address
    std::set<std::string> without_size;                   // functions of size 0
};

} // namespace

std::unique_ptr<code_object> code_object::load(std::span<const std::byte> elf) {
    const elf_file file = read_elf(elf);
    return std::make_unique<loaded>(file);
}

} // namespace patchkit::gpu
