// Streams, events and host functions.

#include "answers.hpp"
#include "happens_before.hpp"
#include "recorder.hpp"
#include "schedule.hpp"
#include "settings.hpp"

#include <algorithm>

namespace {

using patchkit::answered;
using patchkit::is_event;
using patchkit::is_stream;

hipError_t make(hipStream_t * stream, unsigned flags, int priority) {
    if (stream == nullptr) {
        return hipErrorInvalidValue;
    }
    *stream = patchkit::make_stream(flags, priority);
    return hipSuccess;
}

hipError_t make(hipEvent_t * event, unsigned flags) {
    if (event == nullptr) {
        return hipErrorInvalidValue;
    }
    *event = patchkit::make_event(flags);
    return hipSuccess;
}

// Functions of the program, called when the stream reaches them.

hipError_t add_function(hipStream_t stream, hipHostFn_t function, void * data) {
    if (function == nullptr) {
        return hipErrorInvalidValue;
    }
    return patchkit::enqueue(stream, [function, data] {
        patchkit::host_runs();
        function(data);
    });
}

hipError_t add_callback(hipStream_t stream, hipStreamCallback_t function, void * data, unsigned flags) {
    if (function == nullptr || flags != 0) {
        return hipErrorInvalidValue;
    }
    return patchkit::enqueue(stream, [stream, function, data] {
        patchkit::host_runs();
        function(stream, hipSuccess, data);
    });
}

} // namespace

extern "C" {

hipError_t hipStreamCreate(hipStream_t * stream) { return answered(make(stream, hipStreamDefault, 0)); }

hipError_t hipStreamCreateWithFlags(hipStream_t * stream, unsigned int flags) {
    return answered(make(stream, flags, 0));
}

hipError_t hipStreamCreateWithPriority(hipStream_t * stream, unsigned int flags, int priority) {
    return answered(make(stream, flags, priority));
}

// Default streams cannot be destroyed.
hipError_t hipStreamDestroy(hipStream_t stream) {
    return answered(patchkit::destroy_stream(stream) ? hipSuccess : hipErrorInvalidHandle);
}

// Default streams have flags and priority 0; only the null stream rejects one of the two.

hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int * flags) {
    if (flags == nullptr || stream == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    *flags = patchkit::flags_of(stream);
    return answered(hipSuccess);
}

hipError_t hipStreamGetPriority(hipStream_t stream, int * priority) {
    if (priority == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    *priority = patchkit::priority_of(stream);
    return answered(hipSuccess);
}

hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t * device) {
    if (device == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    *device = 0;
    return answered(hipSuccess);
}

// An ordinal instead of an error code, because thrust requires it.
int hipGetStreamDeviceId(hipStream_t stream) { return is_stream(stream) ? 0 : -1; }

// Least and greatest priority, as in clr's hip_internal.hpp.
hipError_t hipDeviceGetStreamPriorityRange(int * least, int * greatest) {
    if (least != nullptr) {
        *least = 1;
    }
    if (greatest != nullptr) {
        *greatest = -1;
    }
    return answered(hipSuccess);
}

hipError_t hipStreamQuery(hipStream_t stream) { return answered(patchkit::query(stream)); }

// A host wait ends one computation of a graph; it is logged to tell graphs apart.
hipError_t hipStreamSynchronize(hipStream_t stream) {
    if (is_stream(stream)) {
        patchkit::log_line("{\"sync\":true}");
    }
    return answered(patchkit::wait_for(stream));
}

hipError_t hipDeviceSynchronize() { return answered(patchkit::wait_for_all()); }

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int /*flags*/) {
    return answered(patchkit::make_wait(stream, event));
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void * data) {
    return answered(is_stream(stream) ? add_function(stream, function, data) : hipErrorContextIsDestroyed);
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function, void * data, unsigned int flags) {
    return answered(is_stream(stream) ? add_callback(stream, function, data, flags) : hipErrorContextIsDestroyed);
}

hipError_t hipEventCreate(hipEvent_t * event) { return answered(make(event, hipEventDefault)); }
hipError_t hipEventCreateWithFlags(hipEvent_t * event, unsigned flags) { return answered(make(event, flags)); }

hipError_t hipEventDestroy(hipEvent_t event) {
    if (event == nullptr) {
        return answered(hipErrorInvalidHandle);
    }
    return answered(patchkit::destroy_event(event) ? hipSuccess : hipErrorContextIsDestroyed);
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) { return answered(patchkit::record(event, stream)); }

hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int /*flags*/) {
    return answered(patchkit::record(event, stream));
}

hipError_t hipEventSynchronize(hipEvent_t event) { return answered(patchkit::wait_for(event)); }
hipError_t hipEventQuery(hipEvent_t event) { return answered(patchkit::query(event)); }

// Recording measures no times.
hipError_t hipEventElapsedTime(float * milliseconds, hipEvent_t begin, hipEvent_t end) {
    if (milliseconds == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_event(begin) || !is_event(end)) {
        return answered(hipErrorInvalidHandle);
    }
    if (patchkit::is_executing()) {
        return answered(patchkit::milliseconds_between(begin, end, *milliseconds));
    }
    *milliseconds = 1.0f;
    return answered(hipSuccess);
}

} // extern "C"
