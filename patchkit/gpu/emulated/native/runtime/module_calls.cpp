// Modules loaded by the program, their kernels, and launches by handle. While recording none is loaded.

#include "answers.hpp"
#include "handles.hpp"
#include "launches.hpp"
#include "modules.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace {

using patchkit::answered;
using patchkit::is_executing;
using patchkit::is_stream;
using patchkit::launch_request;
using patchkit::loaded_kernel;
using patchkit::module;

// Used in destructors of other libraries, so the tables are never destroyed.
patchkit::handle_map<module> & modules() {
    static auto * made = new patchkit::handle_map<module>;
    return *made;
}

patchkit::handle_map<loaded_kernel> & functions() {
    static auto * made = new patchkit::handle_map<loaded_kernel>;
    return *made;
}

hipError_t load(hipModule_t * handle, std::shared_ptr<module> made) {
    patchkit::gpu::code_object * code = nullptr;
    const hipError_t error = made->load(code);
    if (error == hipSuccess) {
        *handle = static_cast<hipModule_t>(modules().make(std::move(made)));
    }
    return error;
}

hipError_t load_file(hipModule_t * handle, const char * path) {
    if (handle == nullptr || path == nullptr) {
        return hipErrorInvalidValue;
    }
    if (!is_executing()) {
        return hipErrorNotSupported;
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        return hipErrorFileNotFound;
    }
    std::ostringstream all;
    all << file.rdbuf();
    const std::string text = all.str();
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return load(handle, std::make_shared<module>(std::move(bytes)));
}

hipError_t load_image(hipModule_t * handle, const void * image) {
    if (handle == nullptr || image == nullptr) {
        return hipErrorInvalidValue;
    }
    if (!is_executing()) {
        return hipErrorNotSupported;
    }
    return load(handle, std::make_shared<module>(static_cast<const char *>(image)));
}

hipError_t get_function(hipFunction_t * result, hipModule_t handle, const char * name) {
    if (result == nullptr || name == nullptr || *name == '\0') {
        return hipErrorInvalidValue;
    }
    const std::shared_ptr<module> in = modules().find(handle);
    if (in == nullptr) {
        return handle == nullptr ? hipErrorInvalidHandle : hipErrorNotFound;
    }
    patchkit::gpu::code_object * code = nullptr;
    (void) in->load(code);
    const patchkit::gpu::kernel_code * kernel = code->kernel(name);
    if (kernel == nullptr) {
        return hipErrorNotFound;
    }
    auto made = std::make_shared<loaded_kernel>(loaded_kernel{code, kernel, in});
    *result = static_cast<hipFunction_t>(functions().make(std::move(made)));
    return hipSuccess;
}

hipError_t get_variable(hipDeviceptr_t * address, size_t * size, hipModule_t handle, const char * name) {
    if ((address == nullptr && size == nullptr) || name == nullptr || *name == '\0') {
        return hipErrorInvalidValue;
    }
    const std::shared_ptr<module> in = modules().find(handle);
    if (in == nullptr) {
        return handle == nullptr ? hipErrorInvalidHandle : hipErrorNotFound;
    }
    patchkit::gpu::code_object * code = nullptr;
    (void) in->load(code);
    const patchkit::gpu::symbol * found = code->variable(name);
    if (found == nullptr) {
        return hipErrorNotFound;
    }
    if (address != nullptr) {
        *address = static_cast<hipDeviceptr_t>(found->address);
    }
    if (size != nullptr) {
        *size = found->size;
    }
    return hipSuccess;
}

// `extra` is a list that ends with HIP_LAUNCH_PARAM_END; the bytes it refers to are copied.
hipError_t read_extra(void ** extra, std::vector<std::byte> & segment) {
    if (!patchkit::is_mapped(extra, 5 * sizeof(*extra)) || extra[0] != HIP_LAUNCH_PARAM_BUFFER_POINTER ||
        extra[2] != HIP_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != HIP_LAUNCH_PARAM_END ||
        !patchkit::is_mapped(extra[3], sizeof(size_t))) {
        return hipErrorInvalidValue;
    }
    const size_t size = *static_cast<const size_t *>(extra[3]);
    constexpr size_t most = 1 << 16; // more than any kernel needs
    if (size > most || !patchkit::is_mapped(extra[1], size)) {
        return hipErrorInvalidValue;
    }
    segment.resize(size);
    std::memcpy(segment.data(), extra[1], size);
    return hipSuccess;
}

hipError_t launch_function(hipFunction_t handle, launch_request request, void ** extra, hipStream_t stream) {
    const std::shared_ptr<loaded_kernel> found = functions().find(handle);
    if (found == nullptr) {
        return hipErrorInvalidHandle;
    }
    std::vector<std::byte> segment;
    if (extra != nullptr) {
        if (const hipError_t error = read_extra(extra, segment); error != hipSuccess) {
            return error;
        }
        request.segment = &segment;
    }
    return patchkit::launch(*found, request, stream);
}

} // namespace

namespace patchkit {

bool find_function(hipFunction_t handle, loaded_kernel & kernel) {
    const std::shared_ptr<loaded_kernel> found = functions().find(handle);
    if (found != nullptr) {
        kernel = *found;
    }
    return found != nullptr;
}

} // namespace patchkit

extern "C" {

hipError_t hipModuleLoad(hipModule_t * handle, const char * path) { return answered(load_file(handle, path)); }

hipError_t hipModuleLoadData(hipModule_t * handle, const void * image) { return answered(load_image(handle, image)); }

hipError_t hipModuleLoadDataEx(hipModule_t * handle, const void * image, unsigned int /*count*/,
                               hipJitOption * /*options*/, void ** /*values*/) {
    return answered(load_image(handle, image));
}

hipError_t hipModuleUnload(hipModule_t handle) {
    const std::shared_ptr<module> gone = modules().find(handle);
    if (gone == nullptr) {
        return answered(handle == nullptr ? hipErrorInvalidHandle : hipErrorNotFound);
    }
    if (const hipError_t error = patchkit::wait_for_all(); error != hipSuccess) {
        return answered(error);
    }
    functions().drop_if([&gone](const loaded_kernel & one) { return one.in == gone; });
    modules().drop(handle);
    return answered(hipSuccess);
}

hipError_t hipModuleGetFunction(hipFunction_t * result, hipModule_t handle, const char * name) {
    return answered(get_function(result, handle, name));
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t * address, size_t * size, hipModule_t handle, const char * name) {
    return answered(get_variable(address, size, handle, name));
}

// All queries for a function return the same handle.
hipError_t hipGetFuncBySymbol(hipFunction_t * result, const void * host) {
    static auto * known = new std::map<const void *, hipFunction_t>;
    static std::mutex mutex;
    loaded_kernel kernel;
    if (result == nullptr || !is_executing() || patchkit::find_kernel(host, kernel) != hipSuccess) {
        return answered(hipErrorInvalidDeviceFunction);
    }
    const std::lock_guard<std::mutex> guard(mutex);
    hipFunction_t & handle = (*known)[host];
    const std::shared_ptr<loaded_kernel> old = functions().find(handle);
    if (old == nullptr || old->kernel != kernel.kernel) {
        handle = static_cast<hipFunction_t>(functions().make(std::make_shared<loaded_kernel>(kernel)));
    }
    *result = handle;
    return answered(hipSuccess);
}

hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int lds,
                                 hipStream_t stream, void ** params, void ** extra) {
    constexpr unsigned most_x = INT32_MAX, most_other = UINT16_MAX + 1;
    if (!is_stream(stream) || grid_x > most_x || grid_y > most_other || grid_z > most_other) {
        return answered(hipErrorInvalidValue);
    }
    const launch_request request = {dim3{grid_x, grid_y, grid_z}, dim3{block_x, block_y, block_z}, lds, false, params};
    return answered(launch_function(handle, request, extra, stream));
}

// Sizes in threads, which must be multiples of the block: clang compiles HIP kernels with that assumption.
hipError_t hipExtModuleLaunchKernel(hipFunction_t handle, uint32_t threads_x, uint32_t threads_y, uint32_t threads_z,
                                    uint32_t block_x, uint32_t block_y, uint32_t block_z, size_t lds,
                                    hipStream_t stream, void ** params, void ** extra, hipEvent_t begin,
                                    hipEvent_t end, uint32_t /*flags*/) {
    if (!is_stream(stream) || !patchkit::is_null_or_event(begin) || !patchkit::is_null_or_event(end)) {
        return answered(hipErrorInvalidValue);
    }
    if (block_x == 0 || block_y == 0 || block_z == 0) {
        return answered(hipErrorInvalidConfiguration);
    }
    const dim3 block = {std::min(block_x, threads_x), std::min(block_y, threads_y), std::min(block_z, threads_z)};
    if (block.x == 0 || block.y == 0 || block.z == 0 || threads_x % block.x != 0 || threads_y % block.y != 0 ||
        threads_z % block.z != 0) {
        return answered(hipErrorInvalidValue);
    }
    const dim3 grid = {threads_x / block.x, threads_y / block.y, threads_z / block.z};
    return answered(patchkit::record_around(begin, end, stream, [&] {
        return launch_function(handle, {grid, block, lds, false, params}, extra, stream);
    }));
}

hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t handle, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int lds, hipStream_t stream,
                                            void ** params) {
    if (!is_stream(stream)) {
        return answered(hipErrorInvalidValue);
    }
    const launch_request request = {dim3{grid_x, grid_y, grid_z}, dim3{block_x, block_y, block_z}, lds, true, params};
    return answered(launch_function(handle, request, nullptr, stream));
}

} // extern "C"
