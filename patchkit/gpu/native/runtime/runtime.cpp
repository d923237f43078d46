// The rest of the runtime: one device, what is asked of it, and the errors.

#include "answers.hpp"
#include "recorder.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using patchkit::answered;
using patchkit::is_device;

thread_local hipError_t last_result = hipSuccess;

struct error_text {
    hipError_t error;
    const char * name;
    const char * text;
};

// Those that this runtime answers with. Upstream prints the text when it aborts.
#define TEXT(name, text) {name, #name, text ", says patchkit's HIP runtime"}

constexpr error_text error_texts[] = {
    {hipSuccess, "hipSuccess", "no error"},
    TEXT(hipErrorInvalidValue, "invalid argument"),
    TEXT(hipErrorOutOfMemory, "out of memory"),
    TEXT(hipErrorInvalidConfiguration, "such a grid or block cannot be launched"),
    TEXT(hipErrorInvalidPitchValue, "invalid pitch"),
    TEXT(hipErrorInvalidSymbol, "no such variable of the device"),
    TEXT(hipErrorInvalidDevicePointer, "invalid device pointer"),
    TEXT(hipErrorInvalidMemcpyDirection, "not possible in this direction"),
    TEXT(hipErrorMissingConfiguration, "nothing was configured"),
    TEXT(hipErrorInvalidDeviceFunction, "no such kernel"),
    TEXT(hipErrorInvalidDevice, "invalid device ordinal"),
    TEXT(hipErrorInvalidImage, "the device code is broken"),
    TEXT(hipErrorNoBinaryForGpu, "no code for this GPU"),
    TEXT(hipErrorFileNotFound, "no such file"),
    TEXT(hipErrorInvalidHandle, "invalid stream, event or function"),
    TEXT(hipErrorIllegalState, "not possible in this state"),
    TEXT(hipErrorNotFound, "no such thing"),
    TEXT(hipErrorNotReady, "not done yet"),
    TEXT(hipErrorContextIsDestroyed, "destroyed stream or event"),
    TEXT(hipErrorHostMemoryNotRegistered, "host memory that nobody registered"),
    TEXT(hipErrorLaunchFailure, "the kernel cannot be launched so"),
    TEXT(hipErrorCooperativeLaunchTooLarge, "the blocks of a cooperative launch do not fit at once"),
    TEXT(hipErrorNotSupported, "not supported"),
    TEXT(hipErrorStreamCaptureUnsupported, "not possible while a stream is captured"),
    TEXT(hipErrorStreamCaptureInvalidated, "the capture was made useless by an earlier call"),
    TEXT(hipErrorStreamCaptureMerge, "two captures would become one"),
    TEXT(hipErrorStreamCaptureUnmatched, "the capture began in another stream"),
    TEXT(hipErrorStreamCaptureUnjoined, "the capture has streams that did not come back"),
    TEXT(hipErrorStreamCaptureIsolation, "the capture would depend on work outside of it"),
    TEXT(hipErrorCapturedEvent, "the event was recorded in a capture"),
    TEXT(hipErrorGraphExecUpdateFailure, "the graph differs too much from the one to be updated"),
};

#undef TEXT

constexpr error_text unknown_error = {hipErrorUnknown, "hipErrorUnknown", "unknown error"};

const error_text & text_of(hipError_t error) {
    for (const error_text & entry : error_texts) {
        if (entry.error == error) {
            return entry;
        }
    }
    return unknown_error;
}

} // namespace

namespace patchkit {

hipError_t answered(hipError_t error) {
    last_result = error;
    return error;
}

} // namespace patchkit

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

hipError_t hipSetDevice(int id) { return answered(is_device(id) ? hipSuccess : hipErrorInvalidDevice); }

hipError_t hipInit(unsigned int /*flags*/) { return answered(hipSuccess); }
hipError_t hipSetDeviceFlags(unsigned int /*flags*/) { return answered(hipSuccess); }
hipError_t hipDeviceReset() { return answered(hipSuccess); }

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t * prop, int id) {
    if (prop == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_device(id)) {
        return answered(hipErrorInvalidDevice);
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
    const patchkit::device & dev = patchkit::the_device();
    switch (attribute) {
        case hipDeviceAttributeMultiprocessorCount:         *value = dev.multiprocessors;    break;
        case hipDeviceAttributeWarpSize:                    *value = dev.wave_size;          break;
        case hipDeviceAttributeMaxSharedMemoryPerBlock:     *value = int(dev.lds_per_block); break;
        case hipDeviceAttributeMaxThreadsPerBlock:          *value = 1024;                   break;
        case hipDeviceAttributeCooperativeLaunch:           *value = 1;                      break;
        default:                                            *value = 0;                      break;
    }
    return answered(hipSuccess);
}

// As the runtime: what fits is written and ended with a zero, and too small a place is an error.
hipError_t hipDeviceGetPCIBusId(char * id, int length, int device) {
    static const char text[] = "0000:01:00.0";
    if (!is_device(device)) {
        return answered(hipErrorInvalidDevice);
    }
    if (id == nullptr || length <= 0) {
        return answered(hipErrorInvalidValue);
    }
    std::snprintf(id, size_t(length), "%s", text);
    return answered(size_t(length) < sizeof(text) ? hipErrorInvalidValue : hipSuccess);
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

// A device is no peer of its own, and there is no other.
hipError_t hipDeviceEnablePeerAccess(int /*peer*/, unsigned int /*flags*/) { return answered(hipErrorInvalidDevice); }
hipError_t hipDeviceDisablePeerAccess(int /*peer*/) { return answered(hipErrorInvalidDevice); }

hipError_t hipGetLastError() {
    const hipError_t error = last_result;
    last_result = hipSuccess;
    return error;
}

hipError_t hipPeekAtLastError() { return last_result; }

const char * hipGetErrorString(hipError_t error) { return text_of(error).text; }
const char * hipGetErrorName(hipError_t error) { return text_of(error).name; }

} // extern "C"
