// Streams, events and captures, implemented as operations with dependencies.

#include "schedule.hpp"

#include "handles.hpp"
#include "recorder.hpp"
#include "scheduler.hpp"
#include "settings.hpp"

#include <algorithm>

namespace patchkit {

namespace {

struct event_state {
    unsigned flags;
    operation_ref recorded;
    std::shared_ptr<capture> captured; // if it was recorded in a capture
    std::vector<size_t> frontier;
};

// Used in destructors of other libraries, so objects created here are never destroyed.

handle_map<stream_state> & streams() {
    static auto * made = new handle_map<stream_state>;
    return *made;
}

handle_map<event_state> & events() {
    static auto * made = new handle_map<event_state>;
    return *made;
}

// Null if there is no such stream.
stream_ref state_of(hipStream_t stream) {
    if (stream == nullptr || stream == hipStreamLegacy) {
        return the_scheduler().legacy();
    }
    if (stream == hipStreamPerThread) {
        thread_local stream_ref own;
        if (own == nullptr) {
            const auto held = the_scheduler().locked();
            own = the_scheduler().add_stream(0, 0);
        }
        return own;
    }
    return streams().find(stream);
}

void capture_work(stream_state & stream, work todo) {
    stream.captured->made.nodes.push_back({std::move(todo), stream.frontier});
    stream.frontier = {stream.captured->made.nodes.size() - 1};
}

// A call that is not permitted during a capture invalidates it.
hipError_t refuse_captured(const stream_state & stream) {
    if (stream.captured == nullptr) {
        return hipSuccess;
    }
    stream.captured->is_invalid = true;
    return hipErrorStreamCaptureUnsupported;
}

// Host functions must not call functions that wait for operations, because they run as one.
hipError_t refuse_inside() { return runs_operation() ? hipErrorNotSupported : hipSuccess; }

void finish_and_know(scheduler::lock & held, const std::vector<operation_ref> & wanted) {
    the_scheduler().finish(held, wanted);
    std::for_each(wanted.begin(), wanted.end(), host_waited);
}

// `must_wait`: the call does not return before the work is done, which a capture does not permit.
hipError_t add_work(hipStream_t handle, work todo, bool must_wait, const host_waits & waits = {}) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const stream_ref stream = state_of(handle);
    if (stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (stream->captured != nullptr) {
        if (must_wait) {
            return refuse_captured(*stream);
        }
        capture_work(*stream, std::move(todo));
        return hipSuccess;
    }
    if (waits.before) {
        finish_and_know(held, the_scheduler().ends_of(stream));
    }
    stream->last = the_scheduler().add(the_scheduler().order_of(stream), std::move(todo));
    const operation_ref added = stream->last;
    the_scheduler().go_on(held, added);
    if (must_wait || waits.after) {
        finish_and_know(held, {added});
    }
    return hipSuccess;
}

} // namespace

bool is_stream(const void * stream) {
    return stream == nullptr || stream == hipStreamLegacy || stream == hipStreamPerThread ||
           streams().find(stream) != nullptr;
}

hipError_t enqueue(hipStream_t stream, work todo) { return add_work(stream, std::move(todo), false); }

hipError_t enqueue_kernel(hipStream_t stream, work todo) {
    return add_work(stream, std::move(todo), false, waits_around_kernels());
}

hipError_t enqueue_copy(hipStream_t stream, work todo) {
    return add_work(stream, std::move(todo), false, waits_around_copies());
}

hipError_t enqueue_and_wait(hipStream_t stream, work todo) { return add_work(stream, std::move(todo), true); }

hipError_t wait_for(hipStream_t handle) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const stream_ref stream = state_of(handle);
    if (stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (const hipError_t error = refuse_captured(*stream); error != hipSuccess) {
        return error;
    }
    finish_and_know(held, the_scheduler().ends_of(stream));
    return hipSuccess;
}

hipError_t wait_for_all() {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    auto held = the_scheduler().locked();
    the_scheduler().finish_all(held);
    host_waited_for_all();
    return hipSuccess;
}

hipError_t query(hipStream_t handle) {
    const stream_ref stream = state_of(handle);
    if (stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (const hipError_t error = refuse_captured(*stream); error != hipSuccess) {
        return error;
    }
    const std::vector<operation_ref> ends = the_scheduler().ends_of(stream);
    for (const operation_ref & one : ends) {
        if (runs_operation() || !the_scheduler().ask(held, one)) {
            return hipErrorNotReady;
        }
    }
    std::for_each(ends.begin(), ends.end(), host_waited);
    return hipSuccess;
}

hipStream_t make_stream(unsigned flags, int priority) {
    const auto held = the_scheduler().locked();
    return static_cast<hipStream_t>(streams().make(the_scheduler().add_stream(flags, priority)));
}

// Its pending work still runs.
bool destroy_stream(hipStream_t stream) { return streams().drop(stream); }

unsigned flags_of(hipStream_t stream) { return state_of(stream)->flags; }
int priority_of(hipStream_t stream) { return state_of(stream)->priority; }

hipEvent_t make_event(unsigned flags) {
    return static_cast<hipEvent_t>(events().make(std::make_shared<event_state>(event_state{flags, {}, {}, {}})));
}

bool is_event(hipEvent_t event) { return events().find(event) != nullptr; }
bool is_null_or_event(hipEvent_t event) { return event == nullptr || is_event(event); }
bool destroy_event(hipEvent_t event) { return events().drop(event); }

hipError_t record(hipEvent_t handle, hipStream_t stream_handle) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const auto event       = events().find(handle);
    const stream_ref stream = state_of(stream_handle);
    if (event == nullptr || stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    event->captured = stream->captured;
    if (stream->captured != nullptr) {
        event->frontier = stream->frontier;
        return hipSuccess;
    }
    stream->last    = the_scheduler().add(the_scheduler().order_of(stream), [] {});
    event->recorded = stream->last;
    the_scheduler().go_on(held, event->recorded);
    return hipSuccess;
}

hipError_t wait_for(hipEvent_t handle) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const auto event = events().find(handle);
    if (event == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (event->captured != nullptr) {
        event->captured->is_invalid = true;
        return hipErrorCapturedEvent;
    }
    if (event->recorded != nullptr) {
        the_scheduler().finish(held, {event->recorded});
        host_waited(event->recorded);
    }
    return hipSuccess;
}

// Waiting for a captured event makes this stream part of the capture.
hipError_t make_wait(hipStream_t stream_handle, hipEvent_t handle) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const auto event       = events().find(handle);
    const stream_ref stream = state_of(stream_handle);
    if (event == nullptr || stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (event->captured != nullptr) {
        if (stream->captured != nullptr && stream->captured != event->captured) {
            stream->captured->is_invalid = true;
            return hipErrorStreamCaptureMerge;
        }
        stream->captured = event->captured;
        stream->frontier.insert(stream->frontier.end(), event->frontier.begin(), event->frontier.end());
        return hipSuccess;
    }
    if (stream->captured != nullptr) {
        stream->captured->is_invalid = true;
        return hipErrorStreamCaptureIsolation;
    }
    if (event->recorded != nullptr && (!event->recorded->is_done || keeps_order())) {
        auto after = the_scheduler().order_of(stream);
        after.push_back(event->recorded);
        stream->last = the_scheduler().add(std::move(after), [] {});
        const operation_ref added = stream->last;
        the_scheduler().go_on(held, added);
    }
    return hipSuccess;
}

hipError_t query(hipEvent_t handle) {
    const auto event = events().find(handle);
    if (event == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (event->captured != nullptr) {
        event->captured->is_invalid = true;
        return hipErrorCapturedEvent;
    }
    const operation_ref recorded = event->recorded;
    const bool is_done = recorded == nullptr || recorded->is_done;
    if (!is_done && (runs_operation() || !the_scheduler().ask(held, recorded))) {
        return hipErrorNotReady;
    }
    host_waited(recorded);
    return hipSuccess;
}

hipError_t milliseconds_between(hipEvent_t begin, hipEvent_t end, float & milliseconds) {
    const auto first = events().find(begin), second = events().find(end);
    if (first == nullptr || second == nullptr || ((first->flags | second->flags) & hipEventDisableTiming) != 0) {
        return hipErrorInvalidHandle;
    }
    const auto held = the_scheduler().locked();
    if (first->recorded == nullptr || second->recorded == nullptr) {
        return hipErrorInvalidHandle;
    }
    if (!first->recorded->is_done || !second->recorded->is_done) {
        return hipErrorNotReady;
    }
    const std::chrono::duration<float, std::milli> between = second->recorded->done_at - first->recorded->done_at;
    milliseconds = between.count();
    return hipSuccess;
}

bool is_captured(hipStream_t handle) {
    const stream_ref stream = state_of(handle);
    const auto held = the_scheduler().locked();
    return stream != nullptr && stream->captured != nullptr;
}

hipStreamCaptureStatus capture_status(hipStream_t handle, unsigned long long & id) {
    const stream_ref stream = state_of(handle);
    const auto held = the_scheduler().locked();
    if (stream->captured == nullptr) {
        id = 0;
        return hipStreamCaptureStatusNone;
    }
    id = stream->captured->id;
    return stream->captured->is_invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}

hipError_t begin_capture(hipStream_t handle) {
    static unsigned long long next = 1;
    const stream_ref stream = state_of(handle);
    const auto held = the_scheduler().locked();
    if (stream->captured != nullptr) {
        return hipErrorIllegalState;
    }
    stream->captured     = std::make_shared<capture>();
    stream->captured->id = next++;
    stream->is_origin    = true;
    stream->frontier.clear();
    return hipSuccess;
}

namespace {

// Whether every node is a dependency of these, or one of these.
bool covers_all(const graph & made, const std::vector<size_t> & frontier) {
    std::vector<bool> is_covered(made.nodes.size());
    for (const size_t node : frontier) {
        is_covered[node] = true;
    }
    for (size_t node = made.nodes.size(); node-- > 0;) {
        if (!is_covered[node]) {
            return false;
        }
        for (const size_t before : made.nodes[node].after) {
            is_covered[before] = true;
        }
    }
    return true;
}

} // namespace

hipError_t end_capture(hipStream_t handle, graph & captured) {
    const stream_ref stream = state_of(handle);
    const auto held = the_scheduler().locked();
    if (stream->captured == nullptr) {
        return hipErrorIllegalState;
    }
    if (!stream->is_origin) {
        return hipErrorStreamCaptureUnmatched;
    }
    const std::shared_ptr<capture> ended = stream->captured;
    const bool is_joined = covers_all(ended->made, stream->frontier);
    const auto leave = [&ended](stream_state & one) {
        if (one.captured == ended) {
            one.captured  = nullptr;
            one.is_origin = false;
            one.frontier.clear();
        }
    };
    streams().for_each(leave);
    the_scheduler().for_each_blocking(leave);
    if (ended->is_invalid) {
        return hipErrorStreamCaptureInvalidated;
    }
    if (!is_joined) {
        return hipErrorStreamCaptureUnjoined;
    }
    captured = std::move(ended->made);
    return hipSuccess;
}

hipError_t launch(const graph & recorded, hipStream_t handle) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const stream_ref stream = state_of(handle);
    auto held = the_scheduler().locked();
    if (stream->captured != nullptr) {
        graph & made = stream->captured->made;
        const size_t first = made.nodes.size();
        std::vector<size_t> all;
        for (const graph::node & one : recorded.nodes) {
            std::vector<size_t> after = one.after.empty() ? stream->frontier : one.after;
            if (!one.after.empty()) {
                std::for_each(after.begin(), after.end(), [first](size_t & node) { node += first; });
            }
            all.push_back(made.nodes.size());
            made.nodes.push_back({one.todo, std::move(after)});
        }
        if (!all.empty()) {
            stream->frontier = std::move(all);
        }
        return hipSuccess;
    }
    const std::vector<operation_ref> before = the_scheduler().order_of(stream);
    std::vector<operation_ref> all;
    for (const graph::node & one : recorded.nodes) {
        std::vector<operation_ref> after = before;
        for (const size_t node : one.after) {
            after.push_back(all[node]);
        }
        all.push_back(the_scheduler().add(std::move(after), one.todo));
    }
    all.insert(all.end(), before.begin(), before.end());
    stream->last = the_scheduler().add(std::move(all), [] {});
    const operation_ref added = stream->last;
    the_scheduler().go_on(held, added);
    return hipSuccess;
}

} // namespace patchkit
