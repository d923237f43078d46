// The rest of the runtime: one device, host memory in place of its own, streams and events that do nothing.

#include "recorder.hpp"

#include <hip/hip_runtime_api.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace {

std::mutex memory_mutex;
size_t memory_used = 0;

std::unordered_map<void *, size_t> & blocks() {
    static auto * table = new std::unordered_map<void *, size_t>;
    return *table;
}

// Pages appear when they are written: a KV cache of many GiB that nobody fills costs nothing.
hipError_t allocate(void ** pointer, size_t size) {
    if (size == 0) {
        *pointer = nullptr;
        return hipSuccess;
    }
    const std::lock_guard<std::mutex> guard(memory_mutex);
    if (memory_used + size > patchkit::the_device().memory_bytes) {
        return hipErrorOutOfMemory;
    }
    void * block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
        return hipErrorOutOfMemory;
    }
    blocks()[block] = size;
    memory_used += size;
    *pointer = block;
    return hipSuccess;
}

hipError_t release(void * pointer) {
    if (pointer == nullptr) {
        return hipSuccess;
    }
    const std::lock_guard<std::mutex> guard(memory_mutex);
    const auto found = blocks().find(pointer);
    if (found == blocks().end()) {
        return hipErrorInvalidValue;
    }
    munmap(pointer, found->second);
    memory_used -= found->second;
    blocks().erase(found);
    return hipSuccess;
}

// Zeroing gives whole pages back instead of writing them, so that a cleared cache stays free of cost.
hipError_t fill(void * pointer, int value, size_t size) {
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

void copy(void * to, const void * from, size_t size) {
    if (size != 0) {
        std::memmove(to, from, size);
    }
}

template <typename Handle> hipError_t make_handle(Handle * handle) {
    *handle = reinterpret_cast<Handle>(std::malloc(1));
    return hipSuccess;
}

template <typename Handle> hipError_t drop_handle(Handle handle) {
    std::free(reinterpret_cast<void *>(handle));
    return hipSuccess;
}

} // namespace

extern "C" {

hipError_t hipGetDeviceCount(int * count) {
    patchkit::the_device();
    *count = 1;
    return hipSuccess;
}

hipError_t hipGetDevice(int * id) {
    *id = 0;
    return hipSuccess;
}

hipError_t hipSetDevice(int id) {
    return id == 0 ? hipSuccess : hipErrorInvalidDevice;
}

hipError_t hipInit(unsigned int /*flags*/) { return hipSuccess; }
hipError_t hipSetDeviceFlags(unsigned int /*flags*/) { return hipSuccess; }
hipError_t hipDeviceSynchronize() { return hipSuccess; }
hipError_t hipDeviceReset() { return hipSuccess; }

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t * prop, int id) {
    if (id != 0) {
        return hipErrorInvalidDevice;
    }
    const patchkit::device & dev = patchkit::the_device();
    std::memset(static_cast<void *>(prop), 0, sizeof(*prop));
    std::strncpy(prop->name, dev.name.c_str(), sizeof(prop->name) - 1);
    std::strncpy(prop->gcnArchName, dev.arch.c_str(), sizeof(prop->gcnArchName) - 1);
    // gfx1151 is version 11, minor 5, stepping 1: the last two digits are hexadecimal.
    const std::string digits = dev.arch.substr(3);
    prop->major = int(std::strtol(digits.substr(0, digits.size() - 2).c_str(), nullptr, 10));
    prop->minor = int(std::strtol(digits.substr(digits.size() - 2, 1).c_str(), nullptr, 16));
    prop->totalGlobalMem                   = dev.memory_bytes;
    prop->sharedMemPerBlock                = dev.lds_per_block;
    prop->sharedMemPerBlockOptin           = dev.lds_per_block;
    prop->sharedMemPerMultiprocessor       = dev.lds_per_block;
    prop->maxSharedMemoryPerMultiProcessor = dev.lds_per_block;
    prop->warpSize                         = dev.wave_size;
    prop->multiProcessorCount              = dev.multiprocessors;
    prop->maxThreadsPerBlock               = 1024;
    prop->maxThreadsPerMultiProcessor      = dev.simds_per_multiprocessor * dev.max_waves_per_simd * dev.wave_size;
    for (int i = 0; i < 3; ++i) {
        prop->maxThreadsDim[i] = 1024;
    }
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = 65535;
    prop->maxGridSize[2] = 65535;
    prop->cooperativeLaunch = 1;
    prop->pciBusID = 1;
    return hipSuccess;
}

hipError_t hipDeviceGet(hipDevice_t * device, int ordinal) {
    *device = ordinal;
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int * value, hipDeviceAttribute_t attribute, int /*id*/) {
    const patchkit::device & dev = patchkit::the_device();
    switch (attribute) {
        case hipDeviceAttributeMultiprocessorCount:         *value = dev.multiprocessors;    break;
        case hipDeviceAttributeWarpSize:                    *value = dev.wave_size;          break;
        case hipDeviceAttributeMaxSharedMemoryPerBlock:     *value = int(dev.lds_per_block); break;
        case hipDeviceAttributeMaxThreadsPerBlock:          *value = 1024;                   break;
        case hipDeviceAttributeCooperativeLaunch:           *value = 1;                      break;
        default:                                            *value = 0;                      break;
    }
    return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char * id, int length, int /*device*/) {
    std::strncpy(id, "0000:01:00.0", size_t(length));
    return hipSuccess;
}

hipError_t hipMemGetInfo(size_t * free, size_t * total) {
    const std::lock_guard<std::mutex> guard(memory_mutex);
    *total = patchkit::the_device().memory_bytes;
    *free  = *total - memory_used;
    return hipSuccess;
}

hipError_t hipMalloc(void ** pointer, size_t size) { return allocate(pointer, size); }
hipError_t hipMallocManaged(void ** pointer, size_t size, unsigned int /*flags*/) { return allocate(pointer, size); }
hipError_t hipHostMalloc(void ** pointer, size_t size, unsigned int /*flags*/) { return allocate(pointer, size); }
hipError_t hipExtMallocWithFlags(void ** pointer, size_t size, unsigned int /*flags*/) { return allocate(pointer, size); }
hipError_t hipMallocAsync(void ** pointer, size_t size, hipStream_t /*stream*/) { return allocate(pointer, size); }

hipError_t hipHostGetDevicePointer(void ** device, void * host, unsigned int /*flags*/) {
    *device = host;
    return hipSuccess;
}

hipError_t hipFree(void * pointer) { return release(pointer); }
hipError_t hipFreeAsync(void * pointer, hipStream_t /*stream*/) { return release(pointer); }
hipError_t hipHostFree(void * pointer) { return release(pointer); }
hipError_t hipHostRegister(void * /*pointer*/, size_t /*size*/, unsigned int /*flags*/) { return hipSuccess; }
hipError_t hipHostUnregister(void * /*pointer*/) { return hipSuccess; }
hipError_t hipMemAdvise(const void * /*p*/, size_t /*n*/, hipMemoryAdvise /*advice*/, int /*id*/) { return hipSuccess; }

hipError_t hipMemset(void * pointer, int value, size_t size) { return fill(pointer, value, size); }

hipError_t hipMemsetAsync(void * pointer, int value, size_t size, hipStream_t /*stream*/) {
    return fill(pointer, value, size);
}

hipError_t hipMemcpy(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/) {
    copy(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpyAsync(void * to, const void * from, size_t size, hipMemcpyKind /*kind*/, hipStream_t /*stream*/) {
    copy(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpyPeer(void * to, int /*to_id*/, const void * from, int /*from_id*/, size_t size) {
    copy(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpyPeerAsync(void * to, int /*to_id*/, const void * from, int /*from_id*/, size_t size,
                              hipStream_t /*stream*/) {
    copy(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpy2D(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width, size_t height,
                       hipMemcpyKind /*kind*/) {
    for (size_t row = 0; row < height; ++row) {
        copy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch, width);
    }
    return hipSuccess;
}

hipError_t hipMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width,
                            size_t height, hipMemcpyKind kind, hipStream_t /*stream*/) {
    return hipMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

hipError_t hipDeviceCanAccessPeer(int * can, int /*id*/, int /*peer*/) {
    *can = 0;
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int /*peer*/, unsigned int /*flags*/) { return hipSuccess; }
hipError_t hipDeviceDisablePeerAccess(int /*peer*/) { return hipSuccess; }

hipError_t hipStreamCreate(hipStream_t * stream) { return make_handle(stream); }
hipError_t hipStreamCreateWithFlags(hipStream_t * stream, unsigned int /*flags*/) { return make_handle(stream); }

hipError_t hipStreamCreateWithPriority(hipStream_t * stream, unsigned int /*flags*/, int /*priority*/) {
    return make_handle(stream);
}

hipError_t hipStreamDestroy(hipStream_t stream) { return drop_handle(stream); }
hipError_t hipStreamQuery(hipStream_t /*stream*/) { return hipSuccess; }

// Where the host waits, one computation of the graph has ended: the log keeps that, to tell graphs apart.
hipError_t hipStreamSynchronize(hipStream_t /*stream*/) {
    patchkit::log_line("{\"sync\":true}");
    return hipSuccess;
}

hipError_t hipStreamWaitEvent(hipStream_t /*stream*/, hipEvent_t /*event*/, unsigned int /*flags*/) {
    return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t /*stream*/, hipStreamCaptureStatus * status) {
    *status = hipStreamCaptureStatusNone;
    return hipSuccess;
}

// Capture is off (the runner sets GGML_CUDA_DISABLE_GRAPHS): recorded would be the capture, not the replays.
hipError_t hipStreamBeginCapture(hipStream_t /*stream*/, hipStreamCaptureMode /*mode*/) {
    return hipErrorNotSupported;
}

hipError_t hipStreamEndCapture(hipStream_t /*stream*/, hipGraph_t * /*graph*/) { return hipErrorNotSupported; }

hipError_t hipGraphInstantiate(hipGraphExec_t * /*exec*/, hipGraph_t /*graph*/, hipGraphNode_t * /*node*/,
                               char * /*log*/, size_t /*size*/) {
    return hipErrorNotSupported;
}

hipError_t hipGraphExecUpdate(hipGraphExec_t /*exec*/, hipGraph_t /*graph*/, hipGraphNode_t * /*node*/,
                              hipGraphExecUpdateResult * /*result*/) {
    return hipErrorNotSupported;
}

hipError_t hipGraphLaunch(hipGraphExec_t /*exec*/, hipStream_t /*stream*/) { return hipErrorNotSupported; }
hipError_t hipGraphDestroy(hipGraph_t /*graph*/) { return hipSuccess; }
hipError_t hipGraphExecDestroy(hipGraphExec_t /*exec*/) { return hipSuccess; }

hipError_t hipEventCreate(hipEvent_t * event) { return make_handle(event); }
hipError_t hipEventCreateWithFlags(hipEvent_t * event, unsigned /*flags*/) { return make_handle(event); }
hipError_t hipEventDestroy(hipEvent_t event) { return drop_handle(event); }
hipError_t hipEventRecord(hipEvent_t /*event*/, hipStream_t /*stream*/) { return hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t /*event*/) { return hipSuccess; }
hipError_t hipEventQuery(hipEvent_t /*event*/) { return hipSuccess; }

hipError_t hipEventElapsedTime(float * milliseconds, hipEvent_t /*begin*/, hipEvent_t /*end*/) {
    *milliseconds = 1.0f;
    return hipSuccess;
}

hipError_t hipGetLastError() { return hipSuccess; }
hipError_t hipPeekAtLastError() { return hipSuccess; }

const char * hipGetErrorString(hipError_t error) {
    return error == hipSuccess ? "no error" : "refused by the launch recorder";
}

const char * hipGetErrorName(hipError_t error) {
    return error == hipSuccess ? "hipSuccess" : "hipError";
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t * attributes, const void * pointer) {
    *attributes = {};
    attributes->type          = hipMemoryTypeDevice;
    attributes->devicePointer = const_cast<void *>(pointer);
    return hipSuccess;
}

} // extern "C"
