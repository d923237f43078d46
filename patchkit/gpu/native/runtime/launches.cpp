// Registration of kernels and their launches: the part of the runtime that compiled host code calls by itself.

#include "answers.hpp"
#include "recorder.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

using patchkit::answered;
using patchkit::is_stream;
using patchkit::log_line;
using patchkit::quoted;

// What the compiler hands to __hipRegisterFatBinary (clang, CGCUDANV.cpp: magic, version, pointer, unused).
struct fat_binary_wrapper {
    uint32_t magic;
    uint32_t version;
    const char * binary;
    void * unused;
};

struct module {
    std::string unit;
};

struct kernel {
    std::string name;
    std::vector<std::string> units;
    int number = -1; // in the log, once launched
};

struct call_configuration {
    dim3 grid;
    dim3 block;
    size_t lds;
    hipStream_t stream;
};

std::mutex & registry_mutex() {
    static std::mutex mutex;
    return mutex;
}

// Registration runs in constructors of other libraries: the table has to exist before any of them.
std::unordered_map<const void *, kernel> & registry() {
    static auto * table = new std::unordered_map<const void *, kernel>;
    return *table;
}

std::unordered_set<const void *> & modules_alive() {
    static auto * table = new std::unordered_set<const void *>;
    return *table;
}

thread_local std::vector<call_configuration> configurations;

// patchkit compiles the host pass alone and embeds the unit's path where device code would be.
std::string unit_of(const char * binary) {
    static const char marker[] = "PATCHKIT-UNIT\n";
    if (binary == nullptr || std::strncmp(binary, marker, sizeof(marker) - 1) != 0) {
        return "";
    }
    const char * begin = binary + sizeof(marker) - 1;
    return std::string(begin, std::strcspn(begin, "\n"));
}

std::string triple(const dim3 & value) {
    return "[" + std::to_string(value.x) + "," + std::to_string(value.y) + "," + std::to_string(value.z) + "]";
}

// Number of a kernel in the log; its first launch writes a line that says what the number means.
int number_of(kernel & launched) {
    static int next = 0;
    if (launched.number < 0) {
        launched.number = next++;
        std::string units;
        for (const std::string & unit : launched.units) {
            units += (units.empty() ? "" : ",") + quoted(unit);
        }
        log_line("{\"kernel\":" + std::to_string(launched.number) + ",\"name\":" + quoted(launched.name) +
                 ",\"units\":[" + units + "]}");
    }
    return launched.number;
}

hipError_t record(const void * function, dim3 grid, dim3 block, size_t lds, bool cooperative) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto found = registry().find(function);
    if (found == registry().end()) {
        log_line("{\"unregistered\":true}");
        return hipErrorInvalidDeviceFunction;
    }
    const int number = number_of(found->second);
    log_line("{\"launch\":" + std::to_string(number) + ",\"grid\":" + triple(grid) + ",\"block\":" + triple(block) +
             ",\"lds\":" + std::to_string(lds) + (cooperative ? ",\"cooperative\":true" : "") + "}");
    return hipSuccess;
}

} // namespace

extern "C" {

void ** __hipRegisterFatBinary(const void * data) {
    if (data == nullptr) {
        return nullptr;
    }
    const auto * wrapper = static_cast<const fat_binary_wrapper *>(data);
    auto * made = new module{unit_of(wrapper->binary)};
    const std::lock_guard<std::mutex> guard(registry_mutex());
    modules_alive().insert(made);
    return reinterpret_cast<void **>(made);
}

void __hipUnregisterFatBinary(void ** modules) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    if (modules_alive().erase(modules) != 0) {
        delete reinterpret_cast<module *>(modules);
    }
}

void __hipRegisterFunction(void ** modules, const void * host, char * /*device_function*/, const char * name,
                           unsigned int /*thread_limit*/, void * /*tid*/, void * /*bid*/, dim3 * /*block*/,
                           dim3 * /*grid*/, int * /*wave_size*/) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    if (host == nullptr || name == nullptr || modules_alive().count(modules) == 0) {
        return; // it has no way to say so: launching what was not registered is the error
    }
    kernel & entry = registry()[host];
    entry.name = name;
    entry.units.push_back(reinterpret_cast<module *>(modules)->unit);
}

void __hipRegisterVar(void ** /*modules*/, void * /*var*/, char * /*host*/, char * /*device*/, int /*ext*/,
                      size_t /*size*/, int /*constant*/, int /*global*/) {}

void __hipRegisterManagedVar(void * /*modules*/, void ** /*pointer*/, void * /*init*/, const char * /*name*/,
                             size_t /*size*/, unsigned /*align*/) {}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t lds, hipStream_t stream) {
    configurations.push_back({grid, block, lds, stream});
    return answered(hipSuccess);
}

hipError_t __hipPopCallConfiguration(dim3 * grid, dim3 * block, size_t * lds, hipStream_t * stream) {
    if (grid == nullptr || block == nullptr || lds == nullptr || stream == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (configurations.empty()) {
        return answered(hipErrorMissingConfiguration);
    }
    const call_configuration & top = configurations.back();
    *grid   = top.grid;
    *block  = top.block;
    *lds    = top.lds;
    *stream = top.stream;
    configurations.pop_back();
    return answered(hipSuccess);
}

hipError_t hipLaunchKernel(const void * function, dim3 grid, dim3 block, void ** /*args*/, size_t lds,
                           hipStream_t stream) {
    return answered(is_stream(stream) ? record(function, grid, block, lds, false) : hipErrorInvalidValue);
}

hipError_t hipLaunchCooperativeKernel(const void * function, dim3 grid, dim3 block, void ** /*params*/,
                                      unsigned int lds, hipStream_t stream) {
    return answered(is_stream(stream) ? record(function, grid, block, lds, true) : hipErrorContextIsDestroyed);
}

hipError_t hipFuncSetAttribute(const void * function, hipFuncAttribute /*attribute*/, int /*value*/) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    return answered(registry().count(function) != 0 ? hipSuccess : hipErrorInvalidDeviceFunction);
}

hipError_t hipFuncGetAttributes(hipFuncAttributes * attributes, const void * function) {
    if (attributes == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto found = registry().find(function);
    if (found == registry().end()) {
        return answered(hipErrorInvalidDeviceFunction);
    }
    const patchkit::resources used = patchkit::resources_of(found->second.name);
    *attributes = {};
    attributes->numRegs            = used.vgprs;
    attributes->sharedSizeBytes    = used.lds;
    attributes->maxThreadsPerBlock = 1024;
    attributes->maxDynamicSharedSizeBytes = int(patchkit::the_device().lds_per_block - used.lds);
    return answered(hipSuccess);
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int * blocks, const void * function, int threads,
                                                        size_t dynamic_lds) {
    if (blocks == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto found = registry().find(function);
    if (found == registry().end()) {
        log_line("{\"unregistered\":true}");
        return answered(hipErrorInvalidDeviceFunction);
    }
    const patchkit::resources used = patchkit::resources_of(found->second.name);
    *blocks = patchkit::resident_blocks(used, threads, dynamic_lds);
    log_line("{\"occupancy\":" + std::to_string(number_of(found->second)) + ",\"threads\":" + std::to_string(threads) +
             ",\"lds\":" + std::to_string(used.lds + dynamic_lds) + ",\"vgprs\":" + std::to_string(used.vgprs) +
             ",\"assumed\":" + (used.assumed ? "true" : "false") + ",\"blocks\":" + std::to_string(*blocks) + "}");
    return answered(hipSuccess);
}

// A line between the launches, for whoever drives the backend: which case comes now, what became of it.
void patchkit_recorder_mark(const char * text) {
    log_line("{\"mark\":" + quoted(text == nullptr ? "" : text) + "}");
}

// Calls the compiler puts at every basic block of a unit compiled with -fsanitize-coverage=trace-pc-guard.

void __sanitizer_cov_trace_pc_guard_init(uint32_t * begin, uint32_t * end) {
    if (begin != nullptr && end != nullptr) {
        std::fill(begin, end, 1u);
    }
}

void __sanitizer_cov_trace_pc_guard(uint32_t * /*guard*/) {
    static const bool tracing = std::getenv("PATCHKIT_RECORDER_TRACE") != nullptr;
    if (!tracing) {
        return;
    }
    // The return address lies behind the call: one byte back is inside it, where the line table knows the block.
    const char * address = static_cast<const char *>(__builtin_return_address(0)) - 1;
    Dl_info info;
    if (dladdr(address, &info) != 0) {
        log_line("{\"block\":" + std::to_string(address - static_cast<const char *>(info.dli_fbase)) + "}");
    }
}

} // extern "C"
