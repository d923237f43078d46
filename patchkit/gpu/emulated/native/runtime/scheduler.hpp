// Operations and their scheduling: the implementation of schedule.hpp.
#pragma once

#include "happens_before.hpp"
#include "schedule.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace patchkit {

struct operation {
    uint64_t number; // its dependencies have smaller ones
    work todo;
    std::vector<std::shared_ptr<operation>> after;
    bool is_done = false;
    std::chrono::steady_clock::time_point done_at;
    moment_ref when; // null if the order is not tracked
    int asked = 0; // number of queries whether it is done

    bool is_ready() const;
};

using operation_ref = std::shared_ptr<operation>;

// A graph being captured, and whether a call invalidated it.
struct capture {
    unsigned long long id;
    graph made;
    bool is_invalid = false;
};

struct stream_state {
    unsigned flags;
    int priority;
    operation_ref last;                // null, or done, if there is nothing to wait for
    std::shared_ptr<capture> captured; // null if not capturing
    bool is_origin = false;            // of the capture
    std::vector<size_t> frontier;      // dependencies of the next node

    bool is_blocking() const { return (flags & hipStreamNonBlocking) == 0; }
};

using stream_ref = std::shared_ptr<stream_state>;

// Whether this thread runs an operation: then it must not wait for or add one.
bool runs_operation();

class scheduler {
  public:
    using lock = std::unique_lock<std::mutex>;

    scheduler();

    // Held while streams, events and operations are accessed. Functions that take it may release it temporarily.
    lock locked() { return lock(mutex_); }

    const stream_ref & legacy() const { return legacy_; }

    stream_ref add_stream(unsigned flags, int priority);

    template <typename Do> void for_each_blocking(Do todo) {
        for (const stream_ref & one : blocking_) {
            todo(*one);
        }
    }

    // Dependencies of the next operation of a stream: the previous operation of the stream; for the default stream
    // those of all streams that block with it, and vice versa (HIP: "legacy default stream").
    std::vector<operation_ref> order_of(const stream_ref & stream);

    // Operations to wait for when waiting for the stream. The default stream waits for those that block with it (clr
    // f9f995c6d, hip_context.cpp: getStream).
    std::vector<operation_ref> ends_of(const stream_ref & stream);

    operation_ref add(std::vector<operation_ref> after, work todo);

    // Lets the schedule act on a new operation; in-order runs everything.
    void go_on(lock & held, const operation_ref & added);

    // Runs until all of them are done.
    void finish(lock & held, const std::vector<operation_ref> & wanted);
    void finish_all(lock & held);

    // Whether it is done; repeated queries cause it to run.
    bool ask(lock & held, const operation_ref & one);

    // For fork(): only the forking thread exists in the child.
    void before_fork() { mutex_.lock(); }
    void after_fork(bool is_child);
    bool is_inherited() const { return is_inherited_; }

  private:
    void wait_for_other(lock & held);
    bool run_any(lock & held);
    void run_or_wait(lock & held, const operation_ref & one);
    void run(lock & held, const operation_ref & one);

    std::mutex mutex_;
    std::condition_variable changed_; // an operation completed
    std::map<uint64_t, operation_ref> pending_;
    uint64_t next_ = 0;
    std::chrono::steady_clock::time_point last_done_; // completion times are distinct
    bool is_busy_      = false;
    bool is_inherited_ = false; // by a forked process
    bool is_cut_off_   = false; // the running thread exists only in the parent process
    std::mt19937_64 random_;
    uint64_t laziness_; // out of 4 times, how often nothing runs before something waits
    std::vector<stream_ref> blocking_;
    stream_ref legacy_;
};

scheduler & the_scheduler();

} // namespace patchkit
