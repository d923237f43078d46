// The hiprtc API. Declared by binary interface, because its header is not part of every HIP installation.

#include "device_compiler.hpp"
#include "handles.hpp"
#include "recorder.hpp"

#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace {

// hiprtcResult (hiprtc.h)
enum result : int {
    success = 0,
    creation_failure = 2,
    invalid_input = 3,
    invalid_program = 4,
    invalid_option = 5,
    compilation = 6,
    no_names_after_compilation = 8,
    no_lowered_names_before_compilation = 9,
    name_not_valid = 10,
    linking = 100,
};

// hiprtcJITInputType of HIP 6 and 7: the inputs that are not CUDA's. All of LLVM's are accepted as bitcode.
enum input_kind : int { bitcode = 100 };

struct program {
    patchkit::source from;
    patchkit::compiled made;
    bool was_compiled = false;
};

struct link_state {
    std::vector<std::string> inputs;
    std::string linked; // valid until the state is destroyed
};

patchkit::handle_map<program> & programs() {
    static auto * made = new patchkit::handle_map<program>;
    return *made;
}

patchkit::handle_map<link_state> & links() {
    static auto * made = new patchkit::handle_map<link_state>;
    return *made;
}

// A compiled program, if it has what is asked for: bitcode with -fgpu-rdc, code otherwise.
std::shared_ptr<program> compiled_to(void * handle, bool to_bitcode) {
    const auto one = programs().find(handle);
    return one != nullptr && one->was_compiled && one->from.to_bitcode == to_bitcode ? one : nullptr;
}

int add_input(void * state, int kind, std::string image) {
    const auto one = links().find(state);
    if (one == nullptr || image.empty()) {
        return invalid_input;
    }
    if (kind != bitcode) {
        std::fprintf(stderr, "patchkit emulator: hiprtc links LLVM bitcode only (HIPRTC_JIT_INPUT_LLVM_BITCODE), not input type %d\n",
                     kind);
        return invalid_input;
    }
    one->inputs.push_back(std::move(image));
    return success;
}

int copy_out(const std::string & text, char * to, size_t more) {
    if (to == nullptr) {
        return invalid_input;
    }
    std::memcpy(to, text.c_str(), text.size() + more);
    return success;
}

} // namespace

extern "C" {

int hiprtcVersion(int * major, int * minor) {
    if (major == nullptr || minor == nullptr) {
        return invalid_input;
    }
    *major = 9; // as reported by ROCm 5 to 7
    *minor = 0;
    return success;
}

const char * hiprtcGetErrorString(int error) {
    static const char * const names[] = {
        "HIPRTC_SUCCESS",
        "HIPRTC_ERROR_OUT_OF_MEMORY",
        "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "HIPRTC_ERROR_INVALID_INPUT",
        "HIPRTC_ERROR_INVALID_PROGRAM",
        "HIPRTC_ERROR_INVALID_OPTION",
        "HIPRTC_ERROR_COMPILATION",
        "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "HIPRTC_ERROR_INTERNAL_ERROR",
    };
    if (error == linking) {
        return "HIPRTC_ERROR_LINKING";
    }
    return error >= 0 && error < int(std::size(names)) ? names[error] : "Invalid HIPRTC error code";
}

int hiprtcCreateProgram(void ** made, const char * text, const char * name, int headers, const char ** texts,
                        const char ** names) {
    if (made == nullptr || text == nullptr || headers < 0 || (headers > 0 && (texts == nullptr || names == nullptr))) {
        return invalid_input;
    }
    auto one       = std::make_shared<program>();
    one->from.text = text;
    one->from.name = name == nullptr || *name == '\0' ? "default_program" : name;
    // The name is inserted in quotes into a source line.
    const auto is_odd = [](char c) { return c == '"' || c == '\\' || c == '\n'; };
    std::replace_if(one->from.name.begin(), one->from.name.end(), is_odd, '_');
    for (int i = 0; i < headers; ++i) {
        if (names[i] == nullptr || texts[i] == nullptr || !patchkit::is_header_name(names[i])) {
            return creation_failure;
        }
        one->from.headers[names[i]] = texts[i];
    }
    *made = programs().make(std::move(one));
    return success;
}

int hiprtcDestroyProgram(void ** handle) {
    if (handle == nullptr || !programs().drop(*handle)) {
        return invalid_program;
    }
    *handle = nullptr;
    return success;
}

int hiprtcAddNameExpression(void * handle, const char * expression) {
    const auto one = programs().find(handle);
    if (one == nullptr || expression == nullptr) {
        return one == nullptr ? invalid_program : invalid_input;
    }
    if (one->was_compiled) {
        return no_names_after_compilation;
    }
    one->from.expressions.push_back(expression);
    return success;
}

int hiprtcCompileProgram(void * handle, int count, const char ** options) {
    const auto one = programs().find(handle);
    if (one == nullptr) {
        return invalid_program;
    }
    if (count < 0 || (count > 0 && options == nullptr)) {
        return invalid_input;
    }
    std::vector<std::string> words;
    for (int i = 0; i < count; ++i) {
        if (options[i] == nullptr) {
            return invalid_option;
        }
        words.push_back(options[i]);
    }
    one->from.to_bitcode = std::count(words.begin(), words.end(), "-fgpu-rdc") != 0;
    one->made         = patchkit::compile(one->from, words);
    one->was_compiled = one->made.is_made;
    return one->made.is_made ? success : compilation;
}

int hiprtcGetProgramLogSize(void * handle, size_t * size) {
    const auto one = programs().find(handle);
    if (one == nullptr || size == nullptr) {
        return one == nullptr ? invalid_program : invalid_input;
    }
    *size = one->made.log.empty() ? 0 : one->made.log.size() + 1;
    return success;
}

int hiprtcGetProgramLog(void * handle, char * to) {
    const auto one = programs().find(handle);
    return one == nullptr ? int(invalid_program) : copy_out(one->made.log, to, one->made.log.empty() ? 0 : 1);
}

int hiprtcGetCodeSize(void * handle, size_t * size) {
    const auto one = compiled_to(handle, false);
    if (one == nullptr || size == nullptr) {
        return one == nullptr ? invalid_program : invalid_input;
    }
    *size = one->made.code.size();
    return success;
}

int hiprtcGetCode(void * handle, char * to) {
    const auto one = compiled_to(handle, false);
    return one == nullptr ? int(invalid_program) : copy_out(one->made.code, to, 0);
}

int hiprtcGetBitcodeSize(void * handle, size_t * size) {
    const auto one = compiled_to(handle, true);
    if (one == nullptr || size == nullptr) {
        return one == nullptr ? invalid_program : invalid_input;
    }
    *size = one->made.code.size();
    return success;
}

int hiprtcGetBitcode(void * handle, char * to) {
    const auto one = compiled_to(handle, true);
    return one == nullptr ? int(invalid_program) : copy_out(one->made.code, to, 0);
}

// Options of the linker are accepted and have no effect, as optimisation levels and limits of registers do not change
// results.
int hiprtcLinkCreate(unsigned, int *, void **, void ** made) {
    if (made == nullptr) {
        return invalid_input;
    }
    *made = links().make(std::make_shared<link_state>());
    return success;
}

int hiprtcLinkAddData(void * state, int kind, void * image, size_t size, const char *, unsigned, int *, void **) {
    if (image == nullptr || !patchkit::is_mapped(image, size)) {
        return invalid_input;
    }
    return add_input(state, kind, std::string(static_cast<const char *>(image), size));
}

int hiprtcLinkAddFile(void * state, int kind, const char * path, unsigned, int *, void **) {
    if (path == nullptr) {
        return invalid_input;
    }
    std::ifstream file(path, std::ios::binary);
    return add_input(state, kind, std::string(std::istreambuf_iterator<char>(file), {}));
}

int hiprtcLinkComplete(void * state, void ** code, size_t * size) {
    const auto one = links().find(state);
    if (one == nullptr || code == nullptr || size == nullptr || one->inputs.empty()) {
        return invalid_input;
    }
    // Text is LLVM's assembly, and clang recognises both by the content.
    const patchkit::compiled made = patchkit::run_clang(one->inputs, ".bc", {"-O3", "-flto"});
    if (!made.is_made) {
        std::fprintf(stderr, "patchkit emulator: hiprtcLinkComplete: %s", made.log.c_str());
        return linking;
    }
    one->linked = made.code;
    *code       = one->linked.data();
    *size       = one->linked.size();
    return success;
}

int hiprtcLinkDestroy(void * state) { return links().drop(state) ? success : invalid_input; }

int hiprtcGetLoweredName(void * handle, const char * expression, const char ** name) {
    const auto one = programs().find(handle);
    if (one == nullptr || expression == nullptr || name == nullptr) {
        return one == nullptr ? invalid_program : invalid_input;
    }
    if (!one->was_compiled) {
        return no_lowered_names_before_compilation;
    }
    const auto found = one->made.names.find(expression);
    if (found == one->made.names.end()) {
        return name_not_valid;
    }
    *name = found->second.c_str(); // valid until the program is destroyed
    return success;
}

} // extern "C"
