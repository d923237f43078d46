// The properties of the single device.

#include "allocations.hpp"
#include "answers.hpp"
#include "calls.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "textures.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using patchkit::answered;
using patchkit::is_device;

constexpr char bus_id[] = "0000:01:00.0";

struct gfx_version {
    int major, minor;
};

// gfx1151 is version 11, minor 5, stepping 1: the last two digits are hexadecimal.
gfx_version version() {
    const std::string digits = patchkit::the_device().arch.substr(3);
    return {int(std::strtol(digits.substr(0, digits.size() - 2).c_str(), nullptr, 10)),
            int(std::strtol(digits.substr(digits.size() - 2, 1).c_str(), nullptr, 16))};
}

// What the profile does not contain stays zero: clocks, bus widths, caches.
void fill(hipDeviceProp_t & prop) {
    const patchkit::device & dev = patchkit::the_device();
    std::memset(static_cast<void *>(&prop), 0, sizeof(prop));
    std::strncpy(prop.name, dev.name.c_str(), sizeof(prop.name) - 1);
    std::strncpy(prop.gcnArchName, dev.arch.c_str(), sizeof(prop.gcnArchName) - 1);
    prop.major = version().major;
    prop.minor = version().minor;
    prop.totalGlobalMem                   = dev.memory_bytes;
    prop.sharedMemPerBlock                = dev.lds_per_block;
    prop.sharedMemPerBlockOptin           = dev.lds_per_block;
    prop.sharedMemPerMultiprocessor       = dev.lds_per_block;
    prop.maxSharedMemoryPerMultiProcessor = dev.lds_per_block;
    prop.regsPerBlock                     = dev.vgprs_per_simd * dev.simds_per_multiprocessor * dev.wave_size;
    prop.regsPerMultiprocessor            = prop.regsPerBlock;
    prop.warpSize                         = dev.wave_size;
    prop.multiProcessorCount              = dev.multiprocessors;
    prop.maxThreadsPerBlock               = 1024;
    prop.maxThreadsPerMultiProcessor      = dev.simds_per_multiprocessor * dev.max_waves_per_simd * dev.wave_size;
    for (int i = 0; i < 3; ++i) {
        prop.maxThreadsDim[i] = 1024;
    }
    prop.maxGridSize[0]    = 2147483647;
    prop.maxGridSize[1]    = 65535;
    prop.maxGridSize[2]    = 65535;
    prop.cooperativeLaunch = 1;
    prop.pciBusID          = 1;
    prop.integrated        = dev.is_integrated;
    prop.canMapHostMemory  = 1;
    prop.unifiedAddressing = 1;
    prop.managedMemory     = 1;
    // ROCm reports the first for every GPU with page migration, and PCIe atomics if the machine supports them: without
    // them, HeCBench's prefetch and atomicSystemWide skip what they test (issue 44).
    prop.concurrentManagedAccess   = 1;
    prop.hostNativeAtomicSupported = 1;
    prop.concurrentKernels = 1;
    prop.memoryPoolsSupported      = 1;
    prop.streamPrioritiesSupported = 1;
    prop.hostRegisterSupported     = 1;
    prop.textureAlignment          = 256;
    prop.texturePitchAlignment     = 256;
    prop.maxTexture1D              = patchkit::most_of_image;
    for (int i = 0; i < 3; ++i) {
        prop.maxTexture3D[i] = i < 2 ? patchkit::most_of_image : patchkit::most_deep_of_image;
    }
    std::copy_n(prop.maxTexture3D, 2, prop.maxTexture2D);
}

int value_of(hipDeviceAttribute_t attribute) {
    hipDeviceProp_t prop;
    fill(prop);
    switch (attribute) {
        case hipDeviceAttributeMultiprocessorCount:            return prop.multiProcessorCount;
        case hipDeviceAttributeWarpSize:                       return prop.warpSize;
        case hipDeviceAttributeMaxSharedMemoryPerBlock:        return int(prop.sharedMemPerBlock);
        case hipDeviceAttributeSharedMemPerBlockOptin:         return int(prop.sharedMemPerBlockOptin);
        case hipDeviceAttributeSharedMemPerMultiprocessor:     return int(prop.sharedMemPerMultiprocessor);
        case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: return int(prop.maxSharedMemoryPerMultiProcessor);
        case hipDeviceAttributeMaxRegistersPerBlock:           return prop.regsPerBlock;
        case hipDeviceAttributeMaxRegistersPerMultiprocessor:  return prop.regsPerMultiprocessor;
        case hipDeviceAttributeMaxThreadsPerBlock:             return prop.maxThreadsPerBlock;
        case hipDeviceAttributeMaxThreadsPerMultiProcessor:    return prop.maxThreadsPerMultiProcessor;
        case hipDeviceAttributeMaxBlockDimX:                   return prop.maxThreadsDim[0];
        case hipDeviceAttributeMaxBlockDimY:                   return prop.maxThreadsDim[1];
        case hipDeviceAttributeMaxBlockDimZ:                   return prop.maxThreadsDim[2];
        case hipDeviceAttributeMaxGridDimX:                    return prop.maxGridSize[0];
        case hipDeviceAttributeMaxGridDimY:                    return prop.maxGridSize[1];
        case hipDeviceAttributeMaxGridDimZ:                    return prop.maxGridSize[2];
        case hipDeviceAttributeComputeCapabilityMajor:         return prop.major;
        case hipDeviceAttributeComputeCapabilityMinor:         return prop.minor;
        case hipDeviceAttributeCooperativeLaunch:              return prop.cooperativeLaunch;
        case hipDeviceAttributePciBusId:                       return prop.pciBusID;
        case hipDeviceAttributeIntegrated:                     return prop.integrated;
        case hipDeviceAttributeCanMapHostMemory:               return prop.canMapHostMemory;
        case hipDeviceAttributeUnifiedAddressing:              return prop.unifiedAddressing;
        case hipDeviceAttributeManagedMemory:                  return prop.managedMemory;
        case hipDeviceAttributeConcurrentManagedAccess:        return prop.concurrentManagedAccess;
        case hipDeviceAttributeHostNativeAtomicSupported:      return prop.hostNativeAtomicSupported;
        case hipDeviceAttributeConcurrentKernels:              return prop.concurrentKernels;
        case hipDeviceAttributeMemoryPoolsSupported:           return prop.memoryPoolsSupported;
        case hipDeviceAttributeStreamPrioritiesSupported:      return prop.streamPrioritiesSupported;
        case hipDeviceAttributeHostRegisterSupported:          return prop.hostRegisterSupported;
        case hipDeviceAttributeImageSupport:                   return 1;
        case hipDeviceAttributeTextureAlignment:               return int(prop.textureAlignment);
        case hipDeviceAttributeTexturePitchAlignment:          return int(prop.texturePitchAlignment);
        case hipDeviceAttributeMaxTexture1DWidth:              return prop.maxTexture1D;
        case hipDeviceAttributeMaxTexture2DWidth:              return prop.maxTexture2D[0];
        case hipDeviceAttributeMaxTexture2DHeight:             return prop.maxTexture2D[1];
        case hipDeviceAttributeMaxTexture3DWidth:              return prop.maxTexture3D[0];
        case hipDeviceAttributeMaxTexture3DHeight:             return prop.maxTexture3D[1];
        case hipDeviceAttributeMaxTexture3DDepth:              return prop.maxTexture3D[2];
        default:                                               return 0;
    }
}

} // namespace

extern "C" {

hipError_t hipGetDeviceCount(int * count) {
    patchkit::the_device();
    if (count == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *count = 1;
    return answered(hipSuccess);
}

hipError_t hipGetDevice(int * id) {
    if (id == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *id = 0;
    return answered(hipSuccess);
}

hipError_t hipSetDevice(int id) {
    const std::string why = "device " + std::to_string(id) + " does not exist; the only device is 0";
    return answered(is_device(id) ? hipSuccess : patchkit::refused(hipErrorInvalidDevice, why));
}

hipError_t hipInit(unsigned int /*flags*/) { return answered(hipSuccess); }

// The program's memory is released with the device; it is no leak.
hipError_t hipDeviceReset() {
    const hipError_t waited = patchkit::wait_for_all();
    for (const patchkit::allocation & one : patchkit::allocations_of_program()) {
        if (one.of != nullptr) {
            one.of->is_left = true;
        }
    }
    return answered(waited);
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t * prop, int id) {
    if (prop == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(id)) {
        return answered(hipErrorInvalidDevice);
    }
    fill(*prop);
    return answered(hipSuccess);
}

// Any request matches the single device.
hipError_t hipChooseDeviceR0600(int * id, const hipDeviceProp_t * prop) {
    if (id == nullptr || prop == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *id = 0;
    return answered(hipSuccess);
}

hipError_t hipDriverGetVersion(int * version) {
    if (version == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *version = HIP_VERSION;
    return answered(hipSuccess);
}

hipError_t hipRuntimeGetVersion(int * version) { return hipDriverGetVersion(version); }

hipError_t hipDeviceGetName(char * name, int length, hipDevice_t device) {
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (name == nullptr || length <= 0) {
        return answered(hipErrorInvalidValue);
    }
    std::snprintf(name, size_t(length), "%s", patchkit::the_device().name.c_str());
    return answered(hipSuccess);
}

hipError_t hipDeviceTotalMem(size_t * bytes, hipDevice_t device) {
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (bytes == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *bytes = patchkit::the_device().memory_bytes;
    return answered(hipSuccess);
}

hipError_t hipDeviceComputeCapability(int * major, int * minor, hipDevice_t device) {
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (major == nullptr || minor == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *major = version().major;
    *minor = version().minor;
    return answered(hipSuccess);
}

hipError_t hipDeviceGetUuid(hipUUID * uuid, hipDevice_t device) {
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (uuid == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    std::memset(uuid, 0, sizeof(*uuid));
    std::strncpy(uuid->bytes, patchkit::the_device().arch.c_str(), sizeof(uuid->bytes));
    return answered(hipSuccess);
}

// Spin and sleep flags have no effect, and there is only one cache configuration and one LDS bank width.

hipError_t hipSetDeviceFlags(unsigned int /*flags*/) { return answered(hipSuccess); }

hipError_t hipGetDeviceFlags(unsigned int * flags) {
    if (flags == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *flags = 0;
    return answered(hipSuccess);
}

hipError_t hipDeviceSetCacheConfig(hipFuncCache_t /*config*/) { return answered(hipSuccess); }

hipError_t hipDeviceGetCacheConfig(hipFuncCache_t * config) {
    if (config == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *config = hipFuncCachePreferNone;
    return answered(hipSuccess);
}

hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig /*config*/) { return answered(hipSuccess); }

hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig * config) {
    if (config == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *config = hipSharedMemBankSizeFourByte;
    return answered(hipSuccess);
}

// A stack is as large as a kernel needs. The heap of malloc in kernels grows as needed: its initial size (8 MiB in
// ROCm) is stored, but has no effect.
static std::atomic<size_t> heap_size = size_t(8) << 20;

hipError_t hipDeviceGetLimit(size_t * value, hipLimit_t limit) {
    if (value == nullptr || unsigned(limit) > hipLimitMallocHeapSize) {
        return answered(hipErrorInvalidValue);
    }
    if (limit != hipLimitMallocHeapSize) {
        return answered(hipErrorUnsupportedLimit);
    }
    *value = heap_size;
    return answered(hipSuccess);
}

hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t value) {
    if (unsigned(limit) > hipLimitMallocHeapSize) {
        return answered(hipErrorInvalidValue);
    }
    if (limit != hipLimitMallocHeapSize) {
        return answered(hipErrorUnsupportedLimit);
    }
    heap_size = value;
    return answered(hipSuccess);
}

hipError_t hipDeviceGet(hipDevice_t * device, int ordinal) {
    if (device == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(ordinal)) {
        return answered(hipErrorInvalidDevice);
    }
    *device = ordinal;
    return answered(hipSuccess);
}

hipError_t hipDeviceGetAttribute(int * value, hipDeviceAttribute_t attribute, int id) {
    if (value == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(id)) {
        return answered(hipErrorInvalidDevice);
    }
    *value = value_of(attribute);
    return answered(hipSuccess);
}

hipError_t hipDeviceGetByPCIBusId(int * device, const char * id) {
    if (device == nullptr || id == nullptr || std::strcmp(id, bus_id) != 0) {
        return answered(hipErrorInvalidValue);
    }
    *device = 0;
    return answered(hipSuccess);
}

// As in the real runtime: the text is truncated and zero-terminated, and a buffer that is too small is an error.
hipError_t hipDeviceGetPCIBusId(char * id, int length, int device) {
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (id == nullptr || length <= 0) {
        return answered(hipErrorInvalidValue);
    }
    std::snprintf(id, size_t(length), "%s", bus_id);
    return answered(size_t(length) < sizeof(bus_id) ? hipErrorInvalidValue : hipSuccess);
}

hipError_t hipDeviceCanAccessPeer(int * can, int id, int peer) {
    if (can == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(id) || !is_device(peer)) {
        return answered(hipErrorInvalidDevice);
    }
    *can = 0;
    return answered(hipSuccess);
}

// A device is no peer of itself, and there is no other.

hipError_t hipDeviceGetP2PAttribute(int * value, hipDeviceP2PAttr /*attribute*/, int /*from*/, int /*to*/) {
    return answered(value == nullptr ? hipErrorInvalidValue : hipErrorInvalidDevice);
}

hipError_t hipDeviceEnablePeerAccess(int /*peer*/, unsigned int /*flags*/) { return answered(hipErrorInvalidDevice); }
hipError_t hipDeviceDisablePeerAccess(int /*peer*/) { return answered(hipErrorInvalidDevice); }

} // extern "C"
