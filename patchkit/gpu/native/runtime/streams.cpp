// Streams and events, which do nothing, and graphs, of which there are none.

#include "answers.hpp"
#include "handles.hpp"
#include "recorder.hpp"

namespace {

using patchkit::answered;
using patchkit::handle_table;
using patchkit::is_stream;

// Used in destructors of other libraries: the tables have to outlive them.
handle_table & streams() {
    static auto * table = new handle_table;
    return *table;
}

handle_table & events() {
    static auto * table = new handle_table;
    return *table;
}

template <typename Handle> hipError_t make(handle_table & table, Handle * handle) {
    if (handle == nullptr) {
        return hipErrorInvalidValue;
    }
    *handle = static_cast<Handle>(table.make());
    return hipSuccess;
}

// A call of a stream whose header documents hipErrorInvalidHandle.
hipError_t with(hipStream_t stream) { return is_stream(stream) ? hipSuccess : hipErrorInvalidHandle; }

hipError_t with(hipEvent_t event) { return events().has(event) ? hipSuccess : hipErrorInvalidHandle; }

} // namespace

namespace patchkit {

bool is_stream(const void * stream) {
    return stream == nullptr || stream == hipStreamLegacy || stream == hipStreamPerThread || streams().has(stream);
}

} // namespace patchkit

extern "C" {

hipError_t hipStreamCreate(hipStream_t * stream) { return answered(make(streams(), stream)); }

hipError_t hipStreamCreateWithFlags(hipStream_t * stream, unsigned int /*flags*/) {
    return answered(make(streams(), stream));
}

hipError_t hipStreamCreateWithPriority(hipStream_t * stream, unsigned int /*flags*/, int /*priority*/) {
    return answered(make(streams(), stream));
}

// The default streams are nobody's to destroy.
hipError_t hipStreamDestroy(hipStream_t stream) {
    return answered(streams().drop(stream) ? hipSuccess : hipErrorInvalidHandle);
}

hipError_t hipStreamQuery(hipStream_t stream) { return answered(with(stream)); }

// Where the host waits, one computation of the graph has ended: the log keeps that, to tell graphs apart.
hipError_t hipStreamSynchronize(hipStream_t stream) {
    if (is_stream(stream)) {
        patchkit::log_line("{\"sync\":true}");
    }
    return answered(with(stream));
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int /*flags*/) {
    return answered(is_stream(stream) ? with(event) : hipErrorInvalidHandle);
}

hipError_t hipEventCreate(hipEvent_t * event) { return answered(make(events(), event)); }
hipError_t hipEventCreateWithFlags(hipEvent_t * event, unsigned /*flags*/) { return answered(make(events(), event)); }

hipError_t hipEventDestroy(hipEvent_t event) {
    if (event == nullptr) {
        return answered(hipErrorInvalidHandle);
    }
    return answered(events().drop(event) ? hipSuccess : hipErrorContextIsDestroyed);
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    return answered(is_stream(stream) ? with(event) : hipErrorInvalidHandle);
}

hipError_t hipEventSynchronize(hipEvent_t event) { return answered(with(event)); }
hipError_t hipEventQuery(hipEvent_t event) { return answered(with(event)); }

hipError_t hipEventElapsedTime(float * milliseconds, hipEvent_t begin, hipEvent_t end) {
    if (milliseconds == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!events().has(begin) || !events().has(end)) {
        return answered(hipErrorInvalidHandle);
    }
    *milliseconds = 1.0f;
    return answered(hipSuccess);
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus * status) {
    if (status == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    *status = hipStreamCaptureStatusNone;
    return answered(hipSuccess);
}

// Capture is off (the runner sets GGML_CUDA_DISABLE_GRAPHS): recorded would be the capture, not the replays.
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode /*mode*/) {
    if (!is_stream(stream)) {
        return answered(hipErrorContextIsDestroyed);
    }
    const bool is_legacy = stream == nullptr || stream == hipStreamLegacy;
    return answered(is_legacy ? hipErrorStreamCaptureUnsupported : hipErrorNotSupported);
}

// No stream is ever captured.
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t * graph) {
    if (graph == nullptr) {
        return answered(hipErrorInvalidValue);
    }
    return answered(is_stream(stream) ? hipErrorIllegalState : hipErrorContextIsDestroyed);
}

// Nobody got a graph from here, so whatever is handed in is none. The header has hipErrorInvalidValue for that.
hipError_t hipGraphInstantiate(hipGraphExec_t * /*exec*/, hipGraph_t /*graph*/, hipGraphNode_t * /*node*/,
                               char * /*log*/, size_t /*size*/) {
    return answered(hipErrorInvalidValue);
}

hipError_t hipGraphExecUpdate(hipGraphExec_t /*exec*/, hipGraph_t /*graph*/, hipGraphNode_t * /*node*/,
                              hipGraphExecUpdateResult * /*result*/) {
    return answered(hipErrorInvalidValue);
}

hipError_t hipGraphLaunch(hipGraphExec_t /*exec*/, hipStream_t /*stream*/) { return answered(hipErrorInvalidValue); }
hipError_t hipGraphDestroy(hipGraph_t /*graph*/) { return answered(hipErrorInvalidValue); }
hipError_t hipGraphExecDestroy(hipGraphExec_t /*exec*/) { return answered(hipErrorInvalidValue); }

} // extern "C"
