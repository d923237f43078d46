#include "missing_calls.hpp"

#include "recorder.hpp"
#include "settings.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace patchkit {

namespace {

// Prefixes of functions in ROCm's libraries.
constexpr std::string_view prefixes[] = {"hip",     "__hip",     "rocblas_", "rocsolver_", "rocsparse_", "rocrand_",
                                         "rocfft_", "rocprofiler", "roctx",  "miopen",     "hsa_",       "amd_comgr_",
                                         "nccl"};

bool is_of_rocm(std::string_view name) {
    return std::any_of(std::begin(prefixes), std::end(prefixes),
                       [name](std::string_view one) { return name.substr(0, one.size()) == one; });
}

struct object {
    std::string path; // empty: the program itself
    std::vector<std::string> wanted;
};

// The required parts of the dynamic section.
struct tables {
    const ElfW(Sym) * symbols   = nullptr;
    const char * names          = nullptr;
    const ElfW(Rela) * data     = nullptr;
    const ElfW(Rela) * calls    = nullptr;
    size_t data_size            = 0;
    size_t calls_size           = 0;
    bool has_addends            = true; // for PLT relocations
};

tables read_tables(const dl_phdr_info & info, const ElfW(Dyn) * entry) {
    tables result;
    // The loader has relocated these addresses, except for the vDSO.
    const auto at = [&info](ElfW(Addr) place) { return place < info.dlpi_addr ? place + info.dlpi_addr : place; };
    for (; entry->d_tag != DT_NULL; ++entry) {
        const ElfW(Addr) place = at(entry->d_un.d_ptr);
        switch (entry->d_tag) {
            case DT_SYMTAB: result.symbols = reinterpret_cast<const ElfW(Sym) *>(place); break;
            case DT_STRTAB: result.names = reinterpret_cast<const char *>(place); break;
            case DT_RELA: result.data = reinterpret_cast<const ElfW(Rela) *>(place); break;
            case DT_RELASZ: result.data_size = entry->d_un.d_val; break;
            case DT_JMPREL: result.calls = reinterpret_cast<const ElfW(Rela) *>(place); break;
            case DT_PLTRELSZ: result.calls_size = entry->d_un.d_val; break;
            case DT_PLTREL: result.has_addends = entry->d_un.d_val == DT_RELA; break;
            default: break;
        }
    }
    return result;
}

// Names that relocations refer to, and that the object itself does not define.
void add_wanted(const tables & from, const ElfW(Rela) * first, size_t size, std::set<std::string> & wanted) {
    for (size_t i = 0; first != nullptr && i < size / sizeof(*first); ++i) {
        const ElfW(Sym) & symbol = from.symbols[first[i].r_info >> 32];
        // Weak symbols may be missing.
        if (symbol.st_shndx == SHN_UNDEF && (symbol.st_info >> 4) == STB_GLOBAL && symbol.st_name != 0 &&
            is_of_rocm(from.names + symbol.st_name)) {
            wanted.insert(from.names + symbol.st_name);
        }
    }
}

struct gathering {
    std::set<ElfW(Addr)> & seen;
    std::vector<object> found;
};

int gather(dl_phdr_info * info, size_t, void * data) {
    auto & all            = *static_cast<gathering *>(data);
    const bool is_kernels = info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "linux-vdso") != nullptr;
    for (int i = 0; i < info->dlpi_phnum && !is_kernels; ++i) {
        const ElfW(Phdr) & header = info->dlpi_phdr[i];
        if (header.p_type != PT_DYNAMIC || !all.seen.insert(info->dlpi_addr + header.p_vaddr).second) {
            continue;
        }
        const auto * dynamic = reinterpret_cast<const ElfW(Dyn) *>(info->dlpi_addr + header.p_vaddr);
        const tables from    = read_tables(*info, dynamic);
        if (from.symbols == nullptr || from.names == nullptr || !from.has_addends) {
            continue;
        }
        std::set<std::string> wanted;
        add_wanted(from, from.data, from.data_size, wanted);
        add_wanted(from, from.calls, from.calls_size, wanted);
        all.found.push_back({info->dlpi_name == nullptr ? "" : info->dlpi_name, {wanted.begin(), wanted.end()}});
    }
    return 0;
}

// As in the loader: searches globally, and in the object's own dependencies. dlopen initialises a library that is not yet
// initialised, so it is called only if a name is missing globally.
std::vector<std::string> missing_in(const object & one) {
    std::vector<std::string> names = one.wanted;
    std::erase_if(names, [](const std::string & name) { return dlsym(RTLD_DEFAULT, name.c_str()) != nullptr; });
    if (names.empty() || one.path.empty()) {
        return names;
    }
    if (void * handle = dlopen(one.path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
        std::erase_if(names, [handle](const std::string & name) { return dlsym(handle, name.c_str()) != nullptr; });
        dlclose(handle);
    }
    return names;
}

std::string join(const std::vector<std::string> & names) {
    std::string text;
    for (const std::string & name : names) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

} // namespace

void refuse_missing_calls() {
    static std::recursive_mutex mutex; // a library that dlopen initialises registers its kernels, which calls this again
    static auto * seen = new std::set<ElfW(Addr)>;
    if (setting("PATCHKIT_EMULATOR") == nullptr) {
        return;
    }
    const std::lock_guard<std::recursive_mutex> guard(mutex);
    gathering all = {*seen, {}};
    dl_iterate_phdr(gather, &all);
    std::string text;
    for (const object & one : all.found) {
        const std::vector<std::string> missing = missing_in(one);
        if (!missing.empty()) {
            text += (text.empty() ? "" : "; ") + (one.path.empty() ? "the program" : one.path) + " calls " + join(missing);
        }
    }
    if (!text.empty()) {
        misconfigured("patchkit's HIP runtime lacks functions of ROCm, so the program does not start: " + text +
                      " (docs/reference/emulated-runtime.md lists what is supported)");
    }
}

namespace {

// Libraries are initialised before those that depend on them, so this runs before any code of the program.
struct at_start {
    at_start() { refuse_missing_calls(); }
} look;

} // namespace

} // namespace patchkit
