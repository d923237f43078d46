#include "modules.hpp"

#include "allocations.hpp"
#include "emulation.hpp"
#include "findings.hpp"
#include "recorder.hpp"
#include "settings.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace patchkit {

namespace {

// patchkit compiles only the host pass, and embeds the unit's path in place of device code.
std::string unit_of(const char * binary) {
    static const char marker[] = "PATCHKIT-UNIT\n";
    if (binary == nullptr || std::strncmp(binary, marker, sizeof(marker) - 1) != 0) {
        return "";
    }
    const char * begin = binary + sizeof(marker) - 1;
    return std::string(begin, std::strcspn(begin, "\n"));
}

// The size of a binary is unknown: this is the readable memory from its start, according to the kernel. Throws
// bad_code_object if that cannot be determined.
std::span<const std::byte> readable_from(const char * binary) {
    const auto begin = uintptr_t(binary);
    uintptr_t end = begin;
    std::ifstream maps("/proc/self/maps");
    if (!maps) {
        throw gpu::bad_code_object("cannot read /proc/self/maps to determine its size: is /proc mounted?");
    }
    for (std::string line; std::getline(maps, line);) {
        unsigned long from = 0, to = 0;
        char can_read = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx %c", &from, &to, &can_read) == 3 && from <= end && end < to) {
            if (can_read != 'r') {
                break;
            }
            end = to;
        }
    }
    return {reinterpret_cast<const std::byte *>(binary), end - begin};
}

void say(const std::string & what) { std::fprintf(stderr, "patchkit emulator: %s\n", what.c_str()); }

bool read_file(const std::string & path, std::vector<std::byte> & into) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        return false;
    }
    std::ostringstream all;
    all << file.rdbuf();
    const std::string text = all.str();
    into.resize(text.size());
    std::memcpy(into.data(), text.data(), text.size());
    return true;
}

// A socket connection, closed by the destructor.
class connection {
  public:
    explicit connection(const char * path) : file_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_un address = {};
        address.sun_family  = AF_UNIX;
        if (std::strlen(path) >= sizeof(address.sun_path)) {
            error_ = ENAMETOOLONG;
            return;
        }
        std::strcpy(address.sun_path, path);
        if (file_ < 0 || connect(file_, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0) {
            error_ = errno;
        }
    }

    ~connection() {
        if (file_ >= 0) {
            close(file_);
        }
    }

    connection(const connection &) = delete;
    connection & operator=(const connection &) = delete;

    int error() const { return error_; }

    // A closed connection must not end this process by a signal.
    bool say(const std::string & line) {
        return send(file_, line.data(), line.size(), MSG_NOSIGNAL) == ssize_t(line.size());
    }

    std::string hear_line() {
        constexpr size_t longest = 1 << 16;
        std::string result;
        for (char c = 0; result.size() < longest && recv(file_, &c, 1, 0) == 1 && c != '\n';) {
            result += c;
        }
        return result;
    }

  private:
    int file_;
    int error_ = 0;
};

// Device code compiled by the server: of a whole unit, or of one of its kernels.
struct unit_code {
    std::vector<std::byte> file;
    bool is_whole = true;
};

// Requests a kernel's code, or with "" that of its unit, to be put into a folder. On success, the answer is the name of
// the file; otherwise returns false, and the answer is the error.
bool ask_server(const char * path, const std::string & unit, const char * folder, const std::string & kernel,
                std::string & answer) {
    connection server(path);
    if (server.error() != 0) {
        answer = std::string("cannot connect to ") + path + ": " + std::strerror(server.error());
        return false;
    }
    const std::string words = unit + "\t" + folder + (kernel.empty() ? "" : "\t" + kernel) + "\n";
    answer = server.say(words) ? server.hear_line() : "";
    const std::string well = "ok ";
    if (answer.compare(0, well.size(), well) == 0) {
        answer.erase(0, well.size());
        return true;
    }
    if (answer.empty()) {
        answer = "no answer";
    }
    return false;
}

// Returns false, after printing the reason, if it is not available.
bool code_of_unit(const std::string & unit, const std::string & kernel, unit_code & into) {
    const char * folder = setting("PATCHKIT_EMULATOR_UNITS");
    if (folder == nullptr) {
        say("there is no device code of " + unit + " in this program, and PATCHKIT_EMULATOR_UNITS is not set");
        return false;
    }
    std::string name = unit;
    std::replace(name.begin(), name.end(), '/', '_');
    const std::string path = std::string(folder) + "/" + name;
    if (read_file(path, into.file)) {
        return true;
    }
    const char * server = setting("PATCHKIT_EMULATOR_SERVER");
    if (server == nullptr) {
        say("there is no device code of " + unit + " at " + path);
        return false;
    }
    std::string answer;
    if (!ask_server(server, unit, folder, kernel, answer)) {
        say("device code of " + unit + " could not be provided: " + answer);
        return false;
    }
    into.is_whole = answer == name;
    if (!read_file(std::string(folder) + "/" + answer, into.file)) {
        say("device code of " + unit + " was provided, but is not at " + folder + "/" + answer);
        return false;
    }
    return true;
}

std::string joined(const std::vector<std::string> & words) {
    std::string result;
    for (const std::string & word : words) {
        result += (result.empty() ? "" : ", ") + word;
    }
    return result.empty() ? "no GPU" : result;
}

} // namespace

module::module(const char * binary) : binary_(binary), unit_(unit_of(binary)) {}

module::module(std::vector<std::byte> binary) : binary_(nullptr), own_(std::move(binary)) {}

// Decoded code, counts, findings and repeated launches refer to a code object by its address. So it is never freed:
// another one at the same address would be mistaken for it (code compiled repeatedly by hiprtc, issue 44).
module::~module() {
    if (code_ != nullptr) {
        unregister_memory(code_->memory().data(), owner::runtime);
        (void) code_.release();
    }
    for (const auto & [name, kernel] : alone_) {
        unregister_memory(kernel->code->memory().data(), owner::runtime);
        (void) kernel->code.release();
    }
}

void module::add(managed_variable variable) {
    const std::lock_guard<std::mutex> guard(mutex_);
    managed_.push_back(std::move(variable));
}

hipError_t module::load(gpu::code_object *& code) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!is_tried_) {
        is_tried_ = true;
        result_   = load_now();
    }
    code = code_.get();
    return result_;
}

hipError_t module::load_kernel(const std::string & name, gpu::code_object *& code) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (const auto found = alone_.find(name); found != alone_.end()) {
        code = found->second->code.get();
        return hipSuccess;
    }
    if (!is_tried_ && (unit_.empty() || !managed_.empty() || !load_alone(name, code))) {
        is_tried_ = true;
        result_   = load_now();
    } else if (!is_tried_) {
        return hipSuccess;
    }
    code = code_.get();
    return result_;
}

// Returns false if there is none: then the code of the whole unit must be loaded, and own_ has it if it was sent.
bool module::load_alone(const std::string & name, gpu::code_object *& code) {
    unit_code got;
    if (!code_of_unit(unit_, name, got)) {
        is_missing_ = true;
        return false;
    }
    if (got.is_whole) {
        own_ = std::move(got.file);
        return false;
    }
    auto kernel  = std::make_unique<lone_kernel>();
    kernel->file = std::move(got.file);
    try {
        kernel->code = load_code_object(kernel->file);
    } catch (const gpu::bad_code_object &) {
        return false;
    }
    keep_object(kernel->code.get(), kernel->file);
    const std::span<std::byte> memory = kernel->code->memory();
    register_memory(memory.data(), memory.size(), hipMemoryTypeDevice, owner::runtime);
    code = kernel->code.get();
    alone_.emplace(name, std::move(kernel));
    return true;
}

std::span<const std::byte> module::find_code(std::vector<std::string> & held) {
    if (!unit_.empty() && own_.empty()) {
        unit_code got;
        if (is_missing_ || !code_of_unit(unit_, "", got)) {
            return {};
        }
        own_ = std::move(got.file);
    }
    const std::span<const std::byte> bundle = own_.empty() ? readable_from(binary_) : std::span<const std::byte>(own_);
    const std::span<const std::byte> found = find_code_object(bundle, storage_, held);
    if (found.empty()) {
        say("the binary has no code for " + the_device().arch + ", only for " + joined(held));
    }
    return found;
}

hipError_t module::load_now() {
    try {
        std::vector<std::string> held;
        const std::span<const std::byte> found = find_code(held);
        if (found.empty()) {
            return hipErrorNoBinaryForGpu;
        }
        code_ = load_code_object(found);
        keep_object(code_.get(), found);
    } catch (const gpu::bad_code_object & error) {
        say(std::string("the device code cannot be loaded: ") + error.what());
        return hipErrorInvalidImage;
    }
    const std::span<std::byte> memory = code_->memory();
    register_memory(memory.data(), memory.size(), hipMemoryTypeDevice, owner::runtime);
    return place_managed_variables();
}

// clang converts a managed variable to a pointer, and stores its initial value as NAME.managed. If host code registered
// it, it already has memory; in a module loaded explicitly, memory is allocated here.
hipError_t module::place_managed_variables() {
    const std::string suffix = ".managed";
    for (const auto & [name, first] : code_->variables()) {
        if (name.size() <= suffix.size() || name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
            continue;
        }
        const std::string pointer = name.substr(0, name.size() - suffix.size());
        const auto is_it = [&pointer](const managed_variable & one) { return one.name == pointer; };
        if (std::any_of(managed_.begin(), managed_.end(), is_it)) {
            continue;
        }
        void * memory = nullptr;
        if (const hipError_t error = allocate(&memory, first.size, hipMemoryTypeManaged); error != hipSuccess) {
            return error;
        }
        std::memcpy(memory, first.address, first.size);
        managed_.push_back({pointer, memory});
    }
    for (const managed_variable & one : managed_) {
        const gpu::symbol * place = code_->variable(one.name);
        if (place != nullptr && place->size >= sizeof(one.address)) {
            std::memcpy(place->address, &one.address, sizeof(one.address));
        }
    }
    return hipSuccess;
}

} // namespace patchkit
