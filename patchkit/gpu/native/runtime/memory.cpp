// Memory: the host's in place of the device's, so that copies are real.

#include "answers.hpp"
#include "recorder.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace {

using patchkit::answered;
using patchkit::is_device;
using patchkit::is_mapped;
using patchkit::is_stream;

// What the runtime knows about; memory that it does not know is the host's.
struct range {
    size_t size;
    hipMemoryType type;
    bool registered; // by hipHostRegister: the program's own
};

std::mutex memory_mutex;
size_t memory_used = 0;

std::map<uintptr_t, range> & ranges() {
    static auto * table = new std::map<uintptr_t, range>;
    return *table;
}

// The range that a pointer lies in, and how many bytes it has from there on; no range when `found` is null.
struct place {
    const range * found;
    size_t left;
};

// With memory_mutex held.
place place_of(const void * pointer) {
    const auto address = uintptr_t(pointer);
    auto after = ranges().upper_bound(address);
    if (after == ranges().begin()) {
        return {nullptr, 0};
    }
    const auto & [begin, candidate] = *--after;
    if (address - begin >= candidate.size) {
        return {nullptr, 0};
    }
    return {&candidate, candidate.size - (address - begin)};
}

bool is_known(const void * pointer, size_t size) {
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const place at = place_of(pointer);
    return at.found != nullptr && size <= at.left;
}

// Whether that many bytes can be copied from or to there.
bool is_usable(const void * pointer, size_t size) {
    {
        const std::lock_guard<std::mutex> guard(memory_mutex);
        const place at = place_of(pointer);
        if (at.found != nullptr && (size > at.left || !at.found->registered)) {
            return size <= at.left;
        }
    }
    return is_mapped(pointer, size); // a program can unmap what it registered
}

// Pages appear when they are written: a KV cache of many GiB that nobody fills costs nothing.
hipError_t allocate(void ** pointer, size_t size, hipMemoryType type) {
    if (pointer == nullptr) {
        return hipErrorInvalidValue;
    }
    *pointer = nullptr;
    if (size == 0) {
        return hipSuccess;
    }
    const std::lock_guard<std::mutex> guard(memory_mutex);
    if (size > patchkit::the_device().memory_bytes - memory_used) {
        return hipErrorOutOfMemory;
    }
    void * block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
        return hipErrorOutOfMemory;
    }
    ranges()[uintptr_t(block)] = {size, type, false};
    memory_used += size;
    *pointer = block;
    return hipSuccess;
}

// As the runtime, which frees host memory and device memory by either call.
hipError_t release(void * pointer, hipError_t unknown) {
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const auto found = ranges().find(uintptr_t(pointer));
    if (found == ranges().end() || found->second.registered) {
        return unknown;
    }
    munmap(pointer, found->second.size);
    memory_used -= found->second.size;
    ranges().erase(found);
    return hipSuccess;
}

// Zeroing gives whole pages back instead of writing them, so that a cleared cache stays free of cost.
// The runtime fills only what it knows.
hipError_t fill(void * pointer, int value, size_t size) {
    if (size == 0) {
        return hipSuccess;
    }
    if (!is_known(pointer, size)) {
        return hipErrorInvalidValue;
    }
    char * begin = static_cast<char *>(pointer);
    char * end = begin + size;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    char * first = reinterpret_cast<char *>((uintptr_t(begin) + page - 1) / page * page);
    char * last = reinterpret_cast<char *>(uintptr_t(end) / page * page);
    if (value != 0 || last <= first || madvise(first, size_t(last - first), MADV_DONTNEED) != 0) {
        std::memset(begin, value, size);
        return hipSuccess;
    }
    std::memset(begin, 0, size_t(first - begin));
    std::memset(last, 0, size_t(end - last));
    return hipSuccess;
}

hipError_t copy(void * to, const void * from, size_t size) {
    if (size == 0) {
        return hipSuccess;
    }
    if (!is_usable(to, size) || !is_usable(from, size)) {
        return hipErrorInvalidValue;
    }
    std::memmove(to, from, size);
    return hipSuccess;
}

// From the first byte of the first row to the last of the last.
size_t extent_of(size_t pitch, size_t width, size_t height) { return pitch * (height - 1) + width; }

hipError_t copy_rows(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width, size_t height) {
    if (width == 0 || height == 0) {
        return hipSuccess;
    }
    if (width > to_pitch || width > from_pitch) {
        return hipErrorInvalidPitchValue;
    }
    if (!is_usable(to, extent_of(to_pitch, width, height)) || !is_usable(from, extent_of(from_pitch, width, height))) {
        return hipErrorInvalidValue;
    }
    for (size_t row = 0; row < height; ++row) {
        std::memmove(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch,
                     width);
    }
    return hipSuccess;
}

} // namespace

namespace patchkit {

bool is_mapped(const void * pointer, size_t size) {
    if (size == 0) {
        return true;
    }
    constexpr uintptr_t pages_at_once = 1024;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = uintptr_t(pointer) / page * page;
    const uintptr_t end = uintptr_t(pointer) + size;
    if (pointer == nullptr || end < uintptr_t(pointer)) {
        return false;
    }
    for (uintptr_t at = begin; at < end; at += pages_at_once * page) {
        unsigned char resident[pages_at_once]; // asked for by the call, of no use here
        const uintptr_t length = std::min(end - at, pages_at_once * page);
        if (mincore(reinterpret_cast<void *>(at), length, resident) != 0) {
            return false; // ENOMEM: a page is not mapped
        }
    }
    return true;
}

} // namespace patchkit

extern "C" {

// Either pointer may be null, or both: upstream asks for the free memory alone between builds 8156 and 8672.
hipError_t hipMemGetInfo(size_t * free, size_t * total) {
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const size_t all = patchkit::the_device().memory_bytes;
    if (free != nullptr) {
        *free = all - memory_used;
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

hipError_t hipHostMalloc(void ** pointer, size_t size, unsigned int /*flags*/) {
    return answered(allocate(pointer, size, hipMemoryTypeHost));
}

hipError_t hipExtMallocWithFlags(void ** pointer, size_t size, unsigned int /*flags*/) {
    return answered(allocate(pointer, size, hipMemoryTypeDevice));
}

hipError_t hipMallocAsync(void ** pointer, size_t size, hipStream_t stream) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(is_stream(stream) ? allocate(pointer, size, hipMemoryTypeDevice) : hipErrorInvalidHandle);
}

hipError_t hipFree(void * pointer) {
    return answered(pointer == nullptr ? hipSuccess : release(pointer, hipErrorInvalidDevicePointer));
}

hipError_t hipHostFree(void * pointer) {
    return answered(pointer == nullptr ? hipSuccess : release(pointer, hipErrorInvalidValue));
}

// Unlike the others it takes no null pointer.
hipError_t hipFreeAsync(void * pointer, hipStream_t stream) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(is_stream(stream) ? release(pointer, hipErrorInvalidValue) : hipErrorInvalidHandle);
}

hipError_t hipHostRegister(void * pointer, size_t size, unsigned int /*flags*/) {
    if (size == 0 || !is_mapped(pointer, size)) {
        return answered(hipErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> guard(memory_mutex);
    if (place_of(pointer).found == nullptr) {
        ranges()[uintptr_t(pointer)] = {size, hipMemoryTypeHost, true};
    }
    return answered(hipSuccess);
}

hipError_t hipHostUnregister(void * pointer) {
    if (pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const auto found = ranges().find(uintptr_t(pointer));
    if (found == ranges().end() || !found->second.registered) {
        return answered(hipErrorHostMemoryNotRegistered);
    }
    ranges().erase(found);
    return answered(hipSuccess);
}

hipError_t hipHostGetDevicePointer(void ** device, void * host, unsigned int /*flags*/) {
    if (device == nullptr || !is_known(host, 0)) {
        return answered(hipErrorInvalidValue);
    }
    *device = host;
    return answered(hipSuccess);
}

// The two pieces of advice about reading ask for no device, and the host counts as one.
hipError_t hipMemAdvise(const void * pointer, size_t size, hipMemoryAdvise advice, int id) {
    const bool is_about_reading = advice == hipMemAdviseSetReadMostly || advice == hipMemAdviseUnsetReadMostly;
    if (!is_about_reading && !is_device(id) && id != hipCpuDeviceId) {
        return answered(hipErrorInvalidDevice);
    }
    return answered(size != 0 && is_usable(pointer, size) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemset(void * pointer, int value, size_t size) { return answered(fill(pointer, value, size)); }

hipError_t hipMemsetAsync(void * pointer, int value, size_t size, hipStream_t stream) {
    return answered(is_stream(stream) ? fill(pointer, value, size) : hipErrorInvalidHandle);
}

hipError_t hipMemcpy(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    return answered(copy(to, from, size));
}

hipError_t hipMemcpyAsync(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/, hipStream_t stream) {
    return answered(is_stream(stream) ? copy(to, from, size) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpyPeer(void * to, int to_id, const void * from, int from_id, size_t size) {
    return answered(is_device(to_id) && is_device(from_id) ? copy(to, from, size) : hipErrorInvalidDevice);
}

hipError_t hipMemcpyPeerAsync(void * to, int to_id, const void * from, int from_id, size_t size, hipStream_t stream) {
    if (!is_device(to_id) || !is_device(from_id)) {
        return answered(hipErrorInvalidDevice);
    }
    return answered(is_stream(stream) ? copy(to, from, size) : hipErrorContextIsDestroyed);
}

hipError_t hipMemcpy2D(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width, size_t height,
                       hipMemcpyKind /*kind*/) {
    return answered(copy_rows(to, to_pitch, from, from_pitch, width, height));
}

hipError_t hipMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width,
                            size_t height, hipMemcpyKind /*kind*/, hipStream_t stream) {
    return answered(is_stream(stream) ? copy_rows(to, to_pitch, from, from_pitch, width, height)
                                      : hipErrorInvalidValue);
}

// Memory that the runtime does not know is no error: it says so.
hipError_t hipPointerGetAttributes(hipPointerAttribute_t * attributes, const void * pointer) {
    if (attributes == nullptr || pointer == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    *attributes = {};
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const place at = place_of(pointer);
    if (at.found == nullptr) {
        attributes->type   = hipMemoryTypeUnregistered;
        attributes->device = hipInvalidDeviceId;
        return answered(hipSuccess);
    }
    attributes->type          = at.found->type;
    attributes->isManaged     = at.found->type == hipMemoryTypeManaged;
    attributes->devicePointer = const_cast<void *>(pointer);
    if (at.found->type != hipMemoryTypeDevice) {
        attributes->hostPointer = const_cast<void *>(pointer);
    }
    return answered(hipSuccess);
}

} // extern "C"
