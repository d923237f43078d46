// Queries about kernels: registers and memory, and occupancy.

#include "answers.hpp"
#include "launches.hpp"
#include "recorder.hpp"
#include "settings.hpp"

#include <algorithm>
#include <climits>

namespace {

using patchkit::answered;
using patchkit::is_executing;
using patchkit::loaded_kernel;
using patchkit::log_line;
using patchkit::resources;

constexpr int most_threads = 1024; // per block, maxWorkGroupSize

// For a kernel that was not loaded, only its resources are known.
hipFuncAttributes attributes_of(const resources & used) {
    hipFuncAttributes result = {};
    result.numRegs                   = used.vgprs;
    result.sharedSizeBytes           = used.lds;
    result.maxThreadsPerBlock        = most_threads;
    result.maxDynamicSharedSizeBytes = int(patchkit::the_device().lds_per_block - used.lds);
    return result;
}

hipFuncAttributes attributes_of(const loaded_kernel & kernel) {
    hipFuncAttributes result = attributes_of(patchkit::resources_of(*kernel.kernel));
    result.maxThreadsPerBlock = int(kernel.kernel->max_threads);
    result.localSizeBytes     = kernel.kernel->scratch;
    return result;
}

// The largest block that a program wants, and the grid that fills the device with it (clr f9f995c6d, hip_platform.cpp:
// ihipOccupancyMaxActiveBlocksPerMultiprocessor).
void fill_device(const resources & used, size_t dynamic_lds, int largest, int & grid, int & block) {
    const patchkit::device & dev = patchkit::the_device();
    const int wanted  = largest <= 0 || largest > most_threads ? most_threads : largest;
    const int aligned = (wanted + dev.wave_size - 1) / dev.wave_size * dev.wave_size;
    const int threads = patchkit::resident_blocks(used, dev.wave_size, 0) * dev.wave_size;
    block = std::min(aligned, threads);
    grid  = dev.multiprocessors * patchkit::resident_blocks(used, block, dynamic_lds);
}

hipError_t resources_by_handle(hipFunction_t function, resources & used) {
    loaded_kernel kernel;
    if (!patchkit::find_function(function, kernel)) {
        return hipErrorInvalidHandle;
    }
    used = patchkit::resources_of(*kernel.kernel);
    return hipSuccess;
}

bool is_known_flag(unsigned flags) {
    return flags == hipOccupancyDefault || flags == hipOccupancyDisableCachingOverride;
}

hipError_t count_blocks(int * blocks, hipFunction_t function, int threads, size_t dynamic_lds) {
    if (blocks == nullptr || function == nullptr || threads <= 0) {
        return hipErrorInvalidValue;
    }
    resources used;
    const hipError_t error = resources_by_handle(function, used);
    if (error == hipSuccess) {
        *blocks = threads > most_threads ? 0 : patchkit::resident_blocks(used, threads, dynamic_lds);
    }
    return error;
}

hipError_t count_blocks(int * blocks, const void * function, int threads, size_t dynamic_lds) {
    if (blocks == nullptr) {
        return hipErrorInvalidValue;
    }
    resources used;
    const hipError_t error = patchkit::find_resources(function, used);
    if (error == hipErrorInvalidDeviceFunction) {
        log_line("{\"unregistered\":true}");
    }
    if (error != hipSuccess) {
        return error;
    }
    *blocks = patchkit::resident_blocks(used, threads, dynamic_lds);
    log_line("{\"occupancy\":" + std::to_string(patchkit::number_in_log(function)) + ",\"threads\":" +
             std::to_string(threads) + ",\"lds\":" + std::to_string(used.lds + dynamic_lds) + ",\"vgprs\":" +
             std::to_string(used.vgprs) + ",\"assumed\":" + (used.assumed ? "true" : "false") + ",\"blocks\":" +
             std::to_string(*blocks) + "}");
    return hipSuccess;
}

hipError_t propose_block(int * grid, int * block, hipFunction_t function, size_t dynamic_lds, int largest) {
    if (grid == nullptr || block == nullptr || function == nullptr) {
        return hipErrorInvalidValue;
    }
    resources used;
    const hipError_t error = resources_by_handle(function, used);
    if (error == hipSuccess) {
        fill_device(used, dynamic_lds, largest, *grid, *block);
    }
    return error;
}

hipError_t get_attribute(int * value, hipFunction_attribute attribute, hipFunction_t function) {
    if (value == nullptr) {
        return hipErrorInvalidValue;
    }
    loaded_kernel kernel;
    if (!patchkit::find_function(function, kernel)) {
        return hipErrorInvalidHandle;
    }
    const hipFuncAttributes all = attributes_of(kernel);
    switch (attribute) {
        case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:         *value = all.maxThreadsPerBlock;        break;
        case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:             *value = int(all.sharedSizeBytes);      break;
        case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:              *value = int(all.localSizeBytes);       break;
        case HIP_FUNC_ATTRIBUTE_NUM_REGS:                      *value = all.numRegs;                   break;
        case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = all.maxDynamicSharedSizeBytes; break;
        default: return hipErrorInvalidValue;
    }
    return hipSuccess;
}

} // namespace

extern "C" {

// A kernel may always use all available LDS; requesting more is an error.
hipError_t hipFuncSetAttribute(const void * function, hipFuncAttribute attribute, int value) {
    if (!is_executing()) {
        return answered(patchkit::name_of_kernel(function).empty() ? hipErrorInvalidDeviceFunction : hipSuccess);
    }
    loaded_kernel kernel;
    const hipError_t error = patchkit::find_kernel(function, kernel);
    if (error != hipSuccess || attribute != hipFuncAttributeMaxDynamicSharedMemorySize) {
        return answered(error);
    }
    const int most = attributes_of(kernel).maxDynamicSharedSizeBytes;
    return answered(value < 0 || value > most ? hipErrorInvalidValue : hipSuccess);
}

// There is only one cache configuration and one LDS bank width.

hipError_t hipFuncSetCacheConfig(const void * function, hipFuncCache_t /*config*/) {
    return answered(function == nullptr ? hipErrorInvalidDeviceFunction : hipSuccess);
}

hipError_t hipFuncSetSharedMemConfig(const void * function, hipSharedMemConfig /*config*/) {
    return answered(function == nullptr ? hipErrorInvalidDeviceFunction : hipSuccess);
}

hipError_t hipFuncGetAttributes(hipFuncAttributes * attributes, const void * function) {
    if (attributes == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_executing()) {
        resources used;
        const hipError_t error = patchkit::find_resources(function, used);
        if (error == hipSuccess) {
            *attributes = attributes_of(used);
        }
        return answered(error);
    }
    loaded_kernel kernel;
    const hipError_t error = patchkit::find_kernel(function, kernel);
    if (error == hipSuccess) {
        *attributes = attributes_of(kernel);
    }
    return answered(error);
}

hipError_t hipFuncGetAttribute(int * value, hipFunction_attribute attribute, hipFunction_t function) {
    return answered(get_attribute(value, attribute, function));
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int * blocks, const void * function, int threads,
                                                        size_t dynamic_lds) {
    return answered(count_blocks(blocks, function, threads, dynamic_lds));
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int * blocks, const void * function, int threads,
                                                                 size_t dynamic_lds, unsigned int flags) {
    if (!is_known_flag(flags)) {
        return answered(hipErrorInvalidValue);
    }
    return answered(count_blocks(blocks, function, threads, dynamic_lds));
}

hipError_t hipOccupancyMaxPotentialBlockSize(int * grid, int * block, const void * function, size_t dynamic_lds,
                                             int largest) {
    if (grid == nullptr || block == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    resources used;
    const hipError_t error = patchkit::find_resources(function, used);
    if (error == hipSuccess) {
        fill_device(used, dynamic_lds, largest, *grid, *block);
    }
    return answered(error);
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int * blocks, hipFunction_t function, int threads,
                                                              size_t dynamic_lds) {
    return answered(count_blocks(blocks, function, threads, dynamic_lds));
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int * blocks, hipFunction_t function,
                                                                       int threads, size_t dynamic_lds,
                                                                       unsigned int flags) {
    return answered(is_known_flag(flags) ? count_blocks(blocks, function, threads, dynamic_lds)
                                         : hipErrorInvalidValue);
}

hipError_t hipModuleOccupancyMaxPotentialBlockSize(int * grid, int * block, hipFunction_t function,
                                                   size_t dynamic_lds, int largest) {
    return answered(propose_block(grid, block, function, dynamic_lds, largest));
}

hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int * grid, int * block, hipFunction_t function,
                                                            size_t dynamic_lds, int largest, unsigned int flags) {
    return answered(is_known_flag(flags) ? propose_block(grid, block, function, dynamic_lds, largest)
                                         : hipErrorInvalidValue);
}

} // extern "C"
