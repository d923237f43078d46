#include "schedule.hpp"

#include "emulation.hpp"
#include "handles.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <unordered_set>

namespace patchkit {

namespace {

using time_point = std::chrono::steady_clock::time_point;

struct operation {
    uint64_t number; // those it comes after have smaller ones
    work todo;
    std::vector<std::shared_ptr<operation>> after;
    bool is_done      = false;
    time_point done_at;
    int asked         = 0; // how often a program asked whether it is done

    bool is_ready() const {
        return std::all_of(after.begin(), after.end(), [](const auto & one) { return one->is_done; });
    }
};

using operation_ref = std::shared_ptr<operation>;

// A graph in the making, and the streams that take part.
struct capture {
    unsigned long long id;
    graph made;
    bool is_invalid = false;
};

struct stream_state {
    unsigned flags;
    int priority;
    operation_ref last;                // null, or done, when there is nothing to wait for
    std::shared_ptr<capture> captured; // null unless
    bool is_origin = false;            // of the capture
    std::vector<size_t> frontier;      // the nodes that the next one comes after

    bool is_blocking() const { return (flags & hipStreamNonBlocking) == 0; }
};

using stream_ref = std::shared_ptr<stream_state>;

struct event_state {
    unsigned flags;
    operation_ref recorded;
    std::shared_ptr<capture> captured; // when it was recorded in one
    std::vector<size_t> frontier;
};

enum class mode { in_order, late, shuffle };

struct settings {
    mode how      = mode::in_order;
    uint64_t seed = 0;
    std::string name = "in-order";
};

settings read_settings() {
    const char * text = is_executing() ? std::getenv("PATCHKIT_EMULATOR_SCHEDULE") : nullptr;
    const std::string given = text == nullptr || *text == '\0' ? "in-order" : text;
    if (given == "in-order") {
        return {};
    }
    if (given == "late") {
        return {mode::late, 0, given};
    }
    const std::string prefix = "shuffle ";
    char * end = nullptr;
    const bool is_shuffle = given.compare(0, prefix.size(), prefix) == 0;
    const uint64_t seed = is_shuffle ? std::strtoull(given.c_str() + prefix.size(), &end, 10) : 0;
    if (seed == 0 || *end != '\0') {
        misconfigured("PATCHKIT_EMULATOR_SCHEDULE is none of in-order, late, shuffle SEED (a positive number): " +
                      given);
    }
    return {mode::shuffle, seed, given};
}

const settings & the_settings() {
    static const settings result = read_settings();
    return result;
}

thread_local bool is_running = false; // an operation, on this thread

class scheduler {
  public:
    scheduler() : random_(the_settings().seed), laziness_(random_() % 4) { watch_end_of_process(); }

    using lock = std::unique_lock<std::mutex>;

    lock locked() { return lock(mutex_); }

    const stream_ref & legacy() const { return legacy_; }

    stream_ref add_stream(unsigned flags, int priority) {
        auto made = std::make_shared<stream_state>(stream_state{flags, priority, {}, {}, false, {}});
        if (made->is_blocking()) {
            blocking_.push_back(made);
        }
        return made;
    }

    // Every operation of a stream comes after the one before it; one of the default stream after those of all
    // streams that block with it, and theirs after its (HIP: "legacy default stream").
    std::vector<operation_ref> order_of(const stream_ref & stream) {
        std::vector<operation_ref> result;
        const auto take = [&result](const operation_ref & one) {
            if (one != nullptr && !one->is_done) {
                result.push_back(one);
            }
        };
        take(stream->last);
        if (stream != legacy_) {
            if (stream->is_blocking()) {
                take(legacy_->last);
            }
            return result;
        }
        std::vector<stream_ref> still;
        for (const stream_ref & other : blocking_) {
            take(other->last);
            if (other.use_count() > 1 || (other->last != nullptr && !other->last->is_done)) {
                still.push_back(other); // not destroyed, or not done yet
            }
        }
        blocking_ = std::move(still);
        return result;
    }

    // What a program waits for that waits for the stream. The default stream waits for those that block with it
    // (clr f9f995c6d, hip_context.cpp: getStream).
    std::vector<operation_ref> ends_of(const stream_ref & stream) {
        if (stream == legacy_) {
            return order_of(stream);
        }
        return stream->last == nullptr ? std::vector<operation_ref>() : std::vector<operation_ref>{stream->last};
    }

    template <typename Do> void for_each_blocking(Do todo) {
        for (const stream_ref & one : blocking_) {
            todo(*one);
        }
    }

    operation_ref add(std::vector<operation_ref> after, work todo) {
        auto made = std::make_shared<operation>();
        made->number = next_++;
        made->todo   = std::move(todo);
        made->after  = std::move(after);
        pending_.emplace(made->number, made);
        return made;
    }

    // What the schedule does with news; in order that is all of it.
    void go_on(lock & held, const operation_ref & added) {
        switch (the_settings().how) {
            case mode::in_order: finish(held, {added}); break;
            case mode::late:     break;
            case mode::shuffle:
                while (random_() % 4 > laziness_ && run_any(held)) {
                }
                break;
        }
    }

    // Runs until all of them are done.
    void finish(lock & held, const std::vector<operation_ref> & wanted) {
        if (the_settings().how == mode::shuffle) {
            const auto is_done = [](const operation_ref & one) { return one->is_done; };
            while (!std::all_of(wanted.begin(), wanted.end(), is_done)) {
                run_any(held);
            }
            return;
        }
        for (const operation_ref & one : needed_for(wanted)) {
            while (!one->is_done) {
                run_or_wait(held, one);
            }
        }
    }

    void finish_all(lock & held) {
        std::vector<operation_ref> all;
        for (const auto & [number, one] : pending_) {
            all.push_back(one);
        }
        finish(held, all);
    }

    // Whether it is done; who asks often enough makes it so.
    bool ask(lock & held, const operation_ref & one) {
        constexpr int patience = 3;
        if (one == nullptr || one->is_done) {
            return true;
        }
        if (the_settings().how == mode::shuffle) {
            run_any(held);
            return one->is_done;
        }
        if (++one->asked <= patience) {
            return false;
        }
        finish(held, {one});
        return true;
    }

  private:
    // They and all that they come after, in an order in which they can run. What was asked for last comes first, with
    // no more than it needs: of streams that nothing orders, the one that nobody expects.
    static std::vector<operation_ref> needed_for(std::vector<operation_ref> open) {
        std::vector<operation_ref> result;
        std::unordered_set<const operation *> seen, placed;
        std::sort(open.begin(), open.end(), [](const auto & a, const auto & b) { return a->number < b->number; });
        while (!open.empty()) {
            const operation_ref one = open.back();
            if (one->is_done || placed.count(one.get()) != 0) {
                open.pop_back();
            } else if (seen.insert(one.get()).second) {
                open.insert(open.end(), one->after.begin(), one->after.end());
            } else {
                open.pop_back(); // all that it comes after is placed
                placed.insert(one.get());
                result.push_back(one);
            }
        }
        return result;
    }

    // Runs one operation that can run, or waits for the one that another thread runs. False when there is none.
    bool run_any(lock & held) {
        if (is_busy_) {
            changed_.wait(held);
            return true;
        }
        std::vector<operation_ref> ready;
        for (const auto & [number, one] : pending_) {
            if (one->is_ready()) {
                ready.push_back(one);
            }
        }
        if (ready.empty()) {
            return false;
        }
        run(held, ready[random_() % ready.size()]);
        return true;
    }

    void run_or_wait(lock & held, const operation_ref & one) {
        if (is_busy_) {
            changed_.wait(held);
        } else {
            run(held, one);
        }
    }

    // Others may add operations meanwhile, but one runs at a time.
    void run(lock & held, const operation_ref & one) {
        is_busy_ = true;
        held.unlock();
        is_running = true;
        try {
            one->todo();
        } catch (const std::exception & error) {
            fault(error.what());
        }
        is_running = false;
        held.lock();
        is_busy_     = false;
        one->is_done = true;
        one->done_at = std::chrono::steady_clock::now();
        one->todo    = nullptr;
        one->after.clear();
        pending_.erase(one->number);
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<uint64_t, operation_ref> pending_;
    uint64_t next_ = 0;
    bool is_busy_  = false;
    std::mt19937_64 random_;
    uint64_t laziness_; // of 4 times, how often nothing runs before something waits
    std::vector<stream_ref> blocking_;
    stream_ref legacy_ = std::make_shared<stream_state>(stream_state{0, 0, {}, {}, false, {}});
};

// Used in destructors of other libraries: what is made here has to outlive them.

scheduler & the_scheduler() {
    static auto * made = new scheduler;
    return *made;
}

handle_map<stream_state> & streams() {
    static auto * made = new handle_map<stream_state>;
    return *made;
}

handle_map<event_state> & events() {
    static auto * made = new handle_map<event_state>;
    return *made;
}

// Null when there is no such stream.
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

// A call that may not be made while the stream is captured makes the capture useless.
hipError_t refuse_captured(const stream_state & stream) {
    if (stream.captured == nullptr) {
        return hipSuccess;
    }
    stream.captured->is_invalid = true;
    return hipErrorStreamCaptureUnsupported;
}

// A host function must not make calls that wait for operations: it is one.
hipError_t refuse_inside() { return is_running ? hipErrorNotSupported : hipSuccess; }

hipError_t add_work(hipStream_t handle, work todo, bool waits) {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    const stream_ref stream = state_of(handle);
    if (stream == nullptr) {
        return hipErrorInvalidHandle;
    }
    auto held = the_scheduler().locked();
    if (stream->captured != nullptr) {
        if (waits) {
            return refuse_captured(*stream);
        }
        capture_work(*stream, std::move(todo));
        return hipSuccess;
    }
    stream->last = the_scheduler().add(the_scheduler().order_of(stream), std::move(todo));
    const operation_ref added = stream->last;
    the_scheduler().go_on(held, added);
    if (waits) {
        the_scheduler().finish(held, {added});
    }
    return hipSuccess;
}

} // namespace

bool is_stream(const void * stream) {
    return stream == nullptr || stream == hipStreamLegacy || stream == hipStreamPerThread ||
           streams().find(stream) != nullptr;
}

hipError_t enqueue(hipStream_t stream, work todo) { return add_work(stream, std::move(todo), false); }

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
    the_scheduler().finish(held, the_scheduler().ends_of(stream));
    return hipSuccess;
}

hipError_t wait_for_all() {
    if (const hipError_t error = refuse_inside(); error != hipSuccess) {
        return error;
    }
    auto held = the_scheduler().locked();
    the_scheduler().finish_all(held);
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
    for (const operation_ref & one : the_scheduler().ends_of(stream)) {
        if (is_running || !the_scheduler().ask(held, one)) {
            return hipErrorNotReady;
        }
    }
    return hipSuccess;
}

hipStream_t make_stream(unsigned flags, int priority) {
    const auto held = the_scheduler().locked();
    return static_cast<hipStream_t>(streams().make(the_scheduler().add_stream(flags, priority)));
}

// What is still to be done in it is done all the same.
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
    }
    return hipSuccess;
}

// Through an event that was captured its stream draws this one into the capture.
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
    if (event->recorded != nullptr && !event->recorded->is_done) {
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
    if (recorded == nullptr || recorded->is_done) {
        return hipSuccess;
    }
    return !is_running && the_scheduler().ask(held, recorded) ? hipSuccess : hipErrorNotReady;
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

// Whether every node is one that these come after, or one of these.
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

const std::string & schedule_name() { return the_settings().name; }
uint64_t shuffle_seed() { return the_settings().seed; }

} // namespace patchkit
