#include "findings.hpp"

#include "recorder.hpp"
#include "settings.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace patchkit {

namespace {

std::mutex names_mutex;

// Used at the end of the process, so it is never destroyed.
std::map<const gpu::code_object *, std::string> & names() {
    static auto * made = new std::map<const gpu::code_object *, std::string>;
    return *made;
}

std::string name_of(const gpu::code_object * code) {
    const std::lock_guard<std::mutex> guard(names_mutex);
    const auto found = names().find(code);
    return found == names().end() ? "" : found->second;
}

std::string json_of(const gpu::code_place & place) {
    if (place.function.empty() && place.text.empty()) {
        return "null";
    }
    return "{\"object\":" + quoted(name_of(place.code)) + ",\"function\":" + quoted(place.function) +
           ",\"offset\":" + std::to_string(place.offset) + ",\"text\":" + quoted(place.text) + "}";
}

// ---- Places in scripts: an interpreter's stack frames say nothing about the program.

struct script_place {
    std::string file, line, function;
};

std::mutex script_mutex;
std::map<std::string, size_t> numbers_of_places; // by the text that names them
std::vector<script_place> script_places;
thread_local std::vector<void *> script_frames;

constexpr size_t most_places = 1 << 16;

// Inaccessible addresses, one for each place, so that findings treat them as return addresses.
char * script_addresses() {
    static void * const begin = mmap(nullptr, most_places, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return begin == MAP_FAILED ? nullptr : static_cast<char *>(begin);
}

// `text`: file, line and function, separated by tabs. Null if it has another form, or there are too many.
void * address_of_script(const std::string & text) {
    const size_t first = text.find('\t'), second = text.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos || script_addresses() == nullptr) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> guard(script_mutex);
    const auto [known, is_new] = numbers_of_places.emplace(text, script_places.size());
    if (is_new) {
        if (script_places.size() == most_places) {
            numbers_of_places.erase(known);
            return nullptr;
        }
        script_places.push_back({text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)});
    }
    return script_addresses() + known->second;
}

// The file, its line as the offset, and the function.
std::string json_of_script(size_t number) {
    const std::lock_guard<std::mutex> guard(script_mutex);
    const script_place & place = script_places.at(number);
    return "{\"file\":" + quoted(place.file) + ",\"offset\":" + std::to_string(std::strtoull(place.line.c_str(), nullptr, 10)) +
           ",\"name\":" + quoted(place.function) + "}";
}

// File and offset, and the function's name if the loader knows it.
std::string json_of(void * address) {
    const auto number = size_t(static_cast<char *>(address) - script_addresses());
    if (number < most_places && script_addresses() != nullptr) {
        return json_of_script(number);
    }
    Dl_info info{};
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
        return "null";
    }
    const auto offset = size_t(static_cast<const char *>(address) - static_cast<const char *>(info.dli_fbase));
    return "{\"file\":" + quoted(info.dli_fname) + ",\"offset\":" + std::to_string(offset) +
           ",\"name\":" + quoted(info.dli_sname == nullptr ? "" : info.dli_sname) + "}";
}

std::string json_of(const std::vector<void *> & frames) {
    std::string result;
    for (void * const frame : frames) {
        const std::string text = json_of(frame);
        if (text != "null") {
            result += (result.empty() ? "" : ",") + text;
        }
    }
    return "[" + result + "]";
}

std::string json_of(const gpu::finding & one) {
    const gpu::dimensions & b = one.block;
    return "{\"kind\":" + quoted(one.kind) + ",\"what\":" + quoted(one.what) + ",\"kernel\":" + quoted(one.kernel) +
           ",\"at\":" + json_of(one.at) + ",\"other\":" + json_of(one.other) + ",\"block\":[" + std::to_string(b.x) +
           "," + std::to_string(b.y) + "," + std::to_string(b.z) + "],\"wave\":" + std::to_string(one.wave) +
           ",\"times\":" + std::to_string(one.times) + ",\"called_from\":" + json_of(one.called_from) +
           ",\"other_called_from\":" + json_of(one.other_called_from) +
           ",\"note\":" + (one.is_note ? "true" : "false") + "}";
}

} // namespace

gpu::checks read_checks() {
    gpu::checks result;
    const char * wanted = setting("PATCHKIT_EMULATOR_CHECK");
    std::string_view rest = wanted == nullptr ? "" : wanted;
    while (!rest.empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view word = rest.substr(0, comma);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
        bool * const meant = result.find(word);
        if (meant == nullptr) {
            misconfigured("PATCHKIT_EMULATOR_CHECK has an unknown check: " + std::string(word));
        }
        *meant = true;
    }
    return result;
}

bool is_checking() {
    static const bool result = is_executing() && read_checks().any();
    return result;
}

void keep_object(const gpu::code_object * code, std::span<const std::byte> elf) {
    constexpr std::string_view lines = ".debug_line";
    const char * folder = setting("PATCHKIT_EMULATOR_OBJECTS");
    // Without checks it is only needed for source lines after a fault.
    if (folder == nullptr || (!is_checking() && memmem(elf.data(), elf.size(), lines.data(), lines.size()) == nullptr)) {
        return;
    }
    const std::lock_guard<std::mutex> guard(names_mutex);
    const std::string name = std::to_string(getpid()) + "-" + std::to_string(names().size());
    const std::string path = std::string(folder) + "/" + name;
    FILE * file = std::fopen(path.c_str(), "wb");
    const bool is_written = file != nullptr && std::fwrite(elf.data(), 1, elf.size(), file) == elf.size();
    if ((file != nullptr && std::fclose(file) != 0) || !is_written) {
        std::fprintf(stderr, "patchkit emulator: cannot write %s, so findings in this code have no source lines\n",
                     path.c_str());
        return;
    }
    names()[code] = name;
}

namespace {

std::string path_of_notes() {
    const char * folder = setting("PATCHKIT_EMULATOR_OBJECTS");
    return folder == nullptr ? "" : std::string(folder) + "/" + std::to_string(getpid()) + ".findings";
}

void append_to_notes(const std::string & text) {
    const std::string path = path_of_notes();
    FILE * file = path.empty() ? nullptr : std::fopen(path.c_str(), "a");
    if (file != nullptr) {
        std::fputs(text.c_str(), file);
        std::fclose(file);
    }
}

} // namespace

void begin_notes() { append_to_notes(""); }

void note(const gpu::finding & what) { append_to_notes(json_of(what) + "\n"); }

void forget_notes() {
    const std::string path = path_of_notes();
    if (!path.empty()) {
        (void) unlink(path.c_str());
    }
}

std::vector<void *> callers(std::string * call) {
    if (!is_checking()) {
        return {};
    }
    constexpr int most = 32;
    std::vector<void *> frames(most);
    frames.resize(size_t(std::max(0, backtrace(frames.data(), most))));
    // Skips the runtime's own frames. Cached, because dladdr is slow and addresses repeat. Never destroyed, because
    // destructors of the program call this, too.
    static auto * is_own = new std::unordered_map<void *, bool>;
    static std::mutex mutex;
    const std::lock_guard<std::mutex> guard(mutex);
    const auto first = std::find_if(frames.begin(), frames.end(), [](void * frame) {
        const auto [known, is_new] = is_own->emplace(frame, false);
        if (is_new) {
            Dl_info own{}, other{};
            (void) dladdr(reinterpret_cast<void *>(&callers), &own);
            known->second = dladdr(frame, &other) != 0 && other.dli_fbase == own.dli_fbase;
        }
        return !known->second;
    });
    if (call != nullptr && first != frames.begin()) {
        Dl_info own{};
        const auto * const inside = static_cast<const char *>(*std::prev(first)) - 1;
        *call = dladdr(inside, &own) == 0 || own.dli_sname == nullptr ? "" : own.dli_sname;
    }
    return {first, frames.end()};
}

std::vector<void *> reported_callers() { return script_frames.empty() ? callers() : script_frames; }

std::string stopped_as_json(const gpu::kernel_fault * stopped) {
    if (stopped == nullptr || stopped->waves.empty()) {
        return "null";
    }
    std::string waves;
    for (const gpu::stopped_wave & one : stopped->waves) {
        waves += (waves.empty() ? "" : ",") + ("{\"wave\":" + std::to_string(one.wave)) + ",\"does\":" + quoted(one.does) +
                 ",\"at\":" + json_of(one.at) + "}";
    }
    return "{\"kernel\":" + quoted(stopped->kernel) + ",\"waves\":[" + waves + "]}";
}

std::string findings_as_json(const std::vector<gpu::finding> & findings) {
    std::string result;
    for (const gpu::finding & one : findings) {
        result += (result.empty() ? "\n" : ",\n") + json_of(one);
    }
    return "[" + result + "]";
}

} // namespace patchkit

// For interpreters: where this thread's next launches are in the program's own language, innermost first, one per line:
// file, line and function, separated by tabs. Null or empty: by the stack.
extern "C" void patchkit_called_from(const char * places) {
    patchkit::script_frames.clear();
    for (std::string_view rest = places == nullptr ? "" : places; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        if (void * const address = patchkit::address_of_script(std::string(rest.substr(0, end)))) {
            patchkit::script_frames.push_back(address);
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
}
