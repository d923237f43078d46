#include "registry.hpp"

#include "allocations.hpp"
#include "missing_calls.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace patchkit {

namespace {

std::mutex & registry_mutex() {
    static std::mutex mutex;
    return mutex;
}

// Registration runs in constructors of other libraries, so the tables must be constructed on first use.

std::unordered_map<const void *, registered_kernel> & kernels() {
    static auto * table = new std::unordered_map<const void *, registered_kernel>;
    return *table;
}

std::unordered_map<const void *, registered_variable> & variables() {
    static auto * table = new std::unordered_map<const void *, registered_variable>;
    return *table;
}

std::unordered_map<const void *, std::shared_ptr<module>> & modules() {
    static auto * table = new std::unordered_map<const void *, std::shared_ptr<module>>;
    return *table;
}

// Requires registry_mutex, like all functions below.
std::shared_ptr<module> find_module(const void * handle) {
    const auto found = modules().find(handle);
    return found == modules().end() ? nullptr : found->second;
}

void forget(const std::shared_ptr<module> & gone) {
    for (auto one = kernels().begin(); one != kernels().end();) {
        auto & in = one->second.modules;
        in.erase(std::remove(in.begin(), in.end(), gone), in.end());
        one->second.loaded = {};
        one = in.empty() ? kernels().erase(one) : std::next(one);
    }
    for (auto one = variables().begin(); one != variables().end();) {
        one = one->second.in == gone ? variables().erase(one) : std::next(one);
    }
}

// Loads the kernel from the first module that contains it.
hipError_t load(registered_kernel & entry) {
    hipError_t error = hipErrorInvalidDeviceFunction;
    for (const std::shared_ptr<module> & one : entry.modules) {
        gpu::code_object * code = nullptr;
        error = one->load_kernel(entry.name, code);
        if (error != hipSuccess) {
            continue;
        }
        const gpu::kernel_code * kernel = code->kernel(entry.name);
        if (kernel != nullptr) {
            entry.loaded = {code, kernel, one};
            return hipSuccess;
        }
        error = hipErrorInvalidDeviceFunction;
    }
    if (error == hipErrorInvalidDeviceFunction) {
        std::fprintf(stderr, "patchkit emulator: the device code has no kernel %s\n", entry.name.c_str());
    }
    return error;
}

// The argument of __hipRegisterFatBinary (clang, CGCUDANV.cpp: magic, version, pointer, unused).
struct fat_binary_wrapper {
    uint32_t magic;
    uint32_t version;
    const char * binary;
    void * unused;
};

} // namespace

std::shared_ptr<module> live_module(void ** handle) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    return find_module(handle);
}

int number_in_log(const void * function) {
    static int next = 0;
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto found = kernels().find(function);
    if (found == kernels().end()) {
        log_line("{\"unregistered\":true}");
        return -1;
    }
    registered_kernel & entry = found->second;
    if (entry.number < 0) {
        entry.number = next++;
        std::string units;
        for (const std::shared_ptr<module> & one : entry.modules) {
            units += (units.empty() ? "" : ",") + quoted(one->unit());
        }
        log_line("{\"kernel\":" + std::to_string(entry.number) + ",\"name\":" + quoted(entry.name) + ",\"units\":[" +
                 units + "]}");
    }
    return entry.number;
}

hipError_t find_kernel(const void * function, loaded_kernel & found) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto entry = kernels().find(function);
    if (entry == kernels().end()) {
        return hipErrorInvalidDeviceFunction;
    }
    if (entry->second.loaded.kernel == nullptr) {
        const hipError_t error = load(entry->second);
        if (error != hipSuccess) {
            return error;
        }
    }
    found = entry->second.loaded;
    return hipSuccess;
}

std::string name_of_kernel(const void * function) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const auto entry = kernels().find(function);
    return entry == kernels().end() ? "" : entry->second.name;
}

hipError_t find_variable(const void * host, gpu::symbol & found) {
    registered_variable variable;
    {
        const std::lock_guard<std::mutex> guard(registry_mutex());
        const auto entry = variables().find(host);
        if (entry == variables().end()) {
            return hipErrorInvalidSymbol;
        }
        variable = entry->second;
    }
    if (variable.managed != nullptr) {
        found = {static_cast<std::byte *>(variable.managed), variable.size};
        return hipSuccess;
    }
    gpu::code_object * code = nullptr;
    const hipError_t error = variable.in->load(code);
    if (error != hipSuccess) {
        return error;
    }
    const gpu::symbol * symbol = code->variable(variable.name);
    if (symbol == nullptr) {
        return hipErrorInvalidSymbol;
    }
    found = *symbol;
    return hipSuccess;
}

resources resources_of(const gpu::kernel_code & kernel) { return {int(kernel.vgprs_used), kernel.lds, false}; }

hipError_t find_resources(const void * function, resources & used) {
    if (!is_executing()) {
        const std::string name = name_of_kernel(function);
        used = resources_of(name);
        return name.empty() ? hipErrorInvalidDeviceFunction : hipSuccess;
    }
    loaded_kernel found;
    const hipError_t error = find_kernel(function, found);
    if (error == hipSuccess) {
        used = resources_of(*found.kernel);
    }
    return error;
}

// Called by compiled host code in constructors and destructors.
extern "C" {

void ** __hipRegisterFatBinary(const void * data) {
    if (data == nullptr) {
        return nullptr;
    }
    patchkit::refuse_missing_calls(); // for libraries loaded later
    auto made = std::make_shared<module>(static_cast<const fat_binary_wrapper *>(data)->binary);
    const std::lock_guard<std::mutex> guard(registry_mutex());
    void * handle = made.get();
    modules().emplace(handle, std::move(made));
    return static_cast<void **>(handle);
}

// Runs in destructors of other libraries. The code must stay while pending operations may run it.
void __hipUnregisterFatBinary(void ** handle) {
    if (live_module(handle) == nullptr || (is_executing() && (is_inherited() || wait_for_all() != hipSuccess))) {
        return;
    }
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const std::shared_ptr<module> gone = find_module(handle);
    modules().erase(handle);
    if (is_executing()) {
        forget(gone);
    }
}

void __hipRegisterFunction(void ** handle, const void * host, char * /*device_function*/, const char * name,
                           unsigned int /*thread_limit*/, void * /*tid*/, void * /*bid*/, dim3 * /*block*/,
                           dim3 * /*grid*/, int * /*wave_size*/) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const std::shared_ptr<module> in = find_module(handle);
    if (host == nullptr || name == nullptr || in == nullptr) {
        return; // it cannot return an error; launching the unregistered function will
    }
    registered_kernel & entry = kernels()[host];
    entry.name = name;
    entry.modules.push_back(in);
}

void __hipRegisterVar(void ** handle, void * host, char * /*host_name*/, char * name, int /*ext*/, size_t size,
                      int /*constant*/, int /*global*/) {
    const std::lock_guard<std::mutex> guard(registry_mutex());
    const std::shared_ptr<module> in = find_module(handle);
    if (is_executing() && host != nullptr && name != nullptr && in != nullptr) {
        variables()[host] = {name, size, in, nullptr};
    }
}

// Host code accesses the variable through *pointer from its start on (clang, CGCUDANV.cpp: makeRegisterGlobalsFn).
void __hipRegisterManagedVar(void * handle, void ** pointer, void * initial, const char * name, size_t size,
                             unsigned /*align*/) {
    const std::shared_ptr<module> in = is_executing() ? live_module(static_cast<void **>(handle)) : nullptr;
    if (in == nullptr || pointer == nullptr || initial == nullptr || name == nullptr) {
        return;
    }
    if (allocate(pointer, size, hipMemoryTypeManaged) != hipSuccess) {
        misconfigured("out of memory for a managed variable");
    }
    std::memcpy(*pointer, initial, size);
    in->add({name, *pointer});
    const std::lock_guard<std::mutex> guard(registry_mutex());
    for (const void * host : {static_cast<const void *>(pointer), static_cast<const void *>(*pointer)}) {
        variables()[host] = {name, size, in, *pointer};
    }
}

} // extern "C"

} // namespace patchkit
