// When asynchronous operations run.
//
// Every launch, copy, memset and host function is an operation of a stream. The order that HIP guarantees is kept as
// dependencies; otherwise the schedule (PATCHKIT_EMULATOR_SCHEDULE) decides:
//   in-order      each operation runs in the call that requests it (the default, also when recording)
//   late          an operation runs only when something waits for it; of unordered streams, the one with the latest
//                 request comes first
//   shuffle SEED  in a random order that the dependencies allow, drawn from the seed
// A program that relies on more than HIP guarantees fails with the last two, as it may on a GPU.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace patchkit {

// Runs once, or once per launch of the graph that it was captured into.
using work = std::function<void()>;

// Adds work to a stream (which must be valid), or to the graph that captures the stream. Returns at once, unless the
// user requested that the host waits around each kernel or copy.
hipError_t enqueue(hipStream_t stream, work todo);
hipError_t enqueue_kernel(hipStream_t stream, work todo);
hipError_t enqueue_copy(hipStream_t stream, work todo);

// The same for a call that returns when the work is done. Not possible for a stream being captured.
hipError_t enqueue_and_wait(hipStream_t stream, work todo);

hipError_t wait_for(hipStream_t stream);
hipError_t wait_for_all();

// hipSuccess if all of it is done, otherwise hipErrorNotReady; repeated queries make progress.
hipError_t query(hipStream_t stream);

hipStream_t make_stream(unsigned flags, int priority);
bool destroy_stream(hipStream_t stream); // false if there is no such stream, or it is a default one
unsigned flags_of(hipStream_t stream);
int priority_of(hipStream_t stream);

// Events, by handle; all functions but make_event return hipErrorInvalidHandle for an invalid one.
hipEvent_t make_event(unsigned flags);
bool is_event(hipEvent_t event);
bool destroy_event(hipEvent_t event);
hipError_t record(hipEvent_t event, hipStream_t stream);
bool is_null_or_event(hipEvent_t event);

// Records both events (which may be null) before and after the work that `todo` adds to the stream.
template <typename Do> hipError_t record_around(hipEvent_t begin, hipEvent_t end, hipStream_t stream, Do todo) {
    hipError_t error = begin == nullptr ? hipSuccess : record(begin, stream);
    if (error == hipSuccess) {
        error = todo();
    }
    return error == hipSuccess && end != nullptr ? record(end, stream) : error;
}

hipError_t wait_for(hipEvent_t event);
hipError_t make_wait(hipStream_t stream, hipEvent_t event);
hipError_t query(hipEvent_t event);
hipError_t milliseconds_between(hipEvent_t begin, hipEvent_t end, float & milliseconds);

// Work with dependencies, given as indices of earlier nodes.
struct graph {
    struct node {
        work todo;
        std::vector<size_t> after;
    };
    std::vector<node> nodes;
};

bool is_captured(hipStream_t stream);
hipStreamCaptureStatus capture_status(hipStream_t stream, unsigned long long & id);
hipError_t begin_capture(hipStream_t stream);
hipError_t end_capture(hipStream_t stream, graph & captured);
hipError_t launch(const graph & recorded, hipStream_t stream);

// Whether this process was forked from the one that owns the streams; pending work is done there.
bool is_inherited();

} // namespace patchkit
