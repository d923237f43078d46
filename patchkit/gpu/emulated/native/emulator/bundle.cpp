// Code for several GPUs in one file, as written by clang: an offload bundle, compressed or not.
//
// Sources: the page "Clang Offload Bundler" of clang's manual for layout and entry names; clang's
// CompressedOffloadBundle for the header of compressed bundles.

#include "bytes.hpp"
#include "code_object.hpp"
#include "elf_file.hpp"

#include <algorithm>
#include <dlfcn.h>

namespace patchkit::gpu {

namespace {

constexpr std::string_view bundle_magic     = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view compressed_magic = "CCOB";

constexpr uint64_t most_entries      = 4096;
constexpr uint64_t longest_name      = 4096;
constexpr uint64_t most_bundle       = uint64_t(1) << 32;
constexpr uint64_t most_decompressed = uint64_t(1) << 30;

struct entry {
    std::string_view name; // hipv4-amdgcn-amd-amdhsa--gfx1151
    uint64_t offset;
    uint64_t size;
};

bool begins_with(bytes content, std::string_view magic) { return as_text(content).substr(0, magic.size()) == magic; }

struct bundle_table {
    std::vector<entry> entries;
    uint64_t size; // of the table
};

bundle_table read_table(bytes bundle) {
    uint64_t position    = bundle_magic.size();
    const auto next_word = [&](const place & where) {
        const auto value = value_at<uint64_t>(bundle, position, where);
        position += sizeof(value);
        return value;
    };
    bundle_table table{};
    const uint64_t count = next_word("the bundle's header");
    if (count > most_entries) {
        refuse("the bundle's header has " + std::to_string(count) + " entries");
    }
    for (uint64_t i = 0; i < count; ++i) {
        const place where("bundle entry", i);
        const uint64_t offset = next_word(where);
        const uint64_t size   = next_word(where);
        const uint64_t length = next_word(where);
        if (length > longest_name) {
            refuse(where.text() + " has a name of " + std::to_string(length) + " bytes");
        }
        table.entries.push_back({as_text(part_of(bundle, position, length, where)), offset, size});
        part_of(bundle, offset, size, where);
        position += length;
    }
    table.size = position;
    return table;
}

struct target {
    std::string_view processor;
    std::vector<std::string_view> features; // xnack-
};

target target_of(std::string_view text) {
    target result{text.substr(0, text.find(':')), {}};
    for (size_t colon = text.find(':'); colon != std::string_view::npos;) {
        const size_t next = text.find(':', colon + 1);
        result.features.push_back(text.substr(colon + 1, next == std::string_view::npos ? next : next - colon - 1));
        colon = next;
    }
    return result;
}

bool fits(const target & code, const target & device) {
    return code.processor == device.processor &&
           std::all_of(code.features.begin(), code.features.end(), [&](std::string_view feature) {
               return std::find(device.features.begin(), device.features.end(), feature) != device.features.end();
           });
}

// The GPU with its features in an entry's name, which consists of the kind of code, a triple (with an environment, or
// an empty component for it) and the target, separated by dashes. Empty if it is not HIP code for an AMD GPU.
std::string_view gpu_of(std::string_view name) {
    const bool is_hip = name.starts_with("hip-") || name.starts_with("hipv4-");
    const size_t triple = name.find('-') + 1;
    const size_t gpu    = name.rfind("-gfx");
    if (!is_hip || !name.substr(triple).starts_with("amdgcn-amd-amdhsa-") || gpu == std::string_view::npos) {
        return {};
    }
    return name.substr(gpu + 1);
}

bytes find_entry(bytes bundle, std::string_view arch, std::vector<std::string> & held) {
    const target device = target_of(arch);
    bytes found;
    size_t most_features = 0;
    for (const entry & each : read_table(bundle).entries) {
        if (each.size == 0) {
            continue; // the host entry, which exists only by name
        }
        const std::string_view gpu = gpu_of(each.name);
        held.emplace_back(gpu.empty() ? each.name : gpu);
        const target code = target_of(gpu);
        if (!gpu.empty() && fits(code, device) && (found.empty() || code.features.size() > most_features)) {
            found         = part_of(bundle, each.offset, each.size, "a bundle entry");
            most_features = code.features.size();
        }
    }
    return found;
}

bytes bare_file(bytes file, std::string_view arch, std::vector<std::string> & held) {
    const std::string_view processor = read_elf(file).processor;
    held.emplace_back(processor);
    return processor == target_of(arch).processor ? file : bytes();
}

// The header of a compressed bundle.
struct compressed_header {
    enum : uint16_t { zlib = 0, zstd = 1 };

    uint16_t method;
    uint64_t size;       // total size including the header; 0 if the header does not contain it
    uint64_t decompressed_size;
    uint64_t begin;      // offset of the compressed bytes
};

compressed_header read_compressed_header(bytes bundle) {
    constexpr const char * where = "the header of the compressed bundle";
    const auto version = value_at<uint16_t>(bundle, 4, where);
    compressed_header header{value_at<uint16_t>(bundle, 6, where), 0, 0, 0};
    switch (version) {
        case 1:
            header.decompressed_size = value_at<uint32_t>(bundle, 8, where);
            header.begin             = 20;
            break;
        case 2:
            header.size              = value_at<uint32_t>(bundle, 8, where);
            header.decompressed_size = value_at<uint32_t>(bundle, 12, where);
            header.begin             = 24;
            break;
        case 3:
            header.size              = value_at<uint64_t>(bundle, 8, where);
            header.decompressed_size = value_at<uint64_t>(bundle, 16, where);
            header.begin             = 32;
            break;
        default: refuse(std::string(where) + " has version " + std::to_string(version) + ", but only 1 to 3 are supported");
    }
    if (header.method != compressed_header::zlib && header.method != compressed_header::zstd) {
        refuse(std::string(where) + " names method " + std::to_string(header.method) + ", neither zlib nor zstd");
    }
    if (version != 1 && header.size < header.begin) {
        refuse(std::string(where) + " has " + std::to_string(header.size) + " bytes in all");
    }
    return header;
}

// A library that is loaded only if a bundle needs it.
class library {
  public:
    library(const char * name, const char * method) : name(name) {
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            refuse(std::string("the bundle is compressed with ") + method + ", and its library cannot be loaded: " +
                   dlerror());
        }
    }

    template <typename Function> Function * function(const char * wanted) const {
        void * found = dlsym(handle, wanted);
        if (found == nullptr) {
            refuse(std::string(name) + " has no " + wanted);
        }
        return reinterpret_cast<Function *>(found);
    }

  private:
    const char * name;
    void * handle;
};

// A wrong size means that stream and header do not belong together.
void check_decompressed(uint64_t size, uint64_t announced) {
    if (size != announced) {
        refuse("the compressed bundle holds " + std::to_string(size) + " bytes, but its header says " +
               std::to_string(announced));
    }
}

void inflate(bytes from, std::vector<std::byte> & to, uint64_t size) {
    // The maximum compression ratio of the format is 1032.
    if (size / 1100 > from.size()) {
        refuse("the compressed bundle's header says that " + std::to_string(from.size()) + " bytes hold " +
               std::to_string(size));
    }
    static const library zlib("libz.so.1", "zlib");
    // As in zlib.h: uLong and uLongf are unsigned long.
    const auto uncompress =
        zlib.function<int(unsigned char *, unsigned long *, const unsigned char *, unsigned long)>("uncompress");
    to.resize(size);
    unsigned long written = size;
    const int error = uncompress(reinterpret_cast<unsigned char *>(to.data()), &written,
                                 reinterpret_cast<const unsigned char *>(from.data()), from.size());
    if (error != 0) {
        refuse("the compressed bundle is not a zlib stream of " + std::to_string(size) + " bytes: error " +
               std::to_string(error));
    }
    check_decompressed(written, size);
}

void decompress_zstd(bytes from, std::vector<std::byte> & to, uint64_t size) {
    static const library zstd("libzstd.so.1", "zstd");
    // As in zstd.h.
    const auto is_error = zstd.function<unsigned(size_t)>("ZSTD_isError");
    const auto error    = zstd.function<const char *(size_t)>("ZSTD_getErrorName");
    const auto checked  = [&](size_t result) {
        if (is_error(result) != 0) {
            refuse(std::string("the compressed bundle is not a valid zstd frame: ") + error(result));
        }
        return result;
    };
    // Checked before memory is allocated.
    check_decompressed(zstd.function<unsigned long long(const void *, size_t)>("ZSTD_getFrameContentSize")(
                           from.data(), from.size()), size);
    const size_t frame =
        checked(zstd.function<size_t(const void *, size_t)>("ZSTD_findFrameCompressedSize")(from.data(), from.size()));
    to.resize(size);
    check_decompressed(checked(zstd.function<size_t(void *, size_t, const void *, size_t)>("ZSTD_decompress")(
                           to.data(), to.size(), from.data(), frame)), size);
}

bytes decompressed(bytes bundle, std::vector<std::byte> & storage) {
    const compressed_header header = read_compressed_header(bundle);
    if (header.decompressed_size > most_decompressed) {
        refuse("the compressed bundle's header has " + std::to_string(header.decompressed_size) + " bytes");
    }
    const bytes whole = header.size == 0 ? bundle : part_of(bundle, 0, header.size, "the compressed bundle");
    const bytes from  = part_of(whole, header.begin, whole.size() - std::min<uint64_t>(header.begin, whole.size()),
                                "the compressed bundle");
    if (header.method == compressed_header::zlib) {
        inflate(from, storage, header.decompressed_size);
    } else {
        decompress_zstd(from, storage, header.decompressed_size);
    }
    return storage;
}

uint64_t elf_size(bytes content) {
    const elf_file file = read_elf(content);
    uint64_t size = std::max(file.header.e_phoff + file.segments.size() * sizeof(Elf64_Phdr),
                             file.header.e_shoff + file.sections.size() * sizeof(Elf64_Shdr));
    const auto add = [&](uint64_t offset, uint64_t length) {
        part_of(content, offset, length, "the file that a header describes");
        size = std::max(size, offset + length);
    };
    for (const Elf64_Phdr & each : file.segments) {
        add(each.p_offset, each.p_filesz);
    }
    for (const Elf64_Shdr & each : file.sections) {
        if (each.sh_type != SHT_NOBITS && each.sh_type != SHT_NULL) {
            add(each.sh_offset, each.sh_size);
        }
    }
    return size;
}

uint64_t uncompressed_size(bytes bundle) {
    const bundle_table table = read_table(bundle);
    uint64_t size = table.size;
    for (const entry & each : table.entries) {
        size = std::max(size, each.offset + each.size);
    }
    return size;
}

uint64_t compressed_size(bytes bundle) {
    const compressed_header header = read_compressed_header(bundle);
    if (header.size == 0) {
        refuse("the compressed bundle has a header of version 1, which does not contain its length");
    }
    return part_of(bundle, 0, header.size, "the compressed bundle").size();
}

} // namespace

std::span<const std::byte> find_in_bundle(std::span<const std::byte> bundle, std::string_view arch,
                                          std::vector<std::byte> & storage, std::vector<std::string> & held) {
    held.clear();
    if (is_elf(bundle)) {
        return bare_file(bundle, arch, held);
    }
    if (begins_with(bundle, compressed_magic)) {
        bundle = decompressed(bundle, storage);
    }
    if (!begins_with(bundle, bundle_magic)) {
        refuse("it is neither an offload bundle nor an ELF file");
    }
    return find_entry(bundle, arch, held);
}

size_t bundle_size(const void * bundle) {
    // The maximum size of a bundle; only what its headers describe is read.
    const bytes content(static_cast<const std::byte *>(bundle), most_bundle);
    if (is_elf(content)) {
        return elf_size(content);
    }
    if (begins_with(content, compressed_magic)) {
        return compressed_size(content);
    }
    if (begins_with(content, bundle_magic)) {
        return uncompressed_size(content);
    }
    refuse("it is neither an offload bundle nor an ELF file");
}

} // namespace patchkit::gpu
