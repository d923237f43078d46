// Errors: names, texts, and the last one of each thread.

#include "answers.hpp"
#include "calls.hpp"

namespace {

using patchkit::answered;

thread_local hipError_t last_result = hipSuccess;

struct error_text {
    hipError_t error;
    const char * name;
    const char * text;
};

// Errors that this runtime returns. Upstream prints the text when it aborts.
#define TEXT(name, text) {name, #name, text " (patchkit's HIP runtime)"}

constexpr error_text error_texts[] = {
    {hipSuccess, "hipSuccess", "no error"},
    TEXT(hipErrorInvalidValue, "invalid argument"),
    TEXT(hipErrorOutOfMemory, "out of memory"),
    TEXT(hipErrorInvalidConfiguration, "invalid grid or block size"),
    TEXT(hipErrorInvalidPitchValue, "invalid pitch"),
    TEXT(hipErrorInvalidSymbol, "no such device variable"),
    TEXT(hipErrorInvalidDevicePointer, "invalid device pointer"),
    TEXT(hipErrorInvalidMemcpyDirection, "invalid copy direction"),
    TEXT(hipErrorMissingConfiguration, "no launch configuration"),
    TEXT(hipErrorInvalidDeviceFunction, "no such kernel"),
    TEXT(hipErrorInvalidDevice, "invalid device ordinal"),
    TEXT(hipErrorInvalidImage, "invalid device code"),
    TEXT(hipErrorNoBinaryForGpu, "no code for this GPU"),
    TEXT(hipErrorFileNotFound, "no such file"),
    TEXT(hipErrorUnsupportedLimit, "unsupported limit"),
    TEXT(hipErrorInvalidHandle, "invalid stream, event or function"),
    TEXT(hipErrorIllegalState, "invalid in this state"),
    TEXT(hipErrorNotFound, "not found"),
    TEXT(hipErrorNotReady, "not ready"),
    TEXT(hipErrorContextIsDestroyed, "destroyed stream or event"),
    TEXT(hipErrorHostMemoryNotRegistered, "host memory is not registered"),
    TEXT(hipErrorLaunchFailure, "kernel launch failure"),
    TEXT(hipErrorCooperativeLaunchTooLarge, "the blocks of a cooperative launch do not fit at once"),
    TEXT(hipErrorNotSupported, "not supported"),
    TEXT(hipErrorStreamCaptureUnsupported, "not permitted while a stream is captured"),
    TEXT(hipErrorStreamCaptureInvalidated, "the capture was invalidated by an earlier call"),
    TEXT(hipErrorStreamCaptureMerge, "the call would merge two captures"),
    TEXT(hipErrorStreamCaptureUnmatched, "the capture began in another stream"),
    TEXT(hipErrorStreamCaptureUnjoined, "the capture has streams that were not joined"),
    TEXT(hipErrorStreamCaptureIsolation, "the capture would depend on work outside of it"),
    TEXT(hipErrorCapturedEvent, "the event was recorded in a capture"),
    TEXT(hipErrorGraphExecUpdateFailure, "the graph differs too much from the one to update"),
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
    note_answer(error);
    return error;
}

const char * name_of(hipError_t error) { return text_of(error).name; }

} // namespace patchkit

extern "C" {

hipError_t hipGetLastError() {
    patchkit::note_asked();
    const hipError_t error = last_result;
    last_result = hipSuccess;
    return error;
}

hipError_t hipExtGetLastError() { return hipGetLastError(); }

hipError_t hipPeekAtLastError() {
    patchkit::note_asked();
    return last_result;
}

const char * hipGetErrorString(hipError_t error) {
    patchkit::note_asked_for(error);
    return text_of(error).text;
}

const char * hipGetErrorName(hipError_t error) {
    patchkit::note_asked_for(error);
    return text_of(error).name;
}

// These two functions also have a text for unknown errors.

hipError_t hipDrvGetErrorName(hipError_t error, const char ** name) {
    if (name == nullptr) {
        return hipErrorInvalidValue;
    }
    *name = text_of(error).name;
    return text_of(error).error == error ? hipSuccess : hipErrorInvalidValue;
}

hipError_t hipDrvGetErrorString(hipError_t error, const char ** text) {
    if (text == nullptr) {
        return hipErrorInvalidValue;
    }
    *text = text_of(error).text;
    return text_of(error).error == error ? hipSuccess : hipErrorInvalidValue;
}

} // extern "C"
