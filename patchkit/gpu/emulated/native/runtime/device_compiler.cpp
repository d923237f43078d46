#include "device_compiler.hpp"

#include "recorder.hpp"
#include "settings.hpp"

#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

extern char ** environ;

namespace patchkit {

namespace {

namespace fs = std::filesystem;

// Prefix of generated variables, each initialised with the address of an expression's object.
constexpr const char * prefix = "patchkit_expression_";

// A temporary folder, deleted by the destructor.
class scratch {
  public:
    scratch() {
        const char * place = setting("TMPDIR");
        std::string text   = std::string(place == nullptr ? "/tmp" : place) + "/patchkit-hiprtc-XXXXXX";
        if (mkdtemp(text.data()) != nullptr) {
            path_ = text;
        }
    }
    scratch(const scratch &) = delete;
    ~scratch() {
        std::error_code ignored;
        if (!path_.empty()) {
            fs::remove_all(path_, ignored);
        }
    }
    const fs::path & path() const { return path_; }

  private:
    fs::path path_;
};

bool write(const fs::path & to, const std::string & text) {
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    std::ofstream file(to, std::ios::binary);
    file << text;
    return bool(file.flush());
}

std::string read(const fs::path & from) {
    std::ifstream file(from, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

// Whether the command succeeded; its output goes to a file.
bool run(const std::vector<std::string> & words, const fs::path & log) {
    std::vector<char *> argv;
    for (const std::string & word : words) {
        argv.push_back(const_cast<char *>(word.c_str()));
    }
    argv.push_back(nullptr);
    // The compiler must not run on the emulated GPU.
    std::vector<char *> variables;
    for (char ** one = environ; *one != nullptr; ++one) {
        if (std::strncmp(*one, "PATCHKIT_", 9) != 0 && std::strncmp(*one, "LD_PRELOAD=", 11) != 0) {
            variables.push_back(*one);
        }
    }
    variables.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), variables.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        std::ofstream(log, std::ios::app) << "patchkit: cannot run " << words[0] << ": " << std::strerror(failed) << "\n";
        return false;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<std::string> lines_of(const char * text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

// The emulated GPUs run waves of 32 lanes only, so code for waves of 64 is refused before it is compiled.
const char * asks_for_wave64(const std::vector<std::string> & options) {
    const bool does = std::count(options.begin(), options.end(), "-mwavefrontsize64") != 0;
    return does ? "patchkit: -mwavefrontsize64: the emulated GPU executes only waves of 32 lanes; remove the option\n" : nullptr;
}

// Options that select a GPU are ignored: the device's GPU is used.
bool names_gpu(const std::string & option) {
    return option.rfind("--gpu-architecture", 0) == 0 || option.rfind("--offload-arch", 0) == 0;
}

std::string with_expressions(const source & from) {
    std::string text = from.text + "\n";
    for (size_t i = 0; i < from.expressions.size(); ++i) {
        const std::string & one = from.expressions[i];
        const bool has_address  = one.find_first_not_of(" \t") != std::string::npos &&
                                 one[one.find_first_not_of(" \t")] == '&';
        text += "extern \"C\" __device__ __attribute__((used)) const void * " + std::string(prefix) + std::to_string(i) +
                " = (const void *) " + (has_address ? "" : "&") + "(" + (has_address ? one.substr(one.find('&') + 1) : one) +
                ");\n";
    }
    return text;
}

// A table of records within the file; empty if it is out of bounds.
template <typename T> std::vector<T> table_at(const std::string & elf, uint64_t offset, uint64_t size) {
    std::vector<T> result;
    if (offset <= elf.size() && size <= elf.size() - offset) {
        result.resize(size_t(size) / sizeof(T));
        std::memcpy(result.data(), elf.data() + offset, result.size() * sizeof(T));
    }
    return result;
}

std::string name_at(const std::string & names, uint32_t at) {
    return at < names.size() ? std::string(names.c_str() + at) : "";
}

constexpr const char * no_compiler = "patchkit: no compiler available: PATCHKIT_EMULATOR_COMPILER is not set\n";
constexpr const char * no_folder   = "patchkit: cannot create a folder for temporary files\n";
constexpr const char * no_files    = "patchkit: cannot write temporary files\n";

compiled refused(const char * reason) { return {false, reason, "", {}}; }

// Why nothing can be compiled with these options; null if it can.
const char * cannot_compile(const std::vector<std::string> & options) {
    return setting("PATCHKIT_EMULATOR_COMPILER") == nullptr ? no_compiler : asks_for_wave64(options);
}

std::vector<std::string> compiler_words() { return lines_of(setting("PATCHKIT_EMULATOR_COMPILER")); }

compiled compiled_by(const std::vector<std::string> & words, const fs::path & log, const fs::path & output) {
    compiled result;
    result.is_made = run(words, log);
    result.log     = read(log);
    if (result.is_made) {
        result.code = read(output);
    }
    return result;
}

} // namespace

bool is_header_name(const std::string & name) {
    const fs::path path(name);
    return !name.empty() && path.is_relative() && path.has_filename() &&
           std::none_of(path.begin(), path.end(), [](const fs::path & part) { return part == ".."; });
}

std::map<int, std::string> find_addressed(const std::string & elf, const std::string & wanted) {
    std::map<int, std::string> result;
    const auto headers = table_at<Elf64_Ehdr>(elf, 0, sizeof(Elf64_Ehdr));
    if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        headers[0].e_shentsize != sizeof(Elf64_Shdr)) {
        return result;
    }
    const auto sections = table_at<Elf64_Shdr>(elf, headers[0].e_shoff, uint64_t(headers[0].e_shnum) * sizeof(Elf64_Shdr));
    std::vector<Elf64_Sym> symbols;
    std::vector<Elf64_Rela> relocations;
    std::string names;
    for (const Elf64_Shdr & one : sections) {
        if (one.sh_type == SHT_DYNSYM && one.sh_link < sections.size()) {
            symbols                 = table_at<Elf64_Sym>(elf, one.sh_offset, one.sh_size);
            const Elf64_Shdr & text = sections[one.sh_link];
            const auto bytes        = table_at<char>(elf, text.sh_offset, text.sh_size);
            names.assign(bytes.begin(), bytes.end());
        } else if (one.sh_type == SHT_RELA) {
            const auto more = table_at<Elf64_Rela>(elf, one.sh_offset, one.sh_size);
            relocations.insert(relocations.end(), more.begin(), more.end());
        }
    }
    std::map<uint64_t, int> places; // of the generated variables
    for (const Elf64_Sym & one : symbols) {
        const std::string name = name_at(names, one.st_name);
        if (name.rfind(wanted, 0) == 0) {
            places[one.st_value] = std::atoi(name.c_str() + wanted.size());
        }
    }
    constexpr uint32_t absolute = 3, relative = 13; // R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64
    for (const Elf64_Rela & one : relocations) {
        const auto place = places.find(one.r_offset);
        if (place == places.end()) {
            continue;
        }
        const uint32_t symbol = uint32_t(one.r_info >> 32), type = uint32_t(one.r_info);
        if (type == absolute && symbol < symbols.size()) {
            result[place->second] = name_at(names, symbols[symbol].st_name);
        }
        for (const Elf64_Sym & target : symbols) {
            const int kind = target.st_info & 15;
            if (type == relative && target.st_value == uint64_t(one.r_addend) && (kind == STT_FUNC || kind == STT_OBJECT) &&
                target.st_shndx != SHN_UNDEF && name_at(names, target.st_name).rfind(wanted, 0) != 0) {
                result[place->second] = name_at(names, target.st_name);
            }
        }
    }
    return result;
}

compiled compile(const source & from, const std::vector<std::string> & options) {
    if (const char * reason = cannot_compile(options)) {
        return refused(reason);
    }
    const scratch folder;
    if (folder.path().empty()) {
        return refused(no_folder);
    }
    const fs::path input = folder.path() / "source.hip", output = folder.path() / "code", log = folder.path() / "log";
    // Messages refer to the program's own file.
    bool is_written = write(input, "#line 1 \"" + from.name + "\"\n" + with_expressions(from));
    for (const auto & [name, text] : from.headers) {
        is_written &= write(folder.path() / "headers" / name, text);
    }
    if (!is_written) {
        return refused(no_files);
    }
    std::vector<std::string> words = compiler_words();
    words.insert(words.end(), {"-I", (folder.path() / "headers").string()});
    if (from.has_runtime_header) {
        words.insert(words.end(), {"-include", "hip/hip_runtime.h"});
    }
    if (from.to_bitcode) {
        words.insert(words.end(), {"-emit-llvm", "-c"});
    }
    std::copy_if(options.begin(), options.end(), std::back_inserter(words),
                 [](const std::string & one) { return !names_gpu(one); });
    words.insert(words.end(), {"--no-gpu-bundle-output", "-o", output.string(), input.string()});
    compiled result = compiled_by(words, log, output);
    if (!result.is_made) {
        return result;
    }
    for (const auto & [number, name] : find_addressed(result.code, prefix)) {
        if (number >= 0 && size_t(number) < from.expressions.size()) {
            result.names[from.expressions[size_t(number)]] = name;
        }
    }
    return result;
}

compiled run_clang(const std::vector<std::string> & inputs, const char * suffix, const std::vector<std::string> & options) {
    if (const char * reason = cannot_compile(options)) {
        return refused(reason);
    }
    const scratch folder;
    if (folder.path().empty()) {
        return refused(no_folder);
    }
    const fs::path output = folder.path() / "code", log = folder.path() / "log";
    std::vector<std::string> words = {compiler_words()[0], "--target=amdgcn-amd-amdhsa", "-mcpu=" + the_device().arch,
                                      "-nogpulib", "-Wno-unused-command-line-argument"};
    std::copy_if(options.begin(), options.end(), std::back_inserter(words),
                 [](const std::string & one) { return !names_gpu(one); });
    words.insert(words.end(), {"-o", output.string()});
    for (size_t i = 0; i < inputs.size(); ++i) {
        const fs::path input = folder.path() / ("input" + std::to_string(i) + suffix);
        if (!write(input, inputs[i])) {
            return refused(no_files);
        }
        words.push_back(input.string());
    }
    return compiled_by(words, log, output);
}

} // namespace patchkit
