// Memory pools: all use the same memory, and keep none for reuse.

#include "allocations.hpp"
#include "answers.hpp"
#include "handles.hpp"
#include "recorder.hpp"

#include <cstring>
#include <map>
#include <memory>

namespace {

using patchkit::answered;
using patchkit::is_device;

struct pool {
    std::map<int, uint64_t> attributes; // as set by the program
};

// Used in destructors of other libraries, so it is never destroyed.
patchkit::handle_map<pool> & pools() {
    static auto * made = new patchkit::handle_map<pool>;
    return *made;
}

hipMemPool_t default_pool() {
    static const auto made = static_cast<hipMemPool_t>(pools().make(std::make_shared<pool>()));
    return made;
}

hipMemPool_t & current_pool() {
    static hipMemPool_t pool = default_pool();
    return pool;
}

// The first values of hipMemPoolAttr are ints, the others 64-bit numbers.
size_t size_of(hipMemPoolAttr attribute) {
    return attribute < hipMemPoolAttrReleaseThreshold ? sizeof(int) : sizeof(uint64_t);
}

bool is_known(hipMemPoolAttr attribute) {
    return attribute >= hipMemPoolReuseFollowEventDependencies && attribute <= hipMemPoolAttrUsedMemHigh;
}

} // namespace

extern "C" {

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t * handle, int device) {
    if (handle == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    *handle = default_pool();
    return answered(hipSuccess);
}

hipError_t hipDeviceGetMemPool(hipMemPool_t * handle, int device) {
    if (handle == nullptr || !is_device(device)) {
        return answered(hipErrorInvalidValue);
    }
    *handle = current_pool();
    return answered(hipSuccess);
}

hipError_t hipDeviceSetMemPool(int device, hipMemPool_t handle) {
    if (pools().find(handle) == nullptr || !is_device(device)) {
        return answered(hipErrorInvalidValue);
    }
    current_pool() = handle;
    return answered(hipSuccess);
}

hipError_t hipMemPoolCreate(hipMemPool_t * handle, const hipMemPoolProps * properties) {
    if (handle == nullptr || !patchkit::is_mapped(properties, sizeof(*properties))) {
        return answered(hipErrorInvalidValue);
    }
    *handle = static_cast<hipMemPool_t>(pools().make(std::make_shared<pool>()));
    return answered(hipSuccess);
}

// The default pool cannot be destroyed.
hipError_t hipMemPoolDestroy(hipMemPool_t handle) {
    if (handle == default_pool() || !pools().drop(handle)) {
        return answered(hipErrorInvalidValue);
    }
    if (current_pool() == handle) {
        current_pool() = default_pool();
    }
    return answered(hipSuccess);
}

hipError_t hipMemPoolTrimTo(hipMemPool_t handle, size_t /*keep*/) {
    return answered(pools().find(handle) != nullptr ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t handle, hipMemPoolAttr attribute, void * value) {
    const auto found = pools().find(handle);
    if (found == nullptr || value == nullptr || !is_known(attribute)) {
        return answered(hipErrorInvalidValue);
    }
    uint64_t & kept = found->attributes[int(attribute)];
    kept = 0;
    std::memcpy(&kept, value, size_of(attribute));
    return answered(hipSuccess);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t handle, hipMemPoolAttr attribute, void * value) {
    const auto found = pools().find(handle);
    if (found == nullptr || value == nullptr || !is_known(attribute)) {
        return answered(hipErrorInvalidValue);
    }
    const uint64_t kept = found->attributes[int(attribute)];
    std::memcpy(value, &kept, size_of(attribute));
    return answered(hipSuccess);
}

hipError_t hipMallocFromPoolAsync(void ** pointer, size_t size, hipMemPool_t handle, hipStream_t stream) {
    if (pointer == nullptr || pools().find(handle) == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!patchkit::is_stream(stream)) {
        return answered(hipErrorInvalidHandle);
    }
    return answered(patchkit::allocate(pointer, size, hipMemoryTypeDevice));
}

} // extern "C"
