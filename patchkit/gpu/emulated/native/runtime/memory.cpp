// Memory functions: host memory serves as device memory, so copies are real.

#include "allocations.hpp"
#include "answers.hpp"
#include "calls.hpp"
#include "happens_before.hpp"
#include "recorder.hpp"
#include "schedule.hpp"

#include <cstdint>

namespace {

using patchkit::allocate;
using patchkit::allocation;
using patchkit::allocation_of;
using patchkit::answered;
using patchkit::is_device;
using patchkit::is_known;
using patchkit::is_mapped;
using patchkit::is_stream;
using patchkit::is_usable;
using patchkit::owner;
using patchkit::release;

// The error for memory that was already freed, or not allocated.
hipError_t refuse_to_free(void * pointer, hipError_t error) {
    const patchkit::allocation old = patchkit::freed_at(pointer);
    if (old.size != 0) {
        const std::string what = std::to_string(old.size) + " bytes of " + patchkit::name_of(old.type);
        return patchkit::refused_again(error, what + " were already freed", old.of);
    }
    const patchkit::allocation found = allocation_of(pointer);
    const size_t at = uintptr_t(pointer) - found.begin;
    if (found.size == 0) {
        return patchkit::refused(error, "the pointer is not to memory allocated by the runtime");
    }
    if (found.whose == owner::kernels) {
        return patchkit::refused(error, "the pointer is to memory allocated by a kernel, which only a kernel can free");
    }
    if (found.whose != owner::program) {
        return patchkit::refused(error, "the pointer is to memory that the program registered, or to a variable");
    }
    return patchkit::refused(error, "the pointer is " + std::to_string(at) + " bytes into " +
                                        std::to_string(found.size) + " bytes of " + patchkit::name_of(found.type));
}

// Freeing memory waits for everything that may use it (hipFree: "performs an implicit hipDeviceSynchronize()").
hipError_t release_when_idle(void * pointer, hipError_t unknown) {
    if (pointer == nullptr) {
        return hipSuccess;
    }
    const hipError_t waited = patchkit::wait_for_all();
    if (waited != hipSuccess) {
        return waited;
    }
    const hipError_t error = release(pointer, unknown);
    return error == hipSuccess ? error : refuse_to_free(pointer, error);
}

} // namespace

extern "C" {

// Either pointer may be null, or both: upstream queries only free memory from build 8156 to 8672.
hipError_t hipMemGetInfo(size_t * free, size_t * total) {
    const size_t all = patchkit::the_device().memory_bytes;
    if (free != nullptr) {
        *free = all - patchkit::memory_used();
    }
    if (total != nullptr) {
        *total = all;
    }
    return answered(hipSuccess);
}

hipError_t hipMalloc(void ** pointer, size_t size) { return answered(allocate(pointer, size, hipMemoryTypeDevice)); }

hipError_t hipMallocManaged(void ** pointer, size_t size, unsigned int /*flags*/) {
    return answered(allocate(pointer, size, hipMemoryTypeManaged));
}

hipError_t hipHostMalloc(void ** pointer, size_t size, unsigned int flags) {
    return answered(allocate(pointer, size, hipMemoryTypeHost, flags));
}

hipError_t hipHostAlloc(void ** pointer, size_t size, unsigned int flags) {
    return answered(allocate(pointer, size, hipMemoryTypeHost, flags));
}

hipError_t hipMallocHost(void ** pointer, size_t size) {
    return answered(allocate(pointer, size, hipMemoryTypeHost));
}

hipError_t hipMemAllocHost(void ** pointer, size_t size) {
    return answered(allocate(pointer, size, hipMemoryTypeHost));
}

// Rows start at multiples of 256 bytes (imagePitchAlignment_ of clr's rocdevice.cpp for these GPUs).
hipError_t hipMallocPitch(void ** pointer, size_t * pitch, size_t width, size_t height) {
    constexpr size_t alignment = 256;
    if (pointer == nullptr || pitch == nullptr || width > SIZE_MAX - alignment) {
        return answered(hipErrorInvalidValue);
    }
    if (width == 0 || height == 0) {
        *pointer = nullptr;
        return answered(hipSuccess);
    }
    *pitch = (width + alignment - 1) / alignment * alignment;
    if (height > SIZE_MAX / *pitch) {
        return answered(hipErrorOutOfMemory);
    }
    return answered(allocate(pointer, *pitch * height, hipMemoryTypeDevice));
}

hipError_t hipMemAllocPitch(hipDeviceptr_t * pointer, size_t * pitch, size_t width, size_t height,
                            unsigned int element) {
    if (element != 4 && element != 8 && element != 16) {
        return answered(hipErrorInvalidValue);
    }
    return hipMallocPitch(reinterpret_cast<void **>(pointer), pitch, width, height);
}

// The slices of a volume are contiguous.
hipError_t hipMalloc3D(hipPitchedPtr * made, hipExtent extent) {
    if (made == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    size_t rows = 0;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) {
        return answered(hipErrorOutOfMemory);
    }
    void * pointer = nullptr;
    size_t pitch   = 0;
    const hipError_t error = hipMallocPitch(&pointer, &pitch, extent.width, rows);
    if (error == hipSuccess) {
        *made = {pointer, pitch, extent.width, extent.height};
    }
    return error;
}

// All kinds but the default are accessible by the host, too: fine-grained, uncached, signals.
hipError_t hipExtMallocWithFlags(void ** pointer, size_t size, unsigned int flags) {
    return answered(allocate(pointer, size, hipMemoryTypeDevice, flags));
}

hipError_t hipMallocAsync(void ** pointer, size_t size, hipStream_t stream) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(is_stream(stream) ? allocate(pointer, size, hipMemoryTypeDevice) : hipErrorInvalidHandle);
}

hipError_t hipFree(void * pointer) { return answered(release_when_idle(pointer, hipErrorInvalidDevicePointer)); }

hipError_t hipHostFree(void * pointer) { return answered(release_when_idle(pointer, hipErrorInvalidValue)); }
hipError_t hipFreeHost(void * pointer) { return answered(release_when_idle(pointer, hipErrorInvalidValue)); }

// Unlike other functions, it does not accept a null pointer.
hipError_t hipFreeAsync(void * pointer, hipStream_t stream) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorInvalidHandle);
    }
    const allocation found = allocation_of(pointer);
    if (found.size == 0 || found.begin != uintptr_t(pointer) || found.whose != owner::program) {
        return answered(refuse_to_free(pointer, hipErrorInvalidValue));
    }
    if (found.of != nullptr && !patchkit::is_captured(stream)) {
        if (!found.of->freed_by.empty()) {
            const std::string what = std::to_string(found.size) + " bytes of device memory were already freed";
            return answered(patchkit::refused_again(hipErrorInvalidValue, what, found.of));
        }
        patchkit::note_freed(found.of);
    }
    return answered(patchkit::enqueue(stream, [pointer, size = found.size] {
        const std::string what = "hipFreeAsync of " + std::to_string(size) + " bytes";
        patchkit::touch_rows(what, patchkit::access::writes, pointer, size, size, 1);
        (void) release(pointer, hipErrorInvalidValue);
    }));
}

hipError_t hipHostRegister(void * pointer, size_t size, unsigned int flags) {
    if (size == 0 || !is_mapped(pointer, size)) {
        return answered(hipErrorInvalidValue);
    }
    patchkit::register_memory(pointer, size, hipMemoryTypeHost, owner::registered, flags);
    return answered(hipSuccess);
}

hipError_t hipHostUnregister(void * pointer) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const hipError_t waited = patchkit::wait_for_all();
    if (waited != hipSuccess) {
        return answered(waited);
    }
    const bool was_registered = patchkit::unregister_memory(pointer, owner::registered);
    return answered(was_registered ? hipSuccess : hipErrorHostMemoryNotRegistered);
}

hipError_t hipHostGetDevicePointer(void ** device, void * host, unsigned int /*flags*/) {
    if (device == nullptr || !is_known(host, 0)) {
        return answered(hipErrorInvalidValue);
    }
    *device = host;
    return answered(hipSuccess);
}

hipError_t hipHostGetFlags(unsigned int * flags, void * host) {
    const allocation found = allocation_of(host);
    if (flags == nullptr || found.size == 0 || found.type != hipMemoryTypeHost) {
        return answered(hipErrorInvalidValue);
    }
    *flags = found.flags;
    return answered(hipSuccess);
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t * base, size_t * size, hipDeviceptr_t pointer) {
    const allocation found = allocation_of(pointer);
    if (base == nullptr || size == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (found.size == 0) {
        return answered(hipErrorNotFound);
    }
    *base = reinterpret_cast<hipDeviceptr_t>(found.begin);
    *size = found.size;
    return answered(hipSuccess);
}

hipError_t hipMemPtrGetInfo(void * pointer, size_t * size) {
    const allocation found = allocation_of(pointer);
    if (size == nullptr || found.size == 0) {
        return answered(hipErrorInvalidValue);
    }
    *size = found.size;
    return answered(hipSuccess);
}

// All memory is always accessible everywhere.
hipError_t hipMemPrefetchAsync(const void * pointer, size_t size, int id, hipStream_t stream) {
    if (pointer == nullptr || size == 0) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    if (!is_device(id) && id != hipCpuDeviceId) {
        return answered(hipErrorInvalidDevice);
    }
    const allocation found = allocation_of(pointer);
    if (found.size == 0) {
        return answered(id == hipCpuDeviceId ? hipSuccess : hipErrorNotSupported);
    }
    return answered(found.holds(uintptr_t(pointer), size) ? hipSuccess : hipErrorInvalidValue);
}

// The two read-mostly advices need no device, and the host counts as one.
hipError_t hipMemAdvise(const void * pointer, size_t size, hipMemoryAdvise advice, int id) {
    const bool is_about_reading = advice == hipMemAdviseSetReadMostly || advice == hipMemAdviseUnsetReadMostly;
    if (!is_about_reading && !is_device(id) && id != hipCpuDeviceId) {
        return answered(hipErrorInvalidDevice);
    }
    return answered(size != 0 && is_usable(pointer, size) ? hipSuccess : hipErrorInvalidValue);
}

// Memory unknown to the runtime is no error; it is reported as unregistered.
hipError_t hipPointerGetAttributes(hipPointerAttribute_t * attributes, const void * pointer) {
    if (attributes == nullptr || pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *attributes = {};
    const allocation found = allocation_of(pointer);
    if (found.size == 0) {
        attributes->type   = hipMemoryTypeUnregistered;
        attributes->device = hipInvalidDeviceId;
        return answered(hipSuccess);
    }
    attributes->type          = found.type;
    attributes->isManaged     = found.type == hipMemoryTypeManaged;
    attributes->devicePointer = const_cast<void *>(pointer);
    if (found.type != hipMemoryTypeDevice) {
        attributes->hostPointer = const_cast<void *>(pointer);
    }
    return answered(hipSuccess);
}

// Memory of other processes is not supported. CuPy needs the functions to be there, although it rarely calls them.

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t * handle, void * pointer) {
    if (handle == nullptr || allocation_of(pointer).size == 0) {
        return answered(hipErrorInvalidValue);
    }
    return answered(patchkit::refused(hipErrorNotSupported, "memory is not shared between processes"));
}

hipError_t hipIpcOpenMemHandle(void ** pointer, hipIpcMemHandle_t /*handle*/, unsigned /*flags*/) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(patchkit::refused(hipErrorNotSupported, "memory is not shared between processes"));
}

hipError_t hipIpcCloseMemHandle(void * /*pointer*/) { return answered(hipErrorInvalidValue); } // none was opened

} // extern "C"
