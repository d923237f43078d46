// The code object manager (comgr): the calls by which programs compile HIP source and assembly to code objects.
//
// As version 3, with its enumerations (amd_comgr.h of LLVM 21). Declared by binary interface, because its header is not
// part of every HIP installation. Handles are structures of one 64-bit number, which are passed like the number.

#include "device_compiler.hpp"
#include "handles.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

enum status : int { success = 0, failed = 1, invalid_argument = 2 };

enum kind : int { source_code = 1, log_text = 5, bitcode = 6, relocatable = 7, executable = 8 };

enum action : int {
    compile_to_bitcode            = 2,
    codegen_to_relocatable        = 4,
    link_to_executable            = 7,
    assemble                      = 8,
    compile_to_bitcode_with_libs  = 12,
    compile_to_relocatable        = 13,
    compile_to_executable         = 14,
};

struct data {
    int kind = 0;
    std::string bytes, name;
};

struct data_set {
    std::vector<std::shared_ptr<data>> members;
};

struct action_info {
    int language = 0;
    std::string isa;
    std::vector<std::string> options;
};

template <typename T> patchkit::handle_map<T> & all() {
    static auto * made = new patchkit::handle_map<T>;
    return *made;
}

template <typename T> std::shared_ptr<T> find(uint64_t handle) { return all<T>().find(reinterpret_cast<void *>(handle)); }

template <typename T> int create(uint64_t * handle) {
    if (handle == nullptr) {
        return invalid_argument;
    }
    *handle = reinterpret_cast<uint64_t>(all<T>().make(std::make_shared<T>()));
    return success;
}

template <typename T> int drop(uint64_t handle) {
    return all<T>().drop(reinterpret_cast<void *>(handle)) ? success : invalid_argument;
}

// Copies with the terminator of a text; `to` null: only its size.
int copy_out(const std::string & text, size_t more, size_t * size, char * to) {
    if (size == nullptr) {
        return invalid_argument;
    }
    if (to != nullptr) {
        std::memcpy(to, text.c_str(), std::min(*size, text.size() + more));
    } else {
        *size = text.size() + more;
    }
    return success;
}

std::vector<std::string> inputs_of(const data_set & from, int wanted) {
    std::vector<std::string> inputs;
    for (const auto & one : from.members) {
        if (one->kind == wanted) {
            inputs.push_back(one->bytes);
        }
    }
    return inputs;
}

void add(data_set & to, int kind, std::string bytes, const char * name) {
    auto made   = std::make_shared<data>();
    made->kind  = kind;
    made->bytes = std::move(bytes);
    made->name  = name;
    to.members.push_back(std::move(made));
}

patchkit::compiled compile_source(const action_info & how, const data_set & from, bool to_bitcode,
                                  std::vector<std::string> options) {
    for (const auto & one : from.members) {
        if (one->kind == source_code) {
            patchkit::source source;
            source.name               = one->name.empty() ? "source.hip" : one->name;
            source.text               = one->bytes;
            source.to_bitcode         = to_bitcode;
            source.has_runtime_header = false; // comgr adds no header; hiprtc does
            options.insert(options.begin(), how.options.begin(), how.options.end());
            return patchkit::compile(source, options);
        }
    }
    return {false, "patchkit: comgr: the input has no source\n", "", {}};
}

patchkit::compiled perform(int what, const action_info & how, const data_set & from, int & made) {
    // amdgcn-amd-amdhsa--gfx1151
    const std::string arch = how.isa.substr(how.isa.rfind('-') + 1);
    if (arch != patchkit::the_device().arch) {
        return {false, "patchkit: comgr: code for " + arch + " is not compiled, the emulated GPU is " + patchkit::the_device().arch + "\n", "", {}};
    }
    std::vector<std::string> options = how.options;
    switch (what) {
        case compile_to_bitcode:
        case compile_to_bitcode_with_libs:
            made = bitcode;
            return compile_source(how, from, true, {});
        case compile_to_relocatable:
        case compile_to_executable:
            made = what == compile_to_executable ? executable : relocatable;
            return compile_source(how, from, false, what == compile_to_executable ? std::vector<std::string>{} : std::vector<std::string>{"-c"});
        case codegen_to_relocatable:
            made = relocatable;
            options.push_back("-c");
            return patchkit::run_clang(inputs_of(from, bitcode), ".bc", options);
        case assemble:
            made = relocatable;
            options.push_back("-c");
            return patchkit::run_clang(inputs_of(from, source_code), ".s", options);
        case link_to_executable:
            made = executable;
            return patchkit::run_clang(inputs_of(from, relocatable), ".o", options);
        default:
            return {false, "patchkit: comgr: action " + std::to_string(what) + " is not supported\n", "", {}};
    }
}

} // namespace

extern "C" {

void amd_comgr_get_version(size_t * major, size_t * minor) {
    *major = 3;
    *minor = 0;
}

int amd_comgr_status_string(int error, const char ** text) {
    static const char * const texts[] = {"SUCCESS", "ERROR", "INVALID_ARGUMENT", "OUT_OF_RESOURCES"};
    if (text == nullptr || error < 0 || error > 3) {
        return invalid_argument;
    }
    *text = texts[error];
    return success;
}

int amd_comgr_create_data(int kind, uint64_t * handle) {
    const int error = create<data>(handle);
    if (error == success) {
        find<data>(*handle)->kind = kind;
    }
    return error;
}

int amd_comgr_release_data(uint64_t handle) { return drop<data>(handle); }

int amd_comgr_set_data(uint64_t handle, size_t size, const char * bytes) {
    const auto one = find<data>(handle);
    if (one == nullptr || bytes == nullptr || !patchkit::is_mapped(bytes, size)) {
        return invalid_argument;
    }
    one->bytes.assign(bytes, size);
    return success;
}

int amd_comgr_set_data_name(uint64_t handle, const char * name) {
    const auto one = find<data>(handle);
    if (one == nullptr) {
        return invalid_argument;
    }
    one->name = name == nullptr ? "" : name;
    // The name is inserted in quotes into a source line.
    const auto is_odd = [](char c) { return c == '"' || c == '\\' || c == '\n'; };
    std::replace_if(one->name.begin(), one->name.end(), is_odd, '_');
    return success;
}

int amd_comgr_get_data_kind(uint64_t handle, int * kind) {
    const auto one = find<data>(handle);
    if (one == nullptr || kind == nullptr) {
        return invalid_argument;
    }
    *kind = one->kind;
    return success;
}

int amd_comgr_get_data(uint64_t handle, size_t * size, char * to) {
    const auto one = find<data>(handle);
    return one == nullptr ? int(invalid_argument) : copy_out(one->bytes, 0, size, to);
}

int amd_comgr_get_data_name(uint64_t handle, size_t * size, char * to) {
    const auto one = find<data>(handle);
    return one == nullptr ? int(invalid_argument) : copy_out(one->name, 1, size, to);
}

int amd_comgr_create_data_set(uint64_t * handle) { return create<data_set>(handle); }

int amd_comgr_destroy_data_set(uint64_t handle) { return drop<data_set>(handle); }

int amd_comgr_data_set_add(uint64_t set, uint64_t handle) {
    const auto to  = find<data_set>(set);
    const auto one = find<data>(handle);
    if (to == nullptr || one == nullptr) {
        return invalid_argument;
    }
    to->members.push_back(one);
    return success;
}

int amd_comgr_action_data_count(uint64_t set, int kind, size_t * count) {
    const auto from = find<data_set>(set);
    if (from == nullptr || count == nullptr) {
        return invalid_argument;
    }
    *count = inputs_of(*from, kind).size();
    return success;
}

// The data get a handle of their own, which the caller releases.
int amd_comgr_action_data_get_data(uint64_t set, int kind, size_t index, uint64_t * handle) {
    const auto from = find<data_set>(set);
    if (from == nullptr || handle == nullptr) {
        return invalid_argument;
    }
    for (const auto & one : from->members) {
        if (one->kind == kind && index-- == 0) {
            *handle = reinterpret_cast<uint64_t>(all<data>().make(one));
            return success;
        }
    }
    return invalid_argument;
}

int amd_comgr_create_action_info(uint64_t * handle) { return create<action_info>(handle); }

int amd_comgr_destroy_action_info(uint64_t handle) { return drop<action_info>(handle); }

int amd_comgr_action_info_set_isa_name(uint64_t handle, const char * name) {
    const auto one = find<action_info>(handle);
    if (one == nullptr) {
        return invalid_argument;
    }
    one->isa = name == nullptr ? "" : name;
    return success;
}

int amd_comgr_action_info_set_language(uint64_t handle, int language) {
    const auto one = find<action_info>(handle);
    if (one == nullptr) {
        return invalid_argument;
    }
    one->language = language;
    return success;
}

int amd_comgr_action_info_set_option_list(uint64_t handle, const char ** options, size_t count) {
    const auto one = find<action_info>(handle);
    if (one == nullptr || (count != 0 && options == nullptr)) {
        return invalid_argument;
    }
    one->options.clear();
    for (size_t i = 0; i < count; ++i) {
        if (options[i] != nullptr && *options[i] != '\0') {
            one->options.push_back(options[i]);
        }
    }
    return success;
}

// The log is always added to the results.
int amd_comgr_action_info_set_logging(uint64_t handle, bool) {
    return find<action_info>(handle) == nullptr ? invalid_argument : success;
}

int amd_comgr_do_action(int what, uint64_t how, uint64_t input, uint64_t result) {
    const auto info = find<action_info>(how);
    const auto from = find<data_set>(input), to = find<data_set>(result);
    if (info == nullptr || from == nullptr || to == nullptr) {
        return invalid_argument;
    }
    int made = 0;
    const patchkit::compiled done = perform(what, *info, *from, made);
    add(*to, log_text, done.log + std::string(1, '\0'), "comgr.log");
    if (!done.is_made) {
        return failed;
    }
    add(*to, made, done.code, "comgr.out");
    return success;
}

} // extern "C"
