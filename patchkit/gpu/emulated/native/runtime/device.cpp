// The recorder's device, the resources of its kernels, and the log.

#include "recorder.hpp"
#include "settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <unordered_map>

namespace patchkit {

namespace {

const char * required_variable(const char * name) {
    const char * value = setting(name);
    if (value == nullptr) {
        misconfigured(std::string(name) + " is not set");
    }
    return value;
}

long number(const std::map<std::string, std::string> & values, const char * name) {
    const auto found = values.find(name);
    if (found == values.end()) {
        misconfigured(std::string("the device file lacks ") + name);
    }
    char * end = nullptr;
    const long value = std::strtol(found->second.c_str(), &end, 10);
    if (*end != '\0' || value <= 0) {
        misconfigured(std::string(name) + " of the device file is not a positive number: " + found->second);
    }
    return value;
}

bool flag(const std::map<std::string, std::string> & values, const char * name) {
    const auto found = values.find(name);
    if (found != values.end() && found->second != "0" && found->second != "1") {
        misconfigured(std::string(name) + " of the device file must be 0 or 1, but is: " + found->second);
    }
    return found != values.end() && found->second == "1";
}

device load_device() {
    const char * path = required_variable("PATCHKIT_RECORDER_DEVICE");
    std::ifstream file(path);
    if (!file) {
        misconfigured(std::string("cannot read the device file ") + path);
    }
    std::map<std::string, std::string> values;
    for (std::string line; std::getline(file, line);) {
        const size_t space = line.find(' ');
        if (space != std::string::npos) {
            values[line.substr(0, space)] = line.substr(space + 1);
        }
    }
    if (values["arch"].rfind("gfx", 0) != 0) {
        misconfigured("the device file lacks arch");
    }
    device result;
    result.arch                     = values["arch"];
    result.name                     = values["name"];
    result.wave_size                = int(number(values, "wave_size"));
    result.multiprocessors          = int(number(values, "multiprocessors"));
    result.simds_per_multiprocessor = int(number(values, "simds_per_multiprocessor"));
    result.max_waves_per_simd       = int(number(values, "max_waves_per_simd"));
    result.vgprs_per_simd           = int(number(values, "vgprs_per_simd"));
    result.vgpr_granule             = int(number(values, "vgpr_granule"));
    result.max_vgprs_per_wave       = int(number(values, "max_vgprs_per_wave"));
    result.lds_per_block            = size_t(number(values, "lds_per_block"));
    result.memory_bytes             = size_t(number(values, "memory_bytes"));
    result.is_integrated            = flag(values, "integrated");
    return result;
}

std::unordered_map<std::string, resources> load_resources() {
    std::unordered_map<std::string, resources> result;
    const char * path = setting("PATCHKIT_RECORDER_KERNELS");
    if (path == nullptr) {
        return result;
    }
    std::ifstream file(path);
    if (!file) {
        misconfigured(std::string("cannot read the kernel file ") + path);
    }
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        resources used = {0, 0, false};
        if (!(words >> name >> used.vgprs >> used.lds)) {
            misconfigured("the kernel file has a line that is not 'name vgprs lds': " + line);
        }
        result[name] = used;
    }
    return result;
}

FILE * open_log() {
    const char * path = required_variable("PATCHKIT_RECORDER_LOG");
    FILE * file = std::fopen(path, "a");
    if (file == nullptr) {
        misconfigured(std::string("cannot write the log ") + path);
    }
    // Line buffered, so that an aborting process does not lose the last launches.
    std::setvbuf(file, nullptr, _IOLBF, 1 << 16);
    return file;
}

int round_up(int value, int step) {
    return (value + step - 1) / step * step;
}

} // namespace

const device & the_device() {
    static const device result = load_device();
    return result;
}

resources resources_of(const std::string & mangled) {
    static const std::unordered_map<std::string, resources> table = load_resources();
    const auto found = table.find(mangled);
    if (found != table.end()) {
        return found->second;
    }
    return {the_device().max_vgprs_per_wave, 0, true};
}

// As hipOccupancyMaxActiveBlocksPerMultiprocessor of the runtime (clr, hip_platform.cpp, read 2026-11): waves by
// registers on all SIMDs of the multiprocessor, and LDS by the limit of one block, not by the pool that the hardware
// shares between blocks. Upstream sizes its grids with this result.
int resident_blocks(const resources & used, int threads, size_t dynamic_lds) {
    const device & dev = the_device();
    const int by_registers = dev.vgprs_per_simd / round_up(std::max(used.vgprs, 1), dev.vgpr_granule);
    const int waves = dev.simds_per_multiprocessor * std::min(dev.max_waves_per_simd, by_registers);
    int by_waves = waves * dev.wave_size / round_up(std::max(threads, 1), dev.wave_size);
    if (used.assumed) {
        by_waves = std::max(by_waves, 1); // it was compiled so that at least one block fits
    }
    const size_t lds = used.lds + dynamic_lds;
    const int by_lds = lds == 0 ? INT_MAX : int(dev.lds_per_block / lds);
    return std::min(by_waves, by_lds);
}

// No log is needed when executing.
void log_line(const std::string & json) {
    static const bool is_silent = is_executing() && setting("PATCHKIT_RECORDER_LOG") == nullptr;
    if (is_silent) {
        return;
    }
    static std::mutex mutex;
    static FILE * file = open_log();
    const std::lock_guard<std::mutex> guard(mutex);
    std::fputs((json + "\n").c_str(), file);
}

namespace {

// Length in bytes of the UTF-8 character (RFC 3629) at the start of the text, 0 if it is invalid.
size_t utf8_size(std::string_view text) {
    const auto byte = [&text](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) {
        return 1;
    }
    const size_t size = first < 0xc2 || first >= 0xf5 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    for (size_t at = 1; at < size; ++at) {
        if ((byte(at) & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool is_longer_than_needed = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool is_none = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return is_longer_than_needed || is_none ? 0 : size;
}

} // namespace

// Names come from code objects and may contain any bytes; in JSON (UTF-8), invalid bytes become U+FFFD.
std::string quoted(const std::string & text) {
    std::string result = "\"";
    for (size_t at = 0; at < text.size();) {
        const char c = text[at];
        const size_t size = utf8_size(std::string_view(text).substr(at));
        const size_t begin = at;
        at += std::max<size_t>(size, 1);
        if (size == 0) {
            result += "\\ufffd";
        } else if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", c);
            result += escape;
        } else {
            result.append(text, begin, size);
        }
    }
    return result + "\"";
}

} // namespace patchkit
